"""The memory into which a node's connections receive frames.

All connections share one buffer, in which small frames are parsed where the system put them. A large frame gets a
buffer of its own. That buffer grows with the bytes that really came. All unfinished large frames together take a
bounded amount of memory.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable

RECEIVE_BUFFER_BYTES = 64 * 1024
SPARE_BYTES_MAX = 6 * 1024 * 1024
"""Buffers of large frames, this much together, are kept for the next ones. A follower receives from several leaders at a
time, and fresh memory costs more than the bytes that come into it."""
LARGE_FRAMES_BYTES_MAX = 1 << 30
"""The limit for unfinished large frames on all connections that peers opened. The connections that we opened have the
same limit, apart from it: frames that strangers begin must not stop our own replication."""
ADDRESS_BYTES_MAX = 1 << 28
"""The same for the connections of one address: a quarter. One client may begin a frame on each of a thousand connections, and
need not have any right to write. Producers behind one address never have so much on the way."""
STANDSTILL_S = 1.0
STANDSTILL_BYTES = 64 * 1024
"""When a limit is reached, frames that received fewer bytes than this, for at least this long, are given up."""


class LargeFrame:
    """A frame that is received into a buffer of its own.

    The announced size cannot be trusted. So the buffer grows to at most twice what has really arrived.
    """

    __slots__ = ("_memory", "buffer", "filled", "give_up", "owner", "reserved", "size")

    def __init__(
        self,
        size: int,
        buffer: bytearray,
        memory: FrameMemory,
        give_up: Callable[[], None],
        owner: str | None = None,
    ) -> None:
        """`owner`: the address that sends it. None: one of our own, which has no share."""
        self.size = size
        self.owner = owner
        self.filled = 0
        self.buffer = buffer
        self.reserved = 0
        self.give_up = give_up
        self._memory = memory

    def begin(self, begun: memoryview) -> None:
        assert not self.filled and len(begun) <= self.size
        self.filled = len(begun)
        if len(self.buffer) < self.filled:
            self._grow()
        self.buffer[: self.filled] = begun

    def receive(self, connected: socket.socket) -> tuple[int, bool]:
        """(bytes received, whether they filled the room there was: there may then be more)."""
        if self.filled == len(self.buffer):
            self._grow()
        with memoryview(self.buffer) as whole, whole[self.filled : self.size] as room:
            received = connected.recv_into(room)
            filled = received == len(room)
        self.filled += received
        return received, filled

    def _grow(self) -> None:
        wanted = min(self.size, max(2 * self.filled, 2 * RECEIVE_BUFFER_BYTES))
        more = wanted - len(self.buffer)
        self._memory.reserve(self, more)
        self.buffer += bytes(more)

    @property
    def complete(self) -> bool:
        return self.filled == self.size


class FrameMemory:
    """What the unfinished large frames of some connections take together.

    `reserve` raises MemoryError where they would take too much. Frames that came to a standstill are given up first.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.taken_bytes = 0
        self._now = now
        self._checked_at = -math.inf
        self._taken_by: dict[str, int] = {}
        self._unfinished: dict[LargeFrame, int | None] = {}
        """How much of each had come at the last check; None for one that began after it."""

    def reserve(self, frame: LargeFrame, size: int) -> None:
        if self._is_short(frame, size):
            self._give_up_standing_frames(frame, size)
        if self._is_short(frame, size):
            taken = self._taken_by.get(frame.owner or "", 0)
            raise MemoryError(
                f"{self.taken_bytes} bytes are taken by unfinished frames, {taken} by its address"
            )
        self._unfinished.setdefault(frame, None)
        self.taken_bytes += size
        frame.reserved += size
        if frame.owner is not None:
            self._taken_by[frame.owner] = self._taken_by.get(frame.owner, 0) + size

    def _is_short(self, frame: LargeFrame, size: int) -> bool:
        return (
            self.taken_bytes + size > LARGE_FRAMES_BYTES_MAX
            or self._taken_by.get(frame.owner or "", 0) + size > ADDRESS_BYTES_MAX
        )

    def release(self, frame: LargeFrame) -> None:
        self._unfinished.pop(frame, None)  # one that fit into a spare buffer reserved nothing
        self.taken_bytes -= frame.reserved
        assert self.taken_bytes >= 0
        if frame.owner is not None and frame.reserved:
            self._taken_by[frame.owner] -= frame.reserved
            if not self._taken_by[frame.owner]:
                del self._taken_by[frame.owner]

    def _give_up_standing_frames(self, asking: LargeFrame, size: int) -> None:
        now = self._now()
        if now - self._checked_at < STANDSTILL_S:
            return
        self._checked_at = now
        is_full = self.taken_bytes + size > LARGE_FRAMES_BYTES_MAX
        for frame, before in list(self._unfinished.items()):
            stands = before is not None and frame.filled - before < STANDSTILL_BYTES
            # Others do not give way to an address that has used up its own share.
            if stands and frame is not asking and (is_full or frame.owner == asking.owner):
                frame.give_up()
                assert frame not in self._unfinished
            else:
                self._unfinished[frame] = frame.filled


class SpareBuffers:
    """Buffers of large frames that are complete, for the next large frames."""

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []
        self._bytes = 0

    def take(self) -> bytearray:
        if not self._buffers:
            return bytearray()
        buffer = self._buffers.pop()
        self._bytes -= len(buffer)
        return buffer

    def keep(self, buffer: bytearray) -> None:
        """Keep it, unless a view of it still exists. Even the traceback of a stored exception can hold one. Such a
        buffer cannot grow, and its content must not change."""
        if self._bytes + len(buffer) > SPARE_BYTES_MAX:
            return
        try:
            buffer.append(0)
        except BufferError:
            return
        del buffer[-1:]
        self._buffers.append(buffer)
        self._bytes += len(buffer)


class ReceiveMemory:
    """What all connections of one network receive into."""

    __slots__ = ("accepted_frames", "opened_frames", "receive_buffer", "spare_buffers")

    def __init__(self, now: Callable[[], float]) -> None:
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.spare_buffers = SpareBuffers()
        self.accepted_frames = FrameMemory(now)
        self.opened_frames = FrameMemory(now)
