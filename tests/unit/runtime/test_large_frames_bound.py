"""Unfinished large frames take a bounded amount of memory, and nobody's stop those of others for long."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

import pytest

from ottla.runtime import Connection, frame_memory
from ottla.runtime.frame_memory import STANDSTILL_BYTES, STANDSTILL_S, FrameMemory, LargeFrame
from ottla.runtime.sockets import RealNetwork

FRAME_BYTES = 1 << 20


class Peer:
    def __init__(self) -> None:
        self.frames: list[int] = []
        self.lost: list[str] = []

    def frame_received(self, frame: memoryview) -> None:
        self.frames.append(len(frame))

    def connection_lost(self, reason: str) -> None:
        self.lost.append(reason)


async def until(condition: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + 20
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it did not come to that in time"
        await asyncio.sleep(0.001)


def test_who_wants_more_than_there_is_loses_its_connection_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frame_memory, "LARGE_FRAMES_BYTES_MAX", 5 * FRAME_BYTES // 2)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        network = RealNetwork(loop)
        peers: list[Peer] = []

        def accept(connection: Connection) -> Peer:
            peers.append(Peer())
            return peers[-1]

        listener = await network.listen("127.0.0.1", 0, accept, frame_bytes_max=100 << 20)
        clients = []
        for _ in range(3):
            client = socket.socket()
            client.setblocking(False)
            await loop.sock_connect(client, listener.address)
            await loop.sock_sendall(client, FRAME_BYTES.to_bytes(4, "big"))
            clients.append(client)
        await until(lambda: len(peers) == 3)
        for client in clients[:2]:
            await loop.sock_sendall(client, bytes(FRAME_BYTES - 1))
        await until(lambda: network.memory.accepted_frames.taken_bytes == 2 * FRAME_BYTES)
        try:
            await loop.sock_sendall(clients[2], bytes(FRAME_BYTES - 1))
        except ConnectionError:
            assert network.memory.accepted_frames.taken_bytes == 2 * FRAME_BYTES, (
                "closed while it was still sending"
            )
        await until(lambda: len(peers[2].lost) == 1)
        assert "no buffer for a frame" in peers[2].lost[0]
        for client in clients[:2]:
            await loop.sock_sendall(client, b"!")
        await until(lambda: peers[0].frames == peers[1].frames == [FRAME_BYTES])
        assert network.memory.accepted_frames.taken_bytes == 0
        clients[0].close()
        await until(lambda: bool(peers[0].lost))
        assert network.memory.accepted_frames.taken_bytes == 0
        listener.close()
        clients[1].close()
        clients[2].close()
        await until(lambda: bool(peers[1].lost))

    asyncio.run(scenario())


def test_what_strangers_begin_takes_nothing_from_connections_that_we_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frame_memory, "LARGE_FRAMES_BYTES_MAX", FRAME_BYTES)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        network = RealNetwork(loop)
        stranger, ours = Peer(), Peer()
        listener = await network.listen(
            "127.0.0.1", 0, lambda _: stranger, frame_bytes_max=100 << 20
        )
        client = socket.socket()
        client.setblocking(False)
        await loop.sock_connect(client, listener.address)
        prefix = FRAME_BYTES.to_bytes(4, "big")
        await loop.sock_sendall(client, prefix + bytes(FRAME_BYTES - 1))
        await until(lambda: network.memory.accepted_frames.taken_bytes == FRAME_BYTES)

        async def leader(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(prefix + bytes(FRAME_BYTES))

        async with await asyncio.start_server(leader, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            connection = await network.connect(
                host, port, lambda _: ours, frame_bytes_max=100 << 20
            )
            await until(lambda: ours.frames == [FRAME_BYTES])
            connection.abort()
        assert stranger.lost == ours.lost == []
        listener.close()
        client.close()
        await until(lambda: bool(stranger.lost))
        assert (
            network.memory.accepted_frames.taken_bytes
            == network.memory.opened_frames.taken_bytes
            == 0
        )

    asyncio.run(scenario())


class Frames:
    """Large frames that come as the test says, in a memory that holds three of them."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.memory = FrameMemory(lambda: self.now)
        self.gave_up: list[LargeFrame] = []

    def begin(self, owner: str | None = None) -> LargeFrame:
        def give_up() -> None:
            self.gave_up.append(frame)
            self.memory.release(frame)

        frame = LargeFrame(FRAME_BYTES, bytearray(), self.memory, give_up, owner)
        self.memory.reserve(frame, FRAME_BYTES)
        return frame

    def is_refused(self, owner: str | None = None) -> bool:
        try:
            self.begin(owner)
        except MemoryError:
            return True
        return False


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> Frames:
    monkeypatch.setattr(frame_memory, "LARGE_FRAMES_BYTES_MAX", 3 * FRAME_BYTES)
    return Frames()


def test_frames_that_nobody_goes_on_sending_give_up_where_memory_is_short(frames: Frames) -> None:
    standing, moving, trickling = frames.begin(), frames.begin(), frames.begin()
    frames.now += 100
    assert frames.is_refused(), "nobody has been seen standing yet"
    moving.filled += STANDSTILL_BYTES
    trickling.filled += STANDSTILL_BYTES - 1
    frames.now += STANDSTILL_S
    later = frames.begin()
    assert frames.gave_up == [standing, trickling]
    assert frames.memory.taken_bytes == 2 * FRAME_BYTES
    for frame in (moving, later):
        frames.memory.release(frame)
    assert frames.memory.taken_bytes == 0


def test_frames_that_come_all_the_time_keep_their_room_and_the_newcomer_is_refused(
    frames: Frames,
) -> None:
    begun = [frames.begin() for _ in range(3)]
    for _ in range(10):
        assert frames.is_refused()
        frames.now += STANDSTILL_S / 2
        assert frames.is_refused(), "too soon to tell who stands"
        for frame in begun:
            frame.filled += STANDSTILL_BYTES
        frames.now += STANDSTILL_S / 2
    assert frames.gave_up == []


def test_a_frame_that_began_a_moment_ago_does_not_stand(frames: Frames) -> None:
    standing = [frames.begin() for _ in range(3)]
    assert frames.is_refused()
    frames.memory.release(standing.pop())
    frames.now += STANDSTILL_S
    new = frames.begin()
    frames.begin()
    assert frames.gave_up == standing
    assert not frames.is_refused()
    assert new not in frames.gave_up


def test_one_address_has_a_share_and_others_do_not_give_way_to_it(
    frames: Frames, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client without any right began a frame on many connections, and held a gigabyte of the node's memory."""
    monkeypatch.setattr(frame_memory, "ADDRESS_BYTES_MAX", FRAME_BYTES)
    slow, eve = frames.begin("10.0.0.7"), frames.begin("10.0.0.66")
    assert frames.is_refused("10.0.0.66"), "nobody has been seen standing yet"
    frames.now += STANDSTILL_S
    assert not frames.is_refused("10.0.0.66")
    assert frames.gave_up == [eve], "the other one stands as well"
    frames.begin("10.0.0.8")
    assert frames.memory.taken_bytes == 3 * FRAME_BYTES
    frames.memory.release(slow)
    assert not frames.is_refused("10.0.0.7"), "what it had is given back"


def test_who_stands_still_with_its_frame_loses_its_connection_to_who_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frame_memory, "LARGE_FRAMES_BYTES_MAX", FRAME_BYTES)
    monkeypatch.setattr(frame_memory, "STANDSTILL_S", 0.01)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        network = RealNetwork(loop)
        peers: list[Peer] = []

        def accept(_connection: Connection) -> Peer:
            peers.append(Peer())
            return peers[-1]

        listener = await network.listen("127.0.0.1", 0, accept, frame_bytes_max=100 << 20)
        prefix = FRAME_BYTES.to_bytes(4, "big")

        async def client(body: bytes) -> socket.socket:
            connected = socket.socket()
            connected.setblocking(False)
            await loop.sock_connect(connected, listener.address)
            with contextlib.suppress(ConnectionError):
                await loop.sock_sendall(connected, prefix + body)
            return connected

        clients = [await client(bytes(FRAME_BYTES - 1))]
        await until(lambda: network.memory.accepted_frames.taken_bytes == FRAME_BYTES)
        while not any(peer.frames for peer in peers):
            clients.append(await client(bytes(FRAME_BYTES)))
            await asyncio.sleep(0.02)
            assert len(clients) < 100
        assert "standstill" in peers[0].lost[0]
        assert "no buffer" in peers[1].lost[0], "the first look sees nobody standing yet"
        listener.close()
        for each in clients:
            each.close()
        await until(lambda: all(peer.lost for peer in peers))
        assert network.memory.accepted_frames.taken_bytes == 0

    asyncio.run(scenario())
