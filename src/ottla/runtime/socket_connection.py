"""A framed connection on a raw non-blocking socket.

asyncio's transports copy every byte once more and keep a buffer for each connection. Here small frames are parsed where
the system put them, in one buffer that all connections share. A large frame gets a buffer of its own
(`runtime.frame_memory`). Answers leave in one `sendmsg` for each turn of the loop, and ranges of files by `sendfile`.
Only `add_reader`, `add_writer` and `call_soon` are asked of the loop, so uvloop and asyncio's selector loop both serve.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from time import monotonic
from typing import Any

from ottla.runtime import unix_sockets
from ottla.runtime.frame_memory import RECEIVE_BUFFER_BYTES, LargeFrame, ReceiveMemory
from ottla.runtime.framed_connection import (
    FRAME_SIZE,
    TURN_S,
    FramedConnection,
    ShortFile,
    error_reason,
)
from ottla.runtime.hang_ups import hang_ups_of
from ottla.runtime.seams import Buffer, FileRange, FrameReceiver

logger = logging.getLogger(__name__)

PARTIAL_BYTES_MAX = 16 * 1024
"""An unfinished frame longer than this moves from the shared buffer into one of its own."""
READS_PER_TURN = 8
"""After so many reads a connection lets the others have a turn."""
WRITE_BYTES_PER_TURN = 1024 * 1024
SENDFILE_BYTES_MIN = 16 * 1024
"""Shorter file ranges are cheaper to read and send along with their neighbours."""
IOV_MAX = 512
MSG_MORE: int = getattr(socket, "MSG_MORE", 0)

assert PARTIAL_BYTES_MAX * 2 <= RECEIVE_BUFFER_BYTES, "a kept part leaves room to receive the rest"


class SocketConnection(FramedConnection):
    """One connection on a real socket."""

    __slots__ = (
        "_fd",
        "_frame_memory",
        "_hang_ups",
        "_hung_up",
        "_large",
        "_local",
        "_partial",
        "_peer",
        "_reading",
        "_receive_buffer",
        "_socket",
        "_spare_buffers",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        memory: ReceiveMemory,
        connected: socket.socket,
        frame_bytes_max: int,
        *,
        accepted: bool,
    ) -> None:
        super().__init__(
            loop,
            frame_bytes_max,
            accepted=accepted,
            schedule_flush=loop.call_soon,
            now=monotonic,
        )
        self._receive_buffer = memory.receive_buffer
        self._spare_buffers = memory.spare_buffers
        self._frame_memory = memory.accepted_frames if accepted else memory.opened_frames
        self._socket = connected
        self._fd = connected.fileno()
        self._peer = address_of(connected.getpeername())
        self._local = address_of(connected.getsockname())
        self._partial: bytes = b""
        """Bytes that came and are not delivered: the beginning of a frame, or all that came before a pause."""
        self._large: LargeFrame | None = None
        self._reading = False
        """`add_reader` is in force. (`_writing`: `add_writer` is.)"""
        self._hang_ups = hang_ups_of(loop)
        self._hung_up = False

    @property
    def peer(self) -> tuple[str, int]:
        return self._peer

    @property
    def local(self) -> tuple[str, int]:
        return self._local

    # Receiving

    def start(self, receiver: FrameReceiver) -> None:
        super().start(receiver)
        if self._hang_ups is not None and not self._closed:
            self._hang_ups.watch(self._fd, self._peer_is_gone)

    def _peer_is_gone(self, is_reset: bool) -> None:
        """Take all that it sent, as far as that is wanted, up to the end or the error."""
        if self._closed:
            return
        self._hung_up = True
        if self._reading:
            self._readable()
            self._loop.call_soon(self._peer_is_gone, is_reset)
        elif (
            is_reset and not self._put_off
        ):  # what is put off is delivered, and then the error found
            self._lose("reset by the peer")

    def _resume(self) -> None:
        if self._partial and not self._is_held_back:
            rest = self._partial
            self._partial = b""
            self._begin_turn()
            self._receive_buffer[: len(rest)] = rest
            position = self._deliver_frames(self._receive_buffer, len(rest))
            if position < len(rest):
                self._keep(position, len(rest))
        self._update_reading()
        if self._hung_up and self._reading:
            self._peer_is_gone(False)

    def _update_reading(self) -> None:
        wanted = self._receiver is not None and not self._is_held_back
        if wanted and not self._reading:
            self._reading = True
            self._loop.add_reader(self._fd, self._readable)
        elif self._reading and not wanted:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def _readable(self) -> None:
        self._delivering = True
        self._begin_turn()
        try:
            self._receive()
        finally:
            self._delivering = False
        if self._queue and not self._writing:
            self._flush()

    def _receive(self) -> None:
        for _ in range(READS_PER_TURN):
            if not self._reading:
                return
            try:
                if self._large is not None:
                    more = self._receive_large(self._large)
                else:
                    more = self._receive_small()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as problem:
                self._lose(error_reason(problem))
                return
            except (MemoryError, BufferError) as problem:
                self._lose(f"no buffer for a frame: {problem}")
                return
            if not more:
                return

    def _receive_small(self) -> bool:
        """Receive into the shared buffer and deliver; whether there may be more to read at once."""
        kept = len(self._partial)
        buffer = self._receive_buffer
        received = self._socket.recv_into(buffer[kept:])
        if not received:
            self._lose("closed by the peer")
            return False
        if kept:
            buffer[:kept] = self._partial
            self._partial = b""
        end = kept + received
        position = self._deliver_frames(buffer, end)
        if position < end:
            self._keep(position, end)
        return end == len(buffer)

    def _keep(self, position: int, end: int) -> None:
        """Keep what was not delivered of the first `end` bytes of the shared buffer."""
        if self._closing or self._closed:
            return
        buffer = self._receive_buffer
        body = position + FRAME_SIZE.size
        if end - body > PARTIAL_BYTES_MAX and not self._is_held_back:
            # Not held back, so the frame is incomplete.
            (size,) = FRAME_SIZE.unpack_from(buffer, position)
            self._begin_large(size, buffer[body:end])
        else:
            self._partial = bytes(buffer[position:end])

    def _begin_large(self, size: int, begun: memoryview) -> None:
        buffer = self._spare_buffers.take()
        owner = self._peer[0] if self._accepted else None
        self._large = LargeFrame(size, buffer, self._frame_memory, self._give_up_large, owner)
        try:
            self._large.begin(begun)
        except MemoryError as problem:
            self._lose(f"no buffer for a frame: {problem}")

    def _give_up_large(self) -> None:
        self._lose("its frame came to a standstill while others had no room")

    def _receive_large(self, large: LargeFrame) -> bool:
        received, filled = large.receive(self._socket)
        if not received:
            self._lose("closed by the peer within a frame")
            return False
        if large.complete:
            self._large = None
            self._frame_memory.release(large)
            self.received_at = 0.0
            self._deliver(memoryview(large.buffer)[: large.size], self.now())
            self._spare_buffers.keep(large.buffer)
            if self.now() - self._turn_began > TURN_S:
                self._put_off_rest()
        return filled

    # Sending

    def _flush(self) -> None:
        if self._closed:
            return
        budget = WRITE_BYTES_PER_TURN
        try:
            while self._queue and budget > 0:
                head = self._queue[0]
                if isinstance(head, FileRange) and _by_sendfile(head):
                    sent = self._send_file(head, budget)
                    whole = sent == head.size
                else:
                    sent, whole = self._send_buffers()
                budget -= sent
                self._queued_bytes -= sent
                if not whole:
                    break
        except (BlockingIOError, InterruptedError):
            pass  # the system's buffer is full; the writer below waits for room
        except OSError as problem:
            self._lose(error_reason(problem))
            return
        if budget < WRITE_BYTES_PER_TURN:
            self._active_at = self.now()
            if self.marks and not self._queue and self.sent is not None:
                self.sent += ((self._active_at, self.marks),)
                self.marks = []
        if self._queue and not self._writing:
            if budget > 0:
                self._writing = True
                self._loop.add_writer(self._fd, self._flush)
            elif not self._flush_scheduled:
                # The system would take more. A turn for the others costs fewer calls than waiting for the writer.
                self._flush_scheduled = True
                self._schedule_flush(self._scheduled_flush)
        elif self._writing and not self._queue:
            self._writing = False
            self._loop.remove_writer(self._fd)
        if self._closing or self._choked:
            self._flushed()

    def _send_buffers(self) -> tuple[int, bool]:
        """Send the buffers at the head of the queue in one call: (bytes sent, whether all of them)."""
        buffers: list[Buffer] = []
        total = 0
        more = 0
        for chunk in self._queue:
            if isinstance(chunk, FileRange):
                if _by_sendfile(chunk):
                    more = MSG_MORE  # one packet with what sendfile adds
                    break
                chunk = _read_whole(chunk)
            buffers.append(chunk)
            total += len(chunk)
            if len(buffers) == IOV_MAX or total >= WRITE_BYTES_PER_TURN:
                break
        sent = self._socket.sendmsg(buffers, (), more)
        if sent == total:
            for _ in buffers:
                self._queue.popleft()
            return sent, True
        left = sent
        for buffer in buffers:
            if left < len(buffer):
                # What was read from a file stays in memory: the range may be gone next time.
                self._queue[0] = memoryview(buffer)[left:]
                return sent, False
            left -= len(buffer)
            self._queue.popleft()
        raise AssertionError(f"{sent} of {total} bytes were sent, and none is left")

    def _send_file(self, chunk: FileRange, budget: int) -> int:
        count = min(chunk.size, budget)
        sent = os.sendfile(self._fd, chunk.file.fileno(), chunk.position, count)
        if not sent:
            raise ShortFile
        if sent == chunk.size:
            self._queue.popleft()
        else:
            self._queue[0] = chunk.after(sent)
        return sent

    # The end

    def _release(self) -> None:
        self._update_reading()
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
        if self._hang_ups is not None:
            self._hang_ups.forget(self._fd)
        self._socket.close()
        self._partial = b""
        if self._large is not None:
            self._frame_memory.release(self._large)
            self._large = None

    def _report(self, what: str, problem: Exception) -> None:
        logger.error(
            "work on a connection failed what=%s connection=%s", what, self, exc_info=problem
        )


def prepare(connected: socket.socket) -> None:
    """Set the options that every connected socket has."""
    connected.setblocking(False)
    if connected.family == socket.AF_UNIX:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, unix_sockets.SEND_BUFFER_BYTES)
    else:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def address_of(address: Any) -> tuple[str, int]:
    """(host, port) of what `getsockname` or `getpeername` returned."""
    if isinstance(address, (str, bytes)):
        return unix_sockets.address_of(address)
    return str(address[0]).removeprefix("::ffff:"), int(address[1])


def _by_sendfile(chunk: FileRange) -> bool:
    return chunk.size >= SENDFILE_BYTES_MIN and chunk.file.fileno() >= 0


def _read_whole(chunk: FileRange) -> bytes:
    data = chunk.read()
    if len(data) < chunk.size:
        raise ShortFile
    return data
