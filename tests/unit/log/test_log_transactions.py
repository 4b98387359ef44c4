"""Transactions as one partition's log sees them: what is stable, what was aborted, what may begin and end."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logkit import DIRECTORY, SMALL, batch_of, batches_in, new_log, reopen, sim_disk

from ottla.log.log import Log
from ottla.log.transaction_index import AbortedTransaction
from ottla.records.batch import read_batch
from ottla.records.record import ControlType, control_batch, records
from ottla.wire.errors import ErrorCode, KafkaError


def sent(log: Log, producer: int, sequence: int, *, epoch: int = 0, count: int = 1) -> int:
    batch = batch_of(
        count,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )
    return log.append_as_leader(batch, 0, 0).base_offset


def ended(
    log: Log,
    producer: int,
    *,
    commit: bool,
    epoch: int = 0,
    coordinator: int = 0,
    bumps_epoch: bool = False,
) -> int:
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    batch = control_batch(
        [(kind, struct.pack(">hi", 0, coordinator))],
        timestamp=0,
        producer_id=producer,
        producer_epoch=epoch,
        transactional=True,
    )
    return log.append_marker(batch, 0, 0, bumps_epoch=bumps_epoch).base_offset


def refused(code: ErrorCode):
    return pytest.raises(KafkaError, match=code.name)


def test_the_index_of_aborted_transactions_has_kafkas_bytes():
    disk = sim_disk()
    log = new_log(disk)
    sent(log, 7, 0)
    sent(log, 9, 0)
    ended(log, 7, commit=False)
    ended(log, 9, commit=False)
    log.close(clean=True)
    data = disk.read(f"{DIRECTORY}/t-0/{0:020d}.txnindex")
    assert data == struct.pack(">hqqqq", 0, 7, 0, 2, 1) + struct.pack(">hqqqq", 0, 9, 1, 3, 4)


def test_a_log_without_aborted_transactions_has_no_index_of_them():
    disk = sim_disk()
    log = new_log(disk)
    sent(log, 7, 0)
    ended(log, 7, commit=True)
    log.close(clean=True)
    assert not any(name.endswith(".txnindex") for name in disk.list_dir(f"{DIRECTORY}/t-0"))


def test_a_transaction_that_spans_segments_is_found_from_its_first_record():
    log = new_log(sim_disk())
    sent(log, 7, 0)
    log.roll(0)
    sent(log, 8, 0)
    log.roll(0)
    marker = ended(log, 7, commit=False)
    log.advance_high_watermark(log.log_end)
    assert log.last_stable_offset == 1
    assert log.aborted_transactions(0, 1) == [AbortedTransaction(7, 0, marker, 1)]
    assert log.aborted_transactions(marker, marker + 1) == [AbortedTransaction(7, 0, marker, 1)]
    assert log.aborted_transactions(marker + 1, marker + 2) == []


def test_a_marker_of_a_producer_without_records_is_not_in_the_index():
    log = new_log(sim_disk())
    ended(log, 7, commit=False)
    log.advance_high_watermark(log.log_end)
    assert log.aborted_transactions(0, 1) == []
    assert log.last_stable_offset == 1


def test_a_damaged_index_of_aborted_transactions_is_rebuilt_from_the_batches():
    disk = sim_disk()
    log = new_log(disk)
    sent(log, 7, 0)
    log.roll(0)
    ended(log, 7, commit=False)
    sent(log, 8, 0)
    ended(log, 8, commit=False)
    whole = log.aborted_transactions(0, log.log_end)
    log.close(clean=True)
    path = f"{DIRECTORY}/t-0/{1:020d}.txnindex"
    for damage in (b"", b"\x00" * 33, b"\x01" * 68, struct.pack(">hqqqq", 0, 7, 5, 2, 1)):
        if damage:
            disk.replace(path, damage)
        log = reopen(disk, clean=True)
        assert log.aborted_transactions(0, log.log_end) == whole
        log.close(clean=True)


def test_C3_a_late_end_of_the_last_transaction_does_not_end_the_next():
    """transaction.version 2: the end of a transaction has the epoch of the next one."""
    log = new_log(sim_disk())
    sent(log, 7, 0, epoch=3)
    ended(log, 7, commit=True, epoch=4, bumps_epoch=True)
    sent(log, 7, 0, epoch=4)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        ended(log, 7, commit=False, epoch=4, bumps_epoch=True)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        sent(log, 7, 1, epoch=3)
    assert log.producers.has_open_transaction(7, 4)


def test_C3_the_next_transactions_batch_does_not_join_the_last_whose_end_is_on_its_way():
    log = new_log(sim_disk())
    sent(log, 7, 0, epoch=3)
    with refused(ErrorCode.INVALID_TXN_STATE):
        log.producers.check_verified(header(7, 0, epoch=4), None)


def test_offsets_of_a_fenced_producer_are_refused():
    log = new_log(sim_disk())
    ended(log, 7, commit=False, epoch=2)
    batch = batch_of(1, producer_id=7, producer_epoch=1, transactional=True)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        log.append_as_leader(batch, 0, 0, from_client=False)


def header(producer: int, sequence: int, epoch: int = 0):
    batch = batch_of(
        1, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=True
    )
    return read_batch(batch, 0)


def test_a_transaction_begins_only_with_its_coordinators_word():
    log = new_log(sim_disk())
    state = log.producers
    with refused(ErrorCode.INVALID_TXN_STATE):
        state.check_verified(header(7, 0), None)
    guard = state.begin_verification(7, 0, 0, now_ms=0)
    with refused(ErrorCode.INVALID_TXN_STATE):
        state.check_verified(header(7, 0), guard + 1)
    state.check_verified(header(7, 0), guard)
    sent(log, 7, 0)
    state.check_verified(header(7, 1), None)  # it is open now
    ended(log, 7, commit=True)
    with refused(ErrorCode.INVALID_TXN_STATE):
        state.check_verified(header(7, 1), guard)
    state.check_verified(header(7, 0), None)  # a repetition of what is here already


def test_a_word_that_the_end_of_the_transaction_overtook_counts_no_more():
    log = new_log(sim_disk())
    guard = log.producers.begin_verification(7, 0, 0, now_ms=0)
    ended(log, 7, commit=False)
    assert not log.producers.is_verified(7, guard)
    later = log.producers.begin_verification(7, 0, 0, now_ms=0)
    assert later != guard
    with refused(ErrorCode.INVALID_TXN_STATE):
        log.producers.check_verified(header(7, 0), guard)


def test_of_batches_that_wait_the_lowest_sequence_goes_first():
    state = new_log(sim_disk()).producers
    guard = state.begin_verification(7, 0, 5, now_ms=0)
    assert state.begin_verification(7, 0, 6, now_ms=0) == guard
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        state.check_verified(header(7, 6), guard)
    state.check_verified(header(7, 5), guard)
    state.begin_verification(7, 1, 0, now_ms=0)  # the next epoch begins anew
    state.check_verified(header(7, 0, epoch=1), guard)


def test_verifications_nobody_came_back_for_are_forgotten():
    state = new_log(sim_disk()).producers
    guard = state.begin_verification(7, 0, 0, now_ms=0)
    state.expire(now_ms=10, after_ms=10)
    assert state.is_verified(7, guard)
    state.expire(now_ms=11, after_ms=10)
    assert not state.is_verified(7, guard)


class Truth:
    """Read off the batches of the log themselves."""

    def __init__(self, log: Log) -> None:
        self.aborted: list[tuple[int, int, int]] = []
        opened: dict[int, int] = {}
        ended_above: list[int] = []
        for batch in batches_in(log):
            if not batch.is_control:
                opened.setdefault(batch.producer_id, batch.base_offset)
                continue
            first = opened.pop(batch.producer_id, None)
            if first is None:
                continue
            if batch.last_offset >= log.high_watermark:
                ended_above.append(first)
            (record,) = records(_content_of(log, batch.base_offset), batch._replace(position=0))
            if record.key is not None and record.key[3] == 0:
                self.aborted.append((batch.producer_id, first, batch.last_offset))
        high_watermark = log.high_watermark
        self.open = min([high_watermark, *opened.values()])
        self.stable = min([self.open, *ended_above])


def _content_of(log: Log, offset: int) -> bytes:
    read = log.read(offset, max_bytes=1, end_offset=log.log_end)
    assert read.range is not None
    return read.range.read()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 3)),
        st.tuples(st.sampled_from(("commit", "abort")), st.integers(1, 3)),
        st.tuples(st.sampled_from(("roll", "flush", "kill", "power", "reopen")), st.just(0)),
        st.tuples(st.just("truncate"), st.integers(1, 12)),
        st.tuples(st.just("commit_up_to"), st.integers(0, 6)),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 1 << 16))
def test_C3_stable_and_aborted_are_what_the_batches_say(steps, seed):
    disk = sim_disk(seed)
    chance = random.Random(seed)
    log = new_log(disk)
    log.flush()
    was_reopened = False
    for what, number in steps:
        if what == "send":
            known = log.producers.producers.get(number)
            sequence = 0 if known is None else known.last_sequence + 1
            sent(log, number, sequence, count=chance.randrange(1, 3))
        elif what in ("commit", "abort"):
            ended(log, number, commit=what == "commit")
        elif what == "roll":
            log.roll(0)
        elif what == "flush":
            log.flush()
        elif what == "truncate":
            log.truncate_to(max(log.log_start, log.log_end - number))
        elif what == "commit_up_to":
            log.advance_high_watermark(log.log_end - number)
        else:
            was_reopened = True
            high_watermark, point = log.high_watermark, log.recovery_point
            if what == "reopen":
                log.close(clean=True)
            elif what == "power":
                disk.lose_power()
            log = reopen(disk, recovery_point=point, clean=what == "reopen", config=SMALL)
            log.set_high_watermark(high_watermark)
        truth = Truth(log)
        start = chance.randrange(log.log_end + 1)
        end = chance.randrange(start, log.log_end + 1)
        found = {row[:3] for row in log.aborted_transactions(start, end)}
        asked = {row for row in truth.aborted if start < end and row[1] < end and row[2] >= start}
        assert found >= asked and found <= set(truth.aborted)
        # A snapshot does not say which transactions ended above the HW; they are decided all the same.
        most = truth.open if was_reopened else truth.stable
        assert truth.stable <= log.last_stable_offset <= most
        log.invariants()
