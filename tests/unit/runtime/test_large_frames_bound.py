"""Unfinished large frames of all connections together take a bounded amount of memory."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from ottla.runtime import Connection
from ottla.runtime import sockets as sockets_module
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
    monkeypatch.setattr(sockets_module, "LARGE_FRAMES_BYTES_MAX", 5 * FRAME_BYTES // 2)

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
        await until(lambda: network._reserved_bytes == 2 * FRAME_BYTES)
        try:
            await loop.sock_sendall(clients[2], bytes(FRAME_BYTES - 1))
        except ConnectionError:
            assert network._reserved_bytes == 2 * FRAME_BYTES, "closed while it was still sending"
        await until(lambda: len(peers[2].lost) == 1)
        assert "no buffer for a frame" in peers[2].lost[0]
        for client in clients[:2]:
            await loop.sock_sendall(client, b"!")
        await until(lambda: peers[0].frames == peers[1].frames == [FRAME_BYTES])
        assert network._reserved_bytes == 0
        clients[0].close()
        await until(lambda: bool(peers[0].lost))
        assert network._reserved_bytes == 0
        listener.close()
        clients[1].close()
        clients[2].close()
        await until(lambda: bool(peers[1].lost))

    asyncio.run(scenario())
