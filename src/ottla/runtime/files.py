"""The `Disk` seam for the real machine, on plain file descriptors.

A file is a descriptor and its known size. Appending is one `pwritev` at that size. So the position of a torn write is
known, and nothing depends on a shared file position.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from time import monotonic

from ottla.runtime.seams import Buffer
from ottla.runtime.threads import several_at_a_time

IOV_MAX = 1024
"""How many buffers one vectored call takes on Linux and macOS."""
RWF_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
"""Only Linux says whether a read would wait, and not on every file system."""
PROBE = [bytearray(1)]
PROBE_EVERY_BYTES = 128 * 1024
"""Systems read ahead about so much. A page in memory says nothing about pages farther off."""
BRING_BYTES = 256 * 1024
CALLS_AT_ONCE = 8
FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
"""Of everything that a node makes. Its metadata has keys of users, and its logs have what clients may read only by ACLs."""


def _sync(descriptor: int) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # plain fsync stops at the drive's cache there
    else:
        os.fdatasync(descriptor)


def _write_all(descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
    """Write every buffer, completing partial writes. Returns the position after the last byte."""
    for first in range(0, len(buffers), IOV_MAX):
        group = buffers[first : first + IOV_MAX]
        written = os.pwritev(descriptor, group, position)
        position += written
        missing = sum(map(len, group)) - written
        if missing:
            rest = memoryview(b"".join(group))[-missing:]
            while rest:
                written = os.pwrite(descriptor, rest, position)
                position += written
                rest = rest[written:]
    return position


class RealFile:
    """An open descriptor, closed at the latest when the last reference to this object is gone.

    A file may be removed while a connection still sends from it (a `FileRange` in its queue). The code that removes it
    drops its reference, and does not call `close`.
    """

    __slots__ = ("_descriptor", "_descriptor_lock", "_flush_times", "_path", "_size")

    def __init__(self, path: str, descriptor: int, flush_times: deque[float] | None = None) -> None:
        self._path = path
        self._flush_times = flush_times
        self._descriptor = descriptor
        self._descriptor_lock = threading.Lock()
        self._size = os.fstat(descriptor).st_size

    def __repr__(self) -> str:
        return f"RealFile({self._path!r}, {self._size} bytes)"

    @property
    def path(self) -> str:
        return self._path

    @property
    def size(self) -> int:
        return self._size

    def append(self, *buffers: Buffer) -> None:
        self._write(buffers, self._size)

    def write_at(self, position: int, data: Buffer) -> None:
        if not data:  # an empty write beyond the end does not extend a file
            return
        if position + len(data) <= self._size and os.pwrite(
            self._descriptor, data, position
        ) == len(data):
            return  # the usual case, for every move of a high watermark
        self._write((data,), position)

    def _write(self, buffers: Sequence[Buffer], position: int) -> None:
        try:
            end = _write_all(self._descriptor, buffers, position)
        except OSError:
            # `size` includes the torn part, so that the owner can truncate it.
            with contextlib.suppress(OSError):
                self._size = os.fstat(self._descriptor).st_size
            raise
        if end > self._size:
            self._size = end

    def read_at(self, position: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        missing = size - len(data)
        while missing:
            data = os.pread(self._descriptor, missing, position + size - missing)
            if not data:
                break
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def in_memory(self, position: int, size: int) -> int:
        if not RWF_NOWAIT:
            return size
        end = position + size
        place = position
        try:
            while place < end:
                os.preadv(self._descriptor, PROBE, place, RWF_NOWAIT)
                place += PROBE_EVERY_BYTES
            place = end - 1
            os.preadv(self._descriptor, PROBE, place, RWF_NOWAIT)
        except BlockingIOError:
            return max(0, place - PROBE_EVERY_BYTES - position)
        except OSError:
            return size  # a file system that does not say; or one that fails, which the read will report
        return size

    def bring(self, position: int, size: int) -> None:
        end = position + size
        room = memoryview(bytearray(min(size, BRING_BYTES)))
        with self._own_descriptor() as descriptor:
            while position < end:
                read = os.preadv(descriptor, [room[: end - position]], position)
                if not read:
                    break  # the file has become shorter
                position += read

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)
        self._size = size

    def flush(self) -> None:
        with self._own_descriptor() as descriptor:
            began = monotonic()
            _sync(descriptor)
            if self._flush_times is not None:
                self._flush_times.append(monotonic() - began)

    @contextlib.contextmanager
    def _own_descriptor(self) -> Iterator[int]:
        """A duplicate for threads. Without it, a concurrent close could free the number for another file while they
        work."""
        with self._descriptor_lock:
            descriptor = os.dup(self._descriptor)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def close(self) -> None:
        with self._descriptor_lock:
            descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def __del__(self) -> None:
        # A constructor that failed leaves no descriptor behind.
        if getattr(self, "_descriptor", -1) >= 0:
            self.close()


class RealDisk:
    """The file systems of this machine."""

    def __init__(self) -> None:
        self._replacements = itertools.count()
        self.flush_times: deque[float] | None = None

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(path, os.open(path, flags, FILE_MODE), self.flush_times)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def list_dir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, DIRECTORY_MODE, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def file_size(self, path: str) -> int:
        return os.stat(path).st_size

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def replace(self, path: str, data: bytes, *, durable: bool = True) -> None:
        # The content is flushed even when the new name need not be durable. A rename that reaches the disk before the
        # bytes it points to would leave neither the old content nor the new.
        # The temporary name is unique, because the loop and a thread may replace the same file at the same time.
        temporary = f"{path}.{next(self._replacements)}.tmp"
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.append(data)
            file.flush()
            os.rename(temporary, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        finally:
            file.close()
        if durable:
            self.flush_dir(os.path.dirname(path))

    def flush_dir(self, path: str) -> None:
        descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def together(self, calls: Sequence[Callable[[], None]]) -> None:
        several_at_a_time(calls, CALLS_AT_ONCE)

    def lock(self, path: str) -> RealFile:
        file = self.open(path, create=True)
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise
        return file

    def device(self, path: str) -> int:
        return os.stat(path).st_dev

    def usage(self, path: str) -> tuple[int, int]:
        found = os.statvfs(path)
        return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail
