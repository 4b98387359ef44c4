"""A segment's sparse indexes: `.index` (offset → position) and `.timeindex` (timestamp → offset).

Both are rows of two numbers that rise in both columns, in Kafka's binary form. They are hints: every look-up ends with
reading the batches, and a lost or damaged index is rebuilt from them. So rows are collected in memory and written in blocks,
no descriptor stays open, and nothing is flushed before the recovery point needs it. (Kafka maps a file of 10 MiB for each,
which costs address space and descriptors for thousands of idle partitions.)
"""

from __future__ import annotations

from bisect import bisect_right
from struct import Struct

from ottla.runtime.seams import Disk, File, FileRange

OFFSET_ROW = Struct(">ii")
"""Relative offset of a batch's last record, position of the batch."""
TIME_ROW = Struct(">qi")
"""Largest timestamp so far, relative last offset of the batch that brought it."""

ROWS_UNWRITTEN_MAX = 512
ROWS_READ_AT_ONCE = 512


class Index:
    """Rows in the file, then rows in memory that are not there yet."""

    __slots__ = (
        "_disk",
        "_row",
        "_rows_written",
        "_tail",
        "_was_looked_for",
        "count",
        "last",
        "path",
    )

    def __init__(self, disk: Disk, path: str, row: Struct) -> None:
        self._disk = disk
        self._row = row
        self._rows_written = 0
        self._tail = bytearray()
        self.path = path
        self.count = 0
        self.last: tuple[int, int] | None = None
        self._was_looked_for = False

    @classmethod
    def load(cls, disk: Disk, path: str, row: Struct) -> Index | None:
        """The index in the file, or None if there is none that could be right."""
        if not disk.exists(path):
            return None
        index = cls(disk, path, row)
        file = disk.open(path)
        try:
            index._rows_written, odd = divmod(file.size, row.size)
            index.count = index._rows_written
            if index.count:
                index.last = index._read(file, index.count - 1)
        finally:
            file.close()
        if odd or (index.last is not None and min(index.last) < 0):
            return None
        return index

    @property
    def bytes(self) -> int:
        return self.count * self._row.size

    def append(self, first: int, second: int) -> None:
        self._tail += self._row.pack(first, second)
        self.count += 1
        self.last = (first, second)
        if self.count - self._rows_written >= ROWS_UNWRITTEN_MAX:
            self.write()

    def write(self) -> None:
        """Bring the file up to date; creates it."""
        file = self._disk.open(self.path, create=True)
        try:
            length = self._rows_written * self._row.size
            if file.size > length:
                file.truncate(length)
            if self._tail:
                file.append(self._tail)
        finally:
            file.close()
        self._rows_written = self.count
        self._tail.clear()

    def floor(self, column: int, value: int) -> tuple[int, int] | None:
        """The last row whose `column` is at most `value`."""
        row = self._row
        if self._tail and row.unpack_from(self._tail, 0)[column] <= value:
            return _floor(self._tail, row, column, value)
        low, high = 0, self._rows_written
        if not high:
            return None
        file = self._disk.open(self.path)
        try:
            while high - low > ROWS_READ_AT_ONCE:
                middle = (low + high) // 2
                if self._read(file, middle)[column] <= value:
                    low = middle
                else:
                    high = middle
            block = file.read_at(low * row.size, (high - low) * row.size)
        finally:
            file.close()
        return _floor(block, row, column, value)

    def not_in_memory(self) -> FileRange | None:
        """The rows in the file, if they have to come from the disk. Only the first call checks: afterwards they have been
        loaded, and reading the segment keeps them in memory."""
        if self._was_looked_for or not self._rows_written:
            return None
        self._was_looked_for = True
        size = self._rows_written * self._row.size
        file = self._disk.open(self.path)
        return FileRange(file, 0, size) if file.in_memory(0, size) < size else None

    def truncate(self, column: int, value: int) -> None:
        """Keep the rows whose `column` is at most `value`, in the file too."""
        row = self._row
        if self._rows_written < self.count:
            self.write()
        rows = self._disk.read(self.path)[: self._rows_written * row.size] if self.count else b""
        self.count = self._rows_written = _count_at_most(rows, row, column, value)
        self.last = None
        if self.count:
            first, second = row.unpack_from(rows, (self.count - 1) * row.size)
            self.last = first, second
        self.write()

    def _read(self, file: File, number: int) -> tuple[int, int]:
        data = file.read_at(number * self._row.size, self._row.size)
        if len(data) < self._row.size:
            return (
                -1,
                -1,
            )  # another program shortened the file: what the caller finds there will not fit
        first, second = self._row.unpack(data)
        return first, second


def _count_at_most(rows: bytes | bytearray, row: Struct, column: int, value: int) -> int:
    def key(number: int) -> int:
        found: int = row.unpack_from(rows, number * row.size)[column]
        return found

    return bisect_right(range(len(rows) // row.size), value, key=key)


def _floor(rows: bytes | bytearray, row: Struct, column: int, value: int) -> tuple[int, int] | None:
    count = _count_at_most(rows, row, column, value)
    if not count:
        return None
    first, second = row.unpack_from(rows, (count - 1) * row.size)
    return first, second
