"""TLS between simulated hosts: named certificates, and a handshake of two flights, without ciphers.

OpenSSL draws random numbers that no seed could replay. What matters to nodes is here: whom a certificate names, who issued it, until
when it holds, for which host it is, and what happens to a connection whose other end shows a wrong one, or none.

    client  → hello, and the host that it wants
    server  → its certificate
    client  → its own certificate, or none

A client goes on after its own message, as in TLS 1.3. A server that does not believe it closes the connection.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ottla.runtime import Identity, TlsRefused
from ottla.runtime.tls_options import TlsOptions
from ottla.sim.engine.tcp import TcpSocket

if TYPE_CHECKING:
    from ottla.runtime import Clock

logger = logging.getLogger(__name__)

HELLO, CERTIFICATE, NOTHING = "toy hello ", "toy certificate ", "toy nothing"
MESSAGE_BYTES_MAX = 1_000
FOREVER_MS = 2**53
CIPHER = "toy"


class ToyCertificate(NamedTuple):
    name: str
    """The common name. It has no spaces, like all the words of a certificate."""
    host: str
    authority: str
    not_after_ms: int = FOREVER_MS

    def text(self) -> str:
        """As it is written in settings, and sent."""
        return " ".join(map(str, self))

    @staticmethod
    def parse(text: str) -> ToyCertificate:
        """ValueError if it is none."""
        name, host, authority, not_after_ms = text.split()
        return ToyCertificate(name, host, authority, int(not_after_ms))

    def der(self) -> bytes:
        """As much of DER as is needed to read the subject's name."""
        name = _der(0x30, _der(0x06, b"\x55\x04\x03") + _der(0x0C, self.name.encode()))
        empty = _der(0x30, b"")
        subject = _der(0x30, _der(0x31, name))
        return _der(0x30, _der(0x30, _der(0x02, b"\x01") + empty * 3 + subject + empty))

    def problem(self, trusted: frozenset[str], now_ms: int) -> str | None:
        if self.authority not in trusted:
            return f"unknown authority {self.authority}"
        if now_ms > self.not_after_ms:
            return "the certificate has expired"
        return None


def _der(tag: int, content: bytes) -> bytes:
    assert len(content) < 128, "a toy certificate is short"
    return bytes((tag, len(content))) + content


class ToyTls:
    """`Tls`, from options whose texts are toy certificates, and names of authorities."""

    def __init__(self, options: TlsOptions, clock: Clock) -> None:
        self.clock = clock
        self.handshakes_failed = 0
        self._take(options)

    def _take(self, options: TlsOptions) -> None:
        keys, trust = options.key_store, options.trust_store
        try:
            chain = None if keys is None else keys.certificate_chain
            self.own = None if chain is None else ToyCertificate.parse(chain.reveal())
        except ValueError as error:
            raise TlsRefused(f"listener {options.listener}: {error}") from error
        named = None if trust is None else trust.certificates
        self.trusted = frozenset(() if named is None else named.reveal().split())
        self.options = options

    @property
    def certificate(self) -> bytes | None:
        return None if self.own is None else self.own.der()

    def names_host(self, host: str) -> bool:
        return self.own is not None and self.own.host == host

    def refresh(self, options: TlsOptions | None = None) -> bool:
        if options is None:
            return False  # there are no files that could change
        self._take(options)
        return True

    def check(self, options: TlsOptions) -> None:
        ToyTls(options, self.clock)


class _Handshake(ABC):
    """One end, until it is over. It uses the socket meanwhile."""

    def __init__(self, tls: ToyTls, tcp: TcpSocket) -> None:
        self._tls = tls
        self._tcp = tcp
        self._rest = b""
        tcp.user = self

    def writable(self) -> None:
        return  # the messages are short: there is always room

    def readable(self) -> None:
        if self._tcp.user is not self:
            return
        self._rest += self._tcp.read()
        try:
            while self._tcp.user is self and (message := self._next()) is not None:
                self._received(message)
            if self._tcp.user is self and (self._tcp.ended or self._tcp.error is not None):
                raise ValueError("the other end is gone")
        except ValueError as error:
            self._failed(str(error))

    def _next(self) -> str | None:
        if len(self._rest) < 4:
            return None
        size = int.from_bytes(self._rest[:4])
        if size > MESSAGE_BYTES_MAX:
            raise ValueError("this is no handshake")
        if len(self._rest) < 4 + size:
            return None
        message, self._rest = self._rest[4 : 4 + size], self._rest[4 + size :]
        return message.decode()  # UnicodeDecodeError is a ValueError

    def _send(self, message: str) -> None:
        data = message.encode()
        if not self._tcp.gone:
            self._tcp.write(len(data).to_bytes(4) + data)

    @abstractmethod
    def _received(self, message: str) -> None: ...

    @abstractmethod
    def _failed(self, why: str) -> None: ...


class ServerHandshake(_Handshake):
    def __init__(
        self,
        tls: ToyTls,
        tcp: TcpSocket,
        done: Callable[[Identity, bytes], None],
    ) -> None:
        """`done` gets what the client has proved, and bytes that came behind the handshake."""
        super().__init__(tls, tcp)
        self._done = done
        self._greeted = False
        self._timer = asyncio.get_running_loop().call_later(
            tls.options.handshake_timeout_s, lambda: self._failed("it took too long")
        )

    def _received(self, message: str) -> None:
        tls = self._tls
        if not self._greeted:
            if not message.startswith(HELLO) or tls.own is None:
                raise ValueError("this is no handshake")
            self._greeted = True
            self._send(CERTIFICATE + tls.own.text())
            return
        shown: ToyCertificate | None = None
        if message != NOTHING and tls.options.client_auth != "none":
            shown = ToyCertificate.parse(message.removeprefix(CERTIFICATE))
            problem = shown.problem(tls.trusted, tls.clock.wall_ms())
            if problem is not None:
                raise ValueError(problem)
        if shown is None and tls.options.client_auth == "required":
            raise ValueError("no certificate")
        self._timer.cancel()
        self._done(
            Identity(certificate=None if shown is None else shown.der(), tls=CIPHER), self._rest
        )

    def _failed(self, why: str) -> None:
        self._timer.cancel()
        if self._tcp.user is self:
            self._tcp.user = None
            self._tls.handshakes_failed += 1
            logger.info("closing connection, TLS handshake failed reason=%s", why)
            self._tcp.close()


class ClientHandshake(_Handshake):
    def __init__(self, tls: ToyTls, tcp: TcpSocket, host: str) -> None:
        super().__init__(tls, tcp)
        self._host = host
        self._over: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._send(HELLO + host)

    async def over(self) -> bytes:
        """Bytes that came behind the handshake. ConnectionError says why it failed."""
        try:
            return await self._over
        except BaseException:
            self._tcp.user = None
            self._tcp.close()
            raise

    def _received(self, message: str) -> None:
        tls = self._tls
        shown = ToyCertificate.parse(message.removeprefix(CERTIFICATE))
        problem = shown.problem(tls.trusted, tls.clock.wall_ms())
        if problem is None and tls.options.check_host and shown.host != self._host:
            problem = f"the certificate is for {shown.host}, not for {self._host}"
        if problem is not None:
            raise ValueError(problem)
        self._send(NOTHING if tls.own is None else CERTIFICATE + tls.own.text())
        self._tcp.user = None
        if not self._over.done():
            self._over.set_result(self._rest)

    def _failed(self, why: str) -> None:
        self._tcp.user = None
        if not self._over.done():
            self._over.set_exception(ConnectionError(f"TLS handshake with {self._host}: {why}"))
