"""The seams: what the rest of ottla may ask of the machine it runs on, as protocols.

The real implementations are in `runtime.files`, `runtime.sockets` and `runtime.real`, the simulated ones in `sim.engine`.
Calls on the disk are synchronous. The owner of the event loop decides which of them (fsync, recovery) run in a thread.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from ottla.events import Events
from ottla.runtime.tls_options import TlsOptions

Buffer: TypeAlias = bytes | bytearray | memoryview


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds that never go back. Every timeout and every safety rule uses this clock."""

    def wall_ms(self) -> int:
        """Unix milliseconds. They may jump either way: only timestamps and retention use them."""


class File(Protocol):
    """One open file, appended at its end and read anywhere. Errors are OSError, as the system gives them.

    A file stays readable through this object after its path was removed or renamed.
    """

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int: ...

    def append(self, *buffers: Buffer) -> None:
        """Write all buffers at the end in order, or raise (the end may then hold a torn part)."""

    def write_at(self, position: int, data: Buffer) -> None: ...

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def in_memory(self, position: int, size: int) -> int:
        """How many of these bytes, from the first on, can be read without waiting for the disk. All of them where the
        system does not say."""

    def bring(self, position: int, size: int) -> None:
        """Read this into memory. Call it in a thread: it waits for the disk."""

    def truncate(self, size: int) -> None: ...

    def flush(self) -> None:
        """fsync: returns when the content would survive a power loss."""

    def close(self) -> None: ...

    def fileno(self) -> int:
        """The descriptor for sendfile, or -1 where there is none."""


@dataclass(
    slots=True
)  # not frozen: that takes thrice as long to make, and there is one for each answer
class FileRange:
    """Bytes in a file that are sent from there, without passing through our memory. A few new bytes may still be in
    memory: `in_memory` has them then."""

    file: File
    position: int
    size: int
    in_memory: bytes | None = None

    def read(self) -> bytes:
        if self.in_memory is not None:
            return self.in_memory
        return self.file.read_at(self.position, self.size)

    def after(self, sent: int) -> FileRange:
        """What remains when the first `sent` bytes are gone."""
        return FileRange(self.file, self.position + sent, self.size - sent)


Chunk: TypeAlias = bytes | bytearray | memoryview | FileRange


class Disk(Protocol):
    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. FileNotFoundError unless `create`."""

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def list_dir(self, path: str) -> list[str]:
        """Names in the directory, sorted."""

    def make_dirs(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Atomic on one file system, for files and directories; not durable before flush_dir."""

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def file_size(self, path: str) -> int: ...

    def read(self, path: str) -> bytes: ...

    def replace(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Make `path` hold `data`: after a crash it holds the old content or the new, never a mix.
        With `durable` it also survives a power loss once this returns."""

    def flush_dir(self, path: str) -> None: ...

    def together(self, calls: Sequence[Callable[[], None]]) -> None:
        """Make these calls, which wait for the disk, several at a time and in no order: a file system carries out many
        flushes at once. Returns when all have ended. They keep their errors themselves."""

    def lock(self, path: str) -> File:
        """Take the lock file exclusively for as long as the returned file is open; BlockingIOError if
        another process holds it."""

    flush_times: deque[float] | None
    """Where to note how many seconds each flush of a file took. None: nobody asks."""

    def device(self, path: str) -> int:
        """The same for directories that share a disk, and its room."""

    def usage(self, path: str) -> tuple[int, int]:
        """(total bytes, free bytes) of the file system under `path`."""


class FrameReceiver(Protocol):
    """What a connection calls, on the loop, one call at a time."""

    def frame_received(self, frame: memoryview) -> None:
        """One whole frame, without its length prefix. It is writable, and valid only until this returns: copy what is to
        be kept."""

    def connection_lost(self, reason: str) -> None:
        """Called exactly once, whichever side closed the connection."""


class Connection(Protocol):
    @property
    def peer(self) -> tuple[str, int]: ...

    @property
    def local(self) -> tuple[str, int]: ...

    @property
    def closed(self) -> bool: ...

    @property
    def queued_bytes(self) -> int:
        """Bytes that we sent, and that the system has not yet taken."""

    def send(self, chunks: Sequence[Chunk]) -> None:
        """Queue in order. What is queued in one turn of the loop goes out in one system call, where that is possible. Does
        nothing on a closed connection. The caller must not change the buffers afterwards."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """Send what is queued as long as the peer takes it, then close."""

    def abort(self) -> None:
        """Close now."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What the other end of a connection has proved."""

    is_local: bool = False
    """It is a process of our own user on this machine. Such a process can read our keys, so it counts as this node."""
    certificate: bytes | None = None
    """DER of the certificate, which was verified. None: it showed none."""
    tls: str = ""
    """Version and cipher."""
    handshake_s: float = 0.0
    """How long it took until this was proved. A login has what is left of the time for both."""


class Tls(Protocol):
    """How the connections of a listener are secured, and those that we open to such listeners of others. The runtime makes
    it of `TlsOptions` and looks into it."""

    handshakes_failed: int
    """Of connections to us."""

    @property
    def certificate(self) -> bytes | None:
        """DER of our own."""

    def names_host(self, host: str) -> bool:
        """Whether our certificate is one for this host."""

    def refresh(self, options: TlsOptions | None = None) -> bool:
        """Take what changed in the files, or these options. Whether anything changed. `TlsRefused` says why the change is
        not taken; all stays as it was then."""

    def check(self, options: TlsOptions) -> None:
        """TlsRefused if `refresh` would not take these."""


class TlsRefused(Exception):
    """A key store, a trust store, or a change of one cannot be used."""


class AcceptedConnection(Connection, Protocol):
    """A connection that a peer opened. The peer may be gone, or hostile."""

    frame_bytes_max: int
    """A longer frame ends the connection. A peer that has not logged in may send only short ones."""

    @property
    def identity(self) -> Identity | None:
        """None: the listener asks for nothing."""

    @property
    def idle_s(self) -> float:
        """Seconds since a whole frame came, or the peer took bytes. A peer that never completes a frame is idle."""


class TimedConnection(AcceptedConnection, Protocol):
    """An accepted connection of which somebody wants to know when what came and went. These are attributes, because
    they are looked at for every frame."""

    now: Callable[[], float]
    """Seconds, by the clock of the times below. It is finer than uvloop's, which stands still during a turn."""
    received_at: float
    """When the frame came that is being received: together with those that came before it in one read."""
    started_at: float
    """When its turn came."""
    marks: list[Any]
    """What was added here is noted in `sent` once the system has taken everything that was queued."""
    sent: list[tuple[float, list[Any]]] | None
    """(when everything queued was taken, the marks of what that was); None: nobody asks."""


class Listener(Protocol):
    @property
    def address(self) -> tuple[str, int]: ...

    def close(self) -> None: ...


class Door(Protocol):
    """Whether a listener takes one more connection. It is asked before TLS, which costs far more than the question. Processes
    of our own user on this machine do not pass it."""

    def wait_s(self) -> float:
        """For how long no connection is to be taken; 0: one may be."""

    def refusal(self, host: str) -> float | None:
        """None: the connection from this address may go on. Else it is closed after so many seconds, and not read until
        then."""


class Network(Protocol):
    async def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[AcceptedConnection], FrameReceiver],
        *,
        frame_bytes_max: int,
        tls: Tls | None = None,
        door: Door | None = None,
    ) -> Listener:
        """With `tls`, a connection is accepted when its handshake is over."""

    async def connect(
        self,
        host: str,
        port: int,
        receiver: Callable[[Connection], FrameReceiver],
        *,
        frame_bytes_max: int = 1 << 30,
        tls: Tls | None = None,
    ) -> Connection:
        """OSError (ConnectionRefusedError if nothing listens there). The caller sets the time limit."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """All the seams of one node, which gets them when it is made."""

    clock: Clock
    disk: Disk
    network: Network
    random: random.Random
    make_tls: Callable[[TlsOptions], Tls] | None = None
    """TlsRefused if the options cannot be used. None where there is no TLS."""
    events: Events = field(default_factory=Events)
    """What happens in the node, for those who subscribe."""
    cpu_s: Callable[[], float] | None = None
    """Processor seconds of this process. None where one process is several nodes."""
