"""Opening a log after it was closed, killed, or after its disk lied: cut what was never promised, refuse to
cut what was."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from logkit import (
    DIRECTORY,
    SMALL,
    append,
    batch_of,
    batches_in,
    content,
    new_log,
    offsets_in,
    producers_of,
    reopen,
    sim_disk,
)

from ottla.log import checkpoints, recovery
from ottla.log.errors import CorruptLog
from ottla.records.batch import CorruptBatch, assign, read_batch
from ottla.sim.engine.disk import SimDisk
from ottla.wire.errors import KafkaError

PATH = f"{DIRECTORY}/t-0"
FIRST = f"{PATH}/00000000000000000000.log"


def filled(disk, batches: int = 20):
    log = new_log(disk)
    for number in range(batches):
        append(log, 1 + number % 3, epoch=number // 8, timestamp=number)
    return log


def test_a_clean_stop_and_start_changes_nothing():
    disk = sim_disk()
    log = filled(disk)
    append(log, 1, epoch=9, producer_id=5, producer_epoch=1, base_sequence=3)
    log.close(clean=True)
    again = reopen(disk, recovery_point=log.log_end, clean=True)
    assert again.log_end == log.log_end and again.recovery_point == log.log_end
    assert again.epochs.entries == log.epochs.entries
    assert producers_of(again) == producers_of(log)
    assert content(again) == content(log)
    assert again.bytes_cut_at_open == 0
    assert again.topic_id == log.topic_id


def test_P24_leader_epoch_checkpoint_keeps_epoch_and_start_offset_pairs():
    disk = sim_disk()
    log = new_log(disk)
    append(log, 3, epoch=2)
    append(log, 1, epoch=5)
    log.flush()
    assert disk.read(f"{PATH}/leader-epoch-checkpoint") == b"0\n2\n2 0\n5 3\n"
    disk.lose_power()
    assert reopen(disk, recovery_point=4).epochs.entries == [(2, 0), (5, 3)]


@pytest.mark.parametrize("is_there", [False, True])
def test_epochs_are_read_from_the_batches_when_their_checkpoint_was_never_written(is_there: bool):
    """Apache Kafka makes an empty file with each log."""
    disk = sim_disk()
    log = filled(disk)
    log.close(clean=True)
    if is_there:
        disk.replace(f"{PATH}/{checkpoints.LEADER_EPOCHS}", b"")
    else:
        disk.remove(f"{PATH}/{checkpoints.LEADER_EPOCHS}")
    again = reopen(disk, recovery_point=log.log_end, clean=True)
    assert again.epochs.entries == log.epochs.entries


@pytest.mark.parametrize("start", [1, 9, 17, 21, 30])
def test_D6_records_that_are_there_again_after_a_crash_have_their_epochs_again(start: int):
    """Where a log starts is written less often than its epochs (found by the simulator)."""
    disk = sim_disk()
    log = filled(disk)
    entries = list(log.epochs.entries)
    log.advance_high_watermark(log.log_end)
    log.advance_log_start(start)
    log.flush()
    again = reopen(disk, recovery_point=log.log_end)
    assert again.log_start == 0 and again.epochs.entries == entries
    again.invariants()


def test_a_log_begun_anew_that_lost_its_only_segment_is_empty_and_not_damaged():
    """The name of a new segment is flushed after those of the old ones are gone (simulator seed 57)."""
    disk = sim_disk()
    log = filled(disk)
    log.flush()
    told: list[int] = []
    log.before_recovery_point_falls = lambda _, offset: told.append(offset)
    log.advance_high_watermark(log.log_end)
    log.advance_log_start(30)
    log.truncate_fully(25)
    assert log.recovery_point == 0 and log.flush_due(now_ms=0)
    disk.remove(f"{PATH}/{25:020d}.log")
    again = reopen(disk, recovery_point=told[-1], log_start=20)
    assert (again.log_start, again.log_end, again.epochs.entries) == (20, 20, [])


def test_P09_every_torn_tail_is_cut_at_the_last_whole_batch():
    """At whatever byte the last write tore."""
    disk = sim_disk()
    log = new_log(disk)
    append(log, 2)
    append(log, 2)
    whole = bytes(disk.read(FIRST))
    append(log, 1)
    torn = bytes(disk.read(FIRST))
    for length in range(len(whole), len(torn)):
        disk.replace(FIRST, torn[:length])
        again = reopen(disk)
        assert again.log_end == 4
        assert again.bytes_cut_at_open == length - len(whole)
        assert disk.file_size(FIRST) == len(whole)


def test_zeros_after_the_last_write_are_cut():
    disk = sim_disk()
    log = new_log(disk)
    append(log, 2)
    disk.open(FIRST).append(bytes(500))
    again = reopen(disk)
    assert again.log_end == 2 and disk.file_size(FIRST) == log.size_bytes


def test_any_flipped_bit_past_the_recovery_point_cuts_there_and_below_it_is_corrupt():
    chance = random.Random(1)
    for _ in range(60):
        disk = sim_disk()
        log = new_log(disk, SMALL)
        ends = []
        for number in range(6):
            append(log, 1, timestamp=number)
            ends.append(log.size_bytes)
        where = chance.randrange(ends[-1])
        hit = next(number for number, end in enumerate(ends) if where < end)
        outside_crc = 12 <= where - (ends[hit - 1] if hit else 0) < 16
        disk.rot(FIRST, where)
        if outside_crc:
            continue  # a leader epoch may be altered unseen unless it falls
        recovery_point = chance.choice((0, hit, hit + 1))
        if recovery_point <= hit:
            again = reopen(disk, recovery_point=recovery_point)
            assert again.log_end == hit
        else:
            with pytest.raises(CorruptLog):
                reopen(disk, recovery_point=recovery_point)
            assert disk.file_size(FIRST) == ends[-1]


def test_what_a_killed_process_left_unflushed_is_flushed_by_its_successor():
    """Seed 16: the second life flushed its batches, a power loss then took the log's name and identity,
    which the first life had not flushed."""
    for seed in range(20):
        disk = sim_disk(seed)
        append(new_log(disk))
        disk.forget_process()
        log = reopen(disk)
        append(log)
        log.flush()
        disk.lose_power()
        assert reopen(disk, recovery_point=2).log_end == 2


def test_a_log_shorter_than_its_recovery_point_is_corrupt():
    disk = sim_disk()
    log = filled(disk, 3)
    log.flush()
    end = log.log_end
    disk.open(FIRST).truncate(read_batch(disk.read(FIRST), 0).size)
    for clean in (True, False):
        with pytest.raises(CorruptLog, match="flushed"):
            reopen(disk, recovery_point=end, clean=clean)


def test_a_log_without_segments_is_corrupt_if_something_was_flushed():
    disk = sim_disk()
    filled(disk, 3).close(clean=True)
    for name in disk.list_dir(PATH):
        if name.endswith(".log"):
            disk.remove(f"{PATH}/{name}")
    with pytest.raises(CorruptLog, match="no segments"):
        reopen(disk, recovery_point=3)
    assert reopen(disk, recovery_point=0).log_end == 0


def test_a_flushed_segment_that_is_too_short_or_too_long_is_corrupt():
    for clean in (True, False):
        disk = sim_disk()
        log = filled(disk, 30)
        assert len(log.segment_bases) > 2
        log.flush()
        end, second = log.log_end, log.segment_bases[1]
        log.close(clean=True)
        last = max(
            batch for batch in offsets_in(reopen(disk, recovery_point=end, clean=True), 0, second)
        )
        file = disk.open(FIRST)
        whole = disk.read(FIRST)
        file.append(batch_of(1))
        with pytest.raises(CorruptLog):
            reopen(disk, recovery_point=end, clean=clean)
        file.truncate(len(whole) - 70 * (last[1] - last[0] + 1))
        with pytest.raises(CorruptLog):
            reopen(disk, recovery_point=end, clean=clean)


def test_a_write_that_went_to_the_wrong_place_is_found_though_its_crc_is_good():
    disk = sim_disk()
    log = new_log(disk)
    append(log, 2, epoch=3)
    append(log, 2, epoch=3)
    stray = batch_of(1)
    for base, epoch in ((1, 3), (9, 2)):  # offsets that fall, an epoch that falls
        assign(stray, read_batch(stray, 0), base, epoch)
        disk.open(FIRST).append(stray)
        again = reopen(disk)
        assert again.log_end == 4


def test_a_segment_lost_between_two_others_cuts_there():
    disk = sim_disk()
    log = filled(disk, 30)
    bases = log.segment_bases
    disk.remove(f"{PATH}/{bases[1]:020d}.log")
    again = reopen(disk, recovery_point=0)
    assert again.log_end == bases[1] and again.segment_bases == bases[:1]
    assert not [name for name in disk.list_dir(PATH) if f"{bases[1]:020d}" < name < "1"]


def test_a_segment_lost_below_the_recovery_point_is_corrupt():
    disk = sim_disk()
    log = filled(disk, 30)
    bases = log.segment_bases
    disk.remove(f"{PATH}/{bases[1]:020d}.log")
    with pytest.raises(CorruptLog):
        reopen(disk, recovery_point=bases[2])


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "empty", "odd", "garbage"])
def test_indexes_are_hints_that_may_be_lost(clean, suffix, damage):
    disk = sim_disk()
    log = filled(disk, 40)
    expected = content(log)
    log.close(clean=True)
    for base in log.segment_bases:
        path = f"{PATH}/{base:020d}{suffix}"
        if damage == "missing":
            disk.remove(path)
        elif damage == "empty":
            disk.open(path).truncate(0)
        elif damage == "odd":
            disk.open(path).append(b"\1\2\3")
        else:
            size = disk.file_size(path)
            disk.open(path).write_at(0, bytes([7]) * size)
    again = reopen(disk, recovery_point=log.log_end, clean=clean)
    assert content(again) == expected
    for offset in range(again.log_end):
        found = again.read(offset, max_bytes=1, end_offset=again.log_end)
        batch = read_batch(found.range.read(), 0)
        assert batch.base_offset <= offset <= batch.last_offset


def test_producers_are_rebuilt_as_they_were():
    disk = sim_disk()
    log = new_log(disk)
    sequences = {1: 0, 2: 0}
    for number in range(40):
        producer = 1 + number % 2
        append(log, 2, producer_id=producer, producer_epoch=0, base_sequence=sequences[producer])
        sequences[producer] += 2
    for name in disk.list_dir(PATH):
        if name.endswith(".snapshot"):
            disk.open(f"{PATH}/{name}").write_at(0, b"torn")
    again = reopen(disk)
    assert producers_of(again) == producers_of(log)


@pytest.mark.parametrize("clean", [True, False])
def test_damage_that_is_met_where_producers_are_rebuilt_is_a_corrupt_log(clean):
    """Seed 138: the broker died of it, with all its other partitions."""
    disk = sim_disk()
    log = filled(disk, 40)
    log.close(clean=True)
    for name in disk.list_dir(PATH):
        if name.endswith(".snapshot"):
            disk.remove(f"{PATH}/{name}")
    second = read_batch(disk.open(FIRST).read_at(0, 100), 0).end
    disk.open(FIRST).write_at(second, bytes(61))
    with pytest.raises(CorruptLog, match="producers"):
        reopen(disk, recovery_point=log.log_end, clean=clean)


@pytest.mark.parametrize("clean", [True, False])
def test_a_producer_may_retry_its_last_five_batches_after_a_restart(clean):
    """Seed 109: a snapshot holds only the last one."""
    disk = sim_disk()
    log = new_log(disk)
    for number in range(8):
        for producer in (1, 2):
            append(log, 3, producer_id=producer, producer_epoch=0, base_sequence=3 * number)
        if number == 6:
            log.roll(0)
    expected = producers_of(log)
    if clean:
        log.close(clean=True)
    again = reopen(disk, recovery_point=log.recovery_point, clean=clean)
    assert producers_of(again) == expected
    for number in range(3, 8):
        retried = batch_of(3, producer_id=1, producer_epoch=0, base_sequence=3 * number)
        appended = again.append_as_leader(retried, 1, 2000)
        assert appended.duplicate and appended.base_offset == 6 * number


def test_P21_large_batches_are_found_again_after_a_restart_however_much_lies_between():
    disk = sim_disk()
    config = replace(SMALL, segment_bytes=1 << 20, max_message_bytes=1 << 20)
    log = new_log(disk, config)

    def write(to, producer: int, sequence: int):
        batch = batch_of(
            producer_id=producer, producer_epoch=0, base_sequence=sequence, value=bytes(100_000)
        )
        return to.append_as_leader(batch, 0, 1000)

    quiet = [write(log, 1, sequence) for sequence in range(7)]
    busy = [write(log, 2, sequence) for sequence in range(30)]
    expected = producers_of(log)
    log.close(clean=True)
    again = reopen(disk, recovery_point=log.log_end, clean=True, config=config)
    assert producers_of(again) == expected
    for producer, firsts in ((1, quiet), (2, busy)):
        for sequence in range(len(firsts) - 5, len(firsts)):
            assert write(again, producer, sequence) == firsts[sequence]._replace(duplicate=True)


def test_P21_a_retry_of_a_batch_too_far_back_to_be_found_again_is_refused_not_written_twice(
    monkeypatch,
):
    monkeypatch.setattr(recovery, "RECALL_BATCHES", 20)
    monkeypatch.setattr(recovery, "RECALL_BYTES", 500)
    disk = sim_disk()
    log = new_log(disk)
    append(log, producer_id=1, producer_epoch=0, base_sequence=7)
    for _ in range(200):
        append(log)
    append(log, producer_id=1, producer_epoch=0, base_sequence=8)
    log.close(clean=True)
    again = reopen(disk, recovery_point=log.log_end, clean=True)
    with pytest.raises(KafkaError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        append(again, producer_id=1, producer_epoch=0, base_sequence=7)


class PowerCut(BaseException):
    """Raised in the middle of an operation."""


class CountedDisk(SimDisk):
    """Dies at a given change of the disk."""

    def __init__(self, seed: int) -> None:
        super().__init__(random.Random(seed), self._count)
        self.left: int | None = None

    def _count(self, *_event: object) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise PowerCut


def roll(log):
    log.roll(0)


def truncate(log):
    log.truncate_to(9)


def truncate_deep(log):
    log.truncate_to(2)


def drop_all(log):
    log.truncate_fully(500)


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("operation", [roll, truncate, truncate_deep, drop_all])
def test_a_crash_between_the_steps_leaves_the_old_log_or_the_new(operation, flushed, power):
    for step in range(60):
        disk = CountedDisk(step)
        disk.make_dirs(DIRECTORY)
        disk.flush_dir("/")
        log = filled(disk, 30)
        log.flush()
        if not flushed:
            append(log, 1, epoch=9)
        old = content(log)
        checkpoint = [log.recovery_point]

        def lower(_log, offset, checkpoint=checkpoint):
            checkpoint[0] = offset

        log.before_recovery_point_falls = lower
        disk.left = step
        died = False
        try:
            operation(log)
        except PowerCut:
            died = True
        disk.left = None
        if power:
            disk.lose_power()
        again = reopen(disk, recovery_point=checkpoint[0])
        found = content(again)
        # Old or new, and in between only whole segments are gone, from one end.
        assert found == b"" or found in old, (step, again)
        if operation is roll:
            assert again.log_end >= checkpoint[0]
            if not power:
                assert found == old
        append(again, 1, epoch=10)
        if not died:
            break
    else:
        pytest.fail("the operation never came to its end")


@pytest.mark.parametrize("seed", range(20))
def test_a_clean_stop_survives_a_power_loss_right_after_it(seed: int) -> None:
    disk = sim_disk(seed)
    log = new_log(disk)
    for number in range(9):
        append(log, 2, timestamp=number, value=b"v" * 50)
    log.flush()
    log.close(clean=True)
    disk.lose_power()
    again = reopen(disk, recovery_point=18, clean=True)
    assert (again.log_end, again.bytes_cut_at_open) == (18, 0)
    assert offsets_in(again) == [(first, first + 1) for first in range(0, 18, 2)]


def test_an_index_that_leads_nowhere_is_rebuilt_and_condemns_no_log() -> None:
    disk = sim_disk()
    log = new_log(disk)
    for number in range(4):
        append(log, 2, timestamp=number, value=b"v" * 50)
    log.close(clean=True)
    file = disk.open(f"{DIRECTORY}/t-0/{0:020d}.index")
    file.write_at(file.size - 4, (7).to_bytes(4, "big"))
    assert reopen(disk, recovery_point=8, clean=True).log_end == 8


def test_a_cut_that_meets_damage_leaves_the_log_as_it_is():
    """The file was cut, and the log believed that nothing had gone (simulator seeds 385, 488 and 709)."""
    disk = sim_disk()
    log = new_log(disk, SMALL)
    for _ in range(6):
        append(log, 1)
    batch_bytes = log.size_bytes // 6
    disk.rot(f"{log.path}/{0:020d}.log", 3 * batch_bytes + 16)  # a bit of the magic byte
    before = log.log_end, log.size_bytes, bytes(disk.peek(f"{log.path}/{0:020d}.log"))
    with pytest.raises(CorruptBatch):
        log.truncate_to(4)
    assert (log.log_end, log.size_bytes, bytes(disk.peek(f"{log.path}/{0:020d}.log"))) == before


def test_a_batch_whose_length_is_damaged_is_not_taken_for_a_gap():
    """Readers, followers too, went on with the next segment and never saw the records between (simulator seed
    1786)."""
    disk = sim_disk()
    log = new_log(disk, replace(SMALL, segment_bytes=400))
    while len(log.segment_bases) < 3:
        append(log, 1)
    first = f"{log.path}/{0:020d}.log"
    again = reopen(disk, clean=True)
    disk.open(first).write_at(8, (10**6).to_bytes(4, "big"))  # the length of the first batch
    with pytest.raises(CorruptBatch):
        again.read(1, max_bytes=10_000, end_offset=again.log_end)


@pytest.mark.parametrize("seed", range(40))
def test_what_was_cut_never_comes_back_below_what_was_written_after_it(seed: int) -> None:
    """Files are lost and kept apart: the old tail of one, and the file that followed the new tail."""
    disk = sim_disk(seed)
    log = new_log(disk)
    for _ in range(4):
        append(log)
    log.flush()
    log.truncate_to(2)
    while len(log.segment_bases) < 2:
        append(log, epoch=3)
    append(log, epoch=3)
    written = [(batch.base_offset, batch.leader_epoch) for batch in batches_in(log)]
    disk.lose_power()
    again = reopen(disk)
    found = [(batch.base_offset, batch.leader_epoch) for batch in batches_in(again)]
    assert found == written[: len(found)]


def test_a_new_log_has_nothing_of_what_one_of_the_same_name_left():
    disk = sim_disk()
    filled(disk).close(clean=True)
    disk.rename(FIRST, f"{FIRST}.swap")
    for name in disk.list_dir(PATH):
        if name.endswith(".log"):
            disk.remove(f"{PATH}/{name}")
    log = new_log(disk)
    log.invariants()
    assert (log.log_start, log.log_end, log.epochs.entries) == (0, 0, [])
    assert append(log, 1, epoch=9) == 0
    log.close(clean=True)
    assert offsets_in(reopen(disk, clean=True)) == [(0, 0)]


def test_a_new_log_leaves_a_quorums_vote_and_snapshots_where_they_are():
    """They lie beside it; without them a voter votes twice in an epoch, and has lost what it had agreed to."""
    disk = sim_disk()
    disk.make_dirs(PATH)
    names = ["quorum-state", "00000000000000000500-0000000006.checkpoint"]
    for name in names:
        disk.replace(f"{PATH}/{name}", name.encode())
    new_log(disk)
    assert [disk.read(f"{PATH}/{name}").decode() for name in names] == names
