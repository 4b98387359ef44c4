"""How much room is left on the disk of a log directory, and what may still be written there.

A disk that is really full fails: its directory goes offline, and a node whose metadata lies there ends. So growth is refused
before, while there is still room for the metadata, for checkpoints and for compaction. Compaction uses half of it at most: the
segments that it has replaced stay for a while. The room that is kept free is the
*headroom*:

- less than the headroom is free: the room is *scarce*. Clients' records are refused, and leaders move to brokers with room.
- less than half of it: there is *none*. Replicas copy nothing any more, and leave their ISRs. Until then followers can copy
  what their leaders had accepted, so that a disk that all replicas share leaves them in sync.

Both end by themselves, when a fifth more is free than where they began: a mark that is crossed back and forth with every
batch would move leaders back and forth. Deletions, retention, compaction and reads go on all the time.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from ottla.runtime.seams import Disk

UNLIMITED = 1 << 62
LOOK_AFTER_BYTES_MIN, LOOK_AFTER_BYTES_MAX = 16 << 10, 64 << 20
"""How much is written between two looks at the disk, near to a mark and far from it."""
WRITERS = 8
"""A share of what is left until the next mark is written before the next look, because others write to the disk as well."""
OVER_AT = 1.2


class Level(IntEnum):
    AMPLE = 0
    SCARCE = 1
    NONE = 2


class Watermark(NamedTuple):
    percent: int = 100
    """Of the disk that may be used; 100: all of it."""
    headroom_max_bytes: int = UNLIMITED
    """A large disk needs no more headroom than this."""

    @property
    def is_on(self) -> bool:
        return self.percent < 100

    def headroom(self, total: int) -> int:
        return min(total * (100 - self.percent) // 100, self.headroom_max_bytes)


NO_WATERMARK = Watermark()


class Room:
    """What the logs of a place may write. They look at `level` before they write, and take what they write off `left`; when
    that is used up they call `look`. So a batch costs no look at the disk. This one has no limit."""

    __slots__ = ("directory", "free", "left", "level", "total")

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.level = Level.AMPLE
        self.left = UNLIMITED
        """Bytes to write until the next look."""
        self.total = self.free = 0

    def look(self) -> None:
        self.left = UNLIMITED

    def fits(self, size: int) -> bool:
        """Whether so many bytes beside the logs leave the room that is kept for metadata and checkpoints."""
        return True


UNLIMITED_ROOM = Room("")


class DirectoryRoom(Room):
    """Of one log directory."""

    __slots__ = ("_disk", "_on_change", "_watermark")

    def __init__(
        self,
        disk: Disk,
        directory: str,
        watermark: Watermark,
        on_change: Callable[[DirectoryRoom], None],
    ) -> None:
        super().__init__(directory)
        self._disk = disk
        self._watermark = watermark
        self._on_change = on_change
        if watermark.is_on:
            self.left = 0

    def look(self) -> None:
        if not self._watermark.is_on:
            self.left = UNLIMITED
            return
        try:
            self.total, self.free = self._disk.usage(self.directory)
        except OSError:
            self.left = LOOK_AFTER_BYTES_MIN
            return  # whoever reads or writes there will notice
        headroom = self._watermark.headroom(self.total)
        before, self.level = self.level, level_of(self.free, headroom, self.level)
        next_mark = headroom if self.level is Level.AMPLE else headroom // 2
        share = (self.free - next_mark) // WRITERS
        self.left = max(LOOK_AFTER_BYTES_MIN, min(share, LOOK_AFTER_BYTES_MAX))
        if self.level is not before:
            self._on_change(self)

    def fits(self, size: int) -> bool:
        headroom = self._watermark.headroom(self.total)
        return not self._watermark.is_on or self.free - size >= headroom // 2


def level_of(free: int, headroom: int, present: Level) -> Level:
    for level, mark in ((Level.NONE, headroom // 2), (Level.SCARCE, headroom)):
        if free < (mark * OVER_AT if present >= level else mark):
            return level
    return Level.AMPLE
