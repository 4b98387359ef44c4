"""Appending as leader and follower, reading whole batches, rolling, the marks, and disks that fail."""

from __future__ import annotations

import errno
import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logkit import (
    DIRECTORY,
    SMALL,
    TOPIC_ID,
    append,
    batch_of,
    batches_in,
    content,
    new_log,
    offsets_in,
    reopen,
    sim_disk,
)

from ottla.log.config import LogConfig
from ottla.log.errors import LogDirError
from ottla.log.log import Log
from ottla.log.resources import LogResources
from ottla.log.segment import OpenFiles
from ottla.records.batch import assign, check_crc, read_batch
from ottla.records.record import Record, build, records
from ottla.runtime.files import RealDisk
from ottla.wire.errors import ErrorCode, KafkaError

PATH = f"{DIRECTORY}/t-0"


def refused(code: ErrorCode):
    return pytest.raises(KafkaError, match=code.name)


def test_P23_the_leader_gives_offsets_and_stamps_its_epoch_into_each_batch(tmp_path):
    log = new_log(RealDisk(), directory=str(tmp_path))
    assert log.append_as_leader(batch_of(3), 4, 0)[:2] == (0, 2)
    assert log.append_as_leader(batch_of(2), 7, 0)[:2] == (3, 4)
    first, second = batches_in(log)
    assert (first.base_offset, first.last_offset, first.leader_epoch) == (0, 2, 4)
    assert (second.base_offset, second.last_offset, second.leader_epoch) == (3, 4, 7)
    assert log.epochs.entries == [(4, 0), (7, 3)]
    for batch in (first, second):
        check_crc(content(log), batch)


def test_P04_a_follower_that_copies_what_it_reads_is_byte_identical():
    leader, follower = new_log(sim_disk()), new_log(sim_disk())
    for number in range(50):
        append(leader, 1 + number % 4, epoch=number // 10, timestamp=number)
    while follower.log_end < leader.log_end:
        found = leader.read(follower.log_end, max_bytes=300, end_offset=leader.log_end)
        follower.append_as_follower(memoryview(found.range.read()), 9)
    assert content(follower) == content(leader)
    assert follower.segment_bases == leader.segment_bases
    assert follower.epochs.entries == leader.epochs.entries


def test_a_follower_writes_nothing_of_a_fetch_with_a_bad_batch():
    log = new_log(sim_disk())
    append(log, 2, epoch=3)
    good, other = batch_of(1), batch_of(1)
    assign(good, read_batch(good, 0), 2, 3)

    def after_good(base: int, epoch: int, flip: int | None = None) -> memoryview:
        assign(other, read_batch(other, 0), base, epoch)
        data = bytearray(bytes(good) + bytes(other))
        if flip is not None:
            data[flip] ^= 1
        return memoryview(data)

    for bad in (
        after_good(2, 3),  # its offset is taken
        after_good(3, 2),  # its epoch falls
        after_good(3, 3, flip=-1),  # its CRC is wrong
        after_good(3, 3, flip=len(good) + 16),  # its magic
    ):
        with refused(ErrorCode.CORRUPT_MESSAGE):
            log.append_as_follower(bad, 3)
        assert log.log_end == 2
    assert log.append_as_follower(after_good(3, 3), 3)[:2] == (2, 3)


def test_D8_a_follower_takes_nothing_of_a_later_leader_than_it_asked():
    """A deposed leader's answer is read from its file when it is sent; others may lie there by then."""
    log = new_log(sim_disk())
    append(log, 2, epoch=3)
    good, later = batch_of(1), batch_of(1)
    assign(good, read_batch(good, 0), 2, 3)
    assign(later, read_batch(later, 0), 3, 4)
    assert log.append_as_follower(memoryview(bytes(good) + bytes(later)), 3)[:2] == (2, 2)
    with refused(ErrorCode.CORRUPT_MESSAGE):
        log.append_as_follower(later, 3)
    assert (log.log_end, log.epochs.latest) == (3, 3)
    assert log.append_as_follower(later, 4)[:2] == (3, 3)


def test_a_follower_ignores_what_is_cut_off_at_the_end():
    log = new_log(sim_disk())
    one = batch_of(1)
    assign(one, read_batch(one, 0), 0, 0)
    for length in range(len(one)):
        assert log.append_as_follower(one[:length], 0)[:2] == (0, -1)
    assert log.append_as_follower(memoryview(bytes(one) * 2)[:-1], 0)[:2] == (0, 0)


def test_an_empty_follower_takes_the_batch_in_which_its_leaders_log_begins():
    leader, follower = new_log(sim_disk()), new_log(sim_disk())
    append(leader, 5)
    append(leader, 5)
    leader.advance_high_watermark(10)
    leader.advance_log_start(7)
    follower.truncate_fully(7)
    found = leader.read(7, max_bytes=1000, end_offset=10)
    follower.append_as_follower(memoryview(found.range.read()), 9)
    follower.invariants()
    assert (follower.log_start, follower.log_end) == (7, 10)
    assert offsets_in(follower) == [(5, 9)]


@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=30),
    sizes=st.lists(st.sampled_from((1, 30, 120)), min_size=30, max_size=30),
    data=st.data(),
)
def test_a_read_returns_the_whole_batches_that_fit(counts, sizes, data):
    log = new_log(sim_disk())
    written = []
    for count, size in zip(counts, sizes, strict=False):
        base = append(log, count, value=b"v" * size)
        written.append((base, base + count, 0))
    sizes_of = {batch.base_offset: batch.size for batch in batches_in(log)}
    offset = data.draw(st.integers(0, log.log_end))
    end = data.draw(st.integers(0, log.log_end))
    max_bytes = data.draw(st.integers(0, 900))
    at_least_one = data.draw(st.booleans())
    result = log.read(offset, max_bytes=max_bytes, end_offset=end, at_least_one=at_least_one)
    fitting = [item for item in written if item[1] > offset and item[1] <= end]
    if result.range is None:
        assert result.next_offset == offset
        assert not fitting or (not at_least_one and sizes_of[fitting[0][0]] > max_bytes)
        return
    bytes_read = result.range.read()
    found = [
        (batch.base_offset, batch.next_offset)
        for batch in (read_batch(bytes_read, at) for at in _positions(bytes_read))
    ]
    assert found == [item[:2] for item in fitting[: len(found)]]
    assert result.next_offset == found[-1][1]
    assert len(bytes_read) <= max_bytes or (at_least_one and len(found) == 1)


def _positions(data: bytes):
    position = 0
    while position < len(data):
        yield position
        position += read_batch(data, position).size
    assert position == len(data)


def test_reading_near_the_end_and_on_from_the_last_read_touches_no_file():
    log = new_log(sim_disk(), LogConfig(index_interval_bytes=500))
    for _ in range(300):
        append(log, 1)
    log.disk.fail("read", PATH)
    log.read(log.log_end - 1, max_bytes=1000, end_offset=log.log_end)
    log.read(log.log_end - 60, max_bytes=300, end_offset=log.log_end - 3)
    log.disk.mend()
    middle = log.read(100, max_bytes=500, end_offset=log.log_end)
    log.disk.fail("read", PATH)
    assert log.segments[0].locate(middle.next_offset).offset == middle.next_offset


def test_the_batch_that_was_appended_last_is_read_from_memory_and_is_what_lies_in_the_file():
    log = new_log(sim_disk())
    for size in (10, 300, 20):
        offset = append(log, value=b"v" * size)
        found = log.read(offset, max_bytes=1 << 20, end_offset=log.log_end)
        assert found.range.in_memory is not None and found.next_offset == log.log_end
        lies = found.range.file.read_at(found.range.position, found.range.size)
        assert found.range.read() == lies
    assert log.read(offset, max_bytes=1, end_offset=log.log_end, at_least_one=False).range is None
    assert log.read(offset - 1, max_bytes=1 << 20, end_offset=log.log_end).range.in_memory is None


def test_what_was_cut_is_not_read_from_memory_when_as_much_was_written_anew():
    log = new_log(sim_disk())
    append(log)
    offset = append(log, value=b"old")
    log.truncate_to(offset)
    other = batch_of(1, value=b"new")
    assign(other, read_batch(other, 0), offset, 1)
    log.append_as_follower(other, 1)
    found = log.read(offset, max_bytes=1 << 20, end_offset=log.log_end)
    assert found.range.read() == bytes(other)


def test_reading_outside_the_log_is_out_of_range():
    log = new_log(sim_disk())
    append(log, 3)
    log.advance_high_watermark(3)
    log.advance_log_start(1)
    for offset in (0, 4, -1):
        with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
            log.read(offset, max_bytes=10, end_offset=3)
    assert log.read(3, max_bytes=10, end_offset=3).range is None


def test_a_range_stays_readable_after_its_segment_was_deleted(tmp_path):
    log = new_log(RealDisk(), replace(SMALL, file_delete_delay_ms=0), directory=str(tmp_path))
    append(log, 3, value=b"x" * 100)
    kept = log.read(0, max_bytes=1000, end_offset=3).range
    expected = kept.read()
    append(log, 3, value=b"x" * 250)
    append(log, 3, value=b"x" * 250)
    log.advance_high_watermark(log.log_end)
    log.advance_log_start(6)
    assert log.delete_old_segments(1) == 2
    for path in log.doomed_by(2):
        RealDisk().remove(path)
    assert not [name for name in RealDisk().list_dir(log.path) if name.endswith(".deleted")]
    assert kept.read() == expected


def test_batches_that_a_client_may_not_write_are_refused_and_nothing_is_written():
    log = new_log(sim_disk())
    too_large = batch_of(1, value=b"x" * 1000)
    flipped = batch_of(1)
    flipped[-1] ^= 1
    for batch, code in (
        (flipped, ErrorCode.CORRUPT_MESSAGE),
        (too_large, ErrorCode.MESSAGE_TOO_LARGE),
        (memoryview(bytearray(bytes(batch_of(1)) * 2)), ErrorCode.INVALID_RECORD),
    ):
        with refused(code):
            log.append_as_leader(batch, 0, 0)
    log.config = replace(SMALL, max_message_bytes=2000)
    with refused(ErrorCode.RECORD_LIST_TOO_LARGE):
        log.append_as_leader(too_large, 0, 0)
    log.config = replace(SMALL, message_timestamp_after_max_ms=10)
    with refused(ErrorCode.INVALID_TIMESTAMP):
        log.append_as_leader(batch_of(1, timestamp=100), 0, 89)
    assert log.log_end == 0 and log.size_bytes == 0


def test_log_append_time_stamps_the_batch():
    log = new_log(sim_disk(), replace(SMALL, message_timestamp_type="LogAppendTime"))
    assert log.append_as_leader(batch_of(2, timestamp=5), 0, 1234).log_append_time_ms == 1234
    (batch,) = batches_in(log)
    check_crc(content(log), batch)
    assert batch.log_append_time and batch.max_timestamp == 1234
    assert log.offset_for_timestamp(1000, 2) == (1234, 0)


@pytest.mark.parametrize(
    ("codec", "number"), [("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4), ("uncompressed", 0)]
)
def test_a_topic_with_its_own_codec_repacks_what_comes_in_another(codec, number):
    log = new_log(sim_disk(), replace(SMALL, compression_type=codec))
    sent = batch_of(
        3,
        value=b"v" * 50,
        codec=0 if number else 1,
        producer_id=3,
        producer_epoch=2,
        base_sequence=8,
    )
    log.append_as_leader(sent, 1, 0)
    (batch,) = batches_in(log)
    check_crc(content(log), batch)
    assert batch.codec == number and batch.count == 3
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (3, 2, 8)
    assert [record.value for record in records(content(log), batch)] == [b"v" * 50] * 3


def test_a_topic_has_a_level_for_its_own_codec():
    value = b" ".join(b"%d" % (number**2) for number in range(500))
    sizes = []
    for level in (1, 19):
        settings = {"compression.type": "zstd", "compression.zstd.level": str(level)}
        log = new_log(sim_disk(), LogConfig.from_settings(settings))
        log.append_as_leader(batch_of(3, value=value), 1, 0)
        sizes.append(len(content(log)))
    assert sizes[1] < sizes[0]


def test_a_compacted_topic_refuses_records_without_a_key():
    log = new_log(sim_disk(), replace(SMALL, cleanup_policy=("compact",)))
    with refused(ErrorCode.INVALID_RECORD):
        log.append_as_leader(memoryview(build([Record(0, 0, None, b"v", ())])), 0, 0)
    append(log, 1)


@pytest.mark.parametrize(
    "limit",
    [
        {"segment_bytes": 200},
        {"segment_ms": 100},
        {"index_bytes_max": 8, "index_interval_bytes": 0},
    ],
)
def test_a_segment_rolls_by_size_by_time_and_by_a_full_index(limit):
    log = new_log(sim_disk(), replace(LogConfig(), **limit))
    for number in range(6):
        append(log, 1, timestamp=number * 60)
    assert len(log.segment_bases) > 1
    assert offsets_in(log) == [(number, number) for number in range(6)]


def test_rolls_by_time_are_spread_by_the_jitter_the_same_on_every_run():
    config = LogConfig(segment_ms=1000, segment_jitter_ms=800)
    rolled = []
    for _ in range(2):
        log = new_log(sim_disk(), config)
        for number in range(200):
            append(log, 1, timestamp=number * 50)
        rolled.append(log.segment_bases)
    gaps = {b - a for a, b in zip(rolled[0], rolled[0][1:], strict=False)}
    assert rolled[0] == rolled[1] and len(gaps) > 2


def test_the_index_files_have_kafkas_form():
    disk = sim_disk()
    log = new_log(disk, LogConfig(index_interval_bytes=0))
    for number in range(4):
        append(log, 2, timestamp=100 * number)
    sizes = [batch.size for batch in batches_in(log)]
    log.roll(0)
    index = disk.read(f"{PATH}/{0:020d}.index")
    assert list(struct.iter_unpack(">ii", index)) == [
        (3, sizes[0]),
        (5, sum(sizes[:2])),
        (7, sum(sizes[:3])),
    ]
    times = disk.read(f"{PATH}/{0:020d}.timeindex")
    assert list(struct.iter_unpack(">qi", times)) == [(101, 3), (201, 5), (301, 7)]
    append(log, 1)
    assert disk.list_dir(PATH) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000008.index",
        "00000000000000000008.log",
        "00000000000000000008.snapshot",
        "00000000000000000008.timeindex",
        "partition.metadata",
    ]
    assert disk.read(f"{PATH}/{8:020d}.snapshot").hex() == "000148674bc700000000"
    assert disk.read(f"{PATH}/partition.metadata") == (
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAATQ"
    )


def test_the_high_watermark_never_falls_except_where_it_is_set():
    log = new_log(sim_disk())
    append(log, 5)
    log.advance_high_watermark(3)
    log.advance_high_watermark(2)
    assert log.high_watermark == 3
    log.advance_high_watermark(99)
    assert log.high_watermark == 5
    log.set_high_watermark(1)
    assert log.high_watermark == 1
    log.advance_log_start(4)
    assert (log.log_start, log.high_watermark) == (4, 4)
    log.set_high_watermark(0)
    assert log.high_watermark == 4
    with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
        log.advance_log_start(6)
    log.invariants()


def test_truncation_takes_epochs_high_watermark_and_the_split_batch_with_it():
    log = new_log(sim_disk())
    for epoch in range(5):
        append(log, 4, epoch=epoch)
    log.advance_high_watermark(20)
    log.truncate_to(10)  # in the middle of 8..11
    assert (log.log_end, log.high_watermark) == (8, 8)
    assert log.epochs.entries == [(0, 0), (1, 4)]
    log.epochs.assign(7, 8)
    log.truncate_to(8)  # nothing to cut, but an epoch that wrote nothing goes
    assert log.epochs.entries == [(0, 0), (1, 4)]
    assert append(log, 1, epoch=9) == 8


def test_a_recovery_point_falls_before_the_files_are_cut():
    disk = sim_disk()
    log = new_log(disk)
    for _ in range(4):
        append(log, 2)
    log.flush()
    seen = []
    log.before_recovery_point_falls = lambda _log, offset: seen.append((offset, content(log)))
    before = content(log)
    log.truncate_to(4)
    assert seen == [(4, before)] and log.recovery_point == 4
    append(log, 2)
    log.truncate_to(4)
    assert len(seen) == 1


def test_what_is_cut_and_written_anew_while_a_flush_is_under_way_is_not_flushed():
    log = new_log(sim_disk())
    append(log, 4)
    append(log, 4)
    plan = log.flush_plan()
    log.truncate_to(4)
    append(log, 4, epoch=1)
    assert not log.flush_due(10**15)
    log.flushed(plan())
    assert log.recovery_point == 4
    log.flush()
    assert log.recovery_point == 8


def test_P22_a_flush_is_due_by_messages_by_time_or_for_a_finished_segment_only():
    log = new_log(sim_disk(), LogConfig())
    append(log, 1)
    assert not log.flush_due(0) and not log.flush_due(10**12)
    log.roll(0)
    assert log.flush_due(0)
    log.flush()
    assert not log.flush_due(0)
    log.config = LogConfig(flush_messages=2, flush_ms=50)
    append(log, 1)
    assert not log.flush_due(100) and log.flush_due(150)
    append(log, 1)
    assert log.flush_due(101)


@pytest.mark.parametrize(
    ("operation", "act"),
    [
        ("write", lambda log: append(log, 1)),
        ("write", lambda log: log.append_as_follower(_follower_batch(), 0)),
        ("flush", lambda log: log.flush()),
        ("open", lambda log: log.roll(0)),
        ("write", lambda log: log.truncate_to(2)),
        ("rename", lambda log: log.truncate_fully(50)),
    ],
)
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_after_a_failure_of_the_disk_nothing_is_written_any_more(operation, act, error):
    disk = sim_disk()
    log = new_log(disk)
    append(log, 2)
    append(log, 2)
    disk.fail(operation, PATH, error=error, times=1)
    with pytest.raises(LogDirError) as failure:
        act(log)
    cause = failure.value.cause
    assert failure.value.directory == DIRECTORY
    assert isinstance(cause, OSError) and cause.errno == error
    assert log.failed is failure.value
    for refused_action in (
        lambda: append(log, 1),
        lambda: log.append_as_follower(_follower_batch(), 0),
        lambda: log.roll(0),
        lambda: log.truncate_to(0),
        lambda: log.truncate_fully(0),
        lambda: log.delete_old_segments(0),
        log.flush_plan,
    ):
        with refused(ErrorCode.KAFKA_STORAGE_ERROR):
            refused_action()
    log.close(clean=True)


def _follower_batch() -> memoryview:
    batch = batch_of(1)
    assign(batch, read_batch(batch, 0), 4, 0)
    return batch


def test_a_full_disk_tears_the_tail_and_recovery_cuts_it():
    disk = sim_disk(3)
    log = new_log(disk)
    append(log, 2)
    disk.fill(30)
    with pytest.raises(LogDirError):
        append(log, 2)
    disk.mend()
    assert reopen(disk).log_end == 2


def test_few_files_stay_open_however_many_segments_are_read(tmp_path):
    disk = RealDisk()
    files = OpenFiles(disk, limit=3)
    log = Log.create(
        LogResources(disk, files), str(tmp_path), "t", 0, SMALL, topic_id=TOPIC_ID, now_ms=0
    )
    for _ in range(60):
        append(log, 2, value=b"x" * 100)
    assert len(log.segment_bases) > 6
    ranges = [
        log.read(offset, max_bytes=1, end_offset=log.log_end).range for offset in range(log.log_end)
    ]
    assert sum(segment.file is not None for segment in log.segments) <= 3
    for offset, found in enumerate(ranges):  # what is being sent stays readable
        assert found is not None
        assert read_batch(found.read(), 0).base_offset == offset - offset % 2
    append(log, 2)
