"""asyncio's transports on simulated TCP, for code that is not ours (aiokafka, asyncio's streams)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ottla.sim.engine.tcp import TcpListener, TcpSocket

if TYPE_CHECKING:
    from ottla.sim.engine.loop import SimLoop

HIGH_WATER_BYTES = 64 * 1024


class SimTransport(asyncio.Transport):
    def __init__(
        self, loop: SimLoop, tcp: TcpSocket, protocol: asyncio.BaseProtocol, extra: dict[str, Any]
    ) -> None:
        super().__init__({"peername": tcp.peer, "sockname": tcp.local, "socket": None, **extra})
        self._loop = loop
        self._tcp = tcp
        self._protocol = protocol
        self._unsent = bytearray()
        self._connected = False
        self._paused = False
        self._writing_paused = False
        self._ending = False
        self._eof_received = False
        self._closing = False
        self._lost = False
        self._high = HIGH_WATER_BYTES
        self._low = HIGH_WATER_BYTES // 4
        tcp.user = self

    def start(self) -> None:
        """Call `connection_made` first, then deliver what has arrived."""
        self._protocol.connection_made(self)
        self._connected = True
        self._loop.call_soon(self.readable)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    # Reading

    def is_reading(self) -> bool:
        return not self._paused and not self._closing

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._loop.call_soon(self.readable)

    def readable(self) -> None:
        if not self._connected or self._lost:
            return
        tcp = self._tcp
        if self.is_reading():
            data = tcp.read()
            if data:
                self._feed(data)
            if tcp.ended and tcp.error is None and self.is_reading() and not self._eof_received:
                self._eof_received = True
                if not self._call(self._protocol.eof_received):  # type: ignore[attr-defined]
                    self.close()
        if tcp.error is not None:
            self._lose(tcp.error)

    def _feed(self, data: bytes) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            rest = memoryview(data)
            while rest and not self._lost:
                room = self._call(protocol.get_buffer, len(rest))
                if room is None:
                    return
                count = min(len(room), len(rest))
                room[:count] = rest[:count]
                rest = rest[count:]
                self._call(protocol.buffer_updated, count)
        else:
            self._call(protocol.data_received, data)  # type: ignore[attr-defined]

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """A protocol that raises loses its connection, as in asyncio."""
        try:
            return function(*arguments)
        except Exception as problem:
            self._loop.call_exception_handler(
                {"message": "Fatal error: protocol callback failed", "exception": problem}
            )
            self._lose(problem)
            return None

    # Writing

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._ending:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._lost or self._closing or not data:
            return
        self._unsent += data
        self.writable()
        if len(self._unsent) > self._high and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        self.write(b"".join(list_of_data))

    def writable(self) -> None:
        tcp = self._tcp
        if self._lost or tcp.gone:
            return
        if self._unsent:
            taken = tcp.write(bytes(self._unsent[: tcp.room]))
            del self._unsent[:taken]
        if self._unsent:
            tcp.wait_for_room()
        elif self._ending:
            tcp.end()
        if self._writing_paused and len(self._unsent) <= self._low:
            self._writing_paused = False
            self._protocol.resume_writing()
        if self._closing and not self._unsent:
            self._lose(None)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._ending = True
        self.writable()

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high if high is not None else 4 * low if low else HIGH_WATER_BYTES
        self._low = low if low is not None else self._high // 4

    # The end

    def is_closing(self) -> bool:
        return self._closing or self._lost

    def close(self) -> None:
        if not self.is_closing():
            self._closing = True
            if not self._unsent:
                self._lose(None)

    def abort(self) -> None:
        self._lose(None)

    def _lose(self, problem: Exception | None) -> None:
        if self._lost:
            return
        self._lost = True
        self._unsent.clear()
        self._tcp.close()
        self._loop.call_soon(self._protocol.connection_lost, problem)


class SimServer(asyncio.AbstractServer):
    def __init__(self, loop: SimLoop, listener: TcpListener) -> None:
        self._loop = loop
        self._listener: TcpListener | None = listener
        self._address = (listener.host.address, listener.port)

    @property
    def sockets(self) -> tuple[ServerSocket, ...]:
        return () if self._listener is None else (ServerSocket(self._address),)

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def get_loop(self) -> SimLoop:
        return self._loop

    def is_serving(self) -> bool:
        return self._listener is not None

    async def start_serving(self) -> None:
        return None

    async def serve_forever(self) -> None:
        await self._loop.create_future()

    async def wait_closed(self) -> None:
        return None


class ServerSocket:
    """The part of `server.sockets` that programs use: the address."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def getsockname(self) -> tuple[str, int]:
        return self._address


def create_server(
    loop: SimLoop,
    protocol_factory: Callable[[], asyncio.BaseProtocol],
    host: Any,
    port: int | None,
    **options: Any,
) -> SimServer:
    _refuse_unsupported(options)

    def accepted(tcp: TcpSocket) -> None:
        SimTransport(loop, tcp, protocol_factory(), {}).start()

    return SimServer(loop, loop.network.listen(loop.network.here(), port or 0, accepted))


async def create_connection(
    loop: SimLoop,
    protocol_factory: Callable[[], asyncio.BaseProtocol],
    host: str | None,
    port: int | None,
    **options: Any,
) -> tuple[SimTransport, asyncio.BaseProtocol]:
    _refuse_unsupported(options)
    assert host is not None and port is not None, "a simulated connection needs host and port"
    tcp = await loop.network.connect(loop.network.here(), host, port)
    protocol = protocol_factory()
    transport = SimTransport(loop, tcp, protocol, {})
    transport.start()
    return transport, protocol


def _refuse_unsupported(options: dict[str, Any]) -> None:
    """TLS, ready-made sockets and Unix paths have no simulated counterpart."""
    for name in ("ssl", "sock", "local_addr"):
        if options.get(name):
            raise RuntimeError(f"the simulated network has no {name}")
