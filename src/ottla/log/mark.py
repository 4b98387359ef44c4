"""Where one log writes how far it is committed: see `committed_marks`."""

from __future__ import annotations

from bisect import bisect_right
from struct import Struct

from ottla.runtime.seams import File

_MARK = Struct("<qi")
"""Offset, and the epoch of the record before it. Little endian: a write that is torn leaves no greater offset."""


class CommittedMark:
    __slots__ = ("_pack", "_position", "_write_at")

    def __init__(self, file: File, position: int) -> None:
        self._position = position
        self._write_at = file.write_at
        self._pack = _MARK.pack

    def write(self, offset: int, entries: list[tuple[int, int]]) -> None:
        """`entries` are the log's epochs. This is the hot path: nearly always the last epoch is the one."""
        if not entries:
            return
        epoch, start = entries[-1]
        if offset <= start:
            at = bisect_right(entries, offset - 1, key=_start)
            epoch = entries[at - 1][0] if at else -1
        try:
            self._write_at(self._position, self._pack(offset, epoch))
        except OSError:
            # The old mark names less than was committed, never more. A disk that fails is noticed by the next append.
            return


def _start(entry: tuple[int, int]) -> int:
    return entry[1]
