"""TLS on the real machine: contexts, handshakes, and connections whose bytes OpenSSL encrypts on their way.

A `TlsStream` is used as a non-blocking socket is. So a `TlsConnection` is a `SocketConnection` that reads and writes
differently: decrypted bytes come into the shared buffer, or straight into a large frame's own. asyncio's TLS transports
copy them more often.

Only a node with TLS imports this module, and `cryptography` with it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias, cast

from ottla.runtime.frame_memory import ReceiveMemory
from ottla.runtime.framed_connection import FrameRefused, ShortFile, error_reason
from ottla.runtime.seams import AcceptedConnection, Buffer, FileRange, FrameReceiver, Identity
from ottla.runtime.socket_connection import (
    WRITE_BYTES_PER_TURN,
    SocketConnection,
    _read_whole,
    address_of,
)
from ottla.runtime.tls_options import TlsOptions
from ottla.runtime.tls_stores import LoadedStores, load_stores, readable_path, refusing
from ottla.runtime.tls_stream import BARE_BYTES_MAX, BareBytes, TlsStream

logger = logging.getLogger(__name__)

RECORD_BYTES = 16 * 1024
"""The most that one record of TLS carries. One read gives at most one record."""
RECORDS_PER_TURN = 32
PIECE_BYTES = 64 * 1024
"""What is written at a time. A write that could not be finished must be repeated with the same bytes, and only a whole one
counts as taken: with longer ones a slow reader would look dead."""
HANDSHAKES_PER_TURN = 4
"""A handshake costs up to a millisecond of the loop. Between so many of them, other connections have their turn."""
KEY_EXCHANGE = "prime256v1"
"""The one group in which a listener agrees on keys. OpenSSL's own list ends with ffdhe8192: a stranger who asks for it, and
computes nothing, costs the loop a fifth of a second (D(HE)at, CVE-2002-20001). Python can name a single group only; this one
every client knows. Who has guessed another one is told, and begins again."""
HANDSHAKE = 0x16
"""The first byte of whoever begins to speak TLS."""


def handshake_problem(problem: Exception) -> str:
    """Why a handshake failed, for people."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"the certificate of the other side is refused: {problem.verify_message}"
    if _is_cut(problem):
        return "the other side closed the connection within the handshake"
    if isinstance(problem, ssl.SSLError):
        reason = problem.reason or str(problem)
        return _REASONS.get(reason, reason.replace("_", " ").lower())
    if isinstance(problem, OSError):
        return error_reason(problem)
    return str(problem)


_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client showed no certificate, and ssl.client.auth=required",
    "UNSUPPORTED_PROTOCOL": "no version of TLS in common (ssl.enabled.protocols)",
    "NO_SHARED_CIPHER": "no cipher in common (ssl.cipher.suites)",
    "NO_SUITABLE_KEY_SHARE": "the client does not know the curve P-256",
    "WRONG_CURVE": "with TLS 1.2, a client's certificate needs a key of RSA or of the curve P-256",
    "TLSV1_ALERT_UNKNOWN_CA": "the other side does not believe our certificate authority",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the other side refuses our certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the other side refuses our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the other side says that our certificate has expired",
    "WRONG_VERSION_NUMBER": "the other side does not speak TLS",
}


class TlsConnection(SocketConnection):
    """One connection through TLS, after its handshake."""

    __slots__ = (
        "_read_wants_write",
        "_secured",
        "_tls",
        "_unfinished",
        "_write_wants_read",
        "root",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        memory: ReceiveMemory,
        connected: TlsStream,
        frame_bytes_max: int,
        tls: RealTls,
        *,
        accepted: bool,
        handshake_s: float = 0.0,
    ) -> None:
        super().__init__(
            loop, memory, cast("socket.socket", connected), frame_bytes_max, accepted=accepted
        )
        self._secured = connected
        self._tls = tls
        self._unfinished = False
        """The first of the queue is a piece that OpenSSL has begun to write."""
        self._read_wants_write = False
        self._write_wants_read = False
        chain = _verified_chain(connected.tls)
        self.root = chain[-1] if chain else None
        """The certificate authority by which the other end is believed."""
        self.identity = Identity(
            certificate=chain[0] if chain else None,
            tls=f"{connected.tls.version()} {(connected.tls.cipher() or ('?',))[0]}",
            handshake_s=handshake_s,
        )
        tls.connections[self] = None

    # Receiving

    def _resume(self) -> None:
        super()._resume()
        if self._reading and self._secured.pending():
            # The system says nothing about bytes that OpenSSL has already.
            self._loop.call_soon(self._readable)

    def _update_reading(self) -> None:
        wanted = self._receiver is not None and not self._is_held_back
        watched = wanted or (self._write_wants_read and not self._closed)
        was_watched = self._reading or self._write_wants_read
        self._reading = wanted
        if watched and not was_watched:
            self._loop.add_reader(self._fd, self._readable)
        elif was_watched and not watched:
            self._loop.remove_reader(self._fd)

    def start(self, receiver: FrameReceiver) -> None:
        super().start(receiver)
        if self._secured.pending():
            self._loop.call_soon(self._readable)

    def _readable(self) -> None:
        if self._write_wants_read:
            self._write_wants_read = False
            if not self._reading:
                self._loop.remove_reader(self._fd)
            self._flush()
        super()._readable()

    def _receive(self) -> None:
        for _ in range(RECORDS_PER_TURN):
            if not self._reading:
                return
            try:
                if self._large is not None:
                    self._receive_large(self._large)
                else:
                    self._receive_small()
                if self._closed or not self._secured.pending():
                    # The system tells of what comes next. Reading on would mostly end in an exception.
                    return
            except ssl.SSLWantReadError:
                return
            except ssl.SSLWantWriteError:
                self._read_wants_write = True
                self._watch_writing()
                return
            except BareBytes as problem:
                logger.info(
                    "closing connection, it sends TLS without data peer=%s:%d listener=%s bytes_max=%d",
                    *self.peer,
                    self._tls.options.listener,
                    BARE_BYTES_MAX,
                )
                self._lose(str(problem))
                return
            except OSError as problem:
                self._lose(_reason(problem))
                return
            except (MemoryError, BufferError) as problem:
                self._lose(f"no buffer for a frame: {problem}")
                return
        if self._reading:
            self._loop.call_soon(self._readable)

    # Sending

    def _watch_writing(self) -> None:
        if not self._writing:
            self._writing = True
            self._loop.add_writer(self._fd, self._writable)

    def _writable(self) -> None:
        if self._read_wants_write:
            self._read_wants_write = False
            super()._readable()
        self._flush()

    def _flush(self) -> None:
        if self._closed:
            return
        budget = WRITE_BYTES_PER_TURN
        try:
            while self._queue and budget > 0:
                piece = self._next_piece()
                self._queue.appendleft(piece)
                self._unfinished = True
                sent = self._secured.send(piece)
                self._unfinished = False
                self._queue.popleft()
                if sent < len(piece):  # a Python whose OpenSSL takes parts
                    self._queue.appendleft(memoryview(piece)[sent:])
                budget -= sent
                self._queued_bytes -= sent
        except ssl.SSLWantWriteError:
            self._watch_writing()
        except ssl.SSLWantReadError:
            self._wait_to_read()
        except OSError as problem:
            self._lose(_reason(problem))
            return
        if budget < WRITE_BYTES_PER_TURN:
            self._active_at = self.now()
            if self.marks and not self._queue and self.sent is not None:
                self.sent += ((self._active_at, self.marks),)
                self.marks = []
        if self._writing and not (self._queue or self._read_wants_write):
            self._writing = False
            self._loop.remove_writer(self._fd)
        elif self._queue and budget <= 0 and not (self._writing or self._flush_scheduled):
            self._flush_scheduled = True
            self._schedule_flush(self._scheduled_flush)
        if self._closing or self._choked:
            self._flushed()

    def _wait_to_read(self) -> None:
        if not self._write_wants_read:
            if not self._reading:
                self._loop.add_reader(self._fd, self._readable)
            self._write_wants_read = True

    def _next_piece(self) -> Buffer:
        """What is written next, taken from the queue. Small answers are joined, so that they share a record."""
        queue = self._queue
        if self._unfinished:
            return queue.popleft()  # type: ignore[return-value]
        parts: list[Buffer] = []
        room = PIECE_BYTES
        while queue and room > 0:
            chunk = queue[0]
            if isinstance(chunk, FileRange):
                if chunk.in_memory is None and chunk.size > room:
                    data = chunk.file.read_at(chunk.position, room)
                    if len(data) < room:
                        raise ShortFile
                    queue[0] = chunk.after(room)
                    parts.append(data)
                    break
                chunk = _read_whole(chunk)
            if len(chunk) > room:
                queue[0] = memoryview(chunk)[room:]
                parts.append(memoryview(chunk)[:room])
                break
            queue.popleft()
            parts.append(chunk)
            room -= len(chunk)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    # The end

    def _release(self) -> None:
        self._tls.connections.pop(self, None)
        if self._write_wants_read:
            self._write_wants_read = False
            if not self._reading:
                self._loop.remove_reader(self._fd)
        if self._closing and not self._unfinished:
            with suppress(OSError, ValueError):
                self._secured.unwrap()
        super()._release()

    def distrusted(self) -> None:
        if not self._closed:
            logger.info(
                "closing connection, its certificate authority was removed peer=%s listener=%s",
                self.peer,
                self._tls.options.listener,
            )
            self.abort()


def _reason(problem: OSError) -> str:
    if _is_cut(problem):
        return "cut by the peer or the network, without TLS's farewell"
    if isinstance(problem, ssl.SSLError):
        return f"TLS: {handshake_problem(problem)}"
    return error_reason(problem)


def _is_cut(problem: Exception) -> bool:
    """OpenSSL 3 and Python have two words for it."""
    return isinstance(problem, ssl.SSLEOFError) or (
        isinstance(problem, ssl.SSLError) and problem.reason == "UNEXPECTED_EOF_WHILE_READING"
    )


def _verified_chain(connected: ssl.SSLObject) -> list[bytes]:
    """DER of the certificates by which the other end is believed, its own first; empty if it showed none."""
    leaf = connected.getpeercert(binary_form=True)
    if leaf is None or connected.context.verify_mode == ssl.CERT_NONE:
        return []
    if hasattr(connected, "get_verified_chain"):  # Python 3.13
        return list(connected.get_verified_chain())
    found: Any = connected._sslobj.get_verified_chain()  # type: ignore[attr-defined]
    return [ssl.PEM_cert_to_DER_cert(each.public_bytes()) for each in found]


_Arrived: TypeAlias = socket.socket | TlsStream
"""A new connection, before and after its first byte."""


class _Handshake(NamedTuple):
    """One that is under way. `secured` is the socket itself until the first byte has come."""

    peer: tuple[str, int]
    began: float
    timer: asyncio.TimerHandle
    memory: ReceiveMemory
    frame_bytes_max: int
    accept: Callable[[AcceptedConnection], FrameReceiver]


class Handshakes:
    """Those of a listener's new connections. They are few at a time, they have a deadline, and a peer that never says anything
    costs a descriptor and nothing else."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tls: RealTls) -> None:
        self._loop = loop
        self._tls = tls
        self._under_way: dict[_Arrived, _Handshake] = {}
        self._ready: deque[_Arrived] = deque()
        self._is_scheduled = False
        """`_take_turns` comes."""
        self._has_told_fault = False

    def __len__(self) -> int:
        return len(self._under_way)

    def accepted(
        self,
        connected: socket.socket,
        memory: ReceiveMemory,
        frame_bytes_max: int,
        accept: Callable[[AcceptedConnection], FrameReceiver],
    ) -> None:
        options = self._tls.options
        peer = address_of(connected.getpeername())
        timer = self._loop.call_later(options.handshake_timeout_s, self._too_late, connected)
        self._under_way[connected] = _Handshake(
            peer, self._loop.time(), timer, memory, frame_bytes_max, accept
        )
        self._loop.add_reader(connected.fileno(), self._readable, connected)
        if len(self._under_way) > options.handshakes_max:
            self._fail(next(iter(self._under_way)), "too many handshakes are under way")

    def close(self) -> None:
        for connected in list(self._under_way):
            self._end(connected)
            connected.close()

    def _readable(self, connected: _Arrived) -> None:
        """Its turn comes, not necessarily now."""
        self._loop.remove_reader(connected.fileno())
        self._ready.append(connected)
        self._schedule()

    def _writable(self, connected: _Arrived) -> None:
        self._loop.remove_writer(connected.fileno())
        self._step(connected)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._take_turns)

    def _take_turns(self) -> None:
        self._is_scheduled = False
        try:
            for _ in range(min(HANDSHAKES_PER_TURN, len(self._ready))):
                self._step(self._ready.popleft())
        finally:
            # Whatever happened to one of them: the others must have their turn.
            if self._ready:
                self._schedule()

    def _step(self, connected: _Arrived) -> None:
        """What goes wrong loses this connection, and no other."""
        if connected not in self._under_way:
            return  # given up since
        try:
            if not isinstance(connected, TlsStream):
                secured = self._begin(connected)
                if secured is None:
                    return
                connected = secured
            connected.do_handshake()
        except ssl.SSLWantReadError:
            self._loop.add_reader(connected.fileno(), self._readable, connected)
        except ssl.SSLWantWriteError:
            self._loop.add_writer(connected.fileno(), self._writable, connected)
        except BlockingIOError:
            self._loop.add_reader(connected.fileno(), self._readable, connected)
        except (OSError, ValueError) as problem:
            self._fail(connected, handshake_problem(problem))
        except Exception as problem:
            self._fault(connected, problem)
        else:
            self._done(connected)

    def _begin(self, connected: socket.socket) -> TlsStream | None:
        """The first bytes are here: TLS begins, or the peer speaks something else. None: it is over."""
        begins = connected.recv(16, socket.MSG_PEEK)
        if not begins:
            # Somebody looked whether we are there, as other nodes do.
            self._end(connected)
            connected.close()
            return None
        if begins[0] != HANDSHAKE:
            other = FrameRefused(0, 0, begins).protocol
            hint = f"{other}" if other else "plain Kafka, or something else without TLS"
            # What stays unread would reset the connection, and the peer would take that for a broken network.
            connected.recv(RECORD_BYTES)
            self._fail(connected, f"the peer seems to speak {hint}")
            return None
        secured = self._tls.accept(connected)  # fails if the peer has reset the connection
        handshake = self._under_way.pop(connected)
        handshake.timer.cancel()
        left_s = handshake.timer.when() - self._loop.time()
        timer = self._loop.call_later(max(0.0, left_s), self._too_late, secured)
        self._under_way[secured] = handshake._replace(timer=timer)
        return secured

    def _done(self, secured: TlsStream) -> None:
        handshake = self._under_way[secured]
        try:
            refused = self._tls.handshake_is_over(secured)
            if refused is not None:
                self._fail(secured, refused)
                return
            self._end(secured)
            connection = TlsConnection(
                self._loop,
                handshake.memory,
                secured,
                handshake.frame_bytes_max,
                self._tls,
                accepted=True,
                handshake_s=self._loop.time() - handshake.began,
            )
        except OSError as problem:  # already gone again
            logger.debug("accept failed peer=%s error=%s", handshake.peer, problem)
            self._end(secured)
            secured.close()
            return
        except Exception as problem:
            self._fault(secured, problem)
            return
        connection.start_accepted(handshake.accept)

    def _too_late(self, connected: _Arrived) -> None:
        self._fail(connected, "it was not over in time (ottla.authentication.timeout.ms)")

    def _fail(self, connected: _Arrived, reason: str) -> None:
        handshake = self._end(connected)
        connected.close()
        if handshake is not None:
            self._say(handshake.peer, reason)

    def _fault(self, connected: _Arrived, problem: Exception) -> None:
        """Nobody foresaw this. Strangers may be able to repeat it, so the whole of it is told once."""
        if not self._has_told_fault:
            self._has_told_fault = True
            logger.error(
                "a TLS handshake raised an exception listener=%s",
                self._tls.options.listener,
                exc_info=problem,
            )
        self._fail(connected, f"{type(problem).__name__} in the handshake")

    def _say(self, peer: tuple[str, int], reason: str) -> None:
        self._tls.handshakes_failed += 1
        logger.info(
            "TLS handshake failed peer=%s:%d listener=%s reason=%s",
            *peer,
            self._tls.options.listener,
            reason,
        )

    def _end(self, connected: _Arrived) -> _Handshake | None:
        """None if it has ended before."""
        handshake = self._under_way.pop(connected, None)
        if handshake is not None:
            handshake.timer.cancel()
        if (
            descriptor := connected.fileno()
        ) >= 0:  # OpenSSL's wrapping may have taken it, and failed
            self._loop.remove_reader(descriptor)
            self._loop.remove_writer(descriptor)
        return handshake


class RealTls:
    """`Tls` by OpenSSL. Each change of the stores makes new contexts: new connections use them, and old ones live on."""

    def __init__(self, options: TlsOptions) -> None:
        """TlsRefused if the stores cannot be used."""
        self.options = options
        self.handshakes_failed = 0
        self.connections: dict[TlsConnection, None] = {}
        self._stores = load_stores(options)
        with refusing(f"stores of listener {options.listener}"):
            self._server = self._server_context(options, self._stores)
            self._client = self._client_context(options, self._stores)

    @property
    def certificate(self) -> bytes | None:
        return self._stores.certificate

    def names_host(self, host: str) -> bool:
        return self._stores.names is not None and self._stores.names.fits(host)

    # Connections

    def handshakes(self, loop: asyncio.AbstractEventLoop) -> Handshakes:
        return Handshakes(loop, self)

    def accept(self, connected: socket.socket) -> TlsStream:
        assert self._server is not None, "a listener has a key store"
        return TlsStream(connected, self._server, server_side=True)

    def handshake_is_over(self, secured: TlsStream) -> str | None:
        """Why the connection is refused nevertheless.

        A resumed session would outlive a certificate authority that was removed. Python cannot turn off the sessions that
        OpenSSL's servers remember for TLS 1.2, so a context that may remember one is not used again."""
        if self.options.client_auth == "none" or secured.tls.version() != "TLSv1.2":
            return None
        if secured.tls.context is self._server:
            self._server = self._server_context(self.options, self._stores)
        return (
            "a session was resumed, and client certificates count"
            if secured.tls.session_reused
            else None
        )

    async def connect(
        self,
        loop: asyncio.AbstractEventLoop,
        memory: ReceiveMemory,
        connected: socket.socket,
        host: str,
        frame_bytes_max: int,
    ) -> TlsConnection:
        """OSError if the other end is not who it should be. The caller closes the socket then."""
        secured = TlsStream(connected, self._client, server_hostname=host)
        try:
            await _handshake(loop, secured)
            return TlsConnection(loop, memory, secured, frame_bytes_max, self, accepted=False)
        except BaseException as problem:
            secured.close()
            if isinstance(problem, OSError):
                said = handshake_problem(problem)
                raise ConnectionError(errno.EPROTO, f"no TLS with {host}: {said}") from problem
            raise

    # Changes

    def refresh(self, options: TlsOptions | None = None) -> bool:
        if options is None and not self._stores.have_changed():
            return False
        wanted = options or self.options
        try:
            stores, server, client = self._made_of(wanted)
        except Exception:
            self._stores.seen_now()  # once said, not again every second
            raise
        removed = set(self._stores.anchors) - set(stores.anchors)
        self.options, self._stores, self._server, self._client = wanted, stores, server, client
        if removed:
            for connection in list(self.connections):
                if connection.root in removed:
                    connection._loop.call_later(
                        wanted.trust_removed_grace_ms / 1000, connection.distrusted
                    )
        return True

    def check(self, options: TlsOptions) -> None:
        self._made_of(options)

    def _made_of(
        self, options: TlsOptions
    ) -> tuple[LoadedStores, ssl.SSLContext | None, ssl.SSLContext]:
        stores = load_stores(options)
        stores.check_successor_of(self._stores, options)
        with refusing(f"stores of listener {options.listener}"):
            server = self._server_context(options, stores)
            client = self._client_context(options, stores)
            self._check_among_nodes(options, server, client)
        return stores, server, client

    def _check_among_nodes(
        self, options: TlsOptions, server: ssl.SSLContext | None, client: ssl.SSLContext
    ) -> None:
        """Where certificates are required of both, nodes with the old stores and with the new ones must be able to talk."""
        if options.client_auth != "required" or server is None or self._server is None:
            return
        for one, other in ((self._client, server), (client, self._server)):
            try_handshake(one, other)

    @staticmethod
    def _server_context(options: TlsOptions, stores: LoadedStores) -> ssl.SSLContext | None:
        if stores.pem is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _configure(context, options, stores)
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
        context.set_ecdh_curve(KEY_EXCHANGE)
        if options.client_auth != "none":
            context.verify_mode = (
                ssl.CERT_REQUIRED if options.client_auth == "required" else ssl.CERT_OPTIONAL
            )
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
        return context

    @staticmethod
    def _client_context(options: TlsOptions, stores: LoadedStores) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _configure(context, options, stores)
        context.check_hostname = options.check_host
        return context


def _configure(context: ssl.SSLContext, options: TlsOptions, stores: LoadedStores) -> None:
    versions = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
    allowed = sorted(versions[name] for name in options.protocols)
    context.minimum_version, context.maximum_version = allowed[0], allowed[-1]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    # Python's default takes a stream that was cut for one that has ended.
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    context.set_ciphers(":".join(options.ciphers) or "ECDHE+AESGCM:ECDHE+CHACHA20")
    if stores.anchors:
        context.load_verify_locations(cadata=b"".join(stores.anchors))
    if stores.pem is not None:
        with readable_path(stores.pem) as path:
            context.load_cert_chain(path, password=stores.key_password or "")


async def _handshake(loop: asyncio.AbstractEventLoop, secured: TlsStream) -> None:
    while True:
        ready: asyncio.Future[None] = loop.create_future()

        def wake(ready: asyncio.Future[None] = ready) -> None:
            if not ready.done():
                ready.set_result(None)

        try:
            secured.do_handshake()
            return
        except ssl.SSLWantReadError:
            loop.add_reader(secured.fileno(), wake)
            stop = loop.remove_reader
        except ssl.SSLWantWriteError:
            loop.add_writer(secured.fileno(), wake)
            stop = loop.remove_writer
        try:
            await ready
        finally:
            stop(secured.fileno())


def try_handshake(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """In memory, without a host to check. TlsRefused if the two do not come together."""
    from ottla.runtime.seams import TlsRefused

    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    checks, client.check_hostname = client.check_hostname, False
    ends = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server),
    ]
    client.check_hostname = checks
    try:
        for _ in range(10):
            for end in list(ends):
                with suppress(ssl.SSLWantReadError):
                    end.do_handshake()
                    ends.remove(end)
            if not ends:
                return
    except (OSError, ValueError) as problem:
        raise TlsRefused(
            f"nodes with the old and with the new stores would not trust each other: {handshake_problem(problem)}"
        ) from None
    raise TlsRefused("nodes with the old and with the new stores would not come together")


def make_tls(options: TlsOptions) -> RealTls:
    return RealTls(options)


__all__ = ["Handshakes", "RealTls", "TlsConnection", "handshake_problem", "make_tls"]
