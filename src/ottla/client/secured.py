"""Connections that have to be made safe: TLS by asyncio, SASL before the first request.

Plain ones are `runtime.sockets`, which parse frames where the system put them. Encrypted bytes are copied anyway, so that
asyncio's own transports serve here.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, cast

from ottla.client.security import Security, tls_refusal
from ottla.runtime.seams import (
    AcceptedConnection,
    Chunk,
    Connection,
    Door,
    FileRange,
    FrameReceiver,
    Listener,
    Network,
    Tls,
)
from ottla.wire.channel import Channel

_SIZE: Final = Struct(">i")


def network_of(security: Security) -> Callable[[asyncio.AbstractEventLoop], Network] | None:
    """For a client that talks to brokers as `security` says. None: plain TCP is enough."""
    if security == Security():
        return None
    return lambda loop: SecuredNetwork(loop, security)


class SecuredNetwork:
    """It only connects; a client has no listeners."""

    def __init__(self, loop: asyncio.AbstractEventLoop, security: Security) -> None:
        self._loop = loop
        self._security = security
        self._tls = None if security.tls is None else security.tls.context()

    async def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[AcceptedConnection], FrameReceiver],
        *,
        frame_bytes_max: int,
        tls: Tls | None = None,
        door: Door | None = None,
    ) -> Listener:
        raise OSError(f"a client does not listen on {host}:{port}")

    async def connect(
        self,
        host: str,
        port: int,
        receiver: Callable[[Connection], FrameReceiver],
        *,
        frame_bytes_max: int = 1 << 30,
        tls: Tls | None = None,
    ) -> Connection:
        """As the client's own settings say; `tls` is for nodes. OSError if nobody answers; SecurityRefused if the certificate is wrong, or the broker refuses us."""
        try:
            _, connection = await self._loop.create_connection(
                lambda: SecuredConnection(frame_bytes_max),
                host,
                port,
                ssl=self._tls,
                server_hostname=None if self._tls is None else host,
            )
        except ssl.SSLError as error:
            raise tls_refusal(error, host, port) from None
        except ConnectionError as error:
            if self._tls is None or isinstance(error, ConnectionRefusedError):
                raise
            raise ConnectionError(
                "it closed the connection instead of speaking TLS: security.protocol may be wrong"
            ) from None
        try:
            made = receiver(connection)
            connection.start(made)
            if self._security.sasl is not None:
                assert isinstance(made, Channel), "who logs in does so through a channel"
                await self._security.sasl.log_in(made, f"{host}:{port}")
        except BaseException:
            connection.abort()
            raise
        return connection


class SecuredConnection(asyncio.Protocol):
    """Frames over one of asyncio's transports."""

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._transport: asyncio.Transport | None = None
        self._receiver: FrameReceiver | None = None
        self._received = bytearray()
        self._lost = False

    @property
    def _open(self) -> asyncio.Transport:
        assert self._transport is not None, "it is given out when it is connected"
        return self._transport

    # -- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have asyncio's methods, and are no instances of its classes.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= _SIZE.size and not self.closed:
            (size,) = _SIZE.unpack_from(self._received)
            end = _SIZE.size + size
            if not 0 <= size <= self._frame_bytes_max:
                self.abort()
            elif end > len(self._received):
                return
            else:
                frame = self._received[_SIZE.size : end]
                del self._received[:end]
                assert self._receiver is not None, "a broker sent a frame before it was asked"
                self._receiver.frame_received(memoryview(frame))

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._receiver is not None:
            self._receiver.connection_lost(str(exc) if exc else "closed by the peer")

    # -- what its user calls

    def start(self, receiver: FrameReceiver) -> None:
        """Who receives frames from now on."""
        self._receiver = receiver
        if self._lost:
            receiver.connection_lost("closed by the peer")

    @property
    def peer(self) -> tuple[str, int]:
        return self._address("peername")

    @property
    def local(self) -> tuple[str, int]:
        return self._address("sockname")

    def _address(self, name: str) -> tuple[str, int]:
        host, port = (self._open.get_extra_info(name) or ("?", 0))[:2]
        return str(host), int(port)

    @property
    def closed(self) -> bool:
        return self._lost or self._open.is_closing()

    @property
    def queued_bytes(self) -> int:
        return self._open.get_write_buffer_size()

    def send(self, chunks: Sequence[Chunk]) -> None:
        if not self.closed:
            self._open.writelines(
                [each.read() if isinstance(each, FileRange) else each for each in chunks]
            )

    def pause_reading(self) -> None:
        self._open.pause_reading()

    def resume_reading(self) -> None:
        self._open.resume_reading()

    def close(self) -> None:
        self._open.close()

    def abort(self) -> None:
        self._open.abort()
