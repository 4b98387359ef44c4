"""Idempotent and transactional producers as one partition sees them."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from crc32c import crc32c
from logkit import SMALL, append, batch_of, new_log, producers_of, reopen, sim_disk

from ottla.events import Events
from ottla.log import producer_snapshots
from ottla.log import producer_state as producers_module
from ottla.log.producer_snapshots import CorruptProducerSnapshot
from ottla.log.producer_state import ProducerStateManager
from ottla.records.batch import read_batch
from ottla.records.record import ControlType, Record, build, control_batch
from ottla.wire.errors import ErrorCode, KafkaError


def sent(log, sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 9, **fields):
    return log.append_as_leader(
        batch_of(
            count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **fields
        ),
        0,
        0,
    )


def marker(log, *, producer: int = 9, epoch: int = 0, coordinator: int = 0, commit: bool = True):
    key = struct.pack(">hh", 0, 1 if commit else 0)
    value = struct.pack(">hi", 0, coordinator)
    batch = build(
        [Record(0, 0, key, value, ())],
        producer_id=producer,
        producer_epoch=epoch,
        transactional=True,
        control=True,
    )
    return log.append_control(batch, 0, 0)


def refused(code: ErrorCode):
    return pytest.raises(KafkaError, match=code.name)


def test_P21_a_retry_of_one_of_the_last_five_batches_gets_its_first_offsets():
    log = new_log(sim_disk())
    firsts = [sent(log, 2 * number, 2) for number in range(7)]
    for number in range(2, 7):
        again = sent(log, 2 * number, 2)
        assert again == firsts[number]._replace(duplicate=True)
    for number in range(2):
        with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            sent(log, 2 * number, 2)
    assert log.log_end == 14


def test_a_sequence_out_of_turn_is_refused():
    log = new_log(sim_disk())
    sent(log, 0, 2)
    for sequence, count in ((3, 1), (1, 1), (0, 1), (0, 3)):
        with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            sent(log, sequence, count)
    assert sent(log, 2).base_offset == 2


def test_an_unknown_producer_may_begin_anywhere():
    log = new_log(sim_disk())
    assert sent(log, 41).base_offset == 0
    assert sent(log, 42).base_offset == 1


def test_sequences_wrap_after_the_largest_integer():
    log = new_log(sim_disk())
    largest = (1 << 31) - 1
    first = sent(log, largest - 1, 4)  # … 2^31-2, 2^31-1, 0, 1
    assert sent(log, 2).base_offset == 4
    assert sent(log, largest - 1, 4) == first._replace(duplicate=True)


def test_a_newer_epoch_fences_the_older_and_begins_at_zero():
    log = new_log(sim_disk())
    sent(log, 0)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        sent(log, 1, epoch=1)
    sent(log, 0, epoch=1)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        sent(log, 1, epoch=0)
    assert sent(log, 1, epoch=1).base_offset == 2


def test_silent_producers_are_forgotten_unless_their_transaction_is_open():
    log = new_log(sim_disk())
    sent(log, 0, producer=1)
    sent(log, 0, producer=2, transactional=True)
    sent(log, 0, producer=3)
    log.producers.expire(1000, 500)
    sent(log, 1, producer=3)
    log.producers.expire(1500, 500)
    assert sorted(log.producers.producers) == [1, 2, 3]
    log.producers.expire(1501, 500)
    assert sorted(log.producers.producers) == [2, 3]
    log.producers.expire(2001, 500)
    assert sorted(log.producers.producers) == [2]


@pytest.mark.parametrize("timestamp", [-1, 0, 10**15])
def test_P21_old_or_future_timestamps_neither_hasten_nor_delay_that_a_producer_is_forgotten(
    timestamp,
):
    log = new_log(sim_disk())
    day = 86_400_000
    first = sent(log, 0, timestamp=timestamp)
    log.producers.expire(100 * day, day)
    assert sent(log, 0, timestamp=timestamp) == first._replace(duplicate=True)
    log.producers.expire(101 * day + 1, day)
    assert not log.producers.producers


def test_P21_a_producer_is_not_forgotten_for_the_time_that_its_broker_was_down():
    disk = sim_disk()
    log = new_log(disk)
    first = sent(log, 0)
    log.producers.expire(1000, 500)
    log.close(clean=True)
    log = reopen(disk)
    log.producers.expire(10**12, 500)
    assert sent(log, 0) == first._replace(duplicate=True)
    log.producers.expire(10**12 + 501, 500)
    assert not log.producers.producers


def test_the_number_of_producers_is_bounded(monkeypatch):
    monkeypatch.setattr(producers_module, "PRODUCERS_MAX", 3)
    log = new_log(sim_disk())
    sent(log, 0, producer=1, transactional=True)
    for producer in (2, 3, 2, 4, 5):
        sequence = 1 if producer == 2 and 2 in log.producers.producers else 0
        sent(log, sequence, producer=producer)
    assert sorted(log.producers.producers) == [1, 4, 5]


def test_the_last_stable_offset_stays_before_the_oldest_undecided_transaction():
    log = new_log(sim_disk())
    append(log, 2)
    sent(log, 0, 2, producer=1, transactional=True)  # 2, 3
    sent(log, 0, 1, producer=2, transactional=True)  # 4
    log.advance_high_watermark(log.log_end)
    assert log.last_stable_offset == 2
    marker(log, producer=1)  # 5
    assert log.last_stable_offset == 2, "the marker is not committed yet"
    log.advance_high_watermark(log.log_end)
    assert log.last_stable_offset == 4
    marker(log, producer=2, commit=False)
    log.advance_high_watermark(log.log_end)
    assert log.last_stable_offset == log.high_watermark == 7
    log.invariants()


def test_markers_of_old_epochs_and_old_coordinators_are_refused():
    log = new_log(sim_disk())
    sent(log, 0, epoch=3, transactional=True)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        marker(log, epoch=2)
    marker(log, epoch=3, coordinator=5)
    with refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        marker(log, epoch=3, coordinator=4)


def test_a_write_outside_of_the_open_transaction_is_refused():
    log = new_log(sim_disk())
    sent(log, 0, transactional=True)
    with refused(ErrorCode.INVALID_TXN_STATE):
        sent(log, 1)


def test_control_batches_of_the_quorum_have_no_producer():
    log = new_log(sim_disk())
    batch = control_batch([(ControlType.LEADER_CHANGE, b"whatever")], timestamp=5)
    assert log.append_control(batch, 1, 0)[:2] == (0, 0)
    assert not log.producers.producers


def test_a_snapshot_has_kafkas_form_and_a_damaged_one_is_refused():
    log = new_log(sim_disk())
    sent(log, 4, 3, epoch=2, timestamp=77, transactional=True)
    data = producer_snapshots.encode(log.producers)
    version, crc, count = struct.unpack_from(">hIi", data)
    assert (version, count) == (1, 1) and crc == crc32c(data[6:])
    assert struct.unpack_from(">qhiqiqiq", data, 10) == (9, 2, 6, 2, 2, 79, -1, 0)
    again = ProducerStateManager(log.key, Events())
    again.restore(producer_snapshots.decode(data))
    assert producer_snapshots.encode(again) == data
    assert again.first_unstable_offset(3) == 0
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1
        with pytest.raises(CorruptProducerSnapshot):
            producer_snapshots.decode(damaged)
    for length in range(len(data)):
        with pytest.raises(CorruptProducerSnapshot):
            producer_snapshots.decode(data[:length])


@pytest.mark.parametrize("seed", range(25))
def test_the_state_after_a_cut_or_a_crash_is_that_of_a_log_that_never_had_the_rest(seed):
    """Transactions included: open ones are open again, decided ones undecided."""
    chance = random.Random(seed)
    disk = sim_disk(seed)
    log = new_log(disk, SMALL)
    snapshots: dict[int, tuple[dict[int, tuple[Any, ...]], int | None]] = {0: ({}, None)}
    sequences = dict.fromkeys(range(4), 0)
    open_transactions = set()
    for _ in range(chance.randrange(5, 60)):
        producer = chance.randrange(4)
        if producer in open_transactions and chance.random() < 0.4:
            marker(log, producer=producer, commit=chance.random() < 0.5)
            open_transactions.discard(producer)
        else:
            sent(log, sequences[producer], producer=producer, transactional=producer > 1)
            sequences[producer] += 1
            if producer > 1:
                open_transactions.add(producer)
        unstable = log.producers.first_unstable_offset(log.log_end)
        snapshots[log.log_end] = (producers_of(log), unstable)
    cut = chance.choice(sorted(snapshots))
    log.truncate_to(cut)
    expected, unstable = snapshots[cut]
    for subject in (log, reopen(disk)):
        found = producers_of(subject)
        assert sorted(found) == sorted(expected)
        for producer, state in found.items():
            epoch, batches, *rest = state
            assert (epoch, *rest) == (expected[producer][0], *expected[producer][2:])
            known = expected[producer][1]
            # A snapshot keeps the time of the last marker in place of the last batch's own.
            remembered = [
                batch._replace(timestamp=0) for batch in known[len(known) - len(batches) :]
            ]
            assert [batch._replace(timestamp=0) for batch in batches] == remembered
            assert bool(batches) == bool(known)
        assert subject.producers.first_unstable_offset(cut) == unstable


def test_a_follower_knows_what_its_leader_knows():
    leader, follower = new_log(sim_disk()), new_log(sim_disk())
    for number in range(20):
        sent(leader, number, producer=5)
        sent(leader, number, producer=6, transactional=True)
        marker(leader, producer=6)
    while follower.log_end < leader.log_end:
        found = leader.read(follower.log_end, max_bytes=500, end_offset=leader.log_end)
        follower.append_as_follower(memoryview(found.range.read()), 9)
    assert producers_of(follower) == producers_of(leader)
    assert read_batch(leader.read(0, max_bytes=1, end_offset=60).range.read(), 0).producer_id == 5
