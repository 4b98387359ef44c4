"""One partition's log: append, read, roll, truncate, flush, retention.

The offsets it keeps, always log_start ≤ last_stable_offset ≤ high_watermark ≤ log_end:

    log_start             first offset that may be read (retention and DeleteRecords move it up)
    last_stable_offset    below it no transaction is undecided
    high_watermark        below it everything is committed; whoever replicates decides, this only keeps it
    log_end               the next offset to be written
    recovery_point        below it everything is flushed

A batch is written once and never touched again. Every failure of the disk in a write is a LogDirError, after
which this log takes no more writes: what a failed write or flush left behind is unknown until recovery.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn
from uuid import UUID
from zlib import crc32

from ottla.log import checkpoints, page_cache, recovery, timestamp_lookup
from ottla.log.config import LogConfig
from ottla.log.errors import CorruptCheckpoint, CorruptLog, InMemory, LogDirError
from ottla.log.producer_state import ProducerState
from ottla.log.rewriting import as_configured, must_rewrite
from ottla.log.segment import RELATIVE_MAX, SEGMENT_KINDS, SWAP, OpenFiles, Segment
from ottla.log.transaction_index import AbortedTransaction
from ottla.log.unflushed import NO_LIMIT, Unflushed
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

DELETE_SUFFIX = "-delete"
NAME_BYTES_MAX = 255
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


class Log:
    def __init__(
        self,
        disk: Disk,
        files: OpenFiles,
        directory: str,
        topic: str,
        partition: int,
        topic_id: UUID,
        config: LogConfig,
        loaded: recovery.Loaded,
        recovery_point: int,
        clean: bool,
        cleaned: int | None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.directory = directory
        """The log directory; this log's own is `path`, beneath it."""
        self.path = f"{directory}/{directory_name(topic, partition)}"
        self.config = config
        self.log_start = loaded.log_start
        self.log_end = loaded.segments[-1].next_offset
        self.high_watermark = self.log_start
        self.recovery_point = min(recovery_point, self.log_end)
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.bytes_cut_at_open = loaded.bytes_cut
        self.failed: LogDirError | None = None
        self.cleaned = cleaned if cleaned is None or cleaned <= self.log_end else self.log_start
        """Below it compaction has been at work, here or where this was copied from; None: nowhere, and the
        log has no gap."""
        self.before_gaps: Callable[[Log], None] | None = None
        """Must make `cleaned` and the recovery point durable: without the one, and beyond the other, a gap
        means corruption."""
        self.on_unsettled: Callable[[Log], None] | None = None
        """Called when `is_settled` may have become false: whoever flushes need not look at settled logs."""
        self.uncleanable: str | None = None
        """Why compaction leaves this log alone."""
        self.generation = 0
        """Rises when closed segments are cut or dropped: what was planned for them is void."""
        self.before_recovery_point_falls: Callable[[Log, int], None] | None = None
        """Must make the lower recovery point durable. Called before the files are shortened, because a
        file shorter than its recovery point means corruption."""
        self.before_high_watermark_falls: Callable[[Log, int], None] | None = None
        """Must make the lower high watermark durable: else a restart would take what is written from there on,
        up to the old one, for committed."""
        self._disk = disk
        self._files = files
        self._segments = loaded.segments
        self._snapshots = loaded.snapshots
        self._doomed: dict[str, int] = {}
        """Files that wait for their removal, and when it is due. A segment cut away, begun anew and cut
        away again has taken the place of the first."""
        self._unflushed = Unflushed(everything=not clean)
        self._epochs_text = b""
        """What their file has to say, as it was last decided."""
        self._gone = False

    # Opening and closing

    @classmethod
    def create(
        cls,
        disk: Disk,
        directory: str,
        topic: str,
        partition: int,
        config: LogConfig,
        *,
        topic_id: UUID,
        now_ms: int,
        log_start: int = 0,
        files: OpenFiles | None = None,
    ) -> Log:
        """A new, empty log. Its name survives a power loss only with the first flush."""
        path = f"{directory}/{directory_name(topic, partition)}"
        files = files if files is not None else OpenFiles(disk)
        try:
            disk.make_dirs(path)
            left = disk.list_dir(path)  # by one of the same name
            assert not any(name.endswith(".log") for name in left), path
            for name in filter(recovery.is_of_a_log, left):
                disk.remove(f"{path}/{name}")
            file = disk.open(f"{path}/{checkpoints.PARTITION_METADATA}", create=True)
            try:
                file.append(checkpoints.partition_metadata_text(topic_id))
            finally:
                file.close()
            loaded = recovery.begin(disk, files, path, log_start, now_ms)
        except OSError as error:
            raise LogDirError(directory, error) from error
        log = cls(disk, files, directory, topic, partition, topic_id, config, loaded, 0, True, None)
        log._unflushed.identity = log._unflushed.names = True
        return log

    @classmethod
    def open(
        cls,
        disk: Disk,
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
        files: OpenFiles | None = None,
    ) -> Log:
        """The log in `directory`/`topic`-`partition`. CorruptLog if what was flushed is not all there."""
        path = f"{directory}/{directory_name(topic, partition)}"
        files = files if files is not None else OpenFiles(disk)
        try:
            topic_id = checkpoints.read_partition_metadata(
                disk, f"{path}/{checkpoints.PARTITION_METADATA}"
            )
            loaded = recovery.load(
                disk,
                files,
                path,
                config,
                recovery_point=recovery_point,
                log_start=log_start,
                clean=clean,
                now_ms=now_ms,
                may_have_gaps=config.compacted or cleaned is not None,
            )
        except FileNotFoundError as error:
            raise CorruptLog(path, f"a file is missing: {error}") from error
        except CorruptCheckpoint as error:
            raise CorruptLog(path, str(error)) from error
        except OSError as error:
            raise LogDirError(directory, error) from error
        return cls(
            disk,
            files,
            directory,
            topic,
            partition,
            topic_id,
            config,
            loaded,
            recovery_point,
            clean,
            cleaned,
        )

    def close(self, *, clean: bool) -> None:
        """Let go of the files; `clean` writes and flushes first all that a restart would have to rebuild."""
        if clean and self.failed is None:
            try:
                self._snapshots.take(self.producers, self.log_end)
                self._active.write_indexes()
                for path in (*self._active.index_paths, self._snapshots.path(self.log_end)):
                    file = self._disk.open(path)
                    file.flush()
                    file.close()
                self._unflushed.names = True
            except OSError as error:
                self._fail(error)
            self.flush()
        for segment in self._segments:
            self._files.forget(segment)
        self._gone = True
        self.generation += 1

    def mark_deleted(self) -> str:
        """Rename the directory so that it counts no more; it may be removed at leisure. Its new path.
        A power loss may undo this: whoever restarts compares what is there with what should be."""
        self._gone = True
        self.generation += 1
        try:
            target = self._name_when_deleted()
            self._disk.rename(self.path, target)
        except OSError as error:
            self._fail(error)
        for segment in self._segments:
            self._files.forget(segment)
        self.path = target
        return target

    def _name_when_deleted(self) -> str:
        """The partition may have been here before, and what remained of it then may be on its way out."""
        for number in itertools.count():
            suffix = f".{self.topic_id.hex}{f'.{number}' if number else ''}{DELETE_SUFFIX}"
            name = directory_name(self.topic, self.partition)[: NAME_BYTES_MAX - len(suffix)]
            path = f"{self.directory}/{name}{suffix}"
            if not self._disk.exists(path):
                break
        return path

    # Appending

    def append_as_leader(
        self, records: memoryview, leader_epoch: int, now_ms: int, *, from_client: bool = True
    ) -> Appended:
        """Give the batch its offsets, in place, and write it. KafkaError refuses it."""
        if not from_client:
            return self._append_own(records, leader_epoch, now_ms)
        if self.failed is not None:
            self._check_writable()
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
        """One or several batches that this broker built: trusted, but still checked for their order."""
        self._check_writable()
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
        """Write batches as the leader of this epoch wrote them. If one is bad none is written
        (CORRUPT_MESSAGE); what is cut off at the end is ignored. So is what a later leader wrote: an answer is read
        from the file when it is sent, and by then its sender may have been deposed, have cut its log, and copied
        others into the same place (KAFKA-18723). They need not follow what we have."""
        self._check_writable()
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
            self._announce_gaps()
        self._write_all(records, copied, None)
        for batch in copied:
            latest = self.epochs.latest
            if latest is None or batch.leader_epoch > latest:
                # Retention may have moved the leader's log start into the first batch.
                self.epochs.assign(batch.leader_epoch, max(batch.base_offset, self.log_start))
        return Appended(copied[0].base_offset, copied[-1].last_offset, -1, False)

    def _begins_within(self, batch: Batch) -> bool:
        """An empty log whose start lies within the leader's first batch (after DeleteRecords there)
        takes that batch whole."""
        return (
            self.log_start == self.log_end
            and not self.size_bytes
            and batch.base_offset < self.log_end <= batch.last_offset
        )

    def _announce_gaps(self) -> None:
        if self.cleaned is None:
            self.cleaned = self.log_start
        try:
            if self.before_gaps is not None:
                self.before_gaps(self)
        except OSError as error:
            self._fail(error)

    def _rebase(self, base: int) -> None:
        start, high_watermark = self.log_start, self.high_watermark
        self.truncate_fully(base)
        self.log_start = start
        self.log_end = start
        self.high_watermark = high_watermark

    def _write(self, records: Buffer, batch: Batch, now_ms: int | None) -> None:
        """One batch, the hot path."""
        config = self.config
        segment = self._segments[-1]
        if not segment.has_room(batch, config, now_ms, self._jitter_ms(segment)):
            segment = self._roll_for(batch, now_ms)
        try:
            segment.append(records, batch, config.index_interval_bytes)
        except OSError as error:
            self._fail(error)
        self.log_end = segment.next_offset

    def _write_all(self, records: memoryview, given: Sequence[Batch], now_ms: int | None) -> None:
        """Batches that lie one after another in `records`, with one write where no roll comes between."""
        interval = self.config.index_interval_bytes
        at = 0
        while at < len(given):
            segment = self._segments[-1]
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
                self._fail(error)
            self.log_end = segment.next_offset
            for batch in given[at:run]:
                self._note_producer(records, batch, segment)
            at = run

    def _same_age(self, segment: Segment, first: Batch, batch: Batch) -> bool:
        """Whether rolling by time leaves both in one segment."""
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
        """Begin a new segment, unless the newest is still empty."""
        self._check_writable()
        if self._active.size:
            self._begin_segment(self.log_end, now_ms)

    def _roll_for(self, batch: Batch, now_ms: int | None) -> Segment:
        base = self.log_end
        if batch.last_offset - base > RELATIVE_MAX:
            base = batch.base_offset  # a gap too wide for relative offsets
        return self._begin_segment(base, now_ms)

    def _begin_segment(self, base: int, now_ms: int | None) -> Segment:
        active = self._active
        assert base >= self.log_end and base > active.base, (base, self.log_end, active.base)
        created_ms = active.created_ms if now_ms is None else now_ms
        try:
            if self._unflushed.cut_may_come_back:
                # Files are lost and kept apart. If this one came back as it was before the cut, and the next one
                # stayed, the log would go on from records that it had dropped, and nobody could tell.
                active.opened().flush()
                self._unflushed.cut_may_come_back = False
            active.seal()
            self._snapshots.take(self.producers, base)
            segment = Segment.create(self._disk, self._files, self.path, base, created_ms)
        except OSError as error:
            self._fail(error)
        self._segments.append(segment)
        self._unflushed.names = True
        self._unsettled()
        return segment

    def _jitter_ms(self, segment: Segment) -> int:
        """Spreads rolls by time over segment.jitter.ms, the same on every run."""
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
        """Whole batches from the one that holds `offset`, none reaching `end_offset`, within `max_bytes`
        (the first is returned though larger if `at_least_one`). Who would not wait for the disk says what he
        knows to be `in_memory`, and gets NotInMemory where that is not enough."""
        if not self.log_start <= offset <= self.log_end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{offset} is not within {self.log_start}..{self.log_end} of {self.path}",
            )
        if offset >= end_offset:
            return ReadResult(None, offset)
        active = self._segments[-1]
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
            self._fail(error)

    def _read(
        self,
        offset: int,
        max_bytes: int,
        end_offset: int,
        at_least_one: bool,
        in_memory: InMemory | None,
    ) -> ReadResult:
        segments = self._segments
        number = len(segments) - 1
        if offset < segments[-1].base:
            number = bisect_right(segments, offset, key=_base) - 1
        while True:
            segment = segments[number]
            if in_memory is not None and segment.is_recent(offset):
                in_memory = None  # what was appended not long ago is taken to be there
            if in_memory is not None and not in_memory.place:
                page_cache.check_place(segment, offset)
            start = segment.locate(offset)
            if start.position < segment.size or number == len(segments) - 1:
                break
            number += 1  # in a gap at the end of the segment
        limit = max_bytes
        if in_memory is not None:
            limit = page_cache.check_records(segment, start, max_bytes, in_memory)
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
            page_cache.check_records(segment, start, size, in_memory, at_least=size)
        return ReadResult(FileRange(segment.opened(), start.position, size), end.offset)

    def offset_for_timestamp(self, ts_ms: int, end_offset: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record at least as new, below `end_offset`."""
        try:
            return timestamp_lookup.first_at_least(
                self._segments, self.log_start, ts_ms, end_offset
            )
        except OSError as error:
            self._fail(error)

    def max_timestamp_offset(self, end_offset: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record with the largest timestamp below `end_offset`."""
        try:
            return timestamp_lookup.first_with_largest(self._segments, self.log_start, end_offset)
        except OSError as error:
            self._fail(error)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in [start, end), for who reads only what is committed."""
        found: list[AbortedTransaction] = []
        first = max(0, bisect_right(self._segments, start, key=_base) - 1)
        for segment in self._segments[first:]:
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
        return sum(segment.size for segment in self._segments)

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def gone(self) -> bool:
        """Closed or deleted."""
        return self._gone

    @property
    def segments(self) -> Sequence[Segment]:
        """The oldest first; all but the last are closed. For reading only."""
        return self._segments

    @property
    def segment_bases(self) -> list[int]:
        return [segment.base for segment in self._segments]

    # Moving the marks

    def advance_high_watermark(self, offset: int) -> None:
        """Everything below `offset` is committed. Never back, never beyond the end."""
        if offset > self.log_end:
            offset = self.log_end
        if offset > self.high_watermark:
            self.high_watermark = offset

    def set_high_watermark(self, offset: int) -> None:
        """For a change of role or a restart, where it may fall."""
        self.high_watermark = max(self.log_start, min(offset, self.log_end))

    def advance_log_start(self, offset: int) -> None:
        """Nothing below `offset` may be read any more (DeleteRecords, or the leader's own start). Only
        what is committed is ever deleted, so the high watermark is at least there."""
        if offset > self.log_end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is beyond the end {self.log_end}"
            )
        if offset <= self.log_start:
            return
        self.log_start = offset
        self.high_watermark = max(self.high_watermark, offset)
        self.epochs.truncate_from_start(offset)

    # Shortening

    def truncate_to(self, offset: int) -> None:
        """Drop the batch that holds `offset` and all after it; the log then ends with the last whole batch
        before, at `offset` or earlier."""
        self._check_writable()
        if offset >= self.log_end:
            self.epochs.truncate_from_end(offset)
            return
        if offset != self._segments[0].base and offset <= self.log_start:
            # What has expired and is still in the files is of no epoch that we know: nobody can tell whether
            # the records that come next go on from there, and recovery would hold them against it.
            self.truncate_fully(offset)
            return
        keep = bisect_right(self._segments, offset, key=_base)
        segment = self._segments[keep - 1]
        self.generation += 1
        try:
            place = segment.boundary(offset)
            segment.check_before(place)
            cut = place.offset
            self._lower_recovery_point(cut)
            self._lower_high_watermark(cut)
            if self._snapshots.remove_above(cut):
                self._unflushed.names = True
            if keep < len(self._segments):
                # Newest first: a crash in between leaves a shorter log, not one with a hole.
                self._retire(list(reversed(self._segments[keep:])), 0)
                del self._segments[keep:]
                self._disk.flush_dir(self.path)
            segment.truncate(place)
        except OSError as error:
            self._fail(error)
        self._shortened(cut)
        if not self.producers.cut(cut):
            self.producers = recovery.rebuild_producers(self._segments, self._snapshots, cut)

    def truncate_fully(self, new_start: int) -> None:
        """Drop everything and begin anew, empty, at `new_start`."""
        self._check_writable()
        self.generation += 1
        self.epochs.clear()
        try:
            # A power loss may leave no segment at all: that is no corruption.
            self._lower_recovery_point(0)
            self._lower_high_watermark(new_start)
            # Now, not with the next flush: after a crash an empty log believes what it finds there, and would
            # say that it ends in an epoch of what is dropped here.
            self._epochs_writer()()
            self._retire(self._segments, 0)
            self._snapshots.remove_above(-1)
            self._disk.flush_dir(self.path)
            segment = Segment.create(
                self._disk, self._files, self.path, new_start, self._active.created_ms
            )
        except OSError as error:
            self._fail(error)
        self._segments = [segment]
        self._unflushed.names = True
        self.log_start = self.log_end = self.high_watermark = new_start
        self._cut_below_flush(0)  # no flush under way has seen the new segment
        self.producers = ProducerState()
        self._unsettled()

    def _shortened(self, log_end: int) -> None:
        self.log_end = log_end
        self.log_start = min(self.log_start, log_end)
        self.high_watermark = min(self.high_watermark, log_end)
        self._cut_below_flush(log_end)
        self.epochs.truncate_from_end(log_end)

    def _cut_below_flush(self, offset: int) -> None:
        self._unflushed.was_cut(offset)
        self._unsettled()

    def _lower_recovery_point(self, offset: int) -> None:
        if offset < self.recovery_point:
            self.recovery_point = offset
            if self.cleaned is not None:
                self.cleaned = min(self.cleaned, offset)
            if self.before_recovery_point_falls is not None:
                self.before_recovery_point_falls(self, offset)

    def _lower_high_watermark(self, offset: int) -> None:
        if offset < self.high_watermark and self.before_high_watermark_falls is not None:
            self.before_high_watermark_falls(self, offset)

    def delete_old_segments(self, now_ms: int) -> int:
        """Retention: drop the oldest segments that are too old, too much or below the log's start. Only
        whole segments below the high watermark go; their files are removed later (`doomed_by`). Returns how many."""
        self._check_writable()
        doomed = self._expired(now_ms)
        if not doomed or self._unflushed.is_planned:
            return 0  # a plan may be writing the epochs: the next round finds the same
        if self.epochs.dirty:
            # Their batches are about to go: nobody could tell the epochs from them after a crash.
            try:
                self._epochs_writer()()
            except OSError as error:
                self._fail(error)
        self.generation += 1
        if len(doomed) == len(self._segments):
            self._begin_segment(self.log_end, now_ms)
        self.advance_log_start(self._segments[len(doomed)].base)
        try:
            self._retire(doomed, now_ms)
            self._snapshots.remove_below(self._segments[len(doomed)].base)
        except OSError as error:
            self._fail(error)
        del self._segments[: len(doomed)]
        self._unflushed.names = True
        return len(doomed)

    def _expired(self, now_ms: int) -> list[Segment]:
        config = self.config
        deletes = "delete" in config.cleanup_policy
        excess = NO_LIMIT if config.retention_bytes < 0 else config.retention_bytes
        excess = self.size_bytes - excess
        expired = []
        for segment in self._segments:
            if segment.next_offset > self.high_watermark:
                break
            if segment is self._active and not segment.size:
                break
            newest_ms = segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms
            too_old = 0 <= config.retention_ms < now_ms - newest_ms
            too_much = excess >= segment.size
            if not (deletes and (too_old or too_much)) and segment.next_offset > self.log_start:
                break
            if segment is self._active and not (deletes and (too_old or too_much)):
                break
            expired.append(segment)
            excess -= segment.size
        return expired

    def _retire(self, segments: Sequence[Segment], now_ms: int) -> None:
        """Rename the files in the given order; whoever reads them goes on reading."""
        for segment in segments:
            self._files.forget(segment)
            for kind in SEGMENT_KINDS:
                source, target = segment.stem + kind, f"{segment.stem}{kind}.deleted"
                if not self._disk.exists(source):
                    continue  # an empty segment has no indexes yet
                self._disk.rename(source, target)
                self._doomed[target] = now_ms + self.config.file_delete_delay_ms

    def doomed_by(self, now_ms: int) -> list[str]:
        """Files of dropped segments whose delay is over. They are the caller's to remove, once: to free a large file
        takes the system longer than others may wait."""
        due = [path for path, when in self._doomed.items() if when <= now_ms]
        for path in due:
            del self._doomed[path]
        return due

    # Compaction

    def replace(self, bases: Sequence[int], new: Segment, now_ms: int) -> None:
        """Put a segment that compaction has finished in the place of those it was made of.

        A power loss may keep any of these renames and lose any other, hence the flushes between them: first
        the new one is sure to be found, then the old ones are sure to be gone, then it gets its name.
        """
        self._check_writable()
        first = bisect_left(self._segments, bases[0], key=_base)
        end = first + len(bases)
        old = self._segments[first:end]
        assert [segment.base for segment in old] == list(bases), (self, bases)
        assert end < len(self._segments) and new.next_offset <= self.recovery_point, (self, bases)
        self._announce_gaps()
        try:
            new.rename(self._disk, (".log",), SWAP)
            new.is_called(SWAP)
            self._disk.flush_dir(self.path)
            self._retire(old, now_ms)
            self._disk.flush_dir(self.path)
            new.rename(self._disk, SEGMENT_KINDS, "")
            new.is_called("")
            self._snapshots.remove(bases[1:])
        except OSError as error:
            self._fail(error)
        self._segments[first:end] = [new]
        self._unflushed.names = True

    # Flushing

    def configure(self, config: LogConfig) -> None:
        self.config = config
        self._unsettled()

    def _unsettled(self) -> None:
        if self.on_unsettled is not None:
            self.on_unsettled(self)

    @property
    def is_settled(self) -> bool:
        """Nothing here becomes due for a flush by time alone. (What `flush.messages` asks for is flushed
        with the append that reaches it.)"""
        return self._unflushed.is_settled(self.config, self._has_unflushed_segments)

    def flush_due(self, now_ms: int) -> bool:
        """Whether flush.messages, flush.ms, a finished segment or a cut asks for a flush now, and none is
        under way."""
        records = self.log_end - self.recovery_point
        finished = self._has_unflushed_segments
        return self._unflushed.is_due(now_ms, self.config, records, finished)

    @property
    def _has_unflushed_segments(self) -> bool:
        """Finished ones: what is in the newest may wait longer."""
        return self._active.base > self.recovery_point

    def flush(self) -> None:
        """Flush everything now."""
        self.flushed(self.flush_plan()())

    def flush_plan(self) -> Callable[[], int]:
        """What to flush, as a call that may be made in a thread: it returns the new recovery point for
        `flushed`, or raises LogDirError. One plan at a time: `flush_due` waits for it."""
        self._check_writable()
        up_to = self.log_end
        unflushed: list[Segment] = []
        if up_to > self.recovery_point or self._unflushed.cut:
            # With the one that ends at the recovery point: it may have been cut there.
            first = bisect_left(self._segments, self.recovery_point, key=_base) - 1
            unflushed = self._segments[max(0, first) :]
        try:
            files = [segment.opened() for segment in unflushed]
            for segment in unflushed[:-1]:
                files += [self._disk.open(index.path) for index in (segment.index, segment.times)]
                if segment.aborted.is_on_disk:
                    files.append(self._disk.open(segment.aborted.path))
            if self._unflushed.identity:
                files.append(self._disk.open(f"{self.path}/{checkpoints.PARTITION_METADATA}"))
        except OSError as error:
            self._fail(error)
        write_epochs = self._epochs_writer() if self.epochs.dirty else None
        directories = [self.path] if self._unflushed.names or write_epochs else []
        if self._unflushed.identity:
            directories.append(self.directory)
        self.epochs.dirty = False
        self._unflushed.plan_all()

        def run() -> int:
            try:
                for file in files:
                    file.flush()
                if write_epochs is not None:
                    write_epochs()
                for directory in directories:
                    self._disk.flush_dir(directory)
            except OSError as error:
                if not self._gone:  # a log deleted meanwhile has nothing left to flush
                    self._fail(error)
            return up_to

        return run

    def flushed(self, recovery_point: int) -> None:
        """A plan was carried out. What was cut away and written anew meanwhile is not part of it."""
        self.recovery_point = max(self.recovery_point, self._unflushed.flushed(recovery_point))

    def identity_plan(self) -> Callable[[], None] | None:
        """Make durable that this log is there and whose it is, soon after its creation: without that the
        data in it is worth nothing. A call that may be made in a thread, then `identity_flushed`. None
        if that is done, or a flush is under way that does it."""
        unflushed = self._unflushed
        if not unflushed.identity or unflushed.is_planned or self.failed is not None:
            return None
        try:
            file = self._disk.open(f"{self.path}/{checkpoints.PARTITION_METADATA}")
        except OSError as error:
            self._fail(error)
        unflushed.plan_identity()

        def run() -> None:
            try:
                file.flush()
                for directory in (self.path, self.directory):
                    self._disk.flush_dir(directory)
            except OSError as error:
                if not self._gone:
                    self._fail(error)

        return run

    def identity_flushed(self) -> None:
        self._unflushed.carried_out()

    def epochs_plan(self) -> Callable[[], None] | None:
        """Bring leader-epoch-checkpoint up to date between flushes, for whoever reads the file: a call
        that may be made in a thread, then `epochs_written`. None if there is nothing to write, or a plan
        is being carried out that may be writing it already."""
        if not self.epochs.dirty or self._unflushed.is_planned or self.failed is not None:
            return None
        self.epochs.dirty = False
        self._unflushed.plan_nothing_of_this()
        return self._epochs_writer()

    def epochs_written(self) -> None:
        self._unflushed.carried_out()

    def _epochs_writer(self) -> Callable[[], None]:
        self._epochs_text = checkpoints.epochs_text(self.epochs.entries)

        def write() -> None:
            written = None
            # Again if the log was emptied while a plan wrote what it had before.
            while written is not self._epochs_text:
                written = self._epochs_text
                # Durable once the directory is flushed; until then the old file serves recovery as well.
                self._disk.replace(
                    f"{self.path}/{checkpoints.LEADER_EPOCHS}", written, durable=False
                )

        return write

    # Integrity

    @property
    def _active(self) -> Segment:
        return self._segments[-1]

    def _check_writable(self) -> None:
        if self.failed is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(self.failed))

    def _fail(self, cause: OSError) -> NoReturn:
        self.failed = LogDirError(self.directory, cause)
        raise self.failed from cause

    def invariants(self) -> None:
        assert self.log_start <= self.last_stable_offset <= self.high_watermark <= self.log_end, (
            self
        )
        assert self._segments[0].base <= self.log_start, self
        assert self._active.base <= self.log_end, self
        assert self.recovery_point <= self.log_end, self
        self.epochs.invariants()
        entries = self.epochs.entries
        assert not entries or entries[-1][1] <= self.log_end, self

    def __repr__(self) -> str:
        return (
            f"Log({self.topic}-{self.partition}: start {self.log_start} HW {self.high_watermark} "
            f"end {self.log_end}, flushed to {self.recovery_point}, epochs {self.epochs.entries[-3:]})"
        )


def _base(segment: Segment) -> int:
    return segment.base
