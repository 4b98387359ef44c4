"""One partition's log: append, read, and the offsets that mark it.

The marks, always log_start ≤ last_stable_offset ≤ high_watermark ≤ log_end:

    log_start             first offset that may be read; retention and DeleteRecords move it up
    last_stable_offset    below it every transaction is decided
    high_watermark        below it everything is committed; replication decides that, the log only keeps it
    log_end               the next offset to be written
    recovery_point        below it everything is flushed

A batch is written once and never changed. Every failure of the disk in a write is a LogDirError, after which this log
takes no more writes: what a failed write or flush left on the disk is unknown until recovery.

What a log does rarely is in modules of its own, as functions of a Log: `flushing`, `truncation`, `retention`, `replacement`
(by compaction) and `recovery`.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn
from uuid import UUID
from zlib import crc32

from ottla.events.storage import TornTailCut
from ottla.log import (
    checkpoints,
    flushing,
    page_cache,
    recovery,
    replacement,
    retention,
    timestamp_lookup,
    truncation,
)
from ottla.log.config import LogConfig
from ottla.log.deleted_segments import DeletedSegments
from ottla.log.errors import CorruptCheckpoint, CorruptLog, InMemory, LogDirError
from ottla.log.kept_records import DELETE_SUFFIX, NAME_BYTES_MAX, CutRecords, KeptRecords
from ottla.log.leader_epochs import LeaderEpochCheckpointFile
from ottla.log.mark import CommittedMark
from ottla.log.resources import LogResources
from ottla.log.rewriting import as_configured, must_rewrite
from ottla.log.room import UNLIMITED_ROOM, Level
from ottla.log.segment import RELATIVE_MAX, Segment, base_of
from ottla.log.transaction_index import AbortedTransaction
from ottla.log.unflushed import Unflushed
from ottla.records.batch import (
    Batch,
    CorruptBatch,
    assign,
    batches,
    check_crc,
    validate_from_client,
)
from ottla.runtime.seams import Buffer, Disk, FileRange
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.types import TopicPartition

CALLS_PER_COPIED_BATCH_MAX = 26
"""Budget, counted by test_counted_work: what a follower may call for each batch that it copies."""


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 unless the topic stamps batches itself."""
    duplicate: bool
    """Nothing was written: these are the offsets the same batch got before."""


class ReadResult(NamedTuple):
    range: FileRange | None
    """Whole batches; None if there is nothing to return."""
    next_offset: int
    """Where to read on."""


def directory_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def make_directory(disk: Disk, path: str, topic_id: UUID) -> None:
    """Of a new log. It may be called in a thread: on a busy file system this takes milliseconds."""
    if disk.exists(path):
        left = disk.list_dir(path)  # by an earlier log of the same name
        assert not any(name.endswith(".log") for name in left), path
        for name in filter(recovery.is_of_a_log, left):
            disk.remove(f"{path}/{name}")
    else:
        disk.make_dirs(path)
    file = disk.open(f"{path}/{checkpoints.PARTITION_METADATA}", create=True)
    try:
        file.append(checkpoints.partition_metadata_text(topic_id))
    finally:
        file.close()


class Log:
    """The marks, the segments, and the hot paths: append and read.

    Appending and reading stay in one class, flat, because every produced and fetched batch passes here. The rarer jobs are
    methods of one line that call their modules; those modules use the attributes of this class directly.
    """

    def __init__(
        self,
        resources: LogResources,
        directory: str,
        key: TopicPartition,
        config: LogConfig,
        loaded: recovery.LoadedLog,
        name: str | None = None,
    ) -> None:
        """`name`: of its directory, unless that is the usual one."""
        self.key = key
        self.topic, self.partition = key
        self.topic_id = loaded.topic_id
        self.directory = directory
        """The log directory; this log's own is `path`, beneath it."""
        self.path = f"{directory}/{name or directory_name(*key)}"
        self.config = config
        self.log_start = loaded.log_start
        self.log_end = loaded.segments[-1].next_offset
        self.high_watermark = self.log_start
        self.known_committed = self.log_start
        """What the mark of the last process says: at least so much of this log was committed. See `committed_end`."""
        self.mark: CommittedMark | None = None
        """Where each move of the high watermark is written, for the next process."""
        self.recovery_point = min(loaded.recovery_point, self.log_end)
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.bytes_cut_at_open = loaded.bytes_cut
        self.failed: LogDirError | None = None
        cleaned = loaded.cleaned
        self.cleaned = cleaned if cleaned is None or cleaned <= self.log_end else self.log_start
        """Compaction has worked below this offset, here or on the replica that this log was copied from. None: nowhere,
        and the log has no gap."""
        self.uncleanable: str | None = None
        """Why compaction leaves this log alone."""
        self.generation = 0
        """Rises when closed segments are truncated or dropped: a plan that was made for them is void."""
        self.gone = False
        """Closed or deleted."""

        # What the owner of the log must do:
        self.before_gaps: Callable[[Log], None] | None = None
        """Must make `cleaned` and the recovery point durable: without the one, and beyond the other, a gap
        means corruption."""
        self.before_recovery_point_falls: Callable[[Log, int], None] | None = None
        """Must make the lower recovery point durable. Called before the files are shortened, because a
        file shorter than its recovery point means corruption."""
        self.before_high_watermark_falls: Callable[[Log, int], None] | None = None
        """Must make the lower high watermark durable: else a restart would take for committed what is written
        between the lower and the old one."""
        self.keeper: KeptRecords | None = None
        """Puts aside what a truncation cuts off although it was committed."""
        self.room = UNLIMITED_ROOM
        """Of the disk. The quorum's log writes into the room that others leave free."""
        self.on_unsettled: Callable[[Log], None] | None = None
        """Called when `is_settled` may have become false: settled logs need no look for a flush."""

        # For the modules of this package:
        self.resources = resources
        self.disk = resources.disk
        self.segments = loaded.segments
        """Oldest first. All but the last are closed. Others may only read it."""
        self.snapshots = loaded.snapshots
        self.deleted = DeletedSegments(resources)
        self.unflushed = Unflushed(everything=not loaded.clean)
        self.epochs_file = LeaderEpochCheckpointFile(resources.disk, self.path)
        self._opened_as = self._present() if loaded.is_as_closed else None
        if loaded.bytes_cut and TornTailCut in resources.events:
            resources.events.emit(TornTailCut(key, directory, loaded.bytes_cut, self.log_end))

    # Opening and closing

    @classmethod
    def create(
        cls,
        resources: LogResources,
        directory: str,
        topic: str,
        partition: int,
        config: LogConfig,
        *,
        topic_id: UUID,
        now_ms: int,
        log_start: int = 0,
        has_directory: bool = False,
        name: str | None = None,
    ) -> Log:
        """A new, empty log. Its name survives a power loss only after the first flush. `has_directory`: `make_directory` was
        called before."""
        key = TopicPartition(topic, partition)
        path = f"{directory}/{name or directory_name(topic, partition)}"
        try:
            if not has_directory:
                make_directory(resources.disk, path, topic_id)
            loaded = recovery.begin(resources, path, key, topic_id, log_start, now_ms)
        except OSError as error:
            raise LogDirError(directory, error) from error
        log = cls(resources, directory, key, config, loaded, name)
        log.unflushed.identity = log.unflushed.names = True
        return log

    @classmethod
    def open(
        cls,
        resources: LogResources,
        directory: str,
        topic: str,
        partition: int,
        config: LogConfig,
        *,
        recovery_point: int,
        log_start: int = 0,
        clean: bool,
        now_ms: int,
        cleaned: int | None = None,
        name: str | None = None,
    ) -> Log:
        """The log in `directory`/`topic`-`partition`, or in the directory of this `name` there. CorruptLog if what was
        flushed is not all there."""
        key = TopicPartition(topic, partition)
        path = f"{directory}/{name or directory_name(topic, partition)}"
        try:
            loaded = recovery.load(
                resources,
                path,
                key,
                config,
                recovery_point=recovery_point,
                log_start=log_start,
                clean=clean,
                now_ms=now_ms,
                cleaned=cleaned,
            )
        except FileNotFoundError as error:
            raise CorruptLog(path, f"a file is missing: {error}") from error
        except CorruptCheckpoint as error:
            raise CorruptLog(path, str(error)) from error
        except OSError as error:
            raise LogDirError(directory, error) from error
        return cls(resources, directory, key, config, loaded, name)

    def close(self, *, clean: bool) -> None:
        """Release the files. With `clean`, first write and flush everything that a restart would have to rebuild."""
        if clean and self.failed is None:
            self.flushed(self.closing_plan()())
        for segment in self.segments:
            self.resources.files.forget(segment)
        self.retire()

    def closing_plan(self) -> Callable[[], int]:
        """The part of a clean close that waits for the disk, as `flush_plan`."""
        return flushing.closing_plan(self)

    @property
    def is_as_closed(self) -> bool:
        """The files are as a clean close would leave them."""
        is_blank = not (self.size_bytes or self.snapshots.offsets or self.producers.producers)
        return is_blank or self._opened_as == self._present()

    def _present(self) -> tuple[int, int, int]:
        """Differs after an append, a truncation and the expiry of a producer."""
        return self.log_end, self.generation, len(self.producers.producers)

    def retire(self) -> None:
        """Plans that threads still carry out must change nothing any more."""
        self.gone = True
        self.epochs_file.retire()
        self.generation += 1

    def mark_deleted(self) -> str:
        """Rename the directory, so that it is no log any more and may be removed later. Returns its new path. A power
        loss may undo this: a broker that starts compares its logs with the metadata."""
        self.retire()
        try:
            target = self.path_when_deleted()
            self.disk.rename(self.path, target)
        except OSError as error:
            self.fail(error)
        for segment in self.segments:
            self.resources.files.forget(segment)
        self.path = target
        return target

    def path_when_deleted(self) -> str:
        """A name that is free: the directory of an earlier log of this partition may still wait for its removal."""
        for number in itertools.count():
            suffix = f".{self.topic_id.hex}{f'.{number}' if number else ''}{DELETE_SUFFIX}"
            name = directory_name(self.topic, self.partition)[: NAME_BYTES_MAX - len(suffix)]
            path = f"{self.directory}/{name}{suffix}"
            if not self.disk.exists(path):
                break
        return path

    def moved_to(self, path: str) -> None:
        """The directory has another name: what is opened from now on is opened there."""
        self.path = path
        for segment in self.segments:
            segment.moved_to(path)
        self.snapshots.moved_to(path)
        self.deleted.moved_to(path)
        if not self.gone:
            self.epochs_file = LeaderEpochCheckpointFile(self.disk, path)

    # Appending

    def append_as_leader(
        self, records: memoryview, leader_epoch: int, now_ms: int, *, from_client: bool = True
    ) -> Appended:
        """Give the batch its offsets, in place, and write it. KafkaError refuses it."""
        if not from_client:
            return self._append_own(records, leader_epoch, now_ms)
        if self.failed is not None:
            self.check_writable()
        if self.room.level:
            self.refuse_growth()
        config = self.config
        stamps = config.message_timestamp_type == "LogAppendTime"
        batch = validate_from_client(
            records,
            max_bytes=config.max_message_bytes,
            now_ms=now_ms,
            timestamp_before_max_ms=None if stamps else config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=None if stamps else config.message_timestamp_after_max_ms,
        )
        if batch.size > config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"the batch has {batch.size} bytes, segment.bytes is {config.segment_bytes}",
            )
        if batch.producer_id >= 0:
            written = self.producers.check(batch)
            if written is not None:
                stamp = written.timestamp if stamps else -1
                return Appended(written.base_offset, written.last_offset, stamp, True)
        if not config.takes_as_is and must_rewrite(config, batch):
            records, batch = as_configured(config, records, batch, now_ms)
        offset = self.log_end
        batch = assign(records, batch, offset, leader_epoch)
        self._write(records, batch, now_ms)
        entries = self.epochs.entries
        if not entries or entries[-1][0] != leader_epoch:
            self.epochs.assign(leader_epoch, offset)
        if batch.producer_id >= 0:
            self.producers.add(batch)
        return Appended(offset, self.log_end - 1, now_ms if stamps else -1, False)

    def append_control(self, batch: bytearray, leader_epoch: int, now_ms: int) -> Appended:
        """Raft's control records."""
        return self._append_own(memoryview(batch), leader_epoch, now_ms)

    def append_marker(
        self, batch: bytearray, leader_epoch: int, now_ms: int, *, bumps_epoch: bool
    ) -> Appended:
        """The end of a transaction. `bumps_epoch`: it has an epoch later than the transaction's own."""
        return self._append_own(memoryview(batch), leader_epoch, now_ms, bumps_epoch=bumps_epoch)

    def _append_own(
        self, records: memoryview, leader_epoch: int, now_ms: int, *, bumps_epoch: bool = False
    ) -> Appended:
        """One or several batches that this broker built. Only their order is checked."""
        self.check_writable()
        if self.room.level is Level.NONE:
            self.refuse_growth()
        given = []
        offset = self.log_end
        for batch in batches(records):
            if batch.producer_id >= 0 and batch.is_control:
                marker = recovery.read_marker(records, batch)
                if marker is not None:
                    self.producers.check_marker(batch, marker, bumps_epoch=bumps_epoch)
            elif batch.producer_id >= 0:
                self.producers.check_offsets(batch)
            given.append(assign(records, batch, offset, leader_epoch))
            offset = given[-1].next_offset
        assert given, "nothing to append"
        self._write_all(records, given, now_ms)
        self.epochs.assign(leader_epoch, given[0].base_offset)
        return Appended(given[0].base_offset, given[-1].last_offset, -1, False)

    def append_as_follower(self, records: memoryview, leader_epoch: int) -> Appended:
        """Write batches as the leader of this epoch wrote them. If one is bad, none is written (CORRUPT_MESSAGE). An
        incomplete batch at the end is ignored. So are batches of a later epoch: the leader reads its answer from the file
        when it sends it, and by then another may lead, and it may have truncated its log and copied batches of the next leader
        to the same position (KAFKA-18723). Those need not continue our log."""
        self.check_writable()
        if self.room.level is Level.NONE:
            self.refuse_growth()
        expected = self.log_end
        epoch = self.epochs.latest
        epoch = -1 if epoch is None else epoch
        copied: list[Batch] = []
        gap = False
        for batch in batches(records, allow_partial=True):
            if batch.leader_epoch > leader_epoch:
                if copied:
                    break
                why = f"epoch {batch.leader_epoch} in an answer of epoch {leader_epoch}"
                raise CorruptBatch(batch.position, why)
            check_crc(records, batch)
            follows = batch.base_offset >= expected or (not copied and self._begins_within(batch))
            if not follows or batch.last_offset_delta < 0:
                raise CorruptBatch(
                    batch.position,
                    f"offsets {batch.base_offset}..{batch.last_offset} where {expected} is next",
                )
            if batch.leader_epoch < epoch:
                raise CorruptBatch(batch.position, f"epoch {batch.leader_epoch} after {epoch}")
            gap = gap or batch.base_offset > expected
            expected = batch.next_offset
            epoch = batch.leader_epoch
            copied.append(batch)
        if not copied:
            return Appended(self.log_end, self.log_end - 1, -1, False)
        if copied[0].base_offset < self.log_end:
            self._rebase(copied[0].base_offset)
        if gap and self.cleaned is None:
            replacement.announce_gaps(self)
        self._write_all(records, copied, None)
        for batch in copied:
            latest = self.epochs.latest
            if latest is None or batch.leader_epoch > latest:
                # Retention may have moved the leader's log start into the first batch.
                self.epochs.assign(batch.leader_epoch, max(batch.base_offset, self.log_start))
        return Appended(copied[0].base_offset, copied[-1].last_offset, -1, False)

    def _begins_within(self, batch: Batch) -> bool:
        """Whether this log is empty and its start lies within this batch, the leader's first: DeleteRecords may have moved
        the leader's log start there. Such a batch is taken whole."""
        return (
            self.log_start == self.log_end
            and not self.size_bytes
            and batch.base_offset < self.log_end <= batch.last_offset
        )

    def _rebase(self, base: int) -> None:
        """Begin the first segment of an empty log below the log start."""
        start, high_watermark = self.log_start, self.high_watermark
        self.truncate_fully(base)
        self.log_start = start
        self.log_end = start
        self.high_watermark = high_watermark

    def _write(self, records: Buffer, batch: Batch, now_ms: int | None) -> None:
        """One batch. This is the hot path."""
        config = self.config
        segment = self.segments[-1]
        if not segment.has_room(batch, config, now_ms, self._jitter_ms(segment)):
            segment = self._roll_for(batch, now_ms)
        try:
            segment.append(records, batch, config.index_interval_bytes)
        except OSError as error:
            self.fail(error)
        room = self.room
        room.left -= batch.size
        if room.left < 0:
            room.look()
        assert segment.next_offset > self.log_end, (self, batch)  # D5: offsets rise
        self.log_end = segment.next_offset

    def _write_all(self, records: memoryview, given: Sequence[Batch], now_ms: int | None) -> None:
        """Batches that lie one after another in `records`. One write for all that go to the same segment."""
        interval = self.config.index_interval_bytes
        at = 0
        while at < len(given):
            segment = self.segments[-1]
            if not segment.has_room(given[at], self.config, now_ms, self._jitter_ms(segment)):
                segment = self._roll_for(given[at], now_ms)
            begin = given[at].position
            file_end = segment.size
            run = at + 1
            room = self.config.segment_bytes - file_end
            limit = segment.base + RELATIVE_MAX
            while (
                run < len(given)
                and given[run].end - begin <= room
                and given[run].last_offset <= limit
                and self._same_age(segment, given[at], given[run])
            ):
                run += 1
            try:
                segment.opened().append(records[begin : given[run - 1].end])
                for batch in given[at:run]:
                    segment.added(batch, file_end + batch.position - begin, interval)
            except OSError as error:
                self.fail(error)
            self.room.left -= given[run - 1].end - begin
            if self.room.left < 0:
                self.room.look()
            assert segment.next_offset > self.log_end, (self, given[at])  # D5: offsets rise
            self.log_end = segment.next_offset
            for batch in given[at:run]:
                self._note_producer(records, batch, segment)
            at = run

    def _same_age(self, segment: Segment, first: Batch, batch: Batch) -> bool:
        """Whether both may be in one segment as far as their timestamps are concerned (segment.ms)."""
        since = segment.first_timestamp if segment.size else first.max_timestamp
        return since < 0 or batch.max_timestamp - since <= (
            self.config.roll_ms - self._jitter_ms(segment)
        )

    def _note_producer(self, records: memoryview, batch: Batch, segment: Segment) -> None:
        if batch.producer_id < 0:
            return
        if not batch.is_control:
            self.producers.add(batch)
            return
        marker = recovery.read_marker(records, batch)
        if marker is not None:
            aborted = self.producers.add_marker(batch, marker)
            if aborted is not None:
                segment.aborted.append(aborted)

    # Rolling

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the newest is empty."""
        self.check_writable()
        if self.segments[-1].size:
            self.begin_segment(self.log_end, now_ms)

    def _roll_for(self, batch: Batch, now_ms: int | None) -> Segment:
        base = self.log_end
        if batch.last_offset - base > RELATIVE_MAX:
            base = batch.base_offset  # a gap too wide for relative offsets
        return self.begin_segment(base, now_ms)

    def begin_segment(self, base: int, now_ms: int | None) -> Segment:
        active = self.segments[-1]
        assert base >= self.log_end and base > active.base, (base, self.log_end, active.base)
        created_ms = active.created_ms if now_ms is None else now_ms
        try:
            if self.unflushed.cut_may_come_back:
                # A power loss may undo the truncation of this file and keep the next file. The log would then continue
                # from records that it had dropped, and nothing would show it.
                active.opened().flush()
                self.unflushed.cut_may_come_back = False
            active.seal()
            self.snapshots.take(self.producers, base)
            segment = Segment.create(self.disk, self.resources.files, self.path, base, created_ms)
        except OSError as error:
            self.fail(error)
        self.segments.append(segment)
        self.unflushed.names = True
        self.flush_may_become_due()
        return segment

    def _jitter_ms(self, segment: Segment) -> int:
        """Spreads rolls by time over segment.jitter.ms. It depends only on the name of the segment, so every run has the
        same."""
        if not self.config.segment_jitter_ms:
            return 0
        jitter_max = min(self.config.segment_jitter_ms, self.config.roll_ms)
        return crc32(f"{self.topic}-{self.partition}-{segment.base}".encode()) % (jitter_max + 1)

    # Reading

    def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        end_offset: int,
        at_least_one: bool = True,
        in_memory: InMemory | None = None,
    ) -> ReadResult:
        """Whole batches from the one that holds `offset`, none reaching `end_offset`, within `max_bytes` (with
        `at_least_one` the first is returned even if it is larger). A caller that must not wait for the disk gives what it
        knows to be `in_memory`, and gets NotInMemory if that is not enough."""
        if not self.log_start <= offset <= self.log_end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{offset} is not within {self.log_start}..{self.log_end} of {self.path}",
            )
        if offset >= end_offset:
            return ReadResult(None, offset)
        active = self.segments[-1]
        newest = active.newest
        if (
            newest is not None
            and offset == active.newest_base
            and end_offset == active.next_offset
            and (at_least_one or newest.size <= max_bytes)
        ):
            return ReadResult(newest, end_offset)
        try:
            return self._read(offset, max_bytes, end_offset, at_least_one, in_memory)
        except OSError as error:
            self.fail(error)

    def _read(
        self,
        offset: int,
        max_bytes: int,
        end_offset: int,
        at_least_one: bool,
        in_memory: InMemory | None,
    ) -> ReadResult:
        segments = self.segments
        number = len(segments) - 1
        if offset < segments[-1].base:
            number = bisect_right(segments, offset, key=base_of) - 1
        while True:
            segment = segments[number]
            if in_memory is not None and segment.is_recent(offset):
                in_memory = None  # what was appended recently is in memory
            if in_memory is not None and not in_memory.place:
                page_cache.check_position_in_memory(segment, offset)
            start = segment.locate(offset)
            if start.position < segment.size or number == len(segments) - 1:
                break
            number += 1  # the offset is in a gap at the end of the segment
        limit = max_bytes
        if in_memory is not None:
            limit = page_cache.check_records_in_memory(segment, start, max_bytes, in_memory)
        end = segment.locate(end_offset)
        if end.position - start.position > limit:
            end = segment.cut_at(start, limit, end)
            if end.position - start.position > max_bytes and not at_least_one:
                return ReadResult(None, offset)
            segment.remember(end)
        size = end.position - start.position
        if size <= 0:
            return ReadResult(None, offset)
        if in_memory is not None and size > limit:  # a large batch
            page_cache.check_records_in_memory(segment, start, size, in_memory, at_least=size)
        return ReadResult(FileRange(segment.opened(), start.position, size), end.offset)

    def offset_for_timestamp(self, ts_ms: int, end_offset: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record at least as new, below `end_offset`."""
        try:
            return timestamp_lookup.first_at_or_after(
                self.segments, self.log_start, ts_ms, end_offset
            )
        except OSError as error:
            self.fail(error)

    def max_timestamp_offset(self, end_offset: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record with the largest timestamp below `end_offset`."""
        try:
            return timestamp_lookup.first_with_max_timestamp(
                self.segments, self.log_start, end_offset
            )
        except OSError as error:
            self.fail(error)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in [start, end), for consumers with read_committed."""
        found: list[AbortedTransaction] = []
        first = max(0, bisect_right(self.segments, start, key=base_of) - 1)
        for segment in self.segments[first:]:
            overlapping, are_all = segment.aborted.overlapping(start, end)
            found += overlapping
            if are_all:
                break
        return found

    @property
    def last_stable_offset(self) -> int:
        unstable = self.producers.first_unstable_offset(self.high_watermark)
        if unstable is None:
            return self.high_watermark
        return max(self.log_start, min(unstable, self.high_watermark))

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    def bytes_from(self, offset: int) -> int:
        """About how many bytes the records from `offset` on have. No index is asked: within a segment, records count as
        equally large."""
        size, end = 0.0, self.log_end
        for segment in reversed(self.segments):
            if offset <= segment.base or end == segment.base:
                size += segment.size
            elif offset < end:
                size += segment.size * (end - offset) / (end - segment.base)
            else:
                break
            end = segment.base
        return int(size)

    def exact_bytes_from(self, offset: int) -> int:
        """The same exactly. It may have to search a segment, unless a reader has stopped at `offset`."""
        size = 0
        try:
            for segment in reversed(self.segments):
                if segment.base < offset:
                    return size + segment.size - segment.locate(offset).position
                size += segment.size
        except OSError as error:
            self.fail(error)
        return size

    @property
    def segment_bases(self) -> list[int]:
        return [segment.base for segment in self.segments]

    # Moving the marks

    def advance_high_watermark(self, offset: int) -> None:
        """Everything below `offset` is committed. The high watermark never falls here, and never passes the log end."""
        if offset > self.log_end:
            offset = self.log_end
        if offset > self.high_watermark:
            self.high_watermark = offset
            if self.mark is not None and offset > self.known_committed:
                self.mark.write(offset, self.epochs.entries)

    @property
    def committed_end(self) -> int:
        """Everything below it was committed, as far as this replica ever knew. A restart begins with a high watermark
        that is some seconds old, and this is exact."""
        return max(self.known_committed, self.high_watermark)

    def set_high_watermark(self, offset: int) -> None:
        """For a restart: the checkpointed high watermark, kept within the log."""
        self.high_watermark = max(self.log_start, min(offset, self.log_end))
        self.assert_marks_in_order()

    def advance_log_start(self, offset: int) -> None:
        """Nothing below `offset` may be read any more (DeleteRecords, retention, or the leader's log start). Only
        committed records are ever deleted, so the high watermark is at least there."""
        if offset > self.log_end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is beyond the end {self.log_end}"
            )
        if offset <= self.log_start:
            return
        self.log_start = offset
        self.high_watermark = max(self.high_watermark, offset)
        self.epochs.truncate_from_start(offset)
        self.assert_marks_in_order()

    # Rare jobs: each has its module

    def truncate_to(self, offset: int, loss: CutRecords | None = None) -> str | None:
        """Drop the batch that holds `offset` and all after it. The log then ends with the last whole batch before, at
        `offset` or earlier. Returns the id of what is kept, if this is a loss."""
        return truncation.truncate_to(self, offset, loss)

    def truncate_fully(self, new_start: int, loss: CutRecords | None = None) -> str | None:
        """Drop everything and begin again, empty, at `new_start`. Returns the id of what is kept, if this is a loss."""
        return truncation.truncate_fully(self, new_start, loss)

    def delete_old_segments(self, now_ms: int) -> int:
        """Retention: drop the oldest segments that are too old, too much or below the log's start. Returns how many. Their
        files are removed later (`doomed_by`)."""
        return retention.delete_old_segments(self, now_ms)

    def delete_segments_below_start(self, now_ms: int) -> int:
        return retention.delete_segments_below_start(self, now_ms)

    def doomed_by(self, now_ms: int) -> list[str]:
        """Files of dropped segments whose delay is over. Each is returned once; the caller removes it, in a thread: to free
        a large file takes the system long."""
        return self.deleted.take_due(now_ms)

    def replace(self, bases: Sequence[int], new: Segment, now_ms: int) -> None:
        """Put a segment that compaction has finished in the place of those that it was made of."""
        replacement.replace_segments(self, bases, new, now_ms)

    # Flushing

    def configure(self, config: LogConfig) -> None:
        self.config = config
        self.flush_may_become_due()

    def flush_may_become_due(self) -> None:
        if self.on_unsettled is not None:
            self.on_unsettled(self)

    @property
    def is_settled(self) -> bool:
        """No flush becomes due by time alone. (What `flush.messages` asks for is flushed with the append that reaches
        it.)"""
        return flushing.is_settled(self)

    def flush_due(self, now_ms: int) -> bool:
        """Whether flush.messages, flush.ms, a closed segment or a truncation asks for a flush now, and none is under
        way."""
        return flushing.is_due(self, now_ms)

    def flush(self) -> None:
        """Flush everything now."""
        self.flushed(self.flush_plan()())

    def flush_plan(self) -> Callable[[], int]:
        """Flush everything: a call that may run in a thread. It returns the new recovery point for `flushed`, or raises
        LogDirError. One plan at a time: `flush_due` is false while one is under way."""
        return flushing.plan(self)

    def flushed(self, recovery_point: int) -> None:
        """A plan of `flush_plan` was carried out. It does not cover what was truncated and written again meanwhile."""
        self.recovery_point = max(self.recovery_point, self.unflushed.flushed(recovery_point))
        self.assert_marks_in_order()

    def epochs_plan(self) -> Callable[[], None] | None:
        """Bring leader-epoch-checkpoint up to date between flushes: a call that may run in a thread; then call
        `epochs_written`. None if there is nothing to write, or a plan under way may be writing it."""
        return flushing.epochs_plan(self)

    def epochs_written(self) -> None:
        self.unflushed.carried_out()

    # Integrity

    def check_writable(self) -> None:
        """KafkaError after the disk has failed."""
        if self.failed is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(self.failed))

    def refuse_growth(self) -> NoReturn:
        """Before the disk is full. Clients know this error and try again, elsewhere if another broker leads by then."""
        room = self.room
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"the disk of {room.directory} is nearly full ({room.free} of {room.total} bytes are free):"
            " it takes no records until there is room (ottla.disk.watermark.percent)",
        )

    def fail(self, cause: OSError) -> NoReturn:
        """The disk failed: this log takes no more writes."""
        self.failed = LogDirError(self.directory, cause)
        raise self.failed from cause

    def assert_marks_in_order(self) -> None:
        """D11, after every change but an append. (The last stable offset is within these by its definition.)"""
        assert self.log_start <= self.high_watermark <= self.log_end, self
        assert self.recovery_point <= self.log_end, self

    def invariants(self) -> None:
        assert self.log_start <= self.last_stable_offset <= self.high_watermark <= self.log_end, (
            self
        )
        assert self.segments[0].base <= self.log_start, self
        assert self.segments[-1].base <= self.log_end, self
        assert self.recovery_point <= self.log_end, self
        self.epochs.invariants()
        entries = self.epochs.entries
        assert not entries or entries[-1][1] <= self.log_end, self

    def __repr__(self) -> str:
        return (
            f"Log({self.topic}-{self.partition}: start {self.log_start} HW {self.high_watermark} "
            f"end {self.log_end}, flushed to {self.recovery_point}, epochs {self.epochs.entries[-3:]})"
        )
