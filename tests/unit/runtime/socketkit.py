"""What tests of real sockets share: a server whose peers keep what they hear, and plain sockets as its clients."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from ottla.runtime import Connection, Listener
from ottla.runtime.sockets import RealNetwork, SocketConnection


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
        await self.network.loop.sock_connect(client, self.listener.address)
        await until(lambda: len(self.peers) == count + 1)
        return client


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it did not come to that in time"
        await asyncio.sleep(0.001)


Play = Callable[[Callable[[Server], Awaitable[None]]], None]
