"""What becomes of old segments, and how a time leads to an offset."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logkit import DIRECTORY, SMALL, append, new_log, offsets_in, reopen, sim_disk

from ottla.log import timestamp_lookup
from ottla.log.config import LogConfig
from ottla.log.errors import LogDirError
from ottla.wire.errors import ErrorCode, KafkaError

PATH = f"{DIRECTORY}/t-0"
ONE_PER_SEGMENT = replace(SMALL, segment_bytes=150, retention_ms=-1)


def segments_at(times, config=ONE_PER_SEGMENT, disk=None):
    """One segment of one batch of two records for each time."""
    log = new_log(disk or sim_disk(), config)
    for time in times:
        append(log, 2, timestamp=time, value=b"v" * 20)
    assert len(log.segment_bases) == len(times)
    log.advance_high_watermark(log.log_end)
    return log


def test_segments_older_than_retention_ms_go_oldest_first():
    log = segments_at([100, 200, 300, 400], replace(ONE_PER_SEGMENT, retention_ms=150))
    assert log.delete_old_segments(401) == 2
    assert (log.log_start, log.segment_bases) == (4, [4, 6])
    assert log.epochs.entries == [(0, 4)]
    log.invariants()


def test_segments_beyond_retention_bytes_go_oldest_first():
    log = segments_at([1, 2, 3, 4])
    size = log.size_bytes // 4
    log.config = replace(ONE_PER_SEGMENT, retention_bytes=2 * size + 1)
    assert log.delete_old_segments(0) == 1
    log.config = replace(ONE_PER_SEGMENT, retention_bytes=2 * size)
    assert log.delete_old_segments(0) == 1
    assert log.segment_bases == [4, 6]


def test_nothing_at_or_above_the_high_watermark_goes():
    log = segments_at([1, 2, 3], replace(ONE_PER_SEGMENT, retention_ms=0))
    log.set_high_watermark(3)
    assert log.delete_old_segments(10**6) == 1
    assert log.segment_bases == [2, 4]


def test_a_segment_that_was_cut_away_twice_is_removed_once():
    log = segments_at([1, 2, 3])
    log.truncate_to(2)
    append(log, 2, timestamp=4, value=b"v" * 20)
    append(log, 2, timestamp=5, value=b"v" * 20)
    log.truncate_to(2)
    deleted = {name for name in log.disk.list_dir(PATH) if name.endswith(".deleted")}
    due = log.doomed_by(10**9)
    assert sorted(due) == sorted(f"{PATH}/{name}" for name in deleted)


def test_when_everything_is_old_an_empty_segment_stays():
    log = segments_at([1, 2], replace(ONE_PER_SEGMENT, retention_ms=0))
    assert log.delete_old_segments(10**6) == 2
    assert (log.log_start, log.log_end, log.segment_bases) == (4, 4, [4])
    assert log.delete_old_segments(10**7) == 0
    assert append(log, 1) == 4


def test_the_epochs_of_what_expired_survive_a_crash():
    """Without a flush only the batches had them (simulator seed 10)."""
    disk = sim_disk()
    log = segments_at([1, 2], replace(ONE_PER_SEGMENT, retention_ms=0), disk)
    append(log, 2, epoch=3, timestamp=3, value=b"v" * 20)
    log.advance_high_watermark(log.log_end)
    assert log.delete_old_segments(10**6) == 3
    assert log.epochs.entries == [(3, 6)]
    assert reopen(disk).epochs.entries == [(3, 6)]


@pytest.mark.parametrize("clean", [False, True])
def test_an_emptied_log_still_knows_after_a_restart_in_which_epoch_its_records_ended(clean: bool):
    """Else it would take other records for a continuation of what has expired (simulator seed 57)."""
    disk = sim_disk()
    log = segments_at([1, 2], replace(ONE_PER_SEGMENT, retention_ms=0), disk)
    append(log, 2, epoch=3, timestamp=3, value=b"v" * 20)
    log.advance_high_watermark(log.log_end)
    assert log.delete_old_segments(10**6) == 3
    log.flush()
    log.close(clean=clean)
    again = reopen(disk, recovery_point=6, clean=clean)
    assert (again.log_start, again.log_end, again.epochs.entries) == (6, 6, [(3, 6)])


def test_a_log_begun_anew_does_not_know_after_a_crash_in_which_epoch_its_former_records_ended():
    """It would cut itself where its leader's records of that epoch end, though it may be in sync (found with
    simulator seed 113)."""
    disk = sim_disk()
    log = segments_at([1, 2, 3], disk=disk)
    log.flush()
    log.truncate_fully(100)
    again = reopen(disk)
    assert (again.log_start, again.log_end, again.epochs.entries) == (100, 100, [])


def test_nor_does_a_flush_tell_it_that_began_before_and_ends_after_that():
    disk = sim_disk()
    log = segments_at([1, 2, 3], disk=disk)
    plan = log.flush_plan()
    log.truncate_fully(100)
    log.flushed(plan())
    assert reopen(disk).epochs.entries == []
    append(log, 1, epoch=7)
    log.flush()
    assert reopen(disk, recovery_point=101).epochs.entries == [(7, 100)]


def test_nor_one_that_is_just_writing_it(monkeypatch: pytest.MonkeyPatch):
    disk = sim_disk()
    log = segments_at([1, 2, 3], disk=disk)
    plan = log.flush_plan()
    replace_file = disk.replace

    def overtaken(path: str, data: bytes, **options: bool) -> None:
        monkeypatch.setattr(disk, "replace", replace_file)
        log.truncate_fully(100)
        replace_file(path, data, **options)

    monkeypatch.setattr(disk, "replace", overtaken)
    log.flushed(plan())
    assert reopen(disk).epochs.entries == []


def test_what_has_expired_is_not_held_against_what_is_copied_below_the_start():
    """The records that are still in the file were of a leader that an unclean election disowned. After a crash
    those that replaced the rest of them, of an earlier epoch, were cut off again (simulator seed 287)."""
    disk = sim_disk()
    log = new_log(disk, SMALL)
    for _ in range(5):
        append(log, 1, epoch=3)
    log.advance_high_watermark(5)
    log.advance_log_start(4)
    log.truncate_to(2)
    append(log, 1, epoch=2)
    assert (log.log_start, log.log_end, log.epochs.entries) == (2, 3, [(2, 2)])
    again = reopen(disk)
    assert (again.log_start, again.log_end, again.epochs.entries) == (2, 3, [(2, 2)])


def test_epochs_reach_back_to_a_start_that_a_crash_brought_back():
    """The epochs were written with the start after records were deleted, the start itself was not."""
    disk = sim_disk()
    log = segments_at([1, 2, 3], disk=disk)
    log.advance_log_start(5)
    log.flush()
    assert reopen(disk, log_start=5).epochs.entries == [(0, 5)]
    assert reopen(disk, log_start=1).epochs.entries == [(0, 1)]


def test_nothing_expires_while_a_plan_may_write_the_epochs():
    log = segments_at([1, 2], replace(ONE_PER_SEGMENT, retention_ms=0))
    plan = log.flush_plan()
    assert log.delete_old_segments(10**6) == 0
    log.flushed(plan())
    assert log.delete_old_segments(10**6) == 2


def test_a_compacted_topic_loses_segments_only_below_its_start():
    log = segments_at(
        [1, 2, 3], replace(ONE_PER_SEGMENT, retention_ms=0, cleanup_policy=("compact",))
    )
    assert log.delete_old_segments(10**6) == 0
    log.advance_log_start(3)
    assert log.delete_old_segments(10**6) == 1
    assert log.segment_bases == [2, 4] and log.log_start == 3


def test_files_are_renamed_first_and_are_to_be_removed_after_the_delay():
    disk = sim_disk()
    config = replace(ONE_PER_SEGMENT, retention_ms=0, file_delete_delay_ms=1000)
    log = segments_at([1, 2, 3], config, disk)
    log.set_high_watermark(4)
    log.delete_old_segments(5000)
    deleted = [name for name in disk.list_dir(PATH) if name.endswith(".deleted")]
    assert len(deleted) == 6 and "00000000000000000000.log.deleted" in deleted
    assert not log.doomed_by(5999)
    assert {f"{PATH}/{name}" for name in deleted} == set(log.doomed_by(6000))
    assert not log.doomed_by(6000), "each is somebody's to remove, once"


def test_files_marked_for_deletion_go_at_the_next_start():
    disk = sim_disk()
    log = segments_at([1, 2, 3], replace(ONE_PER_SEGMENT, retention_ms=0), disk)
    log.set_high_watermark(4)
    log.delete_old_segments(5000)
    again = reopen(disk, config=ONE_PER_SEGMENT)
    assert again.log_start == 4 and offsets_in(again) == [(4, 5)]
    assert not [name for name in disk.list_dir(PATH) if name.endswith(".deleted")]


@given(
    times=st.lists(st.integers(0, 60), min_size=1, max_size=40),
    target=st.integers(0, 70),
    interval=st.sampled_from((0, 150, 4096)),
    segment_bytes=st.sampled_from((300, 1 << 30)),
    data=st.data(),
)
def test_a_time_leads_to_the_first_record_at_least_as_new(
    times, target, interval, segment_bytes, data
):
    disk = sim_disk()
    config = LogConfig(index_interval_bytes=interval, segment_bytes=segment_bytes)
    log = new_log(disk, config)
    records = []
    for time in times:
        count = 1 + time % 3
        base = append(log, count, timestamp=time)
        records += [(time + i, base + i) for i in range(count)]
    if data.draw(st.booleans()):
        log.close(clean=True)
        log = reopen(disk, recovery_point=log.log_end, clean=True, config=config)
    if data.draw(st.booleans()):
        cut = data.draw(st.integers(0, log.log_end))
        log.truncate_to(cut)
        records = [record for record in records if record[1] < log.log_end]
    log.advance_high_watermark(log.log_end)
    log.advance_log_start(data.draw(st.integers(0, log.log_end)))
    records = [record for record in records if record[1] >= log.log_start]
    end = data.draw(st.integers(log.log_start, log.log_end))
    below = [record for record in records if record[1] < end]
    found = [record for record in records if record[0] >= target]
    expected = found[0] if found and found[0][1] < end else None
    assert log.offset_for_timestamp(target, end) == expected
    at_boundary = end == log.log_end or any(offsets[0] == end for offsets in offsets_in(log))
    if at_boundary:
        largest = max((time for time, _ in below), default=None)
        expected = next((record for record in below if record[0] == largest), None)
        assert log.max_timestamp_offset(end) == expected


def test_a_log_without_timestamps_answers_no_time():
    log = new_log(sim_disk())
    append(log, 1, timestamp=-1)
    assert log.offset_for_timestamp(0, 1) is None
    assert log.max_timestamp_offset(1) is None


@pytest.mark.parametrize("clean", [True, False])
def test_times_survive_a_restart(clean):
    disk = sim_disk()
    log = segments_at([500, 100, 900, 300], disk=disk)
    log.close(clean=clean)
    again = reopen(disk, clean=clean, config=ONE_PER_SEGMENT)
    assert again.max_timestamp_offset(8) == (901, 5)
    assert again.offset_for_timestamp(600, 8) == (900, 4)


def test_a_search_by_time_reads_no_segment_that_cannot_hold_the_answer():
    disk = sim_disk()
    log = segments_at([100, 200, 300], disk=disk)
    log.advance_high_watermark(log.log_end)
    first = f"{PATH}/{0:020d}.log"
    assert log.offset_for_timestamp(101, 6) == (101, 1), "the newest of the first segment"
    disk.fail("read", first)
    with pytest.raises(LogDirError):
        log.offset_for_timestamp(101, 6)
    assert log.offset_for_timestamp(102, 6) == (200, 2)
    assert log.max_timestamp_offset(6) == (301, 5)
    log.advance_log_start(2)
    assert log.offset_for_timestamp(0, 6) == (200, 2), "it lies below the log's start"
    assert log.max_timestamp_offset(4) == (201, 3)
    disk.fail("read", f"{PATH}/{4:020d}.log")
    assert log.offset_for_timestamp(150, 4) == (200, 2)
    assert log.max_timestamp_offset(4) == (201, 3), "nor what comes later"


def test_what_a_batch_holds_below_the_start_of_the_log_is_no_answer():
    """The log may start within a batch."""
    log = new_log(sim_disk(), LogConfig())
    append(log, 3, timestamp=100)
    append(log, 2, timestamp=50)
    log.advance_high_watermark(5)
    log.advance_log_start(1)
    assert log.offset_for_timestamp(0, 5) == (101, 1)
    assert log.max_timestamp_offset(5) == (102, 2)
    log.advance_log_start(3)
    assert log.offset_for_timestamp(0, 5) == (50, 3)
    assert log.offset_for_timestamp(52, 5) is None
    assert log.max_timestamp_offset(5) == (51, 4)
    assert log.max_timestamp_offset(3) is None


def test_the_time_of_the_append_is_that_of_every_record():
    config = LogConfig(message_timestamp_type="LogAppendTime")
    log = new_log(sim_disk(), config)
    append(log, 3, now_ms=700)
    append(log, 2, now_ms=600)
    log.advance_high_watermark(5)
    log.advance_log_start(1)
    assert log.offset_for_timestamp(0, 5) == (700, 1)
    assert log.max_timestamp_offset(5) == (700, 1)
    assert log.offset_for_timestamp(701, 5) is None
    log.advance_log_start(3)
    assert log.offset_for_timestamp(0, 5) == (600, 3) == log.max_timestamp_offset(5)


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE])
def test_a_batch_that_cannot_be_opened_is_an_answer_only_if_it_is_too_large(monkeypatch, code):
    def refused(*_):
        raise KafkaError(code)

    log = new_log(sim_disk(), LogConfig())
    append(log, 3, timestamp=100)
    log.advance_high_watermark(3)
    log.advance_log_start(1)
    monkeypatch.setattr(timestamp_lookup, "records_within_limits", refused)
    if code is ErrorCode.MESSAGE_TOO_LARGE:
        assert log.offset_for_timestamp(0, 3) == (102, 1)
    else:
        with pytest.raises(KafkaError):
            log.offset_for_timestamp(0, 3)
