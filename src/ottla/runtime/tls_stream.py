"""TLS over a non-blocking socket, with a bound on what one call works through.

OpenSSL reads on, within one call, until a byte of the application has come. A peer that sends nothing but changes of keys
(TLS 1.3's KeyUpdate, 27 bytes each) would keep it, and with it the event loop, for as long as it likes. So OpenSSL does not
get the socket: it gets portions of what came, one for each call. A peer whose bytes say nothing is told apart, too, from one
whose records are small: it is cut off.

`TlsStream` is used as an `ssl.SSLSocket` is. One `recv` for a portion replaces two for each record, so it is no slower.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from typing import Any, cast

from ottla.runtime.seams import Buffer

PORTION_BYTES = 32 * 1024
"""What one call takes from the socket. A thousand changes of keys fit in: some milliseconds."""
RECORD_OVERHEAD = 32
"""What a record may add to its content: 22 bytes with TLS 1.3, 29 with 1.2."""
BARE_BYTES_MAX = 48 * 1024
"""A peer is cut off after so many bytes that carried nothing. An unfinished record has up to 16 KiB of them; clients change
their keys after gigabytes."""


class BareBytes(OSError):
    """The peer sends bytes of TLS and nothing in them."""

    def __str__(self) -> str:
        return f"TLS: more than {BARE_BYTES_MAX} bytes without data"


class TlsStream:
    """One end of a connection. Calls raise `ssl.SSLWantReadError` and `ssl.SSLWantWriteError` as those of `ssl.SSLSocket` do."""

    __slots__ = ("_bare", "_begun", "_incoming", "_outgoing", "_socket", "_unsent", "tls")

    def __init__(
        self,
        connected: socket.socket,
        context: ssl.SSLContext,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
    ) -> None:
        """OSError if the connection is gone already."""
        connected.getpeername()
        self._socket = connected
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname
        )
        self._unsent = memoryview(b"")
        """Encrypted bytes that the system has not taken."""
        self._begun = False
        """The piece that is to be sent is encrypted already."""
        self._bare = 0
        """Bytes that were taken from the socket, less what the application got of them."""

    # As a socket

    def fileno(self) -> int:
        return self._socket.fileno()

    def getpeername(self) -> Any:
        return self._socket.getpeername()

    def getsockname(self) -> Any:
        return self._socket.getsockname()

    def close(self) -> None:
        self._socket.close()

    # The handshake

    def do_handshake(self) -> None:
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            self._push()
            self._take_portion()
            self._go_on()
        except OSError:
            with suppress(OSError):
                self._push()  # why it failed, for the peer
            raise
        self._push()
        self._bare = self._incoming.pending

    def _go_on(self) -> None:
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            self._push()
            raise
        except OSError:
            with suppress(OSError):
                self._push()
            raise

    # Bytes

    def pending(self) -> int:
        """Bytes that are here, and of which the system says nothing any more."""
        return self.tls.pending() or self._incoming.pending

    def recv_into(self, room: memoryview) -> int:
        """0: the peer has said farewell."""
        if self.pending():
            with suppress(ssl.SSLWantReadError):
                return self._read(room)
        self._take_portion()
        return self._read(room)

    def send(self, piece: Buffer) -> int:
        """All of it. After SSLWantWriteError the same piece is to be sent again."""
        if not self._begun:
            self.tls.write(piece)
            self._begun = True
        self._push()
        self._begun = False
        return len(piece)

    def unwrap(self) -> None:
        """Say farewell. The answer to it is not waited for."""
        try:
            self.tls.unwrap()
        finally:
            self._push()

    def _read(self, room: memoryview) -> int:
        try:
            received = cast(int, self.tls.read(len(room), room))
        except ssl.SSLWantReadError:
            if self._bare > BARE_BYTES_MAX:
                raise BareBytes from None
            if self._outgoing.pending:
                with suppress(ssl.SSLWantWriteError):
                    self._push()  # the peer asked for other keys
            raise
        self._bare = max(0, self._bare - received - RECORD_OVERHEAD)
        return received

    def _take_portion(self) -> None:
        try:
            portion = self._socket.recv(PORTION_BYTES)
        except (BlockingIOError, InterruptedError):
            raise ssl.SSLWantReadError from None
        if portion:
            self._bare += len(portion)
            self._incoming.write(portion)
        else:
            self._incoming.write_eof()

    def _push(self) -> None:
        while self._unsent or self._outgoing.pending:
            if not self._unsent:
                self._unsent = memoryview(self._outgoing.read())
            try:
                sent = self._socket.send(self._unsent)
            except (BlockingIOError, InterruptedError):
                raise ssl.SSLWantWriteError from None
            self._unsent = self._unsent[sent:]
