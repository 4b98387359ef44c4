"""asyncio's own transports: the same programs on asyncio, uvloop and the simulated network."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from ottla.sim import World

Scenario = Callable[[str, "Starter"], Awaitable[None]]
Starter = Callable[
    [Callable[[], asyncio.BaseProtocol]], Awaitable[tuple[asyncio.AbstractServer, int]]
]
Play = Callable[[Scenario], None]


@pytest.fixture(params=["asyncio", "uvloop", "sim"])
def play(request: pytest.FixtureRequest) -> Play:
    async def start(
        factory: Callable[[], asyncio.BaseProtocol],
    ) -> tuple[asyncio.AbstractServer, int]:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(factory, "127.0.0.1", 0)
        return server, server.sockets[0].getsockname()[1]

    def on_real(scenario: Scenario) -> None:
        factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.SelectorEventLoop

        async def main() -> None:
            await scenario("127.0.0.1", start)

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())

    def on_sim(scenario: Scenario) -> None:
        for seed in range(4):
            with World(seed) as world:
                world.network.conditions.cut_rate = 0.5
                server, client = world.node("server"), world.node("client")

                async def start_on_server(
                    factory: Callable[[], asyncio.BaseProtocol],
                    server=server,
                ) -> tuple[asyncio.AbstractServer, int]:
                    return await server.run(start(factory))

                async def main(start=start_on_server) -> None:
                    await scenario("server", start)

                client.complete(main())

    return on_sim if request.param == "sim" else on_real


def stream_server(
    handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> Callable[[], asyncio.StreamReaderProtocol]:
    def factory() -> asyncio.StreamReaderProtocol:
        reader = asyncio.StreamReader()
        return asyncio.StreamReaderProtocol(reader, handle)

    return factory


def test_streams_echo_what_they_get_until_the_end_of_it(play: Play) -> None:
    data = random.Random(1).randbytes(2_000_000)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while part := await reader.read(10_000):
            writer.write(part)
            await writer.drain()
        writer.write(b"end")
        writer.close()

    async def scenario(host: str, start: Starter) -> None:
        server, port = await start(stream_server(echo))
        reader, writer = await asyncio.open_connection(host, port)
        assert writer.get_extra_info("peername")[1] == port

        async def send() -> None:
            for position in range(0, len(data), 100_000):
                writer.write(data[position : position + 100_000])
                await writer.drain()
            writer.write_eof()

        sent = asyncio.create_task(send())
        assert await reader.read(-1) == data + b"end"
        await sent
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(host, port)

    play(scenario)


class Recorder(asyncio.Protocol):
    def __init__(self) -> None:
        self.events: list[str] = []
        self.pieces: list[bytes] = []
        self.finished = asyncio.get_running_loop().create_future()

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.events.append("made")
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)

    def eof_received(self) -> None:
        self.events.append("end")

    def connection_lost(self, problem: Exception | None) -> None:
        self.events.append("lost")
        self.finished.set_result(problem)


def test_a_protocol_hears_made_then_data_then_end_then_lost(play: Play) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    async def scenario(host: str, start: Starter) -> None:
        server, port = await start(stream_server(greet))
        loop = asyncio.get_running_loop()
        _transport, recorder = await loop.create_connection(Recorder, host, port)
        assert await recorder.finished is None
        assert recorder.data == b"hello"
        assert recorder.events == ["made", "end", "lost"]
        server.close()

    play(scenario)


def test_an_abort_and_a_close_are_heard_by_both_sides(play: Play) -> None:
    async def scenario(host: str, start: Starter) -> None:
        accepted: list[Recorder] = []

        def factory() -> Recorder:
            accepted.append(Recorder())
            return accepted[-1]

        server, port = await start(factory)
        loop = asyncio.get_running_loop()
        for leave in ("abort", "close"):
            transport, recorder = await loop.create_connection(Recorder, host, port)
            transport.write(b"x")
            while not (accepted and accepted[-1].data == b"x"):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            getattr(transport, leave)()
            assert transport.is_closing()
            assert await recorder.finished is None
            await accepted[-1].finished
            accepted.clear()
        server.close()

    play(scenario)


class Filling(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.room = bytearray(1000)
        self.data = b""
        self.finished = asyncio.get_running_loop().create_future()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.room

    def buffer_updated(self, count: int) -> None:
        self.data += bytes(self.room[:count])

    def connection_lost(self, problem: Exception | None) -> None:
        self.finished.set_result(problem)


def test_a_buffered_protocol_is_filled(play: Play) -> None:
    data = random.Random(2).randbytes(50_000)

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        writer.close()

    async def scenario(host: str, start: Starter) -> None:
        server, port = await start(stream_server(send))
        loop = asyncio.get_running_loop()
        _transport, filling = await loop.create_connection(Filling, host, port)
        await filling.finished
        assert filling.data == data
        server.close()

    play(scenario)


def test_a_paused_reader_holds_the_writer_back_and_loses_nothing(play: Play) -> None:
    data = random.Random(3).randbytes(30_000_000)

    async def scenario(host: str, start: Starter) -> None:
        drained: list[bool] = []

        async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(data)
            await writer.drain()
            drained.append(True)
            writer.close()

        server, port = await start(stream_server(send))
        loop = asyncio.get_running_loop()
        transport, recorder = await loop.create_connection(Recorder, host, port)
        transport.pause_reading()
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not drained
        transport.resume_reading()
        await recorder.finished
        assert drained
        assert recorder.data == data
        server.close()

    play(scenario)
