"""What only real sockets can show: bytes split anywhere, resets, exhausted descriptors, memory."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import resource
import socket
from collections.abc import Awaitable, Callable
from struct import pack

import pytest
import uvloop

from ottla.runtime import Connection, Listener, socket_connection
from ottla.runtime import sockets as sockets_module
from ottla.runtime.framed_connection import FrameRefused
from ottla.runtime.real import RealClock, real_runtime, run
from ottla.runtime.socket_connection import SocketConnection
from ottla.runtime.sockets import RealNetwork


class Peer:
    def __init__(self, connection: Connection) -> None:
        assert isinstance(connection, SocketConnection)
        self.connection = connection
        self.frames: list[bytes] = []
        self.lost: list[str] = []

    def frame_received(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))

    def connection_lost(self, reason: str) -> None:
        self.lost.append(reason)


class Server:
    def __init__(self, network: RealNetwork) -> None:
        self.network = network
        self.peers: list[Peer] = []

    async def start(self, frame_bytes_max: int = 100 << 20) -> Listener:
        self.listener = await self.network.listen(
            "127.0.0.1", 0, self.accept, frame_bytes_max=frame_bytes_max
        )
        return self.listener

    def accept(self, connection: Connection) -> Peer:
        self.peers.append(Peer(connection))
        return self.peers[-1]

    async def raw_client(self) -> socket.socket:
        """A plain socket connected to us, and our end of it accepted."""
        count = len(self.peers)
        client = socket.socket()
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(client, self.listener.address)
        await until(lambda: len(self.peers) == count + 1)
        return client


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it did not come to that in time"
        await asyncio.sleep(0.001)


async def until_frames(peer: Peer, count: int) -> None:
    await until(lambda: len(peer.frames) == count)


Play = Callable[[Callable[[Server], Awaitable[None]]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def play(request: pytest.FixtureRequest) -> Play:
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.SelectorEventLoop

    def on_loop(scenario: Callable[[Server], Awaitable[None]]) -> None:
        async def main() -> None:
            problems: list[object] = []
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _loop, context: problems.append(context))
            server = Server(RealNetwork(loop))
            await server.start()
            try:
                await scenario(server)
            finally:
                server.listener.close()
                for peer in server.peers:
                    peer.connection.abort()
            assert problems == []

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())

    return on_loop


def test_frames_split_at_every_byte_arrive_whole(play: Play) -> None:
    bodies = [b"", b"a", b"hello", b"x" * 40]
    stream = b"".join(pack(">i", len(body)) + body for body in bodies)

    async def scenario(server: Server) -> None:
        for split in range(len(stream) + 1):
            client = await server.raw_client()
            peer = server.peers[-1]
            client.send(stream[:split])
            whole = sum(end <= split for end in (4, 9, 18, 62))
            await until_frames(peer, whole)
            client.send(stream[split:])
            await until_frames(peer, len(bodies))
            assert peer.frames == bodies
            client.close()
        client = await server.raw_client()
        for byte in stream:
            client.send(bytes([byte]))
            await asyncio.sleep(0)
        await until(lambda: server.peers[-1].frames == bodies)
        client.close()

    play(scenario)


def test_large_frames_in_pieces_of_any_size_arrive_whole(play: Play) -> None:
    chance = random.Random(5)
    bodies = [chance.randbytes(size) for size in (70_000, 12, 300_000, 16_390, 1_500_000, 66_000)]
    stream = b"".join(pack(">i", len(body)) + body for body in bodies)

    async def scenario(server: Server) -> None:
        client = await server.raw_client()
        position = 0
        while position < len(stream):
            size = chance.choice((1, 3, 1000, 17_000, 70_000, 200_000))
            await asyncio.get_running_loop().sock_sendall(
                client, stream[position : position + size]
            )
            position += size
            await asyncio.sleep(0)
        await until(lambda: len(server.peers[0].frames) == len(bodies))
        assert server.peers[0].frames == bodies
        client.close()

    play(scenario)


@pytest.mark.parametrize(
    ("hello", "protocol", "words"),
    [
        (b"\x16\x03\x01\x02\x00\x01", "TLS", "TLS ClientHello on a plaintext listener"),
        (b"GET / HTTP/1.1\r\n", "HTTP", "HTTP"),
        (b"OPTIONS * HTTP/1.1\r\n", "HTTP", "HTTP"),
        (b"SSH-2.0-x\r\n", "SSH", "SSH"),
    ],
)
def test_who_speaks_another_protocol_is_named_in_the_reason(
    play: Play, hello: bytes, protocol: str, words: str
) -> None:
    async def scenario(server: Server) -> None:
        client = await server.raw_client()
        client.send(hello)
        await until(lambda: bool(server.peers[-1].lost))
        (reason,) = server.peers[-1].lost
        assert isinstance(reason, FrameRefused)
        assert f"seems to speak {protocol}" in reason
        assert reason.words == words and hello.startswith(reason.begins)
        client.close()

    play(scenario)


def test_an_announced_size_alone_takes_no_memory(play: Play) -> None:
    async def scenario(server: Server) -> None:
        client = await server.raw_client()
        connection = server.peers[0].connection
        client.send(pack(">i", 100 << 20))
        await until(lambda: len(connection._partial) == 4)
        assert connection._large is None
        await asyncio.get_running_loop().sock_sendall(client, bytes(100_000))
        await until(lambda: connection._large is not None and connection._large.filled == 100_000)
        assert connection._large is not None and len(connection._large.buffer) <= 256 * 1024
        client.close()
        await until(lambda: server.peers[0].lost == ["closed by the peer within a frame"])

    play(scenario)


def test_a_slow_reader_gets_everything_and_costs_nobody_else(play: Play) -> None:
    async def scenario(server: Server) -> None:
        slow, quick = await server.raw_client(), await server.raw_client()
        body = random.Random(4).randbytes(3_000_000)
        server.peers[0].connection.send([pack(">i", len(body)), body])
        server.peers[1].connection.send([pack(">i", 2), b"hi"])
        assert await asyncio.get_running_loop().sock_recv(quick, 10) == b"\0\0\0\2hi"
        received = bytearray()
        while len(received) < len(body) + 4:
            received += await asyncio.get_running_loop().sock_recv(slow, 9_000)
        assert received[4:] == body
        assert server.peers[0].connection.queued_bytes == 0
        slow.close()
        quick.close()

    play(scenario)


@pytest.mark.parametrize("sending", [False, True])
def test_a_reset_by_the_peer_is_told_once(play: Play, sending: bool) -> None:
    async def scenario(server: Server) -> None:
        client = await server.raw_client()
        peer = server.peers[0]
        if sending:
            peer.connection.send([bytes(20_000_000)])
            await until(lambda: 0 < peer.connection.queued_bytes < 20_000_000)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
        client.close()
        await until(lambda: len(peer.lost) == 1)
        assert "reset" in peer.lost[0].lower() or "pipe" in peer.lost[0].lower()
        peer.connection.abort()
        await asyncio.sleep(0.01)
        assert len(peer.lost) == 1
        assert peer.connection.queued_bytes == 0

    play(scenario)


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
    client.close()


def test_a_reset_right_after_bytes_is_noticed(play: Play) -> None:
    """uvloop calls a reader once after an error: the one that took these bytes was called for the last time."""

    async def scenario(server: Server) -> None:
        for _ in range(20):
            client = await server.raw_client()
            peer = server.peers[-1]
            client.send(pack(">i", 5) + b"whole" + pack(">i", 5) + b"ha")
            reset(client)
            await until(lambda: peer.lost != [])  # noqa: B023
            assert peer.frames == [b"whole"] and len(peer.lost) == 1

    play(scenario)


def test_a_reset_is_noticed_by_who_reads_nothing(play: Play) -> None:
    async def scenario(server: Server) -> None:
        client = await server.raw_client()
        peer = server.peers[0]
        peer.connection.pause_reading()
        client.send(pack(">i", 5) + b"whole")
        reset(client)
        await until(lambda: peer.lost != [])
        assert peer.frames == [] and len(peer.lost) == 1

    play(scenario)


def test_what_came_before_an_orderly_end_waits_for_who_reads_nothing(play: Play) -> None:
    async def scenario(server: Server) -> None:
        client = await server.raw_client()
        peer = server.peers[0]
        peer.connection.pause_reading()
        client.send(pack(">i", 5) + b"whole")
        client.close()
        other = await server.raw_client()  # by then the end has come, too
        assert (peer.frames, peer.lost) == ([], [])
        peer.connection.resume_reading()
        await until(lambda: peer.lost != [])
        assert peer.frames == [b"whole"]
        other.close()

    play(scenario)


def test_without_descriptors_accepting_pauses_and_goes_on_later(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets_module, "ACCEPT_PAUSE_S", 0.02)

    async def scenario(server: Server) -> None:
        loop = asyncio.get_running_loop()
        accept_calls = 0
        accept = server.listener._acceptable

        def counted(door: socket.socket) -> None:
            nonlocal accept_calls
            accept_calls += 1
            accept(door)

        monkeypatch.setattr(server.listener, "_acceptable", counted)
        client = socket.socket()
        client.setblocking(False)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        gc.collect()  # loops of earlier tests give their descriptors back now, not while we have none
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        fillers = [os.dup(0) for _ in range(highest)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(fillers) + 1, hard))
        try:
            await loop.sock_connect(client, server.listener.address)
            await until(lambda: server.listener._resume is not None)
            await asyncio.sleep(0.1)
            assert server.peers == []
            assert accept_calls < 10
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for filler in fillers:
                os.close(filler)
        await until(lambda: len(server.peers) == 1)
        client.send(pack(">i", 1) + b"x")
        await until(lambda: server.peers[0].frames == [b"x"])
        client.close()

    play(scenario)


def test_what_is_queued_in_one_turn_leaves_in_one_call(play: Play) -> None:
    async def scenario(server: Server) -> None:
        client = await server.raw_client()
        connection = server.peers[0].connection
        calls: list[int] = []

        class Counting:
            def __init__(self, inner: socket.socket) -> None:
                self.inner = inner

            def __getattr__(self, name: str) -> object:
                return getattr(self.inner, name)

            def sendmsg(self, buffers: list[bytes], *rest: object) -> int:
                calls.append(len(buffers))
                return self.inner.sendmsg(buffers, *rest)  # type: ignore[arg-type]

        connection._socket = Counting(connection._socket)  # type: ignore[assignment]
        for _ in range(10):
            connection.send([b"a", b"b"])
        data = b""
        while len(data) < 20:
            data += await asyncio.get_running_loop().sock_recv(client, 100)
        assert data == b"ab" * 10
        assert calls == [20]
        client.close()

    play(scenario)


def test_any_address_of_the_machine_is_served_when_no_host_is_given(play: Play) -> None:
    async def scenario(server: Server) -> None:
        listener = await server.network.listen("", 0, server.accept, frame_bytes_max=100)
        for host in ("127.0.0.1", "localhost"):
            connection = await server.network.connect(host, listener.address[1], Peer)
            assert ":" not in connection.peer[0]
            connection.abort()
        listener.close()

    play(scenario)


def test_an_unknown_host_is_an_oserror(play: Play) -> None:
    async def scenario(server: Server) -> None:
        with pytest.raises(OSError):
            await server.network.connect("no-such-host.invalid", 1, Peer)

    play(scenario)


def test_connections_leave_no_descriptor_behind(play: Play) -> None:
    async def scenario(server: Server) -> None:
        gc.collect()  # what earlier tests left to the collector must not vanish between the two counts
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            connection = await server.network.connect(*server.listener.address, Peer)
            connection.send([pack(">i", 3), b"abc"])
            connection.close()
        await until(lambda: len(server.peers) == 20 and all(peer.lost for peer in server.peers))
        assert [peer.frames for peer in server.peers] == [[b"abc"]] * 20
        assert len(os.listdir("/proc/self/fd")) == before

    play(scenario)


def test_run_gives_a_node_its_runtime_on_uvloop() -> None:
    async def main() -> str:
        runtime = real_runtime(asyncio.get_running_loop(), seed=1)
        assert runtime.random.random() == random.Random(1).random()
        assert abs(runtime.clock.monotonic() - asyncio.get_running_loop().time()) < 5
        return type(asyncio.get_running_loop()).__module__

    assert run(main()).startswith("uvloop")
    assert RealClock().wall_ms() > 1_600_000_000_000


class NeverFull:
    """A loop that nobody has to ask when there is room."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __getattr__(self, name: str) -> object:
        assert name != "add_writer", "the system's buffer has room"
        return getattr(self._loop, name)


def test_who_has_used_up_its_turn_has_another_without_asking_whether_there_is_room(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_connection, "WRITE_BYTES_PER_TURN", 1000)

    async def scenario(server: Server) -> None:
        loop = asyncio.get_running_loop()
        client = await server.raw_client()
        connection = server.peers[-1].connection
        monkeypatch.setattr(connection, "_loop", NeverFull(loop))
        chunks = [bytes([number]) * 900 for number in range(20)]
        connection.send(chunks)
        received = b""
        async with asyncio.timeout(10):
            while len(received) < 20 * 900:
                received += await loop.sock_recv(client, 1 << 16)
        assert received == b"".join(chunks)
        assert connection.queued_bytes == 0
        client.close()

    play(scenario)
