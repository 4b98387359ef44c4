"""Bugs of a log: retention, flushing, recovery and producer state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ottla.broker.apis.offsets import HIGH_WATERMARK, OffsetHandlers
from ottla.log import checkpoints, recovery, retention, truncation
from ottla.log.compaction import OffsetMap
from ottla.log.errors import LogDirError
from ottla.log.leader_epochs import LeaderEpochCache
from ottla.log.log import Log
from ottla.log.producer_state import BatchMetadata, ProducerStateManager
from ottla.log.resources import LogResources
from ottla.log.retention import ExpiredSegment
from ottla.log.segment import Segment
from ottla.records.batch import Batch, CorruptBatch, read_batch
from ottla.replica.partition import Partition
from ottla.runtime.seams import Disk, File
from ottla.sim.cluster.nodes import DATA
from ottla.sim.engine.patches import Patch
from ottla.sim.mutations.base import mutation
from ottla.sim.run.profiles import TABLE, TUG
from ottla.wire.types import TopicPartition


@mutation("KAFKA-13194")
def retention_deletes_above_the_high_watermark() -> list[Patch]:
    """Retention deletes segments that hold uncommitted records."""
    original = retention.expired_segments

    def expired_segments(log: Log, now_ms: int) -> list[ExpiredSegment]:
        high_watermark, log.high_watermark = log.high_watermark, log.log_end
        try:
            return original(log, now_ms)
        finally:
            log.high_watermark = high_watermark

    return [Patch(retention, "expired_segments", expired_segments)]


@mutation("own")
def epochs_survive_truncation() -> list[Patch]:
    """Truncated epochs stay in the leader-epoch cache."""

    def truncate_from_end(self: LeaderEpochCache, offset: int) -> None:
        return None

    return [Patch(LeaderEpochCache, "truncate_from_end", truncate_from_end)]


@mutation("own", likely=TABLE)
def compaction_takes_the_newest_too() -> list[Patch]:
    """Compaction removes the newest record of some keys too."""
    original = OffsetMap.is_newest

    def is_newest(self: OffsetMap, offset: int, key: bytes | None) -> bool:
        if key is not None and key.endswith(b"3") and offset < self.end:
            return False
        return original(self, offset, key)

    return [Patch(OffsetMap, "is_newest", is_newest)]


# Producers


@mutation("own")
def accepts_a_sequence_twice() -> list[Patch]:
    """A retry of a batch that is in the log is appended again."""
    original = ProducerStateManager.check

    def check(self: ProducerStateManager, batch: Batch) -> BatchMetadata | None:
        original(self, batch)
        return None

    return [Patch(ProducerStateManager, "check", check)]


@mutation("own")
def followers_do_not_learn_of_producers() -> list[Patch]:
    """Only the leader that appended the batch keeps producer state: the next leader accepts a retry as new."""

    def note_producer(self: Log, records: memoryview, batch: Batch, segment: Segment) -> None:
        return None

    return [Patch(Log, "_note_producer", note_producer)]


@mutation("own", likely=TUG)
def producer_state_survives_truncation() -> list[Patch]:
    """A truncated batch still counts as written: its retry is answered with an offset that does not hold it."""

    def truncate_to(self: ProducerStateManager, log_end: int) -> bool:
        return True

    return [Patch(ProducerStateManager, "truncate_to", truncate_to)]


# Crashes


@mutation("own")
def recovery_keeps_a_torn_batch() -> list[Patch]:
    """Recovery after a power loss checks lengths, but not CRCs."""
    original = recovery._checked

    def checked(file: File, end: int) -> Iterator[Batch]:
        if not file.path.startswith(DATA):
            yield from original(file, end)
            return
        content, position = file.read_at(0, end), 0
        while position < end:
            batch = read_batch(content, position)
            if batch.end > end:
                raise CorruptBatch(position, "the file ends within the batch")
            yield batch
            position = batch.end

    return [Patch(recovery, "_checked", checked)]


@mutation("own")
def clean_stop_does_not_flush() -> list[Patch]:
    """The marker of a clean shutdown is written without flushing the logs: a power loss after it is not
    detected."""
    original = Log.close

    def close(self: Log, *, clean: bool) -> None:
        original(self, clean=clean and not self.path.startswith(DATA))

    return [Patch(Log, "close", close)]


@mutation("own")
def checkpoints_are_written_in_place() -> list[Patch]:
    """Checkpoint files are overwritten, not replaced atomically."""
    original = checkpoints.write_offsets

    def write_offsets(
        disk: Disk, path: str, offsets: Mapping[TopicPartition, int], *, durable: bool = True
    ) -> None:
        if not path.startswith(DATA):
            original(disk, path, offsets, durable=durable)
            return
        lines = (f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items()))
        file = disk.open(path, create=True)
        try:
            file.truncate(0)
            file.append(checkpoints._checkpoint(lines))
        finally:
            file.close()

    return [Patch(checkpoints, "write_offsets", write_offsets)]


@mutation("own")
def truncates_below_its_durable_recovery_point() -> list[Patch]:
    """The recovery point on disk is not lowered before the files are truncated: after a crash the truncated records
    look lost."""

    def lower_recovery_point(log: Log, offset: int) -> None:
        log.recovery_point = min(log.recovery_point, offset)

    return [Patch(truncation, "lower_recovery_point", lower_recovery_point)]


@mutation("own (fsyncgate)", likely="disk_fault")
def tries_a_failed_flush_again() -> list[Patch]:
    """A failed fsync is retried; it succeeds, because the pages are marked clean by then."""
    original = Log.flush_plan

    def flush_plan(self: Log) -> Callable[[], int]:
        run = original(self)

        def run_until_it_works() -> int:
            try:
                return run()
            except LogDirError:
                self.failed = None
                return run()

        return run_until_it_works

    return [Patch(Log, "flush_plan", flush_plan)]


@mutation("own")
def begins_with_its_last_segments_after_a_crash() -> list[Patch]:
    """A log that was not closed starts with its last two segments: everything before is dropped."""
    original = recovery.load

    def load(resources: LogResources, path: str, *rest: Any, log_start: int, **known: Any) -> Any:
        names = resources.disk.list_dir(path)
        bases = sorted(int(name[:20]) for name in names if name.endswith(".log"))
        if path.startswith(DATA) and not known["clean"] and len(bases) > 2:
            log_start = max(log_start, min(bases[-2], known["recovery_point"]))
        return original(resources, path, *rest, log_start=log_start, **known)

    return [Patch(recovery, "load", load)]


@mutation("own", likely="delete_records")
def deletes_all_records_when_asked_for_some() -> list[Patch]:
    """DeleteRecords deletes up to the high watermark, ignoring the requested offset."""
    original = OffsetHandlers._begin_deleting

    def begin_deleting(
        self: OffsetHandlers, topic: str, number: int, offset: int
    ) -> tuple[Partition, int]:
        return original(self, topic, number, HIGH_WATERMARK)

    return [Patch(OffsetHandlers, "_begin_deleting", begin_deleting)]
