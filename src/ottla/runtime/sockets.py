"""Connections of a broker on raw non-blocking sockets: the `Network` seam for the real machine.

asyncio's transports copy every byte once more and keep a buffer per connection. Here small frames are
parsed where the system put them, in one buffer that all connections share; a large frame gets a buffer
of its own, which grows with the bytes that really came; answers leave in one `sendmsg` per turn of the
loop, and ranges of files by `sendfile`. Only `add_reader`, `add_writer` and `call_soon` are asked of the
loop, so uvloop and asyncio's selector loop serve alike.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

from ottla.runtime import unix_sockets
from ottla.runtime.seams import (
    CLOSE_PATIENCE_S,
    QUEUED_BYTES_MAX,
    AcceptedConnection,
    Buffer,
    Chunk,
    Connection,
    FileRange,
    FrameReceiver,
    frame_refused,
)

log = logging.getLogger(__name__)

FRAME_SIZE = Struct(">i")
RECEIVE_BUFFER_BYTES = 64 * 1024
PARTIAL_BYTES_MAX = 16 * 1024
"""An unfinished frame longer than this moves from the shared buffer into one of its own."""
SPARE_BYTES_MAX = 6 * 1024 * 1024
"""Buffers of large frames, this much together, are kept for the next ones: a follower hears of several leaders
at a time, and fresh memory costs more than the bytes that come into it."""
LARGE_FRAMES_BYTES_MAX = 1 << 30
"""The connections that others opened may together have so much of unfinished large frames here, and so may those that
we opened, apart from them: what strangers begin must not keep us from hearing the leaders that we copy."""
STANDSTILL_S = 1.0
STANDSTILL_BYTES = 64 * 1024
"""Where that is used up, frames of which fewer bytes came, for at least so long, give way."""
READS_PER_TURN = 8
"""A connection that always has more to say lets the others speak after so many reads."""
WRITE_BYTES_PER_TURN = 1024 * 1024
SENDFILE_BYTES_MIN = 16 * 1024
"""Shorter file ranges are cheaper to read and send along with their neighbours."""
IOV_MAX = 512
BACKLOG = 1024
ACCEPTS_PER_TURN = 64
ACCEPT_PAUSE_S = 0.2
OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
MSG_MORE: int = getattr(socket, "MSG_MORE", 0)

assert PARTIAL_BYTES_MAX * 2 <= RECEIVE_BUFFER_BYTES, "a kept part leaves room to receive the rest"


class ShortFile(OSError):
    """A file became shorter than a range that was to be sent from it."""

    def __str__(self) -> str:
        return "a file was truncated while it was being sent"


class LargeFrame:
    """A frame on its way into a buffer of its own.

    The size was announced by a stranger: the buffer grows to at most twice what has really arrived.
    """

    __slots__ = ("_memory", "buffer", "filled", "give_way", "reserved", "size")

    def __init__(
        self, size: int, buffer: bytearray, memory: FrameMemory, give_way: Callable[[], None]
    ) -> None:
        self.size = size
        self.filled = 0
        self.buffer = buffer
        self.reserved = 0
        self.give_way = give_way
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

    MemoryError where they would take too much; but not because of frames that nobody goes on sending.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.taken_bytes = 0
        self._now = now
        self._looked_at = -math.inf
        self._unfinished: dict[LargeFrame, int | None] = {}
        """How much of each had come when we looked last; None of one that began afterwards."""

    def reserve(self, frame: LargeFrame, size: int) -> None:
        if self.taken_bytes + size > LARGE_FRAMES_BYTES_MAX:
            self._let_standing_ones_give_way(frame)
        if self.taken_bytes + size > LARGE_FRAMES_BYTES_MAX:
            raise MemoryError(f"{self.taken_bytes} bytes are taken by unfinished frames")
        self._unfinished.setdefault(frame, None)
        self.taken_bytes += size
        frame.reserved += size

    def release(self, frame: LargeFrame) -> None:
        self._unfinished.pop(frame, None)  # one that fit into a spare buffer reserved nothing
        self.taken_bytes -= frame.reserved
        assert self.taken_bytes >= 0

    def _let_standing_ones_give_way(self, asking: LargeFrame) -> None:
        now = self._now()
        if now - self._looked_at < STANDSTILL_S:
            return
        self._looked_at = now
        for frame, before in list(self._unfinished.items()):
            stands = before is not None and frame.filled - before < STANDSTILL_BYTES
            if stands and frame is not asking:
                frame.give_way()
                assert frame not in self._unfinished
            else:
                self._unfinished[frame] = frame.filled


class SocketConnection:
    """One connection that speaks length-prefixed frames."""

    __slots__ = (
        "_accepted",
        "_active_at",
        "_choked",
        "_closed",
        "_closing",
        "_delivering",
        "_fd",
        "_flush_scheduled",
        "_frame_bytes_max",
        "_large",
        "_local",
        "_memory",
        "_network",
        "_partial",
        "_paused",
        "_peer",
        "_queue",
        "_queued_bytes",
        "_reading",
        "_receiver",
        "_socket",
        "_writing",
    )

    def __init__(
        self,
        network: RealNetwork,
        connected: socket.socket,
        frame_bytes_max: int,
        *,
        accepted: bool,
    ) -> None:
        self._network = network
        self._accepted = accepted  # by a listener of ours; otherwise we opened it
        self._memory = network.accepted_frames if accepted else network.own_frames
        self._socket = connected
        self._fd = connected.fileno()
        self._frame_bytes_max = frame_bytes_max
        self._receiver: FrameReceiver | None = None
        self._peer = _address(connected.getpeername())
        self._local = _address(connected.getsockname())
        self._partial: bytes = b""
        self._large: LargeFrame | None = None
        self._queue: deque[Chunk] = deque()
        self._queued_bytes = 0
        self._flush_scheduled = False
        self._delivering = False  # what is sent meanwhile goes out when all that came is delivered
        self._writing = False  # add_writer is in force: the system's buffer was full
        self._reading = False  # add_reader is in force
        self._paused = False  # by the receiver
        self._choked = False  # by what the peer does not take
        self._closing = False
        self._closed = False
        self._active_at = network.loop.time()

    def __repr__(self) -> str:
        return f"<connection {self._local} to {self._peer}>"

    @property
    def peer(self) -> tuple[str, int]:
        return self._peer

    @property
    def local(self) -> tuple[str, int]:
        return self._local

    @property
    def closed(self) -> bool:
        return self._closing or self._closed

    @property
    def queued_bytes(self) -> int:
        return self._queued_bytes

    @property
    def idle_s(self) -> float:
        return self._network.loop.time() - self._active_at

    def start(self, receiver: FrameReceiver) -> None:
        assert self._receiver is None
        self._receiver = receiver
        self._update_reading()

    # Receiving

    def pause_reading(self) -> None:
        self._paused = True
        self._update_reading()

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            # Frames that arrived before the pause are delivered on a turn of their own: the caller may
            # itself be inside `frame_received`.
            self._network.loop.call_soon(self._resume)

    def _resume(self) -> None:
        if self._partial and not self._is_held_back:
            rest = self._partial
            self._partial = b""
            self._network.receive_buffer[: len(rest)] = rest
            self._parse(len(rest))
        self._update_reading()

    @property
    def _is_held_back(self) -> bool:
        return self._paused or self._choked or self._closing or self._closed

    def _update_reading(self) -> None:
        wanted = self._receiver is not None and not self._is_held_back
        if wanted and not self._reading:
            self._reading = True
            self._network.loop.add_reader(self._fd, self._readable)
        elif self._reading and not wanted:
            self._reading = False
            self._network.loop.remove_reader(self._fd)

    def _readable(self) -> None:
        self._delivering = True
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
                self._lose(_reason(problem))
                return
            except (MemoryError, BufferError) as problem:
                self._lose(f"no buffer for a frame: {problem}")
                return
            if not more:
                return

    def _receive_small(self) -> bool:
        """Receive into the shared buffer and deliver; whether there may be more to read at once."""
        kept = len(self._partial)
        buffer = self._network.receive_buffer
        received = self._socket.recv_into(buffer[kept:])
        if not received:
            self._lose("closed by the peer")
            return False
        if kept:
            buffer[:kept] = self._partial
            self._partial = b""
        self._parse(kept + received)
        return kept + received == len(buffer)

    def _parse(self, end: int) -> None:
        """Deliver the whole frames among the first `end` bytes of the shared buffer; keep the rest."""
        buffer = self._network.receive_buffer
        position = 0
        while end - position >= FRAME_SIZE.size and not (
            self._paused or self._choked or self._closing or self._closed
        ):
            (size,) = FRAME_SIZE.unpack_from(buffer, position)
            if not 0 <= size <= self._frame_bytes_max:
                reason = frame_refused(size, self._frame_bytes_max)
                log.warning("closing %r: %s", self, reason)
                self._lose(reason)
                return
            body = position + FRAME_SIZE.size
            if body + size > end:
                if end - body > PARTIAL_BYTES_MAX:
                    self._begin_large(size, buffer[body:end])
                    return
                break
            self._deliver(buffer[body : body + size])
            position = body + size
        if position < end and not self.closed:
            self._partial = bytes(buffer[position:end])

    def _begin_large(self, size: int, begun: memoryview) -> None:
        buffer = self._network.take_spare_buffer()
        self._large = LargeFrame(size, buffer, self._memory, self._give_way)
        try:
            self._large.begin(begun)
        except MemoryError as problem:
            self._lose(f"no buffer for a frame: {problem}")

    def _give_way(self) -> None:
        self._lose("its frame came to a standstill while others had no room")

    def _receive_large(self, large: LargeFrame) -> bool:
        received, filled = large.receive(self._socket)
        if not received:
            self._lose("closed by the peer within a frame")
            return False
        if large.complete:
            self._large = None
            self._memory.release(large)
            self._deliver(memoryview(large.buffer)[: large.size])
            self._network.keep_spare_buffer(large.buffer)
        return filled

    def _deliver(self, frame: memoryview) -> None:
        assert self._receiver is not None
        self._active_at = self._network.loop.time()
        try:
            self._receiver.frame_received(frame)
        except Exception:
            log.exception("%r: the receiver failed on a frame of %d bytes", self, len(frame))
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
        if self._queue and not (self._delivering or self._writing):
            self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._network.loop.call_soon(self._scheduled_flush)

    def _scheduled_flush(self) -> None:
        self._flush_scheduled = False
        self._flush()

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
            self._lose(_reason(problem))
            return
        if budget < WRITE_BYTES_PER_TURN:
            self._active_at = self._network.loop.time()
        if self._queue and not self._writing:
            if budget > 0:
                self._writing = True
                self._network.loop.add_writer(self._fd, self._flush)
            else:  # the system would take more: to wait for that costs more calls than to let the others have a turn
                self._flush_soon()
        elif self._writing and not self._queue:
            self._writing = False
            self._network.loop.remove_writer(self._fd)
        if self._closing and not self._queue:
            self._lose("closed")
        elif self._choked and self._queued_bytes <= QUEUED_BYTES_MAX // 2:
            self._choked = False
            self._network.loop.call_soon(self._resume)

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
            self._queue[0] = FileRange(chunk.file, chunk.position + sent, chunk.size - sent)
        return sent

    # The end

    def close(self) -> None:
        if self.closed:
            return
        self._closing = True
        self._update_reading()
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
        self._network.loop.call_later(
            CLOSE_PATIENCE_S, self._close_as_it_is_taken, self._queued_bytes
        )

    def abort(self) -> None:
        self._lose("aborted")

    def _lose(self, reason: str) -> None:
        if self._closed:
            return
        self._closed = True
        self._update_reading()
        if self._writing:
            self._writing = False
            self._network.loop.remove_writer(self._fd)
        self._socket.close()
        self._queue.clear()
        self._queued_bytes = 0
        self._partial = b""
        if self._large is not None:
            self._memory.release(self._large)
            self._large = None
        # Never from within the receiver's own call, and after `accept` has returned one.
        self._network.loop.call_soon(self._tell_receiver, reason)

    def _tell_receiver(self, reason: str) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is None:  # whoever should have made one failed
            return
        try:
            receiver.connection_lost(reason)
        except Exception:
            log.exception("%r: the receiver failed on hearing that it was lost (%s)", self, reason)


class SocketListener:
    def __init__(
        self,
        network: RealNetwork,
        listening: Sequence[socket.socket],
        accept: Callable[[AcceptedConnection], FrameReceiver],
        frame_bytes_max: int,
    ) -> None:
        """`listening`: its doors, of which the first gives it its address."""
        self._network = network
        self._doors = listening
        self._accept = accept
        self._frame_bytes_max = frame_bytes_max
        self._address = _address(listening[0].getsockname())
        self._closed = False
        self._resume: asyncio.TimerHandle | None = None
        self._open_doors()

    @property
    def address(self) -> tuple[str, int]:
        return self._address

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._resume is not None:
            self._resume.cancel()
        else:
            self._shut_doors()
        for door in self._doors:
            door.close()

    def _open_doors(self) -> None:
        for door in self._doors:
            self._network.loop.add_reader(door.fileno(), self._acceptable, door)

    def _shut_doors(self) -> None:
        for door in self._doors:
            self._network.loop.remove_reader(door.fileno())

    def _acceptable(self, door: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if self._closed:
                return
            try:
                connected, _peer = door.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as problem:
                if problem.errno in OUT_OF_RESOURCES:
                    self._pause(problem)
                    return
                # The peer gave up between its connect and our accept: the next one may not have.
                log.debug("accepting on %s: %s", self._address, problem)
                continue
            self._accepted(connected)

    def _pause(self, problem: OSError) -> None:
        """Out of descriptors: the listener would stay readable and spin until somebody frees one."""
        log.error("accepting on %s pauses %s s: %s", self._address, ACCEPT_PAUSE_S, problem)
        self._shut_doors()
        self._resume = self._network.loop.call_later(ACCEPT_PAUSE_S, self._resume_accepting)

    def _resume_accepting(self) -> None:
        self._resume = None
        self._open_doors()

    def _accepted(self, connected: socket.socket) -> None:
        try:
            _prepare(connected)
            connection = SocketConnection(
                self._network, connected, self._frame_bytes_max, accepted=True
            )
        except OSError as problem:  # already gone again
            log.debug("accepting on %s: %s", self._address, problem)
            connected.close()
            return
        try:
            receiver = self._accept(connection)
        except Exception:
            log.exception("%r: accepting failed", connection)
            connection.abort()
            return
        connection.start(receiver)


class RealNetwork:
    """TCP on this machine, for one event loop; `near`: and sockets of the machine between its nodes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, near: bool = False) -> None:
        self.loop = loop
        self._near = near
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self._spare_buffers: list[bytearray] = []
        self._spare_bytes = 0
        self.accepted_frames = FrameMemory(loop.time)
        self.own_frames = FrameMemory(loop.time)

    def take_spare_buffer(self) -> bytearray:
        if not self._spare_buffers:
            return bytearray()
        buffer = self._spare_buffers.pop()
        self._spare_bytes -= len(buffer)
        return buffer

    def keep_spare_buffer(self, buffer: bytearray) -> None:
        """Use it again for a large frame, unless somebody still holds a view of it (the traceback of a
        stored exception is enough): such a buffer cannot grow, and is theirs."""
        if self._spare_bytes + len(buffer) > SPARE_BYTES_MAX:
            return
        try:
            buffer.append(0)
        except BufferError:
            return
        del buffer[-1:]
        self._spare_buffers.append(buffer)
        self._spare_bytes += len(buffer)

    async def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[AcceptedConnection], FrameReceiver],
        *,
        frame_bytes_max: int,
    ) -> SocketListener:
        problems: list[OSError] = []
        for family, address in await self._resolve(host, port, passive=True):
            listening = socket.socket(family, socket.SOCK_STREAM)
            try:
                listening.setblocking(False)
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    # Every address of the machine means both families; a given one means itself.
                    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != ""))
                listening.bind(address)
                listening.listen(BACKLOG)
            except OSError as problem:
                listening.close()
                problems.append(problem)
                continue
            doors = [listening]
            if self._near:
                second = unix_sockets.listen(listening, BACKLOG)
                doors += [second] if second is not None else []
            return SocketListener(self, doors, accept, frame_bytes_max)
        raise _with_place(problems, "listen on", host, port)

    async def connect(
        self,
        host: str,
        port: int,
        receiver: Callable[[Connection], FrameReceiver],
        *,
        frame_bytes_max: int = 1 << 30,
    ) -> SocketConnection:
        problems: list[OSError] = []
        for family, address in await self._resolve(host, port, passive=False):
            found = unix_sockets.connect(address[0], address[1]) if self._near else None
            connecting = found or socket.socket(family, socket.SOCK_STREAM)
            try:
                _prepare(connecting)
                if found is None:
                    await self.loop.sock_connect(connecting, address)
                connection = SocketConnection(self, connecting, frame_bytes_max, accepted=False)
                if connection.local == connection.peer:
                    # Where nobody listens on a port of the ephemeral range, TCP may pick that very
                    # port for our side and connect us to ourselves.
                    raise ConnectionRefusedError(errno.ECONNREFUSED, "connected to itself")
            except OSError as problem:
                connecting.close()
                problems.append(problem)
                continue
            except BaseException:  # cancelled, by the caller's time limit
                connecting.close()
                raise
            try:
                connection.start(receiver(connection))
            except BaseException:
                connection.abort()
                raise
            return connection
        raise _with_place(problems, "connect to", host, port)

    async def _resolve(
        self, host: str, port: int, *, passive: bool
    ) -> list[tuple[socket.AddressFamily, Any]]:
        """Addresses to try, IPv4 first, so that "localhost" means the same to both sides."""
        if not host and passive and socket.has_dualstack_ipv6():
            return [(socket.AF_INET6, ("::", port)), (socket.AF_INET, ("0.0.0.0", port))]
        try:  # a numeric address needs no thread
            found = socket.getaddrinfo(
                host or "0.0.0.0",
                port,
                type=socket.SOCK_STREAM,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
        except socket.gaierror:
            found = await self.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [(family, address) for family, _type, _protocol, _name, address in found]
        return sorted(addresses, key=lambda found: found[0] != socket.AF_INET)


def _by_sendfile(chunk: FileRange) -> bool:
    return chunk.size >= SENDFILE_BYTES_MIN and chunk.file.fileno() >= 0


def _read_whole(chunk: FileRange) -> bytes:
    data = chunk.read()
    if len(data) < chunk.size:
        raise ShortFile
    return data


def _prepare(connected: socket.socket) -> None:
    connected.setblocking(False)
    if connected.family == socket.AF_UNIX:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, unix_sockets.SEND_BUFFER_BYTES)
    else:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _address(address: Any) -> tuple[str, int]:
    if isinstance(address, (str, bytes)):
        return unix_sockets.address_of(address)
    return str(address[0]).removeprefix("::ffff:"), int(address[1])


def _reason(problem: OSError) -> str:
    return f"{type(problem).__name__}: {problem.strerror or problem}"


def _with_place(problems: list[OSError], verb: str, host: str, port: int) -> OSError:
    """The last problem, of its own type, saying what was tried."""
    problem = problems[-1] if problems else OSError(errno.EADDRNOTAVAIL, "no address found")
    return type(problem)(problem.errno, f"cannot {verb} {host}:{port}: {problem.strerror}")
