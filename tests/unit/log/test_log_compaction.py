"""Compaction: what stays of a log, what goes and when."""

from __future__ import annotations

from dataclasses import replace

import pytest
from compactkit import (
    COMPACT,
    begin,
    clean,
    commit,
    end_transaction,
    names_in,
    pairs_in,
    records_in,
    transactional,
    view,
    write,
)
from logkit import TOPIC_ID, batches_in, content, new_log, producers_of, reopen, sim_disk

from ottla.log import cleaner, compaction
from ottla.log.compaction import Replacement
from ottla.log.log import Log
from ottla.log.resources import LogResources
from ottla.records.batch import CorruptBatch
from ottla.records.record import ControlType, Record, build, control_batch
from ottla.wire.errors import KafkaError


@pytest.fixture
def disk():
    return sim_disk()


@pytest.fixture
def log(disk):
    return new_log(disk, COMPACT)


def test_of_each_key_only_the_newest_record_stays_at_its_offset(disk, log):
    for i in range(40):
        write(log, (f"k{i % 3}", f"{i}"), (f"j{i % 2}", f"{i}"))
    commit(log)
    assert len(log.segment_bases) > 3
    clean(disk, log)
    assert pairs_in(log) == [
        (74, "k1", "37"),
        (76, "k2", "38"),
        (77, "j0", "38"),
        (78, "k0", "39"),
        (79, "j1", "39"),
    ]
    assert log.log_start == 0 and log.log_end == 80
    assert log.cleaned == 80
    assert begin(disk, log) is None


def test_a_batch_that_loses_nothing_is_copied_as_it_is(disk, log):
    write(log, ("a", "1"), ("b", "1"))
    write(log, ("c", "1"), ("d", "1"), codec=4)
    before = content(log)
    write(log, ("e", "1"))
    write(log, ("e", "2"))
    commit(log)
    clean(disk, log)
    assert content(log).startswith(before)
    assert [pair[1:] for pair in pairs_in(log)][-1] == ("e", "2")


def test_a_log_in_which_nothing_is_replaced_keeps_its_files(disk, log):
    write(log, ("a", "1"))
    commit(log)
    before = names_in(disk, log)
    clean(disk, log)
    assert names_in(disk, log) == before and log.cleaned == 1


@pytest.mark.parametrize("codec", range(5))
def test_records_leave_a_batch_of_any_codec_and_the_others_stay_readable(disk, log, codec):
    write(log, ("a", "1"), ("b", "1"), ("c", "1"), codec=codec)
    write(log, ("b", "2"), codec=codec)
    commit(log)
    clean(disk, log)
    assert pairs_in(log) == [(0, "a", "1"), (2, "c", "1"), (3, "b", "2")]
    assert [record.timestamp for record in records_in(log)] == [1000, 1002, 1000]
    first = batches_in(log)[0]
    assert (first.base_offset, first.last_offset, first.count) == (0, 2, 2)
    assert first.codec == codec


def test_small_neighbours_become_one_segment(disk, log):
    for i in range(60):
        write(log, ("k", str(i)))
    commit(log)
    assert len(log.segment_bases) > 4
    clean(disk, log)
    for i in range(60, 70):
        write(log, ("k", str(i)))
        commit(log, roll=i in (68, 69))
    clean(disk, log)
    write(log, ("k", "71"))
    commit(log)
    clean(disk, log)
    assert log.segment_bases == [0, 71]
    snapshots = [name for name in names_in(disk, log) if name.endswith(".snapshot")]
    assert snapshots == [f"{71:020d}.snapshot"]


def test_the_newest_segment_and_what_is_not_committed_or_flushed_stay_untouched(disk, log):
    write(log, ("k", "1"))
    log.roll(0)
    write(log, ("k", "2"))
    log.roll(0)
    write(log, ("k", "3"))
    assert begin(disk, log) is None
    log.set_high_watermark(3)
    assert begin(disk, log) is None, "nothing is flushed"
    log.flush()
    log.set_high_watermark(1)
    assert begin(disk, log).round.end == 1
    log.set_high_watermark(3)
    clean(disk, log)
    assert [pair[:2] for pair in pairs_in(log)] == [(1, "k"), (2, "k")]


def test_an_open_transaction_and_what_comes_after_it_stay_untouched(disk, log):
    write(log, ("k", "1"))
    log.roll(0)
    transactional(log, 7, 0, ("k", "2"))
    log.roll(0)
    write(log, ("k", "3"))
    commit(log)
    clean(disk, log)
    assert [value for *_, value in pairs_in(log)] == ["1", "2", "3"]
    end_transaction(log, 7, committed=True)
    commit(log)
    clean(disk, log)
    assert [value for *_, value in pairs_in(log)] == ["3"]


def test_what_is_younger_than_the_minimal_lag_waits(disk):
    log = new_log(disk, replace(COMPACT, min_compaction_lag_ms=2000))
    write(log, ("k", "1"), now_ms=1000)
    log.roll(0)
    write(log, ("k", "2"), now_ms=4000)
    commit(log)
    assert begin(disk, log, now_ms=2999) is None
    assert begin(disk, log, now_ms=3000).round.end == 1
    assert begin(disk, log, now_ms=6000).round.end == 2


def test_the_maximal_lag_makes_a_log_due_and_closes_its_segment(disk):
    config = replace(COMPACT, max_compaction_lag_ms=3000, min_cleanable_dirty_ratio=1.0)
    log = new_log(disk, config)
    write(log, ("k", "1"), now_ms=1000)
    write(log, ("k", "2"), now_ms=4001)
    assert log.segment_bases == [0, 1]
    commit(log)
    assert cleaner.dirtiest([log], 4000) is None
    assert cleaner.dirtiest([log], 4001) is not None


def test_the_dirtiest_log_is_next_and_one_that_is_clean_enough_is_not(disk):
    logs = []
    for number in range(3):
        log = Log.create(
            LogResources(disk), "/data", "t", number, COMPACT, topic_id=TOPIC_ID, now_ms=0
        )
        for _ in range(10):
            write(log, ("k", "v" * 30))
        commit(log)
        if number:
            clean(disk, log)
            for _ in range(2 * number - 1):
                write(log, ("k", "v" * 30))
            commit(log)
        logs.append(log)

    def dirtiest(logs: list[Log]) -> Log | None:
        found = cleaner.dirtiest(logs, 5000)
        return None if found is None else found[0]

    assert dirtiest(logs) is logs[0]
    assert dirtiest(logs[1:]) is logs[2]
    assert dirtiest(logs[1:2]) is None
    logs[2].uncleanable = "rot"
    assert dirtiest(logs[1:]) is None


def test_a_tombstone_stays_for_its_time_from_the_first_round_that_sees_it(disk, log):
    write(log, ("a", "1"), ("b", "1"))
    write(log, ("a", None), ("c", "1"), now_ms=1500)
    commit(log)
    clean(disk, log, now_ms=5000)
    assert pairs_in(log) == [(1, "b", "1"), (2, "a", None), (3, "c", "1")]
    marked = batches_in(log)[-1]
    assert marked.delete_horizon_ms == 6000
    assert [record.timestamp for record in records_in(log)] == [1001, 1500, 1501]
    for now_ms, expected in ((5999, [1, 2, 3, 4]), (6000, [1, 3, 5])):
        write(log, ("d", "x"))
        commit(log)
        clean(disk, log, now_ms=now_ms)
        assert [offset for offset, *_ in pairs_in(log)] == expected
    assert marked.max_timestamp == batches_in(log)[1].max_timestamp


def test_records_without_a_key_go(disk):
    log = new_log(disk, replace(COMPACT, cleanup_policy=("delete",)))
    write(log, ("key", "v"))
    log.append_as_leader(memoryview(build([Record(0, 5, None, b"v")])), 0, 5)
    log.config = COMPACT
    write(log, ("z", "1"))
    commit(log)
    clean(disk, log)
    assert [key for _, key, _ in pairs_in(log)] == ["key", "z"]


def test_aborted_records_go_and_the_marker_follows_after_the_same_delay(disk, log):
    transactional(log, 7, 0, ("a", "1"))
    transactional(log, 8, 0, ("a", "2"))
    end_transaction(log, 8, committed=True)
    end_transaction(log, 7, committed=False)
    write(log, ("b", "1"))
    commit(log)
    clean(disk, log, now_ms=5000)
    assert pairs_in(log) == [(1, "a", "2"), (4, "b", "1")]
    # The last batch of a producer that is remembered stays, emptied.
    assert [(b.base_offset, b.count) for b in batches_in(log)] == [
        (0, 0),
        (1, 1),
        (2, 1),
        (3, 1),
        (4, 1),
    ]
    assert [row[:3] for row in log.aborted_transactions(0, 5)] == [(7, 0, 3)]
    log.producers.expire(0, 0)
    log.producers.expire(1, 0)
    for now_ms, left in ((5000, [1, 2, 3, 5]), (5001, [1, 2, 3, 6]), (6001, [1, 2, 7])):
        write(log, ("b", "x"))
        commit(log)
        clean(disk, log, now_ms=now_ms)
        found = batches_in(log)
        assert [batch.base_offset for batch in found] == left, now_ms
        if now_ms == 5001:
            assert found[2].delete_horizon_ms == 6001 and found[2].count
    assert log.aborted_transactions(0, 8) == []


def test_the_marker_of_a_commit_stays_as_long_as_a_record_of_the_transaction(disk, log):
    transactional(log, 7, 0, ("a", "1"))
    end_transaction(log, 7, committed=True)
    transactional(log, 7, 1, ("b", "1"))
    end_transaction(log, 7, committed=True)
    write(log, ("c", "1"))
    commit(log)
    log.producers.clear()
    clean(disk, log, now_ms=5000)
    write(log, ("a", "2"))
    commit(log)
    clean(disk, log, now_ms=5000)  # the record goes, the marker saw it
    assert [batch.base_offset for batch in batches_in(log)] == [1, 2, 3, 4, 5]
    for now_ms in (5000, 6000):
        write(log, ("c", "2"))
        commit(log)
        clean(disk, log, now_ms=now_ms)
    assert [batch.base_offset for batch in batches_in(log)] == [2, 3, 5, 7]


def test_a_producer_may_retry_its_last_five_batches_though_their_records_are_gone(disk, log):
    fields = {"producer_id": 9, "producer_epoch": 0}
    for sequence in range(6):
        write(log, ("k", str(sequence)), base_sequence=sequence, **fields)
    write(log, ("k", "newer"))
    commit(log)
    clean(disk, log)
    assert [(b.base_offset, b.count) for b in batches_in(log)] == [
        *((offset, 0) for offset in range(1, 6)),
        (6, 1),
    ]
    state = producers_of(log)
    log.close(clean=False)
    for name in disk.list_dir(log.path):
        if name.endswith(".snapshot"):
            disk.remove(f"{log.path}/{name}")
    log = reopen(disk, config=COMPACT, recovery_point=7)
    assert producers_of(log)[9][1] == state[9][1]
    for sequence in range(1, 6):
        batch = _one("k", "again", base_sequence=sequence, **fields)
        again = log.append_as_leader(memoryview(batch), 0, 0)
        assert again.duplicate and again.base_offset == sequence
    assert write(log, ("k", "3"), base_sequence=6, **fields) == 7


def _one(key: str, value: str, **fields) -> bytearray:
    return build([Record(0, 1000, key.encode(), value.encode())], **fields)


def test_when_the_map_is_full_a_round_ends_early_and_the_next_goes_on(disk, log):
    for number in range(30):
        write(log, (f"k{number % 10}", str(number)))
    commit(log)
    ends = []
    while clean(disk, log, keys_max=4) is not None:
        ends.append(log.cleaned)
    assert len(ends) > 3 and ends == sorted(ends) and ends[-1] == 30
    assert [offset for offset, *_ in pairs_in(log)] == list(range(20, 30))


def test_one_batch_always_fits_into_the_map(disk, log):
    write(log, *((f"k{i}", "1") for i in range(20)))
    commit(log)
    clean(disk, log, keys_max=1)
    assert log.cleaned == 20


def test_time_and_offset_look_ups_know_the_gaps(disk, log):
    for number in range(40):
        write(log, (f"k{number % 4}", "v" * 30), now_ms=1000 + number)
    commit(log)
    clean(disk, log)
    assert log.offset_for_timestamp(1000, log.log_end) == (1036, 36)
    assert log.offset_for_timestamp(1037, log.log_end) == (1037, 37)
    assert log.max_timestamp_offset(log.log_end) == (1039, 39)
    assert log.read(5, max_bytes=100, end_offset=40).next_offset == 37


def test_a_batch_that_was_emptied_has_no_time(disk, log):
    fields = {"producer_id": 9, "producer_epoch": 0}
    write(log, ("a", "1"), now_ms=1000)
    write(log, ("k", "1"), now_ms=9000, base_sequence=0, **fields)
    write(log, ("k", "2"), now_ms=2000)
    commit(log)
    clean(disk, log)
    assert log.max_timestamp_offset(log.log_end) == (2000, 2)
    assert log.offset_for_timestamp(2001, log.log_end) is None
    log.close(clean=True)
    log = reopen(disk, config=COMPACT, recovery_point=3, clean=True)
    assert log.max_timestamp_offset(log.log_end) == (2000, 2)


def test_rot_is_never_copied_under_a_new_crc(disk, log):
    write(log, ("a", "1"), ("b", "1"))
    write(log, ("b", "2"))
    commit(log)
    disk.rot(f"{log.path}/{0:020d}.log", 70)
    with pytest.raises(CorruptBatch):
        clean(disk, log)


@pytest.mark.parametrize("cut", ["truncate", "retention", "delete"])
def test_what_happens_to_the_log_voids_the_round(disk, cut):
    log = new_log(disk, replace(COMPACT, cleanup_policy=("compact", "delete"), retention_ms=100))
    for number in range(30):
        write(log, ("k", str(number)))
    commit(log)
    compaction = begin(disk, log)
    steps = compaction.steps()
    step = next(steps)
    while not isinstance(step, Replacement):
        step = next(steps)
    if cut == "truncate":
        log.truncate_to(25)
    elif cut == "retention":
        assert log.delete_old_segments(5000)
    else:
        log.mark_deleted()
    assert log.generation != compaction.round.generation
    if cut != "delete":
        compaction.discard()
        assert not [n for n in names_in(disk, log) if n.endswith((".cleaned", ".swap"))]


def test_a_follower_takes_a_log_with_gaps_and_opens_it_again_whatever_its_settings(disk, log):
    for number in range(30):
        write(log, (f"k{number % 3}", "v" * 40))
    commit(log)
    clean(disk, log)
    write(log, ("k0", "last"))
    follower = Log.create(
        LogResources(disk),
        "/data",
        "f",
        0,
        replace(COMPACT, cleanup_policy=("delete",)),
        topic_id=TOPIC_ID,
        now_ms=0,
    )
    told = []
    follower.before_gaps = lambda log: told.append(log.cleaned)
    follower.append_as_follower(memoryview(content(log)), 9)
    assert pairs_in(follower) == pairs_in(log) and follower.log_end == log.log_end
    assert told == [0]
    follower.close(clean=True)
    again = Log.open(
        LogResources(disk),
        "/data",
        "f",
        0,
        follower.config,
        recovery_point=follower.log_end,
        clean=True,
        now_ms=0,
        cleaned=0,
    )
    assert pairs_in(again) == pairs_in(log)


def test_a_batch_too_large_to_open_is_an_error_of_its_log(disk, log, monkeypatch):
    write(log, ("a", "1"), ("b", "1"))
    commit(log)
    monkeypatch.setattr("ottla.log.unpacking.RECORDS_MAX", 1)
    with pytest.raises(KafkaError, match="is not opened"):
        clean(disk, log)


def test_a_committed_tombstone_counts_though_its_producer_aborted_before() -> None:
    """The abort ended before this round begins: its marker does not come by in the map again."""
    disk = sim_disk()
    log = new_log(disk, COMPACT)
    write(log, ("k", "old"))
    transactional(log, 7, 0, ("x", "aborted"))
    end_transaction(log, 7, committed=False)
    write(log, ("pad", "1"))
    commit(log)
    clean(disk, log, now_ms=5_000)
    transactional(log, 7, 1, ("k", None))
    end_transaction(log, 7, committed=True)
    for round, now_ms in enumerate((6_000, 20_000, 30_000, 40_000)):
        write(log, ("pad", str(round + 2)))
        commit(log)
        clean(disk, log, now_ms=now_ms)
    assert "k" not in view(log)


@pytest.mark.parametrize("piece", [70, 150, 400])
def test_a_round_reads_and_writes_in_pieces_of_any_size(monkeypatch, piece):
    def cleaned() -> bytes:
        disk = sim_disk()
        log = new_log(disk, COMPACT)
        for i in range(30):
            write(log, (f"k{i % 4}", f"{i}" * (i % 9)), (f"j{i % 3}", f"{i}"))
        commit(log)
        assert clean(disk, log) is not None
        assert len(pairs_in(log)) == 7
        return content(log)

    whole = cleaned()
    monkeypatch.setattr(compaction, "READ_BYTES", piece)
    monkeypatch.setattr(compaction, "WRITE_BYTES", piece)
    assert cleaned() == whole


def test_what_a_round_left_that_was_given_up_is_not_part_of_the_next(disk, log):
    for i in range(20):
        write(log, (f"k{i % 3}", f"{i}"))
    commit(log)
    left = disk.open(f"{log.path}/{0:020d}.log.cleaned", create=True)
    left.append(bytes(5000))
    left.close()
    clean(disk, log)
    assert [key for _, key, _ in pairs_in(log)] == ["k2", "k0", "k1"]
    log.close(clean=True)
    again = reopen(disk, config=COMPACT, recovery_point=20)
    assert [key for _, key, _ in pairs_in(again)] == ["k2", "k0", "k1"]


def test_of_a_producer_without_batches_the_marker_of_its_epoch_stays_and_no_older_one(disk, log):
    def end(producer_epoch: int) -> None:
        batch = control_batch(
            [(ControlType.ABORT, bytes(6))],
            timestamp=1000,
            producer_id=7,
            producer_epoch=producer_epoch,
            transactional=True,
        )
        log.append_marker(batch, 0, 1000, bumps_epoch=False)

    for producer_epoch in (0, 1, 2):
        end(producer_epoch)
    for now_ms in (5000, 5001, 7000, 7001):
        write(log, ("k", "v"))
        commit(log)
        clean(disk, log, now_ms=now_ms)
    markers = [batch for batch in batches_in(log) if batch.producer_id == 7]
    assert [(batch.producer_epoch, batch.base_offset) for batch in markers] == [(2, 2)]
