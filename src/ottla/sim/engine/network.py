"""The `Network` seam on simulated TCP: the same promises as `runtime.sockets`, with one additional check.

`runtime.framed_connection` holds the rules of a connection, as on real sockets. A frame's bytes are overwritten
when its receiver has returned. Code that keeps a view of them breaks the seam's contract, and reads nonsense in every
run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.runtime import (
    AcceptedConnection,
    Chunk,
    Connection,
    FileRange,
    FrameReceiver,
    Identity,
    Tls,
)
from ottla.runtime.framed_connection import FramedConnection, ShortFile, error_reason
from ottla.runtime.seams import Door
from ottla.sim.engine.tcp import Host, TcpListener, TcpSocket
from ottla.sim.engine.toy_tls import ClientHandshake, ServerHandshake, ToyTls

if TYPE_CHECKING:
    from ottla.sim.engine.loop import SimLoop

POISON = b"\xdb"


class SimConnection(FramedConnection):
    """One connection on a simulated socket."""

    _loop: SimLoop

    def __init__(
        self,
        loop: SimLoop,
        tcp: TcpSocket,
        frame_bytes_max: int,
        *,
        accepted: bool,
        rest: bytes = b"",
    ) -> None:
        super().__init__(
            loop,
            frame_bytes_max,
            accepted=accepted,
            schedule_flush=loop.call_soon_quietly,
            now=loop.time,
        )
        self._tcp = tcp
        self._rest = bytearray(rest)
        """Bytes received and not yet delivered."""
        tcp.user = self

    def __repr__(self) -> str:
        return f"<simulated connection {self.local} to {self.peer}>"

    @property
    def peer(self) -> tuple[str, int]:
        return self._tcp.peer

    @property
    def local(self) -> tuple[str, int]:
        return self._tcp.local

    def start(self, receiver: FrameReceiver) -> None:
        super().start(receiver)
        self._loop.call_soon(self.readable)

    # Receiving

    def _update_reading(self) -> None:
        """Nothing to do: simulated TCP always calls `readable`, which checks `_is_held_back`."""

    def _resume(self) -> None:
        self.readable()

    def readable(self) -> None:
        """Bytes, the end or an error have arrived."""
        if self._receiver is None or self._closed:
            return
        if self._is_held_back:
            if self._tcp.error is not None:
                self._lose(error_reason(self._tcp.error))
            return
        self._begin_turn()
        received = self._rest + self._tcp.read()
        self._rest = received[self._deliver_frames(memoryview(received), len(received)) :]
        if self._is_held_back:
            return
        if self._tcp.error is not None:
            self._lose(error_reason(self._tcp.error))
        elif self._tcp.ended:
            self._lose("closed by the peer within a frame" if self._rest else "closed by the peer")

    def _deliver(self, frame: memoryview, now: float) -> None:
        super()._deliver(frame, now)
        frame[:] = POISON * len(frame)

    # Sending

    def writable(self) -> None:
        """The peer has read data: the window has room again."""
        self._flush()

    def _flush(self) -> None:
        if self._closed or self._tcp.gone:
            return  # `readable` sees the error
        room = self._tcp.room
        ready: list[bytes] = []
        try:
            while self._queue and room > 0:
                data = _take(self._queue, room)
                ready.append(data)
                room -= len(data)
        except OSError as problem:
            self._lose(error_reason(problem))
            return
        sending = b"".join(ready)
        self._queued_bytes -= len(sending)
        taken = self._tcp.write(sending)
        assert taken == len(sending)
        if taken:
            self._active_at = self.now()
            if self.marks and not self._queue and self.sent is not None:
                self.sent += ((self._active_at, self.marks),)
                self.marks = []
        if self._queue:
            self._tcp.wait_for_room()
        if self._closing or self._choked:
            self._flushed()

    # The end

    def _release(self) -> None:
        self._tcp.close()

    def _report(self, what: str, problem: Exception) -> None:
        """The simulation reports it as a bug of the node."""
        self._loop.call_exception_handler({"message": f"{self!r}: {what}", "exception": problem})


class SimListener:
    def __init__(self, tcp: TcpListener) -> None:
        self._tcp = tcp

    @property
    def address(self) -> tuple[str, int]:
        return self._tcp.host.address, self._tcp.port

    def close(self) -> None:
        self._tcp.close()


class SimNetwork:
    """The network as one host sees it."""

    def __init__(self, loop: SimLoop, host: Host) -> None:
        self._loop = loop
        self._host = host

    async def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[AcceptedConnection], FrameReceiver],
        *,
        frame_bytes_max: int,
        tls: Tls | None = None,
        door: Door | None = None,
    ) -> SimListener:
        def start(tcp: TcpSocket, identity: Identity | None = None, rest: bytes = b"") -> None:
            connection = SimConnection(self._loop, tcp, frame_bytes_max, accepted=True, rest=rest)
            connection.identity = identity
            connection.start_accepted(accept)

        def accepted(tcp: TcpSocket) -> None:
            if door is not None and (door.wait_s() or door.refusal(tcp.peer[0]) is not None):
                # Nothing waits in a simulated backlog: whoever would have to is refused, and comes again.
                tcp.close()
            elif tls is None:
                start(tcp)
            else:
                assert isinstance(tls, ToyTls)
                ServerHandshake(tls, tcp, partial(start, tcp))

        return SimListener(self._loop.network.listen(self._host, port, accepted))

    async def connect(
        self,
        host: str,
        port: int,
        receiver: Callable[[Connection], FrameReceiver],
        *,
        frame_bytes_max: int = 1 << 30,
        tls: Tls | None = None,
    ) -> SimConnection:
        tcp = await self._loop.network.connect(self._host, host, port)
        rest = b""
        if tls is not None:
            assert isinstance(tls, ToyTls)
            rest = await ClientHandshake(tls, tcp, host).over()
        connection = SimConnection(self._loop, tcp, frame_bytes_max, accepted=False, rest=rest)
        connection.start_opened(receiver)
        return connection


def _take(queue: deque[Chunk], room: int) -> bytes:
    """Up to `room` bytes from the head of the queue."""
    head = queue[0]
    if isinstance(head, FileRange):
        size = min(head.size, room)
        data = head.file.read_at(head.position, size)
        if len(data) < size:
            raise ShortFile
        if size == head.size:
            queue.popleft()
        else:
            queue[0] = head.after(size)
        return data
    if len(head) <= room:
        queue.popleft()
        return bytes(head)
    queue[0] = memoryview(head)[room:]
    return bytes(memoryview(head)[:room])
