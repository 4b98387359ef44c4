"""Records that a truncation cuts off although they were committed: put aside first, exactly, and bounded."""

from __future__ import annotations

import errno
import json
import random
from itertools import count
from uuid import UUID

import pytest
from logkit import SMALL, append, content, sim_disk

from ottla.log.errors import LogDirError
from ottla.log.kept_records import SPARE_BYTES, CutRecords, KeptRecords, files_of, kept_in
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.losses.manifest import FILE, EpochRange, LossKind, Manifest, State
from ottla.losses.merge import merge
from ottla.records.batch import batches
from ottla.sim.engine.disk import SimDisk
from ottla.sim.engine.process import Died
from ottla.wire.types import TopicPartition

KEY = TopicPartition("t", 0)
TOPIC_ID = UUID(int=40)
NOW_MS = 5_000


class Broker:
    """The logs of one broker on a disk, started anew as often as a test wants."""

    def __init__(self, disk: SimDisk, first_id: int = 1, **limits: int) -> None:
        ids = count(first_id)
        self.disk = disk
        self.now_ms = NOW_MS
        self.kept = KeptRecords(
            disk, new_id=lambda: UUID(int=next(ids)), now_ms=lambda: self.now_ms, **limits
        )
        self.logs = LogManager(
            disk, ["/data"], SMALL, new_id=lambda: UUID(int=next(ids)), kept=self.kept
        )
        self.logs.start("c", 3, self.now_ms)

    @property
    def log(self) -> Log:
        return self.logs.logs[KEY]

    def filled(self, batches: int = 30, committed: int | None = None) -> Log:
        """Segments of a few batches of two records each, in two epochs."""
        log = self.logs.create("t", TOPIC_ID, 0, SMALL, 0)
        for number in range(batches):
            append(log, 2, epoch=1 if number < 15 else 2, value=b"%40d" % number)
        log.advance_high_watermark(2 * batches if committed is None else committed)
        return log

    def cut(self, offset: int) -> str | None:
        log = self.log
        return log.truncate_to(offset, loss_from(log, offset))


def loss_from(log: Log, offset: int) -> CutRecords:
    return CutRecords(offset, log.committed_end, "a test", 2, 3)


def kept_bytes(disk: SimDisk) -> bytes:
    return b"".join(
        disk.read(path) for kept in kept_in(disk, "/data") for path in files_of(disk, kept)
    )


@pytest.mark.parametrize("offset", [0, 2, 20, 30, 44, 58])
def test_what_is_cut_off_is_kept_byte_for_byte(offset):
    broker = Broker(sim_disk())
    log = broker.filled(committed=50)
    cut = content(log, offset)
    id = broker.cut(offset)
    (kept,) = broker.kept.kept.values()
    manifest = kept.manifest
    assert (manifest.id, manifest.state, manifest.kind) == (id, State.KEPT, LossKind.TRUNCATION)
    assert (manifest.first_offset, manifest.end_offset) == (offset, 60)
    assert manifest.committed_end == max(50, offset)
    assert manifest.bytes == len(cut)
    assert (manifest.broker, manifest.leader, manifest.leader_epoch) == (3, 2, 3)
    expected = [EpochRange(1, offset, 30)] if offset < 30 else []
    assert manifest.epochs == (*expected, EpochRange(2, max(30, offset), 60))
    assert kept_bytes(broker.disk) == cut
    assert log.log_end == offset
    log.invariants()


def test_a_batch_that_is_cut_in_its_middle_is_kept_and_named_whole():
    broker = Broker(sim_disk())
    log = broker.filled()
    cut = content(log, 20)
    broker.cut(21)
    assert log.log_end == 20
    (kept,) = broker.kept.kept.values()
    assert (kept.manifest.first_offset, kept.manifest.records) == (20, 40)
    assert kept.manifest.epochs[0] == EpochRange(1, 20, 30)
    assert kept_bytes(broker.disk) == cut


def test_a_log_that_is_emptied_keeps_all_that_it_had():
    broker = Broker(sim_disk())
    log = broker.filled()
    everything = content(log)
    log.truncate_fully(200, loss_from(log, 0))
    assert kept_bytes(broker.disk) == everything
    assert (log.log_start, log.log_end) == (200, 200)


def test_a_tail_that_was_not_committed_is_not_kept():
    broker = Broker(sim_disk())
    broker.filled(committed=50)
    assert broker.log.truncate_to(50) is None
    assert broker.kept.kept == {} and kept_bytes(broker.disk) == b""


@pytest.mark.parametrize("offset", [0, 20, 30, 44])
def test_a_process_that_dies_at_any_moment_neither_loses_nor_doubles_what_it_keeps(offset):
    """It dies before each of its changes in turn. The next process finds the log as long as it still is, and truncates it
    again, as its leader asks it to."""
    for countdown in count(1):
        disk = sim_disk()
        broker = Broker(disk)
        cut = content(broker.filled(committed=50), offset)
        disk.die_before(None, countdown, lambda _: None)
        try:
            broker.cut(offset)
            finished = True
        except Died:
            finished = False
        disk.forget_process()
        if finished:
            disk.forget_death()
        again = Broker(disk, first_id=1000)
        if again.log.log_end > offset:
            assert again.log.committed_end == min(50, again.log.log_end), "it knows what it knew"
            again.cut(offset)
        (loss,) = merge(kept.manifest for kept in kept_in(disk, "/data"))
        assert (loss.first, loss.end, loss.possible_end) == (offset, max(50, offset), 60), countdown
        found = {batch.base_offset: batch for batch in batches(kept_bytes(disk))}
        assert sorted(found) == [batch.base_offset for batch in batches(cut)], countdown
        assert len(kept_bytes(disk)) == len(cut), f"kept twice: {countdown}"
        again.log.invariants()
        if finished:
            break
    assert countdown > 8


def test_a_process_that_dies_while_it_empties_a_log_names_no_record_that_the_log_still_has():
    for countdown in count(1):
        disk = sim_disk()
        broker = Broker(disk)
        everything = content(broker.filled(committed=50))
        disk.die_before(None, countdown, lambda _: None)
        try:
            broker.log.truncate_fully(200, loss_from(broker.log, 0))
            finished = True
        except Died:
            finished = False
        disk.forget_process()
        if finished:
            disk.forget_death()
        again = Broker(disk, first_id=1000)
        log = again.log
        for loss in merge(kept.manifest for kept in kept_in(disk, "/data")):
            in_log = range(max(log.log_start, loss.first), min(log.log_end, loss.possible_end))
            assert not in_log, f"lost and in the log: {countdown}"
        if 0 < log.log_end < 200:
            assert log.committed_end == min(50, log.log_end), "it knows what it knew"
            log.truncate_fully(200, loss_from(log, 0))
        (loss,) = merge(kept.manifest for kept in kept_in(disk, "/data"))
        assert (loss.first, loss.end, loss.possible_end) == (0, 50, 60), countdown
        found = {batch.base_offset for batch in batches(kept_bytes(disk))}
        assert sorted(found) == [batch.base_offset for batch in batches(everything)], countdown
        assert len(kept_bytes(disk)) == len(everything), f"kept twice: {countdown}"
        log.invariants()
        if finished:
            break
    assert countdown > 8


def test_after_kill_9_the_log_knows_exactly_what_was_committed():
    disk = sim_disk()
    broker = Broker(disk)
    log = broker.filled(committed=10)
    broker.logs.checkpoint()
    log.advance_high_watermark(47)
    disk.forget_process()
    again = Broker(disk, 1000).log
    assert again.high_watermark == 10, "the checkpoint is where it starts from"
    assert again.committed_end == 47


def test_a_mark_of_records_that_are_no_longer_there_does_not_count():
    disk = sim_disk()
    broker = Broker(disk)
    log = broker.filled(committed=47)
    log.truncate_to(40)
    for number in range(8):
        append(log, 2, epoch=5, value=b"%40d" % number)
    disk.forget_process()
    assert Broker(disk, 1000).log.committed_end == 0, "offset 46 has another epoch now"


@pytest.mark.parametrize("seed", range(20))
def test_after_a_power_loss_no_more_is_claimed_than_was_committed(seed):
    disk = sim_disk(seed)
    broker = Broker(disk)
    log = broker.filled(0)
    chance = random.Random(seed)
    committed = {}
    for number in range(40):
        append(log, 1, epoch=1 + number // 10, value=b"%40d" % number)
        if chance.random() < 0.5:
            log.advance_high_watermark(log.log_end)
            committed[log.log_end] = True
        if chance.random() < 0.1:
            log.flush()
    disk.lose_power()
    again = Broker(disk, 1000)
    if KEY in again.logs.logs:
        assert again.log.committed_end <= max(committed)


def test_the_oldest_goes_first_when_too_much_is_kept():
    disk = sim_disk()
    broker = Broker(disk)
    log = broker.filled()
    limit = broker.kept.max_bytes = 9 * (len(content(log)) // 30)
    first = broker.cut(50)
    assert first is not None
    second = broker.cut(44)
    assert list(broker.kept.kept) == [first, second]
    third = broker.cut(36)
    assert list(broker.kept.kept)[-1] == third and first not in broker.kept.kept
    assert sum(kept.manifest.bytes for kept in broker.kept.kept.values()) <= limit
    too_much = broker.cut(0)
    assert too_much is None
    newest = list(broker.kept.kept.values())[-1].manifest
    assert newest.state is State.NOT_KEPT and "max.bytes" in (newest.why_not or "")
    assert (newest.first_offset, newest.end_offset) == (0, 36), "but it is named"
    assert log.log_end == 0
    plan = broker.logs.removal_plan(NOW_MS)
    plan.run()
    assert not [name for name in disk.list_dir("/data") if name.endswith("-delete")]


def test_a_loss_that_is_only_named_takes_no_room_and_is_not_forgotten_for_room():
    """Its manifest says how many bytes were cut off. They are not on the disk."""
    broker = Broker(sim_disk())
    log = broker.filled(60)
    broker.kept.max_bytes = 5 * (len(content(log)) // 60)
    first = broker.cut(116)
    assert broker.cut(60) is None
    named = list(broker.kept.kept)[-1]
    second = broker.cut(54)
    assert list(broker.kept.kept) == [first, named, second]
    third = broker.cut(48)
    assert list(broker.kept.kept) == [named, third], "room comes from what is kept"


def test_what_is_kept_expires():
    disk = sim_disk()
    broker = Broker(disk, retention_ms=1000)
    broker.filled()
    broker.cut(50)
    broker.logs.removal_plan(NOW_MS + 999).run()
    assert kept_bytes(disk)
    broker.logs.removal_plan(NOW_MS + 1000).run()
    assert not broker.kept.kept and not kept_in(disk, "/data")


def test_a_full_disk_does_not_stop_the_truncation_and_the_loss_is_named():
    disk = sim_disk()
    broker = Broker(disk)
    log = broker.filled()
    disk.capacity_bytes = disk.used_bytes + SPARE_BYTES
    assert broker.cut(21) is None
    assert log.log_end == 20 and log.failed is None
    (kept,) = kept_in(disk, "/data")
    assert kept.manifest.state is State.NOT_KEPT and "full" in (kept.manifest.why_not or "")
    assert (kept.manifest.first_offset, kept.manifest.end_offset) == (20, 60)


@pytest.mark.parametrize("operation", ["write", "flush", "rename", "flush_dir"])
def test_a_disk_that_fails_while_it_keeps_is_not_trusted_and_nothing_is_cut(operation):
    disk = sim_disk()
    broker = Broker(disk)
    log = broker.filled()
    cut = content(log, 20)
    disk.fail(operation, "/data/t-0.")
    with pytest.raises(LogDirError):
        broker.cut(21)
    assert log.failed is not None
    disk.mend()
    disk.forget_process()
    again = Broker(disk, 1000)
    assert content(again.log, 20) == cut, "the log still has them"
    assert not merge(kept.manifest for kept in kept_in(disk, "/data"))


def test_a_disk_that_fails_when_the_manifest_is_completed_is_not_trusted():
    disk = sim_disk()
    broker = Broker(disk)
    log = broker.filled()
    cut = content(log, 20)
    written = []

    def second_manifest(path, data, **options):
        written.append(path)
        if len(written) == 2:
            raise OSError(errno.EIO, "it fails", path)
        replace(path, data, **options)

    replace, disk.replace = disk.replace, second_manifest
    with pytest.raises(LogDirError):
        broker.cut(20)
    disk.replace = replace
    assert log.failed is not None
    disk.forget_process()
    Broker(disk, 1000)
    (loss,) = merge(kept.manifest for kept in kept_in(disk, "/data"))
    assert (loss.first, loss.end) == (20, 60)
    assert kept_bytes(disk) == cut


def test_whole_segments_are_moved_and_not_copied():
    """However much is cut off, at most the rest of one segment is read."""
    disk = sim_disk()
    broker = Broker(disk)
    log = broker.filled(200)
    read = []
    bases = log.segment_bases
    original = type(disk.open(log.segments[0].path)).read_at
    kind = type(log.segments[0].opened())

    def counted(self, position, size):
        data = original(self, position, size)
        read.append(len(data))
        return data

    kind.read_at = counted  # type: ignore[method-assign]
    try:
        broker.cut(bases[1] + 2)
    finally:
        kind.read_at = original  # type: ignore[method-assign]
    assert sum(read) < 6 * SMALL.segment_bytes
    assert len(kept_bytes(disk)) > 10 * SMALL.segment_bytes


def test_a_stray_log_gets_a_manifest_and_is_never_removed():
    disk = sim_disk()
    broker = Broker(disk, max_bytes=0, retention_ms=0)
    everything = content(broker.filled(committed=50))
    broker.logs.set_aside(KEY, "no replica of it is here")
    broker.logs.removal_plan(NOW_MS + 10**12).run()
    disk.forget_process()
    again = Broker(disk, 1000)
    (kept,) = again.kept.kept.values()
    assert kept.manifest.kind is LossKind.STRAY_LOG
    assert (kept.manifest.first_offset, kept.manifest.committed_end) == (0, 50)
    assert kept.manifest.cause == "no replica of it is here"
    assert kept_bytes(disk) == everything


def test_a_broker_starts_beside_a_stray_file_and_beside_a_manifest_that_it_cannot_read():
    disk = sim_disk()
    Broker(disk).filled()
    disk.forget_process()
    disk.replace("/data/notes-stray", b"not a directory")
    for name, at_ms in (("one", 1), ("two", "then")):
        path = f"/data/t-0.{name}-stray"
        disk.make_dirs(path)
        fields = {**a_manifest().as_json(), "id": name, "at_ms": at_ms}
        disk.replace(f"{path}/{FILE}", json.dumps(fields).encode())
    again = Broker(disk, 1000)
    assert list(again.kept.kept) == ["one"]
    assert again.log.log_end == 60


def a_manifest() -> Manifest:
    return Manifest(
        id="",
        kind=LossKind.TRUNCATION,
        state=State.NOT_KEPT,
        topic="t",
        topic_id=str(TOPIC_ID),
        partition=0,
        first_offset=0,
        committed_end=1,
        end_offset=1,
        epochs=(EpochRange(1, 0, 1),),
        records=1,
        bytes=1,
        at_ms=1,
        cause="a test",
        leader=1,
        leader_epoch=1,
        broker=3,
    )
