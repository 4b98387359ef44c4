"""One segment of a log: a file of batches, its indexes, and what is known of it in memory.

The position of a batch is found in three ways, cheapest first: the last batches appended are remembered, the positions
where readers stopped are remembered, and the offset index leads to within a few KiB. Headers are read from there; records
never are.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from ottla.log.config import LogConfig
from ottla.log.index import OFFSET_ROW, TIME_ROW, Index
from ottla.log.transaction_index import TransactionIndex
from ottla.records.batch import (
    HEADER_BYTES,
    LENGTH_END,
    NO_TIMESTAMP,
    Batch,
    CorruptBatch,
    read_batch,
)
from ottla.runtime.seams import Buffer, Disk, File, FileRange

INDEX_KINDS = (".index", ".timeindex", ".txnindex")
SEGMENT_KINDS = (".log", *INDEX_KINDS)
CLEANED = ".cleaned"
"""Suffix of the files that compaction writes, until they are complete."""
SWAP = ".swap"
"""Suffix of a complete segment that takes the place of others. From then on it counts, although a crash may leave both."""
RELATIVE_MAX = (1 << 31) - 1
RECENT_MAX = 128
RESUME_MAX = 8
NEWEST_BYTES_MAX = 4096
SCAN_BYTES = 8192
UNINDEXED_BYTES_MAX = 1 << 20
"""A larger closed file without a single index row has lost its index."""

_PLACE = Struct(">qi11xi")
"""Base offset, length and last offset delta: what a scan for an offset needs of a header."""


class OffsetPosition(NamedTuple):
    """A boundary between batches: where it lies, and the offset after the batch before it."""

    position: int
    offset: int


def file_name(base: int, suffix: str) -> str:
    return f"{base:020d}{suffix}"


class OpenFiles:
    """Keeps the number of open segment files of a broker under a limit.

    A file is released, not closed: a connection that still sends from it keeps it open. The choice is a second-chance
    clock: a file that was used since the last round stays.
    """

    def __init__(self, disk: Disk, limit: int = 512) -> None:
        assert limit > 0
        self._disk = disk
        self._limit = limit
        self._ring: dict[Segment, None] = {}

    def open(self, segment: Segment) -> File:
        file = self._disk.open(segment.path)
        self.add(segment, file)
        return file

    def add(self, segment: Segment, file: File) -> None:
        while len(self._ring) >= self._limit:
            oldest = next(iter(self._ring))
            del self._ring[oldest]
            if oldest.used:
                oldest.used = False
                self._ring[oldest] = None
            else:
                oldest.file = oldest.newest = None
        segment.file = file
        self._ring[segment] = None

    def forget(self, segment: Segment) -> None:
        segment.file = segment.newest = None
        self._ring.pop(segment, None)

    def forget_all(self) -> None:
        """They are opened again when they are needed."""
        for segment in list(self._ring):
            self.forget(segment)


class Segment:
    __slots__ = (
        "_recent_floor",
        "_recent_offsets",
        "_recent_positions",
        "_resume",
        "aborted",
        "base",
        "bytes_since_index",
        "created_ms",
        "file",
        "files",
        "first_timestamp",
        "index",
        "max_timestamp",
        "max_timestamp_offset",
        "newest",
        "newest_base",
        "next_offset",
        "size",
        "stem",
        "suffix",
        "times",
        "used",
    )

    def __init__(
        self,
        disk: Disk,
        files: OpenFiles,
        stem: str,
        base: int,
        now_ms: int,
        *,
        suffix: str = "",
    ) -> None:
        self.files = files
        self.stem = stem
        """The path of its files without their kinds (`.log`, `.index`, ...)."""
        self.suffix = suffix
        """Of all its files, until they are part of the log (`.cleaned`, `.swap`)."""
        self.base = base
        self.next_offset = base
        self.size = 0
        self.file: File | None = None
        self.used = False
        self.created_ms = now_ms
        self.first_timestamp = NO_TIMESTAMP
        """Of the first batch, for rolling by time."""
        self.max_timestamp = NO_TIMESTAMP
        """Of the records. A batch that compaction emptied has none, whatever its header says."""
        self.max_timestamp_offset = base
        """Last offset of the batch that brought the largest timestamp."""
        self.newest: FileRange | None = None
        """The batch that was appended last, if it is small: all followers and many consumers read it next."""
        self.newest_base = base
        self.bytes_since_index = 0
        self.index = Index(disk, stem + ".index" + suffix, OFFSET_ROW)
        self.times = Index(disk, stem + ".timeindex" + suffix, TIME_ROW)
        self.aborted = TransactionIndex(disk, stem + ".txnindex" + suffix)
        self._recent_floor = base - 1
        """Last offset before the batches remembered here."""
        self._recent_offsets = array("q")
        self._recent_positions = array("q")
        self._resume: dict[int, int] = {}
        """Where readers stopped: the offset that they ask for next, and its position."""

    @classmethod
    def create(
        cls, disk: Disk, files: OpenFiles, directory: str, base: int, now_ms: int
    ) -> Segment:
        """A new empty segment. A leftover of the same name is emptied. The index files are made with the first batch: most
        partitions of a large broker are idle, and files are the main cost of a partition."""
        segment = cls(disk, files, f"{directory}/{file_name(base, '')}", base, now_ms)
        file = disk.open(segment.path, create=True)
        if file.size:
            file.truncate(0)
        files.add(segment, file)
        return segment

    @property
    def path(self) -> str:
        return self.stem + ".log" + self.suffix

    def opened(self) -> File:
        self.used = True
        return self.file or self.files.open(self)

    # Appending

    def has_room(self, batch: Batch, config: LogConfig, now_ms: int | None, jitter_ms: int) -> bool:
        """Whether the batch may be appended here; if not, a new segment is due."""
        if batch.base_offset + batch.last_offset_delta - self.base > RELATIVE_MAX:
            return False
        if not self.size:
            return True
        if self.size + batch.size > config.segment_bytes:
            return False
        if (self.index.count + 1) * OFFSET_ROW.size > config.index_bytes_max or (
            self.times.count + 1
        ) * TIME_ROW.size > config.index_bytes_max:
            return False
        if self.first_timestamp >= 0:
            waited = batch.max_timestamp - self.first_timestamp
        elif now_ms is not None:
            waited = now_ms - self.created_ms
        else:
            return True
        return waited <= config.roll_ms - jitter_ms

    def append(self, records: Buffer, batch: Batch, index_interval_bytes: int) -> None:
        """One batch. This is the hot path."""
        file = self.opened()
        position = self.size
        file.append(records)
        self.added(batch, position, index_interval_bytes)
        if batch.size <= NEWEST_BYTES_MAX:
            self.newest = FileRange(file, position, batch.size, bytes(records))
            self.newest_base = batch.base_offset

    def added(self, batch: Batch, position: int, index_interval_bytes: int) -> None:
        """The batch now lies at `position`, the end of the file as it was."""
        self.newest = None
        last_offset = batch.base_offset + batch.last_offset_delta
        if batch.max_timestamp > self.max_timestamp and batch.count:
            self.max_timestamp = batch.max_timestamp
            self.max_timestamp_offset = last_offset
        if not position:
            self.first_timestamp = batch.max_timestamp
            self.write_indexes()
        if self.bytes_since_index > index_interval_bytes:
            self.index.append(last_offset - self.base, position)
            self._index_time()
            self.bytes_since_index = 0
        self.bytes_since_index += batch.size
        self.size = position + batch.size
        self.next_offset = last_offset + 1
        self._recent_offsets.append(last_offset)
        self._recent_positions.append(position)
        if len(self._recent_offsets) > RECENT_MAX:
            half = RECENT_MAX // 2
            self._recent_floor = self._recent_offsets[half - 1]
            del self._recent_offsets[:half]
            del self._recent_positions[:half]

    def _index_time(self) -> None:
        last = self.times.last
        if self.max_timestamp >= 0 and (last is None or self.max_timestamp > last[0]):
            self.times.append(self.max_timestamp, self.max_timestamp_offset - self.base)

    def seal(self) -> None:
        """The segment is closed: complete the indexes on disk, and drop what only the active segment needs."""
        self._index_time()
        self.write_indexes()
        self._forget_positions()

    def write_indexes(self) -> None:
        self.index.write()
        self.times.write()
        self.aborted.write()

    @property
    def index_paths(self) -> list[str]:
        """Of the index files that exist once they are written."""
        paths = [self.index.path, self.times.path]
        return [*paths, self.aborted.path] if self.aborted.is_on_disk else paths

    # Finding

    def locate(self, offset: int) -> OffsetPosition:
        """The first batch whose last offset is at least `offset`, or the end."""
        position = self._resume.get(offset)
        return self.boundary(offset) if position is None else OffsetPosition(position, offset)

    def is_recent(self, offset: int) -> bool:
        """`locate` needs no look into the file for it."""
        return offset > self._recent_floor

    def has_resume_position(self, offset: int) -> bool:
        """A reader stopped there."""
        return offset in self._resume

    def scan_start(self, offset: int) -> int:
        """Where in the file `locate` begins its search for an offset whose position is not remembered."""
        return self._indexed_position(offset - 1)

    def boundary(self, offset: int) -> OffsetPosition:
        """As `locate`, but without the positions where readers stopped."""
        if offset >= self.next_offset:
            return OffsetPosition(self.size, self.next_offset)
        if offset > self._recent_floor:
            at = bisect_left(self._recent_offsets, offset)
            before = self._recent_offsets[at - 1] if at else self._recent_floor
            if at == len(self._recent_offsets):
                return OffsetPosition(
                    self.size, before + 1
                )  # in the gap that compaction left at the end
            return OffsetPosition(self._recent_positions[at], before + 1)
        try:
            return self._scan_for(offset, self._indexed_position(offset - 1))
        except CorruptBatch:
            # The index may be wrong. From the start of the file the search needs no index.
            return self._scan_for(offset, 0)

    def cut_at(self, start: OffsetPosition, limit: int, end: OffsetPosition) -> OffsetPosition:
        """The last boundary after `start` and not beyond `limit` bytes, given that `end` lies beyond;
        the end of the first batch if that is already larger."""
        bound = start.position + limit
        if self._recent_positions and bound >= self._recent_positions[0]:
            at = bisect_right(self._recent_positions, bound) - 1
            position = self._recent_positions[at]
            before = self._recent_offsets[at - 1] if at else self._recent_floor
            found = OffsetPosition(position, before + 1)
        else:
            row = self.index.floor(1, bound)
            position = row[1] if row is not None else 0
            found = start
            if start.position < position < self.size:
                base = read_batch(self._header(position), 0).base_offset
                if start.offset < base < self.next_offset:
                    found = OffsetPosition(position, base)
        if found.position > start.position:
            return found
        for batch in self.headers(start.position):
            if batch.end > bound and found.position > start.position:
                break
            found = OffsetPosition(batch.end, batch.next_offset)
            if batch.end >= bound or batch.end >= end.position:
                break
        return found

    def remember(self, place: OffsetPosition) -> None:
        """A reader stopped here and will ask for this offset next."""
        if place.offset > self._recent_floor or place.position >= self.size:
            return
        if len(self._resume) >= RESUME_MAX:
            del self._resume[next(iter(self._resume))]
        self._resume[place.offset] = place.position

    def headers(self, position: int, end: int | None = None) -> Iterator[Batch]:
        """The batches from `position` (a boundary) on. CorruptBatch where there is no valid batch."""
        end = self.size if end is None else end
        file = self.opened()
        chunk = b""
        chunk_at = position
        while position < end:
            if position - chunk_at + HEADER_BYTES > len(chunk):
                chunk = file.read_at(position, min(SCAN_BYTES, end - position))
                chunk_at = position
            header = read_batch(chunk, position - chunk_at)
            batch = Batch(position, *header[1:])
            if batch.end > end:
                raise CorruptBatch(position, f"{batch.size} bytes long, {end - position} are left")
            yield batch
            position = batch.end

    def _header(self, position: int) -> bytes:
        return self.opened().read_at(position, HEADER_BYTES)

    def _indexed_position(self, offset: int) -> int:
        row = self.index.floor(0, offset - self.base)
        return min(row[1], self.size) if row is not None else 0

    def _scan_for(self, offset: int, position: int) -> OffsetPosition:
        file = self.opened()
        end = self.size
        chunk = b""
        chunk_at = position
        before = self.base
        while position < end:
            at = position - chunk_at
            if at + HEADER_BYTES > len(chunk):
                chunk = file.read_at(position, min(SCAN_BYTES, end - position))
                chunk_at = position
                at = 0
                if len(chunk) < HEADER_BYTES:
                    raise CorruptBatch(position, "the file ends within a header")
            base, length, delta = _PLACE.unpack_from(chunk, at)
            if length < HEADER_BYTES - LENGTH_END or not self.base <= base < self.next_offset:
                raise CorruptBatch(
                    position, f"offset {base} and length {length} do not belong here"
                )
            if base + delta >= offset:
                return OffsetPosition(position, before)
            before = base + delta + 1
            if position + length + LENGTH_END > end:
                # Otherwise this would look like a gap at the end, and readers would continue in the next segment.
                raise CorruptBatch(position, f"{length} bytes long, {end - position} are left")
            position += length + LENGTH_END
        return OffsetPosition(self.size, before)

    def _forget_positions(self) -> None:
        self.newest = None
        self._recent_floor = self.next_offset - 1
        self._recent_offsets = array("q")
        self._recent_positions = array("q")
        self._resume.clear()

    # Time

    def position_for_time(self, timestamp: int) -> int:
        """A boundary before which every batch is older than `timestamp`."""
        row = self.times.floor(0, timestamp)
        return self._indexed_position(self.base + row[1]) if row is not None else 0

    def max_timestamp_before(self, offset: int) -> tuple[int, int] | None:
        """(largest timestamp, last offset of the first batch that has it) among batches that end
        below `offset`; None if none has a timestamp."""
        if self.max_timestamp < 0:
            return None
        if self.max_timestamp_offset < offset:
            return self.max_timestamp, self.max_timestamp_offset
        row = self.times.floor(1, offset - 1 - self.base)
        largest, at, position = NO_TIMESTAMP, self.base, 0
        if row is not None:
            largest, at = row[0], self.base + row[1]
            position = self._indexed_position(at)
        for batch in self.headers(position):
            if batch.last_offset >= offset:
                break
            if batch.max_timestamp > largest and batch.count:
                largest, at = batch.max_timestamp, batch.last_offset
        return (largest, at) if largest >= 0 else None

    # Shortening, loading, removing

    def load(self, disk: Disk) -> bool:
        """Take over a file that was closed cleanly. False if its indexes have to be rebuilt. The end is found by reading
        headers from the last index row on (CorruptBatch if they are bad)."""
        index = Index.load(disk, self.index.path, OFFSET_ROW)
        times = Index.load(disk, self.times.path, TIME_ROW)
        if index is None or times is None:
            return False
        if index.last is not None and index.last[1] >= self.size:
            return False
        if index.last is None and self.size > UNINDEXED_BYTES_MAX:
            return False
        self.index, self.times = index, times
        if times.last is not None:
            self.max_timestamp = times.last[0]
            self.max_timestamp_offset = self.base + times.last[1]
        self._load_tail()
        return True

    def _load_tail(self) -> None:
        """Find the end, and the largest timestamp since the last index row."""
        self.bytes_since_index = 0
        self.next_offset = self.base
        position = 0
        if self.index.last is not None:
            self.next_offset = self.base + self.index.last[0]
            position = self.index.last[1]
        for batch in self._in_order(position, self.next_offset, self.size):
            if batch.max_timestamp > self.max_timestamp and batch.count:
                self.max_timestamp = batch.max_timestamp
                self.max_timestamp_offset = batch.last_offset
            self.bytes_since_index += batch.size
            self.next_offset = batch.next_offset
        if self.first_timestamp < 0 and self.size:
            self.first_timestamp = read_batch(self._header(0), 0).max_timestamp
        self._forget_positions()

    def _in_order(self, position: int, offset: int, end: int) -> Iterator[Batch]:
        """The batches between two boundaries, none of which ends before `offset`. CorruptBatch if one does not
        belong there."""
        for batch in self.headers(position, end):
            if batch.base_offset < self.base or batch.last_offset < offset:
                raise CorruptBatch(
                    batch.position, f"offset {batch.base_offset} does not belong here"
                )
            yield batch
            offset = batch.next_offset

    def check_before(self, place: OffsetPosition) -> None:
        """CorruptBatch if the batches before `place` do not end there. Called before a truncation, while nothing is changed
        yet."""
        row = self.index.floor(1, place.position - 1) or (0, 0)
        offset = self.base
        for batch in self._in_order(row[1], self.base + row[0], place.position):
            offset = batch.next_offset
        if offset != place.offset:
            raise CorruptBatch(place.position, f"offset {offset} comes next, not {place.offset}")

    def load_aborted(self, disk: Disk) -> bool:
        """False if the file is damaged: it has to be rebuilt from the batches."""
        loaded = TransactionIndex.load(disk, self.aborted.path, self.base)
        if loaded is None:
            return False
        self.aborted = loaded
        return True

    def truncate(self, place: OffsetPosition) -> None:
        """Cut everything from `place` on."""
        self.opened().truncate(place.position)
        self.size = place.position
        self.aborted.truncate(place.offset)
        self.index.truncate(1, place.position - 1)
        self.times.truncate(1, place.offset - 1 - self.base)
        last = self.times.last
        self.max_timestamp = last[0] if last is not None else NO_TIMESTAMP
        self.max_timestamp_offset = self.base + (last[1] if last is not None else 0)
        if not self.size:
            self.first_timestamp = NO_TIMESTAMP
        self._load_tail()
        assert self.next_offset == place.offset, (self.next_offset, place)

    def rename(self, disk: Disk, kinds: Sequence[str], suffix: str) -> None:
        """Give its files of these kinds another suffix, in this order. Call `set_suffix` when all have it."""
        for kind in kinds:
            source = self.stem + kind + self.suffix
            if disk.exists(source):  # few have aborted transactions
                disk.rename(source, self.stem + kind + suffix)

    def set_suffix(self, suffix: str) -> None:
        self.suffix = suffix
        self.index.path = self.stem + ".index" + suffix
        self.times.path = self.stem + ".timeindex" + suffix
        self.aborted.path = self.stem + ".txnindex" + suffix

    def moved_to(self, directory: str) -> None:
        """The directory of its files has another name."""
        self.stem = f"{directory}/{file_name(self.base, '')}"
        self.set_suffix(self.suffix)

    def reset(self, disk: Disk) -> None:
        """Forget everything but the file, to add its batches again one by one."""
        self.index = Index(disk, self.index.path, OFFSET_ROW)
        self.times = Index(disk, self.times.path, TIME_ROW)
        self.max_timestamp = self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = self.base
        self.bytes_since_index = 0
        self.next_offset = self.base
        self._forget_positions()


def base_of(segment: Segment) -> int:
    return segment.base
