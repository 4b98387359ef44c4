"""A simulated disk that can lose unflushed data: the `Disk` seam with separate page cache and platter.

Programs see the cache. After a power loss they see the platter, plus any part of the unflushed writes that a real file
system might have written: none, all, the first few, half of one, or a longer file full of zeros. A change of
names (create, rename, remove) can be lost like content, until its directory is flushed. Only what POSIX promises is
assumed.
"""

from __future__ import annotations

import errno
import os
import random
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ottla.runtime import Buffer
from ottla.sim.engine.process import Died

NAMED_OPERATIONS = (
    "open",
    "read",
    "write",
    "misdirect",
    "flush",
    "rename",
    "remove",
    "flush_dir",
    "lock",
)
CHANGES = (
    "create",
    "write",
    "truncate",
    "flush",
    "rename",
    "remove",
    "make_dir",
    "flush_dir",
)
"""The changes before which a process can be made to die."""
DEFAULT_CAPACITY_BYTES = 1 << 40


@dataclass(slots=True)
class Write:
    """Content that is not on the platter yet. `data` None: the file was truncated or extended to `position`."""

    position: int
    data: bytes | None

    def apply(self, content: bytearray) -> None:
        if self.data is None:
            _resize(content, self.position)
        else:
            _overwrite(content, self.position, self.data)


class Inode:
    """A file's content, independent of its names."""

    __slots__ = ("cache", "locked", "pending", "platter", "wrong")

    def __init__(self) -> None:
        self.cache = bytearray()
        self.platter = bytearray()
        self.pending: list[Write] = []
        self.locked = False
        self.wrong: dict[int, int] = {}
        """Position → the bits in which the byte silently differs from what was written."""

    @property
    def as_meant(self) -> bytearray:
        if not self.wrong:
            return self.cache
        content = bytearray(self.cache)
        for position, bits in self.wrong.items():
            content[position] ^= bits
        return content


class Directory:
    __slots__ = ("cache", "changes", "platter")

    def __init__(self) -> None:
        self.cache: dict[str, DirectoryEntry] = {}
        self.platter: dict[str, DirectoryEntry] = {}
        self.changes: dict[NameChange, None] = {}
        """Those of its names that are not yet durable, in order."""


DirectoryEntry: TypeAlias = Inode | Directory


@dataclass(slots=True, eq=False)
class NameChange:
    """One change of names that is not yet durable."""

    removed: tuple[Directory, str] | None
    added: tuple[Directory, str, DirectoryEntry] | None
    touched: list[Directory] = field(default_factory=list)

    def apply(self) -> None:
        if self.removed is not None:
            self.removed[0].platter.pop(self.removed[1], None)
        if self.added is not None:
            self.added[0].platter[self.added[1]] = self.added[2]


@dataclass(slots=True)
class Fault:
    operation: str
    prefix: str
    error: int
    rate: float
    times: int | None
    strikes: Callable[[], None]


@dataclass(slots=True)
class Death:
    """The planned death of the process that uses a disk, before one of its changes."""

    change: str | None
    """Only changes of this kind count. None: every change."""
    countdown: int
    dies: Callable[[str], None]
    """Called with the change."""
    is_over: bool = False

    def is_due(self, change: str) -> bool:
        if self.is_over:
            raise Died(change)
        if self.change not in (None, change):
            return False
        self.countdown -= 1
        if self.countdown:
            return False
        self.is_over = True
        self.dies(change)
        return True


class SimFile:
    """An open file. Its content stays readable after its last name is removed."""

    __slots__ = ("_disk", "_inode", "_locked", "_open", "_path")

    def __init__(self, disk: SimDisk, path: str, inode: Inode, *, locked: bool = False) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._open = True
        self._locked = locked

    def __repr__(self) -> str:
        return f"SimFile({self._path!r}, {self.size} bytes)"

    @property
    def path(self) -> str:
        return self._path

    @property
    def size(self) -> int:
        return len(self._inode.cache)

    def append(self, *buffers: Buffer) -> None:
        self._write(len(self._inode.cache), b"".join(buffers))

    def in_memory(self, position: int, size: int) -> int:
        return self._disk.bytes_in_memory(size)

    def bring(self, position: int, size: int) -> None:
        self.read_at(position, size)

    def write_at(self, position: int, data: Buffer) -> None:
        self._write(position, bytes(data))

    def _write(self, position: int, data: bytes) -> None:
        self._check_open()
        if not data:
            return
        dies = self._disk.is_death("write")
        error = None if dies else self._disk.drawn_fault("write", self._path)
        growth = position + len(data) - len(self._inode.cache)
        if error is None and growth > self._disk.free_bytes:
            error = errno.ENOSPC
            self._disk.on_full()
        if error is not None or dies:
            # A write that fails, or whose process dies, may be partly done.
            room = len(data) if growth <= 0 else min(len(data), self._disk.free_bytes)
            data = data[: self._disk.random.randint(0, max(0, min(room, len(data) - 1)))]
        if data:
            before = len(self._inode.cache)
            self._disk.write(self._path, self._inode, Write(position, data))
            self._disk.used_bytes += len(self._inode.cache) - before
            self._disk.note("write", self._path, position, len(data), zlib.crc32(data))
        if dies:
            raise Died("write")
        if error is not None:
            raise OSError(error, os.strerror(error), self._path)

    def read_at(self, position: int, size: int) -> bytes:
        self._check_open()
        self._disk.raise_drawn_fault("read", self._path)
        return bytes(self._inode.cache[position : position + size])

    def truncate(self, size: int) -> None:
        self._check_open()
        before = len(self._inode.cache)
        if size != before:
            self._disk.live_through("truncate")
        self._disk.raise_drawn_fault("write", self._path)
        if size == before:
            return
        _resize(self._inode.cache, size)
        self._inode.wrong = {at: bits for at, bits in self._inode.wrong.items() if at < size}
        self._disk.used_bytes += size - before
        self._inode.pending.append(Write(size, None))
        self._disk.note("truncate", self._path, size)

    def flush(self) -> None:
        self._check_open()
        self._disk.live_through("flush")
        inode = self._inode
        error = self._disk.drawn_fault("flush", self._path)
        if error is not None:
            # As on Linux: the pages are now marked clean, so the next flush does not write them either.
            inode.pending = [write for write in inode.pending if write.data is None]
            self._disk.has_lost_pages = True
            raise OSError(error, os.strerror(error), self._path)
        for write in inode.pending:
            write.apply(inode.platter)
        inode.pending.clear()
        self._disk.note("flush", self._path, len(inode.platter))

    def close(self) -> None:
        if self._open and self._locked:
            self._inode.locked = False
        self._open = False

    def fileno(self) -> int:
        return -1

    def _check_open(self) -> None:
        if not self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)


class SimDisk:
    """All file systems of one host. It outlives the host's processes."""

    def __init__(
        self,
        chance: random.Random,
        note: Callable[..., None] | None = None,
        *,
        capacity_bytes: int = DEFAULT_CAPACITY_BYTES,
    ) -> None:
        self.random = chance
        self.flush_times: deque[float] | None = None
        """Nothing is noted: a flush takes no time of the one who asks for it."""
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self.taken_bytes = 0
        """By others than this host's processes."""
        self.cold_rate = 0.0
        """How often `in_memory` reports that some of the bytes are not in memory."""
        self.cold_chance = random.Random(0)
        self.has_lost_pages = False
        """A flush failed. The data it did not write can be read until a power loss, and is never written."""
        self.on_full: Callable[[], None] = lambda: None
        self._note = note
        self._root = Directory()
        self._name_changes: dict[NameChange, None] = {}
        """Of all directories, in order."""
        self._faults: list[Fault] = []
        self._locked: list[Inode] = []
        self._death: Death | None = None

    @property
    def free_bytes(self) -> int:
        return max(0, self.capacity_bytes - self.used_bytes - self.taken_bytes)

    def note(self, label: str, *values: int | str) -> None:
        if self._note is not None:
            self._note(label, *values)

    def bytes_in_memory(self, size: int) -> int:
        if not self.cold_rate or self.cold_chance.random() >= self.cold_rate:
            return size
        return self.cold_chance.choice((0, self.cold_chance.randrange(size)))

    # The seam

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self.raise_drawn_fault("open", path)
        return SimFile(self, path, self._inode(path, create=create))

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._find(path), Directory)

    def list_dir(self, path: str) -> list[str]:
        return sorted(self._directory(path).cache)

    def make_dirs(self, path: str) -> None:
        directory = self._root
        for name in _parts(path):
            node = directory.cache.get(name)
            if node is None:
                self.live_through("make_dir")
                node = Directory()
                self._change(None, (directory, name, node))
            elif isinstance(node, Inode):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            directory = node

    def rename(self, source: str, target: str) -> None:
        self.live_through("rename")
        self.raise_drawn_fault("rename", source)
        source_directory, source_name = self._parent(source)
        node = source_directory.cache.get(source_name)
        if node is None:
            raise _missing(source)
        target_directory, target_name = self._parent(target)
        replaced = target_directory.cache.get(target_name)
        if replaced is node:
            return
        if isinstance(replaced, Directory):
            if isinstance(node, Inode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
            if replaced.cache:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
        elif isinstance(replaced, Inode):
            if isinstance(node, Directory):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), target)
            self.used_bytes -= len(replaced.cache)
        self._change((source_directory, source_name), (target_directory, target_name, node))
        self.note("rename", source, target)

    def remove(self, path: str) -> None:
        self.live_through("remove")
        self.raise_drawn_fault("remove", path)
        directory, name = self._parent(path)
        node = directory.cache.get(name)
        if node is None:
            raise _missing(path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self.used_bytes -= len(node.cache)
        self._change((directory, name), None)
        self.note("remove", path)

    def remove_tree(self, path: str) -> None:
        directory = self._directory(path)
        for name in sorted(directory.cache):
            inner = f"{path}/{name}"
            if isinstance(directory.cache[name], Directory):
                self.remove_tree(inner)
            else:
                self.remove(inner)
        self.live_through("remove")
        self._change(self._parent(path), None)

    def file_size(self, path: str) -> int:
        return len(self._inode(path).cache)

    def read(self, path: str) -> bytes:
        self.raise_drawn_fault("read", path)
        return bytes(self._inode(path).cache)

    def replace(self, path: str, data: bytes, *, durable: bool = True) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.append(data)
            file.flush()
            self.rename(temporary, path)
        except OSError:
            if self.exists(temporary):
                self._change(self._parent(temporary), None)
            raise
        finally:
            file.close()
        if durable:
            self.flush_dir(os.path.dirname(path))

    def flush_dir(self, path: str) -> None:
        self.live_through("flush_dir")
        self.raise_drawn_fault("flush_dir", path)
        directory = self._directory(path)
        for change in list(directory.changes):
            change.apply()
            del self._name_changes[change]
            # A move between two directories is one change: a flush of either makes it durable.
            for touched in change.touched:
                touched.changes.pop(change, None)
        self.note("flush_dir", path, len(directory.platter))

    def together(self, calls: Sequence[Callable[[], None]]) -> None:
        for call in calls:
            call()

    def lock(self, path: str) -> SimFile:
        self.raise_drawn_fault("lock", path)
        inode = self._inode(path, create=True)
        if inode.locked:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), path)
        inode.locked = True
        self._locked.append(inode)
        return SimFile(self, path, inode, locked=True)

    def device(self, path: str) -> int:
        return 0

    def usage(self, path: str) -> tuple[int, int]:
        return self.capacity_bytes, self.free_bytes

    # Faults

    def fail(
        self,
        operation: str,
        prefix: str = "",
        *,
        error: int = errno.EIO,
        rate: float = 1.0,
        times: int | None = None,
        strikes: Callable[[], None] = lambda: None,
    ) -> None:
        """Make `operation` fail on paths that begin with `prefix`, until `mend`.

        "misdirect" fails without an error: the bytes go to an earlier position in the same file. `strikes` is called
        when the fault happens.
        """
        assert operation in NAMED_OPERATIONS, operation
        self._faults.append(Fault(operation, prefix, error, rate, times, strikes))

    def die_before(self, change: str | None, countdown: int, dies: Callable[[str], None]) -> None:
        """Make the process die before the `countdown`th change from now on, of this kind or of any. After that its
        operations have no effect, until the next process starts."""
        assert change is None or change in CHANGES, change
        assert countdown > 0
        self._death = Death(change, countdown, dies)

    @property
    def is_doomed(self) -> bool:
        return self._death is not None

    def forget_death(self) -> None:
        if self._death is not None and not self._death.is_over:
            self._death = None

    def is_death(self, change: str) -> bool:
        return self._death is not None and self._death.is_due(change)

    def live_through(self, change: str) -> None:
        if self._death is not None and self._death.is_due(change):
            raise Died(change)

    def mend(self) -> None:
        """Remove all faults, and free the disk space."""
        self._faults.clear()
        self.capacity_bytes = DEFAULT_CAPACITY_BYTES

    def fill(self, free_bytes: int = 0, on_full: Callable[[], None] = lambda: None) -> None:
        """Leave this much free space. `on_full` is called when a write does not fit."""
        self.capacity_bytes = self.used_bytes + free_bytes
        self.on_full = on_full

    def rot(self, path: str, position: int | None = None) -> int:
        """Flip one bit on the platter and in the cache. Returns its position."""
        inode = self._inode(path)
        assert inode.cache, f"{path} has no bytes to rot"
        where = self.random.randrange(len(inode.cache)) if position is None else position
        bit = 1 << self.random.randrange(8)
        inode.cache[where] ^= bit
        if where < len(inode.platter):
            inode.platter[where] ^= bit
        inode.wrong[where] = inode.wrong.get(where, 0) ^ bit
        self.note("rot", path, where, bit)
        return where

    def peek(self, path: str) -> bytearray:
        """The content for checkers, without any fault. Where the disk silently changed bytes, this returns the bytes
        that were written, because no replica may have others."""
        return self._inode(path).as_meant

    def has_flushed(self, path: str, begin: int, end: int) -> bool:
        """Whether these bytes, and the names on their path, survive any power loss."""
        node: DirectoryEntry | None = self._root
        for name in _parts(path):
            node = node.platter.get(name) if isinstance(node, Directory) else None
        return (
            isinstance(node, Inode)
            and end <= len(node.platter)
            and node.platter[begin:end] == node.cache[begin:end]
        )

    def may_be_wrong(self, directory: str) -> bool:
        """Whether a file there differs from what was written, or a planned fault will change one."""
        found = self._find(directory)
        files = found.cache.values() if isinstance(found, Directory) else ()
        return any(isinstance(file, Inode) and file.wrong for file in files) or any(
            fault.operation == "misdirect"
            and fault.prefix.startswith(f"{directory}/")
            and fault.times != 0
            for fault in self._faults
        )

    @property
    def is_wrong(self) -> bool:
        """Whether any file differs from what was written."""
        return any(inode.wrong for inode in self._inodes())

    def write(self, path: str, inode: Inode, write: Write) -> None:
        """Do the write. A misdirected one leaves zeros, and goes to another position."""
        assert write.data is not None
        writes = [write]
        if self._faults and self.drawn_fault("misdirect", path) is not None:
            elsewhere = self.random.randrange(write.position + 1)
            writes = [Write(write.position, bytes(len(write.data))), Write(elsewhere, write.data)]
        meant = None
        if len(writes) > 1 or inode.wrong:
            meant = bytearray(inode.as_meant)
            write.apply(meant)
        for each in writes:
            each.apply(inode.cache)
            inode.pending.append(each)
        if meant is not None:
            # Bytes beyond the intended end were never acknowledged.
            both = zip(meant, inode.cache, strict=False)
            inode.wrong = {at: a ^ b for at, (a, b) in enumerate(both) if a != b}

    def forget_process(self) -> None:
        """The process died but the machine did not: its locks are released, everything else stays."""
        for inode in self._locked:
            inode.locked = False
        self._locked.clear()
        if self._death is not None and self._death.is_over:
            self._death = None

    def lose_power(self) -> None:
        """A random part of what was not flushed survives."""
        self.forget_process()
        self.has_lost_pages = False
        self._lose_names()
        self.used_bytes = 0
        for inode in self._inodes():
            _lose_content(inode, self.random)
            self.used_bytes += len(inode.cache)
            self.note("power", len(inode.cache), zlib.crc32(inode.cache))

    def wipe(self) -> None:
        """The disk was replaced by an empty one."""
        self._root = Directory()
        self._name_changes.clear()
        self.has_lost_pages = False
        self.used_bytes = 0
        self.note("wipe")

    def drawn_fault(self, operation: str, path: str) -> int | None:
        if self._death is not None and self._death.is_over:
            raise Died(operation)
        for fault in self._faults:
            if fault.operation != operation or not path.startswith(fault.prefix):
                continue
            if fault.times == 0 or (fault.rate < 1 and self.random.random() >= fault.rate):
                continue
            if fault.times is not None:
                fault.times -= 1
            self.note("fault", operation, path, fault.error)
            fault.strikes()
            return fault.error
        return None

    def raise_drawn_fault(self, operation: str, path: str) -> None:
        error = self.drawn_fault(operation, path)
        if error is not None:
            raise OSError(error, os.strerror(error), path)

    # Names

    def _change(
        self,
        removed: tuple[Directory, str] | None,
        added: tuple[Directory, str, DirectoryEntry] | None,
    ) -> None:
        change = NameChange(removed, added)
        if removed is not None:
            del removed[0].cache[removed[1]]
            change.touched.append(removed[0])
        if added is not None:
            added[0].cache[added[1]] = added[2]
            change.touched.append(added[0])
        self._name_changes[change] = None
        for directory in change.touched:
            directory.changes[change] = None

    def _lose_names(self) -> None:
        """Each directory keeps its changes up to a random point."""
        limits: dict[int, int] = {}
        for change in self._name_changes:
            for directory in change.touched:
                if id(directory) not in limits:
                    limits[id(directory)] = self.random.randint(0, len(self._name_changes))
        for number, change in enumerate(self._name_changes):
            if all(number < limits[id(directory)] for directory in change.touched):
                change.apply()
            for directory in change.touched:
                directory.changes.clear()
        self._name_changes.clear()
        for directory in self._directories():
            directory.cache = dict(directory.platter)

    def _directories(self) -> list[Directory]:
        """Every directory on the platter or in the cache, in the order of names."""
        found = [self._root]
        known = {id(self._root)}
        for directory in found:
            for names in (directory.cache, directory.platter):
                for _name, node in sorted(names.items()):
                    if isinstance(node, Directory) and id(node) not in known:
                        known.add(id(node))
                        found.append(node)
        return found

    def _inodes(self) -> list[Inode]:
        return [
            node
            for directory in self._directories()
            for _name, node in sorted(directory.cache.items())
            if isinstance(node, Inode)
        ]

    def _find(self, path: str) -> DirectoryEntry | None:
        node: DirectoryEntry | None = self._root
        for name in _parts(path):
            if not isinstance(node, Directory):
                return None
            node = node.cache.get(name)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if node is None:
            raise _missing(path)
        if isinstance(node, Inode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        parts = _parts(path)
        assert parts, f"{path} has no parent"
        return self._directory("/".join(parts[:-1])), parts[-1]

    def _inode(self, path: str, *, create: bool = False) -> Inode:
        directory, name = self._parent(path)
        node = directory.cache.get(name)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if node is None:
            if not create:
                raise _missing(path)
            self.live_through("create")
            node = Inode()
            self._change(None, (directory, name, node))
            self.note("create", path)
        return node


def _lose_content(inode: Inode, chance: random.Random) -> None:
    """Choose which unflushed writes reached the platter. In a file that is wrong already, all did."""
    survivors = bytearray(inode.platter)
    if inode.pending:
        fate = (
            "all"
            if inode.wrong
            else chance.choice(("all", "none", "some", "torn", "torn", "zeros"))
        )
        count = len(inode.pending)
        kept = count if fate == "all" else 0 if fate == "none" else chance.randint(0, count - 1)
        for write in inode.pending[:kept]:
            write.apply(survivors)
        if kept < count:
            torn = inode.pending[kept]
            if torn.data is not None and fate in ("torn", "zeros"):
                cut = chance.randint(0, len(torn.data))
                _overwrite(survivors, torn.position, torn.data[:cut])
                if fate == "zeros":
                    # The new length was written, the data was not.
                    _overwrite(survivors, torn.position + cut, bytes(len(torn.data) - cut))
    inode.platter = survivors
    inode.cache = bytearray(survivors)
    inode.pending.clear()
    inode.wrong = {at: bits for at, bits in inode.wrong.items() if at < len(survivors)}


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def _overwrite(content: bytearray, position: int, data: bytes) -> None:
    if not data:
        return
    if position > len(content):
        _resize(content, position)
    content[position : position + len(data)] = data
