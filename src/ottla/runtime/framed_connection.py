"""The rules of a connection that carries length-prefixed frames, for real and for simulated sockets.

A connection has a queue of what is still to be sent. It stops reading while too much is queued (choking). It closes
when the queue is empty, or when the peer has stopped taking from it. It refuses frames of a size that is not allowed.
These rules are written once, here. `runtime.socket_connection` moves the bytes on real sockets, and
`sim.engine.network` on simulated ones.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from struct import Struct
from typing import TYPE_CHECKING, Any

from ottla.runtime.seams import (
    AcceptedConnection,
    Chunk,
    Connection,
    FileRange,
    FrameReceiver,
    Identity,
)

if TYPE_CHECKING:
    import asyncio

logger = logging.getLogger(__name__)

FRAME_SIZE = Struct(">i")

QUEUED_BYTES_MAX = 4 * 1024 * 1024
"""A connection that a peer opened is choked while more than this is queued for the peer: it is not read until half
of the queue is gone. A connection that we opened is always read. Otherwise two ends could wait for each other for ever."""
FRAMES_PER_TURN = 128
TURN_S = 0.005
"""After so many frames of one connection, or when they have taken so long, the others have their turn, and the rest of what came
is delivered after that. Thousands of small requests fit into one buffer, and some take milliseconds. By the simulator's
clock a turn takes no time, so there only the number counts."""
CLOSE_PATIENCE_S = 5.0
"""A closing connection still sends what is queued. It is lost when the peer took nothing for this long."""

FIRST_BYTES = 16
"""How many bytes of a refused frame are told."""
OTHER_PROTOCOLS = {
    **dict.fromkeys((b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC"), "HTTP"),
    **dict.fromkeys((b"CONN", b"TRAC", b"PRI "), "HTTP"),
    **dict.fromkeys((b"\x16\x03" + bytes([minor]) for minor in range(4)), "TLS"),
    b"SSH-": "SSH",
    b"PROX": "the PROXY protocol",
}
"""The first bytes of peers that do not speak Kafka's protocol. We read them as the size of a frame."""


class FrameRefused(str):
    """The reason for which a connection is lost that announces a frame of this size."""

    begins: bytes
    """The first bytes that the peer sent in place of a frame."""
    protocol: str | None
    """The one that the peer seems to speak."""

    def __new__(cls, size: int, limit: int, begins: bytes) -> FrameRefused:
        found = (name for other, name in OTHER_PROTOCOLS.items() if begins.startswith(other))
        protocol = next(found, None)
        told = "" if protocol is None else f" (the peer seems to speak {protocol})"
        reason = super().__new__(cls, f"frame of {size} bytes refused, the limit is {limit}{told}")
        reason.begins, reason.protocol = begins, protocol
        return reason

    @property
    def words(self) -> str:
        """What the peer seems to want, for people who look for the cause."""
        if self.protocol == "TLS":
            return "TLS ClientHello on a plaintext listener"
        if self.protocol is not None:
            return self.protocol
        is_text = all(32 <= byte < 127 or byte in b"\r\n\t" for byte in self.begins)
        return "text" if is_text else "unknown"


def error_reason(problem: OSError) -> str:
    """The reason for which a connection is lost after this error."""
    return f"{type(problem).__name__}: {problem.strerror or problem}"


class ShortFile(OSError):
    """A file became shorter than a range that was to be sent from it."""

    def __str__(self) -> str:
        return "a file was truncated while it was being sent"


class FramedConnection(ABC):
    """One connection that speaks length-prefixed frames. Subclasses move the bytes.

    A subclass calls `_deliver_frames` with bytes that came, and `_flushed` after it sent something while the connection
    is closing or choked.
    """

    __slots__ = (
        "_accepted",
        "_active_at",
        "_choked",
        "_closed",
        "_closing",
        "_delivering",
        "_flush_scheduled",
        "_frames_left",
        "_loop",
        "_paused",
        "_put_off",
        "_queue",
        "_queued_bytes",
        "_receiver",
        "_schedule_flush",
        "_turn_began",
        "_writing",
        "frame_bytes_max",
        "identity",
        "marks",
        "now",
        "received_at",
        "sent",
        "started_at",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        frame_bytes_max: int,
        *,
        accepted: bool,
        schedule_flush: Callable[[Callable[[], None]], object],
        now: Callable[[], float],
    ) -> None:
        """`accepted`: a peer opened it; otherwise we did. `schedule_flush` calls its argument on the loop's next turn.
        `now`: a clock that is finer than uvloop's, which stands still during a turn."""
        self._loop = loop
        self.now = now
        self._accepted = accepted
        self.frame_bytes_max = frame_bytes_max
        self._schedule_flush = schedule_flush
        self._receiver: FrameReceiver | None = None
        self._queue: deque[Chunk] = deque()
        self._queued_bytes = 0
        self._flush_scheduled = False
        self._delivering = False  # a flush follows when everything that came is delivered
        self._writing = False  # a flush follows when the system has room again
        self._paused = False  # by the receiver
        self._choked = False  # by a long queue
        self._put_off = False  # its turn is over, and the next one comes
        self._frames_left = FRAMES_PER_TURN
        self._turn_began = inf
        self._closing = False
        self._closed = False
        self.identity: Identity | None = None
        self._active_at = self.received_at = self.started_at = now()
        self.sent: list[tuple[float, list[Any]]] | None = None
        self.marks: list[Any] = []

    def __repr__(self) -> str:
        return f"<connection {self.local} to {self.peer}>"

    @property
    @abstractmethod
    def peer(self) -> tuple[str, int]: ...

    @property
    @abstractmethod
    def local(self) -> tuple[str, int]: ...

    @property
    def closed(self) -> bool:
        return self._closing or self._closed

    @property
    def queued_bytes(self) -> int:
        return self._queued_bytes

    @property
    def idle_s(self) -> float:
        return self.now() - self._active_at

    # What a subclass does

    @abstractmethod
    def _update_reading(self) -> None:
        """Read from now on, or no longer, as `_is_held_back` says."""

    @abstractmethod
    def _resume(self) -> None:
        """Deliver what came before the connection was held back, then read again."""

    @abstractmethod
    def _flush(self) -> None:
        """Send as much of the queue as the system takes. What remains is sent when there is room again."""

    @abstractmethod
    def _release(self) -> None:
        """Close the socket, and free what belongs to it."""

    @abstractmethod
    def _report(self, what: str, problem: Exception) -> None:
        """Code that the connection called has raised. The connection goes on, or is lost, without raising itself."""

    # The beginning

    def start(self, receiver: FrameReceiver) -> None:
        assert self._receiver is None
        self._receiver = receiver
        self._update_reading()

    def start_accepted(self, accept: Callable[[AcceptedConnection], FrameReceiver]) -> None:
        """A failure of `accept` loses this connection, and leaves the listener as it is."""
        try:
            receiver = accept(self)
        except Exception as problem:
            self._report("accepting it", problem)
            self.abort()
            return
        self.start(receiver)

    def start_opened(self, make_receiver: Callable[[Connection], FrameReceiver]) -> None:
        """A failure of `make_receiver` loses this connection, and is raised."""
        try:
            self.start(make_receiver(self))
        except BaseException:
            self.abort()
            raise

    # Receiving

    def pause_reading(self) -> None:
        self._paused = True
        self._update_reading()

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            # Not at once: the caller may itself be inside `frame_received`.
            self._loop.call_soon(self._resume)

    @property
    def _is_held_back(self) -> bool:
        return self._paused or self._choked or self._put_off or self._closing or self._closed

    def _begin_turn(self) -> None:
        """A subclass calls it before it delivers what came since the last one."""
        self._frames_left = FRAMES_PER_TURN
        self._turn_began = inf

    def _put_off_rest(self) -> None:
        self._put_off = True
        self._update_reading()
        self._loop.call_soon(self._take_up_rest)

    def _take_up_rest(self) -> None:
        self._put_off = False
        self._resume()

    def _deliver_frames(self, buffer: memoryview, end: int) -> int:
        """Deliver the whole frames among the first `end` bytes, and return where they end.

        It stops early when a receiver pauses, chokes or closes the connection, and when the connection's turn is over.
        """
        position = 0
        self.received_at = 0.0
        while end - position >= FRAME_SIZE.size and not (
            self._paused or self._choked or self._closing or self._closed
        ):
            (size,) = FRAME_SIZE.unpack_from(buffer, position)
            if not 0 <= size <= self.frame_bytes_max:
                begins = bytes(buffer[position : min(end, position + FIRST_BYTES)])
                self._lose(FrameRefused(size, self.frame_bytes_max, begins))
                break
            body = position + FRAME_SIZE.size
            if body + size > end:
                break
            now = self.now()
            if not self._frames_left or now - self._turn_began > TURN_S:
                self._put_off_rest()
                break
            self._deliver(buffer[body : body + size], now)
            position = body + size
        return position

    def _deliver(self, frame: memoryview, now: float) -> None:
        assert self._receiver is not None
        self._active_at = self.started_at = now
        self._frames_left -= 1
        if now < self._turn_began:
            self._turn_began = now
        if not self.received_at:
            self.received_at = now
        try:
            self._receiver.frame_received(frame)
        except Exception as problem:
            self._report(f"receiving a frame of {len(frame)} bytes", problem)
            self._lose("the receiver failed")

    # Sending

    def send(self, chunks: Sequence[Chunk]) -> None:
        if self._closing or self._closed:
            return
        for chunk in chunks:
            size = chunk.size if isinstance(chunk, FileRange) else len(chunk)
            if size:
                self._queue.append(chunk)
                self._queued_bytes += size
        if self._queued_bytes > QUEUED_BYTES_MAX and self._accepted and not self._choked:
            self._choked = True
            self._update_reading()
        if self._queue and not (self._flush_scheduled or self._delivering or self._writing):
            self._flush_scheduled = True
            self._schedule_flush(self._scheduled_flush)

    def _scheduled_flush(self) -> None:
        self._flush_scheduled = False
        self._flush()

    def _flushed(self) -> None:
        """Part of the queue was sent: close or unchoke, if it is time."""
        if self._closing and not self._queue:
            self._lose("closed")
        elif self._choked and self._queued_bytes <= QUEUED_BYTES_MAX // 2:
            self._choked = False
            self._loop.call_soon(self._resume)

    # The end

    def close(self) -> None:
        if self.closed:
            return
        self._closing = True
        self._update_reading()
        if not self._queue:
            self._lose("closed")
        else:
            self._lose_if_stuck()

    def _lose_if_stuck(self, queued_before: int | None = None) -> None:
        if self._closed:
            return
        if self._queued_bytes == queued_before:
            self._lose("closed, though the peer had not taken everything")
            return
        self._loop.call_later(CLOSE_PATIENCE_S, self._lose_if_stuck, self._queued_bytes)

    def abort(self) -> None:
        self._lose("aborted")

    def _lose(self, reason: str) -> None:
        if self._closed:
            return
        self._closed = True
        self._release()
        self._queue.clear()
        self._queued_bytes = 0
        # Not at once: we may be inside a call of the receiver, and `accept` may not have returned one yet.
        self._loop.call_soon(self._call_connection_lost, reason)

    def _call_connection_lost(self, reason: str) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is None:  # `accept` or `make_receiver` failed
            return
        try:
            receiver.connection_lost(reason)
        except Exception as problem:
            self._report(f"handling its end ({reason})", problem)
