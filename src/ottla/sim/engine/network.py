"""The `Network` seam on simulated TCP: the same promises as `runtime.sockets`, checked a little harder.

A frame's bytes are overwritten once its receiver has returned, so that code which keeps a view of them,
against the seam's contract, reads nonsense at once and in every run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import TYPE_CHECKING

from ottla.runtime import (
    CLOSE_PATIENCE_S,
    QUEUED_BYTES_MAX,
    AcceptedConnection,
    Chunk,
    Connection,
    FileRange,
    FrameReceiver,
    frame_refused,
)
from ottla.sim.engine.tcp import Host, TcpListener, TcpSocket

if TYPE_CHECKING:
    from ottla.sim.engine.loop import SimLoop

FRAME_SIZE = Struct(">i")
POISON = b"\xdb"


class SimConnection:
    def __init__(
        self, loop: SimLoop, tcp: TcpSocket, frame_bytes_max: int, *, accepted: bool
    ) -> None:
        self._loop = loop
        self._accepted = accepted
        self._tcp = tcp
        self._frame_bytes_max = frame_bytes_max
        self._receiver: FrameReceiver | None = None
        self._input = bytearray()
        self._queue: deque[Chunk] = deque()
        self._queued_bytes = 0
        self._flush_scheduled = False
        self._paused = False
        self._choked = False
        self._closing = False
        self._closed = False
        self._active_at = loop.time()
        tcp.user = self

    def __repr__(self) -> str:
        return f"<simulated connection {self.local} to {self.peer}>"

    @property
    def peer(self) -> tuple[str, int]:
        return self._tcp.peer

    @property
    def local(self) -> tuple[str, int]:
        return self._tcp.local

    @property
    def closed(self) -> bool:
        return self._closing or self._closed

    @property
    def queued_bytes(self) -> int:
        return self._queued_bytes

    @property
    def idle_s(self) -> float:
        return self._loop.time() - self._active_at

    def start(self, receiver: FrameReceiver) -> None:
        assert self._receiver is None
        self._receiver = receiver
        self._loop.call_soon(self.readable)

    # Receiving

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._loop.call_soon(self.readable)

    @property
    def _is_held_back(self) -> bool:
        return self._paused or self._choked or self.closed

    def readable(self) -> None:
        """Bytes, the end or an error have arrived."""
        if self._receiver is None or self._closed:
            return
        if self._is_held_back:
            if self._tcp.error is not None:
                self._lose(_reason(self._tcp.error))
            return
        self._input += self._tcp.read()
        self._parse()
        if self._is_held_back:
            return
        if self._tcp.error is not None:
            self._lose(_reason(self._tcp.error))
        elif self._tcp.ended:
            self._lose("closed by the peer within a frame" if self._input else "closed by the peer")

    def _parse(self) -> None:
        data = self._input
        position = 0
        while len(data) - position >= FRAME_SIZE.size and not self._is_held_back:
            (size,) = FRAME_SIZE.unpack_from(data, position)
            if not 0 <= size <= self._frame_bytes_max:
                self._lose(frame_refused(size, self._frame_bytes_max))
                return
            body = position + FRAME_SIZE.size
            if body + size > len(data):
                break
            self._deliver(data[body : body + size])
            position = body + size
        del data[:position]

    def _deliver(self, frame: bytearray) -> None:
        assert self._receiver is not None
        view = memoryview(frame)
        self._active_at = self._loop.time()
        try:
            self._receiver.frame_received(view)
        except Exception as problem:
            self.report(f"the receiver failed on a frame of {len(frame)} bytes", problem)
            self._lose("the receiver failed")
        view[:] = POISON * len(view)

    # Sending

    def send(self, chunks: Sequence[Chunk]) -> None:
        if self.closed:
            return
        for chunk in chunks:
            size = chunk.size if isinstance(chunk, FileRange) else len(chunk)
            if size:
                self._queue.append(chunk)
                self._queued_bytes += size
        if self._queued_bytes > QUEUED_BYTES_MAX and self._accepted:
            self._choked = True
        if self._queue and not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon_quietly(self._scheduled_flush)

    def _scheduled_flush(self) -> None:
        self._flush_scheduled = False
        self.writable()

    def writable(self) -> None:
        """Hand over as much as the window takes; the rest waits to be called again."""
        if self._closed or self._tcp.gone:
            return  # `readable` hears of the error
        room = self._tcp.room
        ready: list[bytes] = []
        try:
            while self._queue and room > 0:
                data = _take(self._queue, room)
                ready.append(data)
                room -= len(data)
        except OSError as problem:
            self._lose(_reason(problem))
            return
        sending = b"".join(ready)
        self._queued_bytes -= len(sending)
        taken = self._tcp.write(sending)
        assert taken == len(sending)
        if taken:
            self._active_at = self._loop.time()
        if self._queue:
            self._tcp.wait_for_room()
        elif self._closing:
            self._lose("closed")
        if self._choked and self._queued_bytes <= QUEUED_BYTES_MAX // 2:
            self._choked = False
            self._loop.call_soon(self.readable)

    # The end

    def close(self) -> None:
        if self.closed:
            return
        self._closing = True
        if not self._queue:
            self._lose("closed")
        else:
            self._close_as_it_is_taken()

    def _close_as_it_is_taken(self, queued_before: int | None = None) -> None:
        if self._closed:
            return
        if self._queued_bytes == queued_before:
            self._lose("closed, though the peer had not taken everything")
            return
        self._loop.call_later(CLOSE_PATIENCE_S, self._close_as_it_is_taken, self._queued_bytes)

    def abort(self) -> None:
        self._lose("aborted")

    def _lose(self, reason: str) -> None:
        if self._closed:
            return
        self._closed = True
        self._tcp.close()
        self._queue.clear()
        self._queued_bytes = 0
        self._loop.call_soon(self._tell_receiver, reason)

    def _tell_receiver(self, reason: str) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is None:
            return
        try:
            receiver.connection_lost(reason)
        except Exception as problem:
            self.report(f"the receiver failed on hearing that it was lost ({reason})", problem)

    def report(self, what: str, problem: Exception) -> None:
        """Like the real connection we survive it; the simulation counts it as a bug of the node."""
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
    ) -> SimListener:
        def accepted(tcp: TcpSocket) -> None:
            connection = SimConnection(self._loop, tcp, frame_bytes_max, accepted=True)
            try:
                receiver = accept(connection)
            except Exception as problem:
                connection.report("accepting failed", problem)
                connection.abort()
                return
            connection.start(receiver)

        return SimListener(self._loop.network.listen(self._host, port, accepted))

    async def connect(
        self,
        host: str,
        port: int,
        receiver: Callable[[Connection], FrameReceiver],
        *,
        frame_bytes_max: int = 1 << 30,
    ) -> SimConnection:
        tcp = await self._loop.network.connect(self._host, host, port)
        connection = SimConnection(self._loop, tcp, frame_bytes_max, accepted=False)
        try:
            connection.start(receiver(connection))
        except BaseException:
            connection.abort()
            raise
        return connection


def _take(queue: deque[Chunk], room: int) -> bytes:
    """Up to `room` bytes from the head of the queue."""
    head = queue[0]
    if isinstance(head, FileRange):
        size = min(head.size, room)
        data = head.file.read_at(head.position, size)
        if len(data) < size:
            raise OSError("a file was truncated while it was being sent")
        if size == head.size:
            queue.popleft()
        else:
            queue[0] = FileRange(head.file, head.position + size, head.size - size)
        return data
    if len(head) <= room:
        queue.popleft()
        return bytes(head)
    queue[0] = memoryview(head)[room:]
    return bytes(memoryview(head)[:room])


def _reason(problem: OSError) -> str:
    return f"{type(problem).__name__}: {problem.strerror or problem}"
