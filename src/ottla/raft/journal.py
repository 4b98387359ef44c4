"""The metadata log for the quorum: the log, its checkpoints, and the voters recorded in both.

It adds three things to a plain log: whether a replica's log position agrees with it (or where they diverge, or that
the replica needs a checkpoint), how far it is flushed, and the voters at its end. A voter set is in effect as soon
as it is in the log, and is dropped again if it is truncated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from ottla.log import checkpoints
from ottla.log.config import LogConfig
from ottla.log.log import Log, ReadResult
from ottla.log.resources import LogResources
from ottla.raft import control_records
from ottla.raft.messages import LogPosition, SnapshotId
from ottla.raft.snapshots import BOOTSTRAP, Download, SnapshotContent, SnapshotStore
from ottla.raft.voters import ReplicaKey, VoterSet
from ottla.records.batch import Batch, batches
from ottla.records.record import ControlType, control_type
from ottla.records.record import records as records_of
from ottla.runtime.seams import Buffer, Disk
from ottla.wire.internal_topics import CLUSTER_METADATA_TOPIC as TOPIC
from ottla.wire.internal_topics import CLUSTER_METADATA_TOPIC_ID as TOPIC_ID
from ottla.wire.types import TopicPartition

NEVER_WRITTEN = -1
"""Offset of the voters from formatting, while no leader has written them into the log."""

CHECKPOINT_EVERY = 50
"""Offsets between two writes of the recovery point. Damage below it is reported; damage above it counts as a torn
write and is truncated."""
READ_BYTES = 1 << 20


class Diverges(NamedTuple):
    """The replica must truncate its log: `epoch` is our largest one not above its own, ending at `end_offset`."""

    epoch: int
    end_offset: int


class _Electorate(NamedTuple):
    offset: int
    kraft_version: int
    voters: VoterSet


Agreement: TypeAlias = Diverges | SnapshotId | None


def metadata_log_config(
    segment_bytes: int = 1 << 30, segment_ms: int = 7 * 86_400_000
) -> LogConfig:
    """Records stay until a checkpoint replaces them, whatever their age and size."""
    return LogConfig(
        segment_bytes=segment_bytes, segment_ms=segment_ms, retention_ms=-1, retention_bytes=-1
    )


def _repair_partition_metadata(disk: Disk, path: str) -> None:
    """Rewrite the file if a crash tore it while the log was created. Its whole content is known."""
    content = checkpoints.partition_metadata_text(TOPIC_ID)
    if not disk.exists(path) or disk.read(path) != content:
        disk.replace(path, content)


class Journal:
    def __init__(
        self, disk: Disk, log: Log, snapshots: SnapshotStore, static_voters: VoterSet | None
    ) -> None:
        self.log = log
        self.snapshots = snapshots
        self._disk = disk
        self._recovery_path = f"{log.path}/{checkpoints.RECOVERY_POINTS}"
        self._recovery_written = log.recovery_point
        self._of_settings = _Electorate(NEVER_WRITTEN, 0, static_voters or VoterSet())
        self._electorates = [self._first_electorate()]
        latest = snapshots.latest
        if latest is not None:
            log.advance_high_watermark(latest.end_offset)
        self._retire_snapshots_below_start()
        for data, batch in self.batches_from(log.high_watermark, log.log_end):
            self._note_voters(data, batch)
        log.before_recovery_point_falls = self._lower_recovery_point

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        *,
        static_voters: VoterSet | None = None,
        config: LogConfig | None = None,
        now_ms: int,
    ) -> Journal:
        """Open or create the log in `directory`/__cluster_metadata-0."""
        config = config or metadata_log_config()
        path = f"{directory}/{TOPIC}-0"
        disk.make_dirs(path)
        snapshots = SnapshotStore(disk, path)
        earliest = snapshots.earliest
        start = 0 if earliest is None else earliest.end_offset
        if any(name.endswith(".log") for name in disk.list_dir(path)):
            _repair_partition_metadata(disk, f"{path}/{checkpoints.PARTITION_METADATA}")
            written = checkpoints.read_offsets(disk, f"{path}/{checkpoints.RECOVERY_POINTS}")
            log = Log.open(
                LogResources(disk),
                directory,
                TOPIC,
                0,
                config,
                recovery_point=written.get(TopicPartition(TOPIC, 0), 0),
                clean=False,
                now_ms=now_ms,
            )
        else:
            log = Log.create(
                LogResources(disk),
                directory,
                TOPIC,
                0,
                config,
                topic_id=TOPIC_ID,
                log_start=start,
                now_ms=now_ms,
            )
        log.flush()
        latest = snapshots.latest
        if latest is not None:
            end = LogPosition(-1 if log.epochs.latest is None else log.epochs.latest, log.log_end)
            if end < (latest.epoch, latest.end_offset) and latest != BOOTSTRAP:
                # The node stopped after it fetched the checkpoint and before it restarted the log there.
                log.truncate_fully(latest.end_offset)
            elif start > log.log_start:
                log.advance_log_start(start)
        return cls(disk, log, snapshots, static_voters)

    # Positions

    @property
    def log_start(self) -> int:
        return self.log.log_start

    @property
    def log_end(self) -> int:
        return self.log.log_end

    @property
    def flushed_end(self) -> int:
        """Everything below this offset would survive a power loss."""
        return self.log.recovery_point

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, taken from a checkpoint if the log does not hold that record."""
        if self.log.epochs.latest is not None:
            return self.log.epochs.latest
        latest = self.snapshots.latest
        return 0 if latest is None else latest.epoch

    @property
    def end_position(self) -> LogPosition:
        return LogPosition(self.last_epoch, self.log_end)

    # Agreement between two logs

    def agreement(self, offset: int, epoch: int) -> Agreement:
        """None if a replica whose log ends at `offset`, with its last record from `epoch`, holds a prefix
        of this log; otherwise what it must do first."""
        latest = self.snapshots.latest
        if offset == 0 and latest is not None and latest != BOOTSTRAP:
            return latest  # faster than copying the log from its beginning, even if that is still there
        if offset == 0 and self.log_start == 0:
            return None
        earliest = self.snapshots.earliest
        if self.log_start > 0 and earliest is not None:
            at_start = offset == self.log_start == earliest.end_offset
            if (
                offset < self.log_start
                or epoch < earliest.epoch
                or (at_start and epoch != earliest.epoch)
            ):
                assert latest is not None
                return latest
        known_epoch, end_offset = self._end_of(epoch)
        if known_epoch == epoch and offset <= end_offset:
            return None
        return Diverges(known_epoch, end_offset)

    def _end_of(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch not above `epoch`, and its end offset."""
        found, end_offset = self.log.epochs.end_offset_for(epoch, self.log_end)
        if found < 0:
            return self.last_epoch, self.log_end
        earliest = self.snapshots.earliest
        if earliest is not None and end_offset == earliest.end_offset and found == epoch:
            return earliest.epoch, earliest.end_offset
        return found, end_offset

    def truncation_point(self, diverges: Diverges) -> int:
        """Where this log must be truncated, given the leader's answer."""
        if diverges.epoch <= 0:
            return min(diverges.end_offset, self.log_end)
        found, end_offset = self._end_of(diverges.epoch)
        if found == diverges.epoch:
            end_offset = min(end_offset, diverges.end_offset)
        return max(min(end_offset, self.log_end), self.log_start)

    def truncate_to(self, offset: int) -> None:
        assert offset >= self.high_watermark, (
            f"cutting at {offset} would drop what is committed below {self.high_watermark} (M3)"
        )
        self.log.truncate_to(offset)
        while self._electorates[-1].offset >= self.log_end and len(self._electorates) > 1:
            self._electorates.pop()

    # Writing and flushing

    def append_as_leader(self, batch: bytearray, epoch: int, now_ms: int) -> int:
        """Returns the offset of the first record."""
        base = self.log.append_control(batch, epoch, now_ms).base_offset
        for appended in batches(batch):
            self._note_voters(batch, appended)
        return base

    def append_as_follower(self, records: memoryview, epoch: int) -> None:
        """Append records of this epoch's leader, possibly only the first of them."""
        end = self.log.append_as_follower(records, epoch).last_offset
        for batch in batches(records, allow_partial=True):
            if batch.last_offset > end:
                break
            self._note_voters(records, batch)

    @property
    def needs_flush(self) -> bool:
        return self.flushed_end < self.log_end

    def flush_plan(self) -> Callable[[], int]:
        """Run it in a thread and pass its result to `flushed`."""
        return self.log.flush_plan()

    def flushed(self, end_offset: int) -> None:
        self.log.flushed(end_offset)
        if self.flushed_end - self._recovery_written >= CHECKPOINT_EVERY:
            self._write_recovery_point(self.flushed_end, durable=False)

    def _lower_recovery_point(self, log: Log, offset: int) -> None:
        if offset < self._recovery_written:
            self._write_recovery_point(offset, durable=True)

    def _write_recovery_point(self, offset: int, *, durable: bool) -> None:
        entry = {TopicPartition(TOPIC, 0): offset}
        checkpoints.write_offsets(self._disk, self._recovery_path, entry, durable=durable)
        self._recovery_written = offset

    def close(self) -> None:
        if self.log.failed is None:
            self.log.close(clean=True)
            self._write_recovery_point(self.flushed_end, durable=False)
        else:
            self.log.close(clean=False)

    # Reading

    def read(self, offset: int, bytes_max: int, end_offset: int) -> ReadResult:
        return self.log.read(offset, max_bytes=bytes_max, end_offset=end_offset)

    def batches_from(self, offset: int, end_offset: int) -> Iterator[tuple[bytes, Batch]]:
        """The batches from the one at `offset` up to `end_offset`, each with the buffer that contains it."""
        while offset < end_offset:
            found = self.read(offset, READ_BYTES, end_offset)
            if found.range is None:
                return
            data = found.range.read()
            for batch in batches(data):
                yield data, batch
            offset = found.next_offset

    # Checkpoints

    def install(self, download: Download) -> SnapshotContent:
        """Restart the log at a checkpoint that was fetched completely."""
        id = download.id
        assert id.end_offset >= self.high_watermark, f"{id} is behind what is committed here (M3)"
        content = download.finish()
        self.log.truncate_fully(id.end_offset)
        self._retire_snapshots_below_start()
        self._electorates = [self._electorate_of(id, content)]
        return content

    def _retire_snapshots_below_start(self) -> None:
        """The earliest checkpoint gives the epoch of the record before the log's start, which shows whether another
        log has the same prefix. A checkpoint from before the start would accept a log that differs below it."""
        for id in [id for id in self.snapshots.ids if id.end_offset < self.log_start]:
            self.snapshots.retire(id)

    def snapshot_taken(self, id: SnapshotId, now_ms: int) -> None:
        """A checkpoint of this node is on disk, so the log before it can be deleted later."""
        assert id.end_offset <= self.high_watermark, f"{id} is not committed (M5)"
        self.snapshots.add(id)
        self.log.roll(now_ms)

    def clean(self, bytes_max: int, age_ms_max: int, now_ms: int) -> None:
        """Drop the oldest checkpoints, and the log before the remaining ones, while the total size exceeds
        `bytes_max` or the oldest is older than `age_ms_max` (-1: no limit). The newest stays."""
        for path in self.log.doomed_by(now_ms):
            self._disk.remove(path)
        while len(self.snapshots.ids) > 1:
            oldest = self.snapshots.ids[0]
            too_much = 0 <= bytes_max < self.size_bytes
            too_old = 0 <= age_ms_max < now_ms - self.snapshots.timestamp_ms(oldest)
            if oldest != BOOTSTRAP and not too_much and not too_old:
                break
            self.snapshots.retire(oldest)
            earliest = self.snapshots.earliest
            assert earliest is not None
            if too_much or (too_old and oldest != BOOTSTRAP):
                self.log.advance_log_start(earliest.end_offset)
                self.log.delete_old_segments(now_ms)

    @property
    def size_bytes(self) -> int:
        return self.log.size_bytes + sum(self.snapshots.size(id) for id in self.snapshots.ids)

    # Voters

    @property
    def voters(self) -> VoterSet:
        return self._electorates[-1].voters

    @property
    def kraft_version(self) -> int:
        return self._electorates[-1].kraft_version

    @property
    def voters_are_written(self) -> bool:
        return self._electorates[-1].offset != NEVER_WRITTEN

    @property
    def voters_are_committed(self) -> bool:
        """Whether the last change of the voters can no longer be undone."""
        return self.voters_are_written and self._electorates[-1].offset < self.high_watermark

    def is_leaving(self, key: ReplicaKey) -> bool:
        """Whether the last change of the voters removes `key`, and may not be committed yet."""
        return (
            len(self._electorates) > 1
            and not self.voters_are_committed
            and not self.voters.has(key)
            and self._electorates[-2].voters.has(key)
        )

    def electorate_at(self, end_offset: int) -> tuple[int, VoterSet]:
        """kraft.version and voters as of `end_offset`, for a checkpoint there."""
        for electorate in reversed(self._electorates):
            if electorate.offset < end_offset:
                return electorate.kraft_version, electorate.voters
        first = self._electorates[0]
        return first.kraft_version, first.voters

    def _first_electorate(self) -> _Electorate:
        latest = self.snapshots.latest
        if latest is None:
            return self._of_settings
        return self._electorate_of(latest, self.snapshots.load(latest))

    def _electorate_of(self, id: SnapshotId, content: SnapshotContent) -> _Electorate:
        """A checkpoint without voters is of a time when they were static. What this log said later was never committed."""
        if content.voters is None:
            return self._of_settings
        offset = NEVER_WRITTEN if id == BOOTSTRAP else id.end_offset - 1
        return _Electorate(offset, content.kraft_version, content.voters)

    def _note_voters(self, data: Buffer, batch: Batch) -> None:
        if not batch.is_control or batch.last_offset <= self._electorates[-1].offset:
            return
        kraft_version = self.kraft_version
        for record in records_of(data, batch):
            kind = control_type(record)
            if kind == ControlType.KRAFT_VERSION:
                version = control_records.decode_control(control_records.KRaftVersion, record.value)
                kraft_version = version.k_raft_version
            elif kind == ControlType.KRAFT_VOTERS:
                entry = control_records.decode_control(control_records.KRaftVoters, record.value)
                voters = VoterSet.from_record(entry)
                self._electorates.append(_Electorate(record.offset, kraft_version, voters))
