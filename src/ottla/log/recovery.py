"""Opening a log: what of its files is trusted, what is checked, and what is rebuilt.

After a clean shutdown the files are trusted, except for their sizes. Otherwise everything from the segment of the recovery
point on is read and checked: length, magic and CRC of each batch. Offsets must rise and belong to the segment, and epochs
must never fall, because a write that went to the wrong place has a good CRC too. The log is cut before the first batch that
fails a check. That is right only beyond the recovery point, where nothing was promised to be on disk; anything missing or
damaged before it is a CorruptLog.

A compaction that was interrupted is undone or completed first: see `_settle_compaction`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from ottla.log import checkpoints
from ottla.log.config import LogConfig
from ottla.log.errors import CorruptLog
from ottla.log.leader_epochs import LeaderEpochCache
from ottla.log.producer_snapshots import ProducerSnapshots
from ottla.log.producer_state import EndTransactionMarker, ProducerStateManager
from ottla.log.resources import LogResources
from ottla.log.segment import CLEANED, SEGMENT_KINDS, SWAP, OpenFiles, Segment, base_of
from ottla.log.transaction_index import AbortedTransaction, TransactionIndex
from ottla.records.batch import CRC_START, HEADER_BYTES, Batch, CorruptBatch, read_batch
from ottla.records.crc import crc32c
from ottla.records.record import records
from ottla.runtime.seams import Disk, File
from ottla.wire.types import TopicPartition

CHUNK_BYTES = 1 << 20
RECALL_BYTES = 1 << 18
"""Read of the log at a time in the search for the batches of a snapshot's producers."""
RECALL_BATCHES = 10_000
"""The search ends after so many headers, and the rest of the bytes read last. It costs a partition less than a tenth of a
second when a broker starts, even if it finds nothing."""
LEFTOVERS = (".deleted", ".tmp")
BASE_DIGITS = 20


@dataclass(slots=True)
class LoadedLog:
    """What a log begins with: what its files hold, and what its owner knew of it."""

    topic_id: UUID
    segments: list[Segment]
    """At least one; the last is the newest."""
    epochs: LeaderEpochCache
    producers: ProducerStateManager
    snapshots: ProducerSnapshots
    log_start: int
    bytes_cut: int
    """Of batches that were damaged or incomplete, or came after such."""
    recovery_point: int = 0
    clean: bool = True
    """It was closed in order, or is new."""
    cleaned: int | None = None
    """How far compaction has worked; None: nowhere, there are no gaps."""
    is_as_closed: bool = False
    """The files are as a clean close left them."""


def is_of_a_log(name: str) -> bool:
    """Whether a file in a partition's directory belongs to the log. (The quorum's vote and snapshots are there, too.)"""
    stem = name.partition(".")[0]
    return name in (checkpoints.LEADER_EPOCHS, checkpoints.PARTITION_METADATA) or (
        len(stem) == BASE_DIGITS and stem.isdecimal()
    )


def begin(
    resources: LogResources,
    path: str,
    key: TopicPartition,
    topic_id: UUID,
    log_start: int,
    now_ms: int,
) -> LoadedLog:
    """A log without a batch, in an empty directory."""
    disk, events = resources.disk, resources.events
    return LoadedLog(
        topic_id,
        [Segment.create(disk, resources.files, path, log_start, now_ms)],
        LeaderEpochCache(),
        ProducerStateManager(key, events),
        ProducerSnapshots(disk, path, [], key, events),
        log_start,
        bytes_cut=0,
    )


def load(
    resources: LogResources,
    path: str,
    key: TopicPartition,
    config: LogConfig,
    *,
    recovery_point: int,
    log_start: int,
    clean: bool,
    now_ms: int,
    cleaned: int | None,
) -> LoadedLog:
    disk, files = resources.disk, resources.files
    topic_id = checkpoints.read_partition_metadata(disk, f"{path}/{checkpoints.PARTITION_METADATA}")
    _settle_compaction(disk, files, path)
    bases, snapshot_offsets = _survey(disk, path)
    snapshots = ProducerSnapshots(disk, path, snapshot_offsets, key, resources.events)
    segments = []
    for base in bases:
        segment = Segment(disk, files, f"{path}/{base:020d}", base, now_ms)
        segment.size = disk.file_size(segment.path)
        segments.append(segment)
    if not segments:
        if recovery_point > log_start:
            raise CorruptLog(path, f"no segments, but offsets up to {recovery_point} were flushed")
        snapshots.remove_above(-1)
        begun = begin(resources, path, key, topic_id, log_start, now_ms)
        begun.epochs.dirty = disk.exists(f"{path}/{checkpoints.LEADER_EPOCHS}")
        begun.recovery_point, begun.clean, begun.cleaned = recovery_point, clean, cleaned
        return begun
    may_have_gaps = config.compacted or cleaned is not None
    loader = _Loader(disk, path, config, segments, snapshots, recovery_point, may_have_gaps)
    epochs_read = LeaderEpochCache(loader.epochs.entries)
    if clean:
        loader.trust()
    else:
        loader.check()
    newest = loader.segments[-1]
    if newest.next_offset < recovery_point:
        raise CorruptLog(
            path, f"ends at {newest.next_offset}, but offsets up to {recovery_point} were flushed"
        )
    # The log start may lie beyond the end: DeleteRecords moved it, and then unflushed records were lost.
    start = min(max(log_start, loader.segments[0].base), newest.next_offset)
    loader.epochs.truncate_from_end(newest.next_offset)
    if start < newest.next_offset:
        loader.recall_epochs(start)
    elif loader.epochs.latest is None and start > 0:
        loader.epochs = _epoch_of_the_expired(epochs_read, start)
    loader.epochs.truncate_from_start(start)
    snapshots.remove_above(newest.next_offset)
    producers = loader.producers
    if producers is None:
        producers = loader.producers_at(newest.next_offset, loader.segments)
    return LoadedLog(
        topic_id,
        loader.segments,
        loader.epochs,
        producers,
        snapshots,
        start,
        loader.bytes_cut,
        recovery_point,
        clean,
        cleaned,
        is_as_closed=clean and not loader.has_rebuilt and newest.next_offset in snapshots.offsets,
    )


def _epoch_of_the_expired(read: LeaderEpochCache, start: int) -> LeaderEpochCache:
    """An empty log that once had records knows only the epoch of the last one. Without it the log would continue the log of a
    leader that has other records there and starts earlier, and could lead later without those records."""
    epoch = read.epoch_for_offset(start)
    return LeaderEpochCache() if epoch is None else LeaderEpochCache([(epoch, start)])


def _settle_compaction(disk: Disk, files: OpenFiles, path: str) -> None:
    """What an interrupted compaction left. A `.cleaned` file is not complete: it and what belongs to it are removed. A
    `.log.swap` is complete, and takes the place of the segments between its ends, as in Kafka."""
    left = [name for name in disk.list_dir(path) if name.endswith((CLEANED, SWAP))]
    incomplete = min((name[:BASE_DIGITS] for name in left if name.endswith(CLEANED)), default=None)
    swaps = []
    for name in left:
        if incomplete is not None and name[:BASE_DIGITS] >= incomplete:
            disk.remove(f"{path}/{name}")
        else:
            swaps.append(name)
    if not swaps:
        return
    replaced = [
        (int(name[:BASE_DIGITS]), _end_of_swap(disk, files, path, int(name[:BASE_DIGITS])))
        for name in swaps
        if name.endswith(".log" + SWAP)
    ]
    for name in disk.list_dir(path):
        stem, dot, kind = name.partition(".")
        if dot + kind in SEGMENT_KINDS and any(
            base <= int(stem) < max(end, base + 1) for base, end in replaced
        ):
            disk.remove(f"{path}/{name}")
    # The old segments must be gone durably before the new one has the name of an ordinary segment.
    disk.flush_dir(path)
    for name in swaps:
        disk.rename(f"{path}/{name}", f"{path}/{name.removesuffix(SWAP)}")
    disk.flush_dir(path)


def _end_of_swap(disk: Disk, files: OpenFiles, path: str, base: int) -> int:
    segment = Segment(disk, files, f"{path}/{base:020d}", base, 0, suffix=SWAP)
    segment.size = disk.file_size(segment.path)
    end = base
    try:
        for batch in segment.headers(0):
            end = batch.next_offset
    except CorruptBatch as error:
        raise CorruptLog(segment.path, f"byte {error.position}: {error.why}") from error
    finally:
        files.forget(segment)
    return end


def _survey(disk: Disk, path: str) -> tuple[list[int], list[int]]:
    """Base offsets of the segments, and offsets of the snapshots. Leftovers of interrupted work are removed."""
    bases, snapshots, indexes = [], [], []
    for name in disk.list_dir(path):
        stem, dot, suffix = name.partition(".")
        if name.endswith(LEFTOVERS):
            disk.remove(f"{path}/{name}")
        elif not is_of_a_log(name):
            continue
        elif dot + suffix == ".log":
            bases.append(int(stem))
        elif dot + suffix == ".snapshot":
            snapshots.append(int(stem))
        elif dot + suffix in SEGMENT_KINDS:
            indexes.append(name)
    for name in indexes:
        if int(name[:BASE_DIGITS]) not in bases:
            disk.remove(f"{path}/{name}")
    return sorted(bases), snapshots


class _Loader:
    def __init__(
        self,
        disk: Disk,
        path: str,
        config: LogConfig,
        segments: list[Segment],
        snapshots: ProducerSnapshots,
        recovery_point: int,
        may_have_gaps: bool,
    ) -> None:
        self.disk = disk
        self.path = path
        self.config = config
        self.segments = segments
        self.snapshots = snapshots
        self.recovery_point = recovery_point
        self.may_have_gaps = may_have_gaps
        """Between batches and between segments: only compaction leaves them."""
        self.producers: ProducerStateManager | None = None
        self.bytes_cut = 0
        self.has_rebuilt = False
        """Some index."""
        self.epochs = self._read_epochs()

    def _read_epochs(self) -> LeaderEpochCache:
        entries = checkpoints.read_epochs(self.disk, f"{self.path}/{checkpoints.LEADER_EPOCHS}")
        if entries is not None:
            return LeaderEpochCache(entries)
        # A crash may have come before the file was first written. The batches carry the same epochs. `check` decides
        # which batches count.
        epochs = LeaderEpochCache()
        with suppress(CorruptLog):
            self._take_epochs(epochs)
        epochs.dirty = bool(epochs.entries)  # most logs of a large broker never had a record
        return epochs

    def _take_epochs(self, epochs: LeaderEpochCache) -> None:
        """From the batches. CorruptLog where one cannot be read."""
        epochs.dirty = True
        for segment in self.segments:
            try:
                for batch in segment.headers(0):
                    if batch.leader_epoch > (-1 if epochs.latest is None else epochs.latest):
                        epochs.assign(batch.leader_epoch, batch.base_offset)
            except CorruptBatch as error:
                raise CorruptLog(segment.path, f"byte {error.position}: {error.why}") from error

    def recall_epochs(self, start: int) -> None:
        """The checkpoint of the log start may be older than that of the epochs. After a crash deleted records are then back,
        and so must be their epochs (D6)."""
        known = self.epochs.entries
        if known and known[0][1] <= start:
            return
        found = LeaderEpochCache()
        self._take_epochs(found)
        earlier = [entry for entry in found.entries if not known or entry[0] <= known[0][0]]
        if known and earlier and earlier[-1][0] == known[0][0]:
            del known[0]
        known[:0] = earlier
        self.epochs.dirty = True

    def trust(self) -> None:
        """The log was closed cleanly."""
        self._trust_all(self.segments, None)

    def _trust_all(self, segments: list[Segment], end: int | None) -> None:
        """Each segment must end where the next begins (the last at `end`, if given)."""
        for number, segment in enumerate(segments):
            last = number == len(segments) - 1
            next_base = end if last else segments[number + 1].base
            try:
                knows_aborted = segment.load_aborted(self.disk)
                if not self._has_usable_indexes(segment):
                    self._rebuild_indexes(segment)
                if not knows_aborted:
                    self._rebuild_aborted(segments[:number], segment)
            except CorruptBatch as error:
                raise CorruptLog(segment.path, f"byte {error.position}: {error.why}") from error
            if next_base is None:
                continue
            if segment.next_offset > next_base or not (
                segment.next_offset == next_base or self.may_have_gaps
            ):
                raise CorruptLog(
                    segment.path, f"ends at {segment.next_offset}, the next begins at {next_base}"
                )
            segment.next_offset = next_base

    def _has_usable_indexes(self, segment: Segment) -> bool:
        if not segment.size:
            return True  # its indexes are made, and emptied, with its first batch
        try:
            return segment.load(self.disk)
        except CorruptBatch:
            return False  # the index leads to no batch: it is rebuilt from the batches

    def _rebuild_indexes(self, segment: Segment) -> None:
        self.has_rebuilt = True
        segment.reset(self.disk)
        for batch in segment.headers(0, segment.size):
            segment.added(batch, batch.position, self.config.index_interval_bytes)
        segment.seal()

    def _rebuild_aborted(self, before: list[Segment], segment: Segment) -> None:
        """Which transaction a marker ends follows from the segments before."""
        self.has_rebuilt = True
        producers = self.producers_at(segment.base, before)
        segment.aborted = TransactionIndex(self.disk, segment.aborted.path)
        file = segment.opened()
        for batch in segment.headers(0):
            aborted = replay(producers, batch, file)
            if aborted is not None:
                segment.aborted.append(aborted)
        segment.aborted.write()

    def producers_at(self, offset: int, segments: list[Segment]) -> ProducerStateManager:
        """From batches that were trusted so far, and are read here for the first time."""
        try:
            return rebuild_producers(segments, self.snapshots, offset)
        except CorruptBatch as error:
            raise CorruptLog(
                self.path, f"the producers below {offset} cannot be read: {error.why}"
            ) from error

    def check(self) -> None:
        """The process or the machine died."""
        snapshots = self.snapshots
        # The segment that ends at the recovery point is checked too: it may have been truncated there.
        first = max(0, bisect_left(self.segments, self.recovery_point, key=base_of) - 1)
        unchecked, doubtful = self.segments[:first], self.segments[first:]
        self._trust_all(unchecked, doubtful[0].base)
        start = doubtful[0].base
        self.epochs.truncate_from_end(start)
        snapshots.remove_above(start)
        self.producers = self.producers_at(start, unchecked)
        self.segments = unchecked
        for number, segment in enumerate(doubtful):
            if number:
                before = self.segments[-1]
                if self.may_have_gaps and before.next_offset < segment.base <= self.recovery_point:
                    before.next_offset = segment.base
                if segment.base != before.next_offset:
                    # Overlaps what came before, or something between was lost.
                    self._drop_from(doubtful, number, segment.base, "does not follow")
                    break
                before.seal()
                snapshots.take(self.producers, segment.base)
            self.segments.append(segment)
            if not self._check_segment(segment):
                self._drop_from(doubtful, number + 1, segment.next_offset, "follows a bad batch")
                break
        self.segments[-1].write_indexes()

    def _check_segment(self, segment: Segment) -> bool:
        """Add the batches of the file one by one up to the first bad one, and cut there. Whether all
        were good."""
        segment.reset(self.disk)
        segment.aborted = TransactionIndex(self.disk, segment.aborted.path)
        file = segment.opened()
        end = segment.size
        segment.size = 0
        assert self.producers is not None
        try:
            for batch in _checked(file, end):
                self._check_place(segment, batch)
                if batch.leader_epoch > (-1 if self.epochs.latest is None else self.epochs.latest):
                    self.epochs.assign(batch.leader_epoch, batch.base_offset)
                aborted = replay(self.producers, batch, file)
                if aborted is not None:
                    segment.aborted.append(aborted)
                segment.added(batch, batch.position, self.config.index_interval_bytes)
        except CorruptBatch as error:
            if segment.next_offset < self.recovery_point:
                raise CorruptLog(
                    segment.path,
                    f"offset {segment.next_offset} was flushed (recovery point "
                    f"{self.recovery_point}) and is damaged at byte {error.position}: {error.why}",
                ) from error
            self.bytes_cut += end - segment.size
            file.truncate(segment.size)
            return False
        return True

    def _check_place(self, segment: Segment, batch: Batch) -> None:
        """The CRC does not cover offset and epoch. In a log without gaps every offset is known in advance."""
        expected = segment.next_offset
        gap_allowed = self.may_have_gaps and batch.base_offset > expected
        if batch.last_offset_delta < 0 or not (batch.base_offset == expected or gap_allowed):
            raise CorruptBatch(
                batch.position,
                f"offsets {batch.base_offset}..{batch.last_offset} where {expected} is next",
            )
        latest = self.epochs.latest
        if latest is not None and batch.leader_epoch < latest:
            raise CorruptBatch(batch.position, f"epoch {batch.leader_epoch} after {latest}")

    def _drop_from(self, doubtful: list[Segment], first: int, at: int, why: str) -> None:
        if first < len(doubtful) and self.segments[-1].next_offset < self.recovery_point:
            raise CorruptLog(
                self.path,
                f"the segment of offset {at} {why} {self.segments[-1].next_offset}, and offsets up "
                f"to {self.recovery_point} were flushed",
            )
        for segment in reversed(doubtful[first:]):
            self.bytes_cut += segment.size
            self.drop(segment)

    def drop(self, segment: Segment) -> None:
        segment.files.forget(segment)
        for kind in SEGMENT_KINDS:
            if self.disk.exists(segment.stem + kind):
                self.disk.remove(segment.stem + kind)


def _checked(file: File, end: int) -> Iterator[Batch]:
    """Batches whose length, magic and CRC are right; CorruptBatch at the first that is not."""
    position = chunk_at = 0
    chunk = b""
    while position < end:
        if position - chunk_at + HEADER_BYTES > len(chunk):
            chunk, chunk_at = file.read_at(position, min(CHUNK_BYTES, end - position)), position
        batch = Batch(position, *read_batch(chunk, position - chunk_at)[1:])
        if batch.end > end:
            raise CorruptBatch(position, f"{batch.size} bytes long, {end - position} are left")
        if batch.end - chunk_at > len(chunk):
            chunk, chunk_at = file.read_at(position, min(CHUNK_BYTES, end - position)), position
        crc = 0
        covered = position + CRC_START
        while covered < batch.end:  # a batch may be larger than what is held at once
            if covered >= chunk_at + len(chunk):
                chunk, chunk_at = file.read_at(covered, min(CHUNK_BYTES, end - covered)), covered
                if not chunk:
                    raise CorruptBatch(position, "the file ends within the batch")
            piece = memoryview(chunk)[covered - chunk_at : batch.end - chunk_at]
            crc = crc32c(piece, crc)
            covered += len(piece)
        if crc != batch.crc:
            raise CorruptBatch(position, f"CRC is {crc:#010x}, the header says {batch.crc:#010x}")
        yield batch
        position = batch.end


def replay(producers: ProducerStateManager, batch: Batch, file: File) -> AbortedTransaction | None:
    """Add a batch of the log to the state of its producer. Only control batches are read from the file. Returns the
    transaction if the batch aborts one."""
    if batch.producer_id < 0:
        return None
    if not batch.is_control:
        producers.add(batch)
        return None
    content = file.read_at(batch.position, batch.size)
    marker = read_marker(content, Batch(0, *batch[1:]))
    return None if marker is None else producers.add_marker(batch, marker)


def read_marker(buf: bytes | bytearray | memoryview, batch: Batch) -> EndTransactionMarker | None:
    """What a control batch says of a transaction; None for an empty one (compacted away)."""
    for record in records(buf, batch):
        key, value = record.key, record.value
        if key is None or len(key) < 4 or value is None or len(value) < 6:
            raise CorruptBatch(batch.position, "a control record without its type or epoch")
        kind = int.from_bytes(key[2:4], "big", signed=True)
        return EndTransactionMarker(kind == 1, int.from_bytes(value[2:6], "big", signed=True))
    return None


def rebuild_producers(
    segments: list[Segment], snapshots: ProducerSnapshots, up_to: int
) -> ProducerStateManager:
    """The state at `up_to`: the newest snapshot before it, and the batches since."""
    producers, taken_at = snapshots.latest(up_to)
    if producers.producers:
        _recall(producers, segments, taken_at)
    for segment in segments:
        if segment.next_offset <= taken_at or not segment.size:
            continue
        file = segment.opened()
        start = segment.locate(max(taken_at, segment.base)).position
        for batch in segment.headers(start):
            if batch.base_offset >= up_to:
                return producers
            replay(producers, batch, file)
    return producers


def _recall(producers: ProducerStateManager, segments: list[Segment], before: int) -> None:
    """Find the batches that producers wrote before their snapshot, in case they retry them.

    Only headers are read, newest first, until each producer has its last five batches. If the five are spread over more than
    RECALL_BATCHES batches of the partition (of all producers, counted from the newest that is searched for), some may be
    missing. A retry of those is refused as out of order, and never written twice.
    """
    left = RECALL_BATCHES
    for segment in reversed(segments):
        below = producers.recalled_down_to()
        if below is None:
            return
        if segment.base >= min(below, before) or not segment.size:
            continue
        try:
            end = segment.boundary(min(below, before)).position
            while end > 0:
                row = segment.index.floor(1, max(0, end - RECALL_BYTES))
                start = 0 if row is None else row[1]
                found = list(segment.headers(start, end))
                for batch in reversed(found):
                    if not batch.is_control:
                        producers.recall(batch)
                left -= len(found)
                below = producers.recalled_down_to()
                if below is None or left <= 0:
                    return
                if below <= segment.base:
                    break
                end = min(start, segment.boundary(below).position)
        except CorruptBatch:
            return  # a damaged index or batch: whoever reads the batches themselves reports it
