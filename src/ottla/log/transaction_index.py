"""Which transactions were aborted: a segment's `.txnindex`, in Kafka's form.

A consumer with read_committed gets, with the records, the list of the aborted transactions in that range, and skips their
records itself. A row is in the segment of the transaction's abort marker, so the search for transactions that began in a
segment continues in later segments. Most segments have no such row and no such file.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from struct import Struct
from typing import NamedTuple

from ottla.runtime.seams import Disk

VERSION = 0
_ROW = Struct(">hqqqq")
_COLUMNS = 4


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """Of the abort marker."""
    last_stable_offset: int
    """Where the oldest other open transaction began when this one ended: no transaction whose marker comes
    later holds anything below."""


class TransactionIndex:
    """Rows in the order of their markers: the file's, then those that are not there yet."""

    __slots__ = ("_disk", "_numbers", "_rows_written", "is_on_disk", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        """Empty. The next `write` removes what the file holds."""
        self._disk = disk
        self._numbers = array("q")
        self._rows_written = 0
        self.is_on_disk = disk.exists(path)
        self.path = path

    @classmethod
    def load(cls, disk: Disk, path: str, base: int) -> TransactionIndex | None:
        """The index in the file, empty if there is none; None if it cannot be right."""
        index = cls(disk, path)
        if not index.is_on_disk:
            return index
        data = disk.read(path)
        if len(data) % _ROW.size:
            return None
        before = base - 1
        for version, *row in _ROW.iter_unpack(data):
            found = AbortedTransaction(*row)
            if version != VERSION or not found.first_offset <= found.last_offset > before:
                return None
            before = found.last_offset
            index._numbers.extend(row)
        index._rows_written = len(index)
        return index

    def __len__(self) -> int:
        return len(self._numbers) // _COLUMNS

    def row(self, number: int) -> AbortedTransaction:
        return AbortedTransaction(*self._numbers[number * _COLUMNS : (number + 1) * _COLUMNS])

    def append(self, aborted: AbortedTransaction) -> None:
        assert not len(self) or self.row(len(self) - 1).last_offset < aborted.last_offset, aborted
        self._numbers.extend(aborted)

    def overlapping(self, start: int, end: int) -> tuple[list[AbortedTransaction], bool]:
        """Those with records in [start, end), and whether later segments can hold no more of them."""
        found = []
        for number in range(self._first_reaching(start), len(self)):
            aborted = self.row(number)
            if aborted.first_offset < end:
                found.append(aborted)
            if aborted.last_stable_offset >= end:
                return found, True
        return found, False

    def truncate(self, offset: int) -> None:
        """Forget those that ended at `offset` or later."""
        keep = self._first_reaching(offset)
        if keep == len(self):
            return
        del self._numbers[keep * _COLUMNS :]
        self._rows_written = min(self._rows_written, keep)
        self.write()

    def write(self) -> None:
        """Bring the file up to date. An index that never had a row has no file."""
        if not self.is_on_disk and not len(self):
            return
        file = self._disk.open(self.path, create=True)
        try:
            length = self._rows_written * _ROW.size
            if file.size > length:
                file.truncate(length)
            if self._rows_written < len(self):
                file.append(
                    b"".join(
                        _ROW.pack(VERSION, *self.row(number))
                        for number in range(self._rows_written, len(self))
                    )
                )
        finally:
            file.close()
        self._rows_written = len(self)
        self.is_on_disk = True

    def _first_reaching(self, offset: int) -> int:
        """The first row whose marker lies at `offset` or later."""
        return bisect_left(
            range(len(self)), offset, key=lambda number: self.row(number).last_offset
        )
