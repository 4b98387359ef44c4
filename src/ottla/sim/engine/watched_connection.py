"""Between a program and a connection that it has opened: for what counts, reads or holds back its messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

from ottla.runtime import Chunk, Connection, FileRange, FrameReceiver, Tls
from ottla.runtime.wrapped_network import WrappedNetwork

SIZE_BYTES = 4


class WatchedNetwork(WrappedNetwork, ABC):
    """The network of a host. Connections that the host opens are watched; those that it accepts are not."""

    @abstractmethod
    def watch(self, host: str, port: int) -> WatchedConnection | None:
        """What comes between the host and its new connection to that place; None: nothing."""

    async def connect(
        self,
        host: str,
        port: int,
        receiver: Callable[[Connection], FrameReceiver],
        *,
        frame_bytes_max: int = 1 << 30,
        tls: Tls | None = None,
    ) -> Connection:
        connect = partial(self._network.connect, frame_bytes_max=frame_bytes_max, tls=tls)
        watched = self.watch(host, port)
        if watched is None:
            return await connect(host, port, receiver)

        def connected(connection: Connection) -> FrameReceiver:
            watched.inner = connection
            watched.receiver = receiver(watched)
            watched.opened()
            return watched

        await connect(host, port, connected)
        return watched


class WatchedConnection:
    """A `Connection` to its program, a `FrameReceiver` to the network. Responses come in the order of the requests."""

    inner: Connection
    receiver: FrameReceiver

    def opened(self) -> None:
        """It can be used from now on."""

    # Towards the program: Connection

    @property
    def peer(self) -> tuple[str, int]:
        return self.inner.peer

    @property
    def local(self) -> tuple[str, int]:
        return self.inner.local

    @property
    def closed(self) -> bool:
        return self.inner.closed

    @property
    def queued_bytes(self) -> int:
        return self.inner.queued_bytes

    def pause_reading(self) -> None:
        self.inner.pause_reading()

    def resume_reading(self) -> None:
        self.inner.resume_reading()

    def close(self) -> None:
        self.inner.close()

    def abort(self) -> None:
        self.inner.abort()

    def send(self, chunks: Sequence[Chunk]) -> None:
        frame = b"".join(c.read() if isinstance(c, FileRange) else bytes(c) for c in chunks)
        assert int.from_bytes(frame[:SIZE_BYTES], "big") == len(frame) - SIZE_BYTES, "one request"
        self.request_sent(frame[SIZE_BYTES:])

    def request_sent(self, frame: bytes) -> None:
        """One request, without its size."""
        self.inner.send([len(frame).to_bytes(SIZE_BYTES, "big") + frame])

    # Towards the network: FrameReceiver

    def frame_received(self, frame: memoryview) -> None:
        self.receiver.frame_received(frame)

    def connection_lost(self, reason: str) -> None:
        self.receiver.connection_lost(reason)
