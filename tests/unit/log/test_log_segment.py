"""One segment by itself: where each offset and each time is found, when it is full, and what is left after a cut.

Every question is asked at every boundary, and the answer compared with a look at all batches.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest
from logkit import DIRECTORY, sim_disk

from ottla.log.config import LogConfig
from ottla.log.index import OFFSET_ROW, TIME_ROW
from ottla.log.segment import (
    RECENT_MAX,
    RESUME_MAX,
    UNINDEXED_BYTES_MAX,
    OffsetPosition,
    OpenFiles,
    Segment,
)
from ottla.records.batch import Batch, CorruptBatch, read_batch
from ottla.records.filtering import emptied_batch
from ottla.records.record import Record, build
from ottla.sim.engine.disk import SimDisk

BASE = 1000
CREATED_MS = 50
MANY = 2 * RECENT_MAX + 40
INTERVALS = (0, 300, 1 << 20)
"""Bytes between rows of the index: a row for each batch, for some, for none."""


class Placed(NamedTuple):
    position: int
    size: int
    base: int
    last: int
    timestamp: int

    @property
    def end(self) -> int:
        return self.position + self.size


class Written:
    """A segment, and all that was written into it."""

    def __init__(self, interval: int = 0, disk: SimDisk | None = None) -> None:
        self.disk = disk or sim_disk()
        self.interval = interval
        self.segment = Segment.create(self.disk, OpenFiles(self.disk), DIRECTORY, BASE, CREATED_MS)
        self.batches: list[Placed] = []
        self._boundaries: list[OffsetPosition] = []

    def append(
        self, records: int = 1, *, timestamp: int = 1000, skip: int = 0, value: bytes = b"value"
    ) -> Batch:
        """`skip`: offsets that compaction has removed before it."""
        base = self.segment.next_offset + skip
        data = bytes(
            build(
                [Record(base + n, timestamp, None, value) for n in range(records)],
                base_offset=base,
            )
        )
        batch = read_batch(data, 0)
        self.batches.append(
            Placed(self.segment.size, len(data), base, base + records - 1, timestamp)
        )
        self.segment.append(data, batch, self.interval)
        return batch

    def many(self, count: int = MANY) -> Written:
        """Batches of one to three records, with gaps, and times that rise and fall."""
        for number in range(count):
            self.append(
                1 + number % 3,
                skip=2 if number % 7 == 3 else 0,
                timestamp=1000 + number + (number * 37 % 11) * 5,
                value=b"v" * (number * 13 % 50),
            )
        return self

    def reopened(self) -> Written:
        """As after a clean stop."""
        self.segment.seal()
        again = Segment(self.disk, OpenFiles(self.disk), self.segment.stem, BASE, CREATED_MS)
        again.size = self.segment.size
        assert again.load(self.disk)
        self.segment = again
        return self

    # -- what is so

    def boundaries(self) -> list[OffsetPosition]:
        if len(self._boundaries) != len(self.batches) + 1:
            ends = [OffsetPosition(each.end, each.last + 1) for each in self.batches]
            self._boundaries = [OffsetPosition(0, BASE), *ends]
        return self._boundaries

    def boundary(self, offset: int) -> OffsetPosition:
        at = bisect_left(self.batches, offset, key=lambda batch: batch.last)
        return self.boundaries()[at]

    def newest_before(self) -> Iterator[tuple[int, tuple[int, int] | None]]:
        """For each offset the newest time below it, with the last offset of the first batch that has it."""
        newest: tuple[int, int] | None = None
        left = deque(self.batches)
        for offset in offsets(self):
            while left and left[0].last < offset:
                batch = left.popleft()
                if batch.timestamp >= 0 and (newest is None or batch.timestamp > newest[0]):
                    newest = batch.timestamp, batch.last
            yield offset, newest


def offsets(written: Written) -> range:
    return range(BASE, written.segment.next_offset + 2)


@pytest.fixture(params=INTERVALS)
def interval(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(params=["appended", "reopened"])
def written(request: pytest.FixtureRequest, interval: int) -> Written:
    made = Written(interval).many()
    return made.reopened() if request.param == "reopened" else made


# -- finding


def test_each_offset_leads_to_its_batch(written: Written) -> None:
    for offset in offsets(written):
        assert written.segment.boundary(offset) == written.boundary(offset), offset
        assert written.segment.locate(offset) == written.boundary(offset), offset


def test_an_index_that_misleads_costs_time_and_nothing_else() -> None:
    written = Written(300).many()
    written.segment.seal()
    index = written.segment.index
    row = index.last
    assert row is not None
    written.segment.index.truncate(0, row[0] - 1)
    written.segment.index.append(row[0], row[1] + 7)  # no batch begins there
    for offset in offsets(written):
        assert written.segment.boundary(offset) == written.boundary(offset), offset


def test_the_newest_batches_are_found_without_a_look_into_the_file(interval: int) -> None:
    written = Written(interval).many()
    newest = written.batches[-RECENT_MAX // 2 :]
    assert all(written.segment.is_recent(batch.last) for batch in newest)
    assert not written.segment.is_recent(written.batches[0].last)
    written.disk.fail("read", DIRECTORY)
    for batch in newest:
        assert written.segment.boundary(batch.last) == OffsetPosition(
            batch.position, written.boundary(batch.last).offset
        )


def test_the_search_begins_near_the_offset(interval: int) -> None:
    written = Written(interval).many()
    for batch in written.batches:
        start = written.segment.scan_start(batch.last)
        assert start in {each.position for each in written.batches} and start <= batch.position
        if interval < 1 << 20:
            assert batch.position - start <= interval + 3 * 150


def test_where_a_reader_stopped_is_remembered_for_the_last_readers() -> None:
    written = Written(300).many()
    old = written.boundaries()[1 : RESUME_MAX + 2]
    for place in old:
        written.segment.remember(place)
    assert [written.segment.has_resume_position(place.offset) for place in old] == [
        False,
        *[True] * RESUME_MAX,
    ]
    written.disk.fail("read", DIRECTORY)
    assert [written.segment.locate(place.offset) for place in old[1:]] == old[1:]


def test_what_is_found_without_a_search_is_not_remembered() -> None:
    written = Written(300).many()
    for place in (written.boundaries()[-1], written.boundaries()[-5]):
        written.segment.remember(place)
        assert not written.segment.has_resume_position(place.offset)


@pytest.mark.parametrize("limit", [1, 60, 100, 500, 5000])
def test_a_read_is_cut_at_a_boundary_within_its_limit(written: Written, limit: int) -> None:
    boundaries = written.boundaries()
    end = boundaries[-1]
    for start, batch in zip(boundaries, written.batches, strict=False):
        if end.position - start.position <= limit:
            continue
        found = written.segment.cut_at(start, limit, end)
        assert written.boundary(found.offset).position == found.position, "a reader goes on there"
        assert start.position < found.position <= max(start.position + limit, batch.end)
        if written.segment.is_recent(batch.last):
            fitting = [at for at in boundaries if at.position <= start.position + limit]
            assert found == max(fitting[-1], OffsetPosition(batch.end, batch.last + 1))


def test_the_headers_of_all_batches_are_read(written: Written) -> None:
    for place, skipped in zip(written.boundaries(), range(len(written.batches)), strict=False):
        if skipped % 40:
            continue
        found = [
            (batch.position, batch.size, batch.base_offset, batch.last_offset)
            for batch in written.segment.headers(place.position)
        ]
        assert found == [batch[:4] for batch in written.batches[skipped:]]


def test_headers_end_where_they_are_told_and_a_batch_that_reaches_over_it_is_damage() -> None:
    written = Written().many(5)
    end = written.batches[3].position
    assert len(list(written.segment.headers(0, end))) == 3
    with pytest.raises(CorruptBatch, match="are left"):
        list(written.segment.headers(0, end + 61))


# -- time


def test_a_time_leads_before_every_batch_that_may_be_meant(written: Written) -> None:
    for timestamp in range(990, 1000 + MANY + 60):
        position = written.segment.position_for_time(timestamp)
        before = [batch for batch in written.batches if batch.position < position]
        assert all(batch.timestamp < timestamp for batch in before)
        assert position in {place.position for place in written.boundaries()}


def test_the_newest_time_below_each_offset(written: Written) -> None:
    for offset, newest in written.newest_before():
        assert written.segment.max_timestamp_before(offset) == newest, offset


def test_batches_without_a_time_have_none() -> None:
    written = Written()
    written.append(timestamp=-1)
    written.append(timestamp=-1)
    assert written.segment.max_timestamp_before(BASE + 9) is None
    assert written.segment.max_timestamp == -1
    written.append(timestamp=0)
    assert written.segment.max_timestamp_before(BASE + 9) == (0, BASE + 2)
    assert written.segment.max_timestamp_before(BASE + 2) is None


# -- room


CONFIG = LogConfig(segment_bytes=1000, segment_ms=500)


def batch_at(offset: int, *, size: int = 100, timestamp: int = 1000, delta: int = 0) -> Batch:
    data = bytes(build([Record(0, timestamp, None, b"v")]))
    return read_batch(data, 0)._replace(
        base_offset=offset, size=size, max_timestamp=timestamp, last_offset_delta=delta
    )


def filled(*, size: int = 600, timestamp: int = 1000) -> Segment:
    segment = Written().segment
    segment.added(batch_at(BASE, size=size, timestamp=timestamp), 0, 1 << 20)
    return segment


def has_room(segment: Segment, batch: Batch, config: LogConfig = CONFIG, **asked: int) -> bool:
    return segment.has_room(batch, config, asked.get("now_ms"), asked.get("jitter_ms", 0))


def test_a_segment_takes_what_its_size_allows_and_an_empty_one_takes_anything() -> None:
    assert has_room(filled(size=600), batch_at(BASE + 1, size=400))
    assert not has_room(filled(size=600), batch_at(BASE + 1, size=401))
    assert has_room(Written().segment, batch_at(BASE, size=1001))


def test_the_offsets_of_a_segment_fit_into_its_index() -> None:
    config = replace(CONFIG, segment_bytes=1 << 40)
    for segment in (filled(), Written().segment):
        for delta in (0, 5):
            last = BASE + 2**31 - 1
            assert has_room(segment, batch_at(last - delta, delta=delta), config)
            assert not has_room(segment, batch_at(last + 1 - delta, delta=delta), config)


def test_a_segment_ends_when_an_index_is_full() -> None:
    segment = filled()
    for rows in range(1, 4):
        segment.index.append(rows, rows * 10)
    segment.times.append(1, 1)
    for bytes_max, fits in ((4 * OFFSET_ROW.size, True), (4 * OFFSET_ROW.size - 1, False)):
        config = replace(CONFIG, index_bytes_max=bytes_max)
        assert has_room(segment, batch_at(BASE + 1), config) is fits
    for rows in range(2, 8):
        segment.times.append(rows, rows)
    for bytes_max, fits in ((8 * TIME_ROW.size, True), (8 * TIME_ROW.size - 1, False)):
        config = replace(CONFIG, index_bytes_max=bytes_max)
        assert has_room(segment, batch_at(BASE + 1), config) is fits


def test_a_segment_ends_when_its_first_record_is_too_old() -> None:
    segment = filled(timestamp=0)
    assert has_room(segment, batch_at(BASE + 1, timestamp=500))
    assert not has_room(segment, batch_at(BASE + 1, timestamp=501))
    assert has_room(segment, batch_at(BASE + 1, timestamp=400), jitter_ms=100)
    assert not has_room(segment, batch_at(BASE + 1, timestamp=401), jitter_ms=100)


def test_without_times_in_its_records_the_age_of_the_file_counts() -> None:
    segment = filled(timestamp=-1)
    late = batch_at(BASE + 1, timestamp=10_000)
    assert has_room(segment, late, now_ms=CREATED_MS + 500)
    assert not has_room(segment, late, now_ms=CREATED_MS + 501)
    assert has_room(segment, late), "a follower copies segments as its leader cuts them"


# -- files


def test_a_segment_begins_empty_whatever_was_left_under_its_name() -> None:
    disk = sim_disk()
    Written(disk=disk).append()
    again = Written(disk=disk)
    assert again.segment.opened().size == 0
    batch = again.append()
    assert [found.base_offset for found in again.segment.headers(0)] == [batch.base_offset]


def test_of_too_many_open_files_those_that_nobody_uses_are_released() -> None:
    disk = sim_disk()
    files = OpenFiles(disk, 2)
    segments = [Segment.create(disk, files, DIRECTORY, base, 0) for base in range(3)]
    assert [segment.file is None for segment in segments] == [True, False, False]
    segments[1].opened()
    segments[0].opened()
    assert [segment.file is None for segment in segments] == [False, False, True], "2 was not used"
    files.forget(segments[0])
    segments[2].opened()
    assert [segment.file is None for segment in segments] == [True, False, False]


# -- cutting and opening again


def state(segment: Segment) -> tuple[object, ...]:
    return (
        segment.size,
        segment.next_offset,
        segment.max_timestamp,
        segment.max_timestamp_offset,
        segment.first_timestamp,
        segment.bytes_since_index,
        segment.index.count,
        segment.index.last,
        segment.times.last,
    )


@pytest.mark.parametrize("count", [*range(20), *range(20, MANY, 37), MANY])
def test_a_segment_that_is_cut_is_as_if_no_more_had_been_written(interval: int, count: int) -> None:
    cut, fresh = Written(interval).many(), Written(interval).many(count)
    place = cut.boundaries()[count]
    cut.segment.check_before(place)
    cut.segment.truncate(place)
    assert state(cut.segment)[:6] == state(fresh.segment)[:6]
    assert state(cut.segment)[6:8] == state(fresh.segment)[6:8]
    assert cut.segment.opened().size == place.position
    cut.batches = cut.batches[:count]
    cut.append(2, timestamp=5000)
    for offset in (BASE, place.offset, place.offset + 1, place.offset + 2):
        assert cut.segment.boundary(offset) == cut.boundary(offset)
    assert cut.segment.max_timestamp_before(place.offset + 2) == (5000, place.offset + 1)


def test_a_cut_that_is_no_boundary_is_noticed_before_anything_is_changed(
    interval: int,
) -> None:
    written = Written(interval).many()
    for number in (1, 2, 60, MANY):
        position, offset = written.boundaries()[number]
        with pytest.raises(CorruptBatch):
            written.segment.check_before(OffsetPosition(position, offset + 1))
        with pytest.raises(CorruptBatch):
            written.segment.check_before(OffsetPosition(position - 1, offset))
    written.segment.check_before(OffsetPosition(0, BASE))
    with pytest.raises(CorruptBatch):
        written.segment.check_before(OffsetPosition(0, BASE + 1))


def test_a_segment_that_is_opened_again_knows_what_it_knew(interval: int) -> None:
    for count in (0, 1, 2, 9, MANY):
        written = Written(interval).many(count)
        written.segment.seal()
        before = state(written.segment)
        assert state(written.reopened().segment) == before


def test_what_the_clean_stop_did_not_leave_whole_is_not_loaded() -> None:
    written = Written(0).many(20)
    written.segment.seal()
    row = written.segment.index.last
    assert row is not None
    for size, is_whole in ((row[1] + 1, True), (row[1], False)):
        again = Segment(
            written.disk, OpenFiles(written.disk), written.segment.stem, BASE, CREATED_MS
        )
        again.size = size
        if is_whole:
            with pytest.raises(CorruptBatch):  # the index may be right, and the batch is cut
                again.load(written.disk)
        else:
            assert not again.load(written.disk)


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_a_segment_without_one_of_its_indexes_is_not_loaded(kind: str) -> None:
    written = Written(0).many(20)
    written.segment.seal()
    written.disk.remove(written.segment.stem + kind)
    again = Segment(written.disk, OpenFiles(written.disk), written.segment.stem, BASE, CREATED_MS)
    again.size = written.segment.size
    assert not again.load(written.disk)


def test_a_batch_that_compaction_emptied_brings_no_time(interval: int) -> None:
    written = Written(interval)
    written.append(timestamp=1000)
    data = build([Record(BASE + 1, 9000, None, b"value")], base_offset=BASE + 1)
    emptied = bytes(emptied_batch(read_batch(data, 0)))
    written.segment.append(emptied, read_batch(emptied, 0), interval)
    written.batches.append(
        Placed(written.segment.size - len(emptied), len(emptied), BASE + 1, BASE + 1, -1)
    )
    for _ in range(2):
        assert written.segment.next_offset == BASE + 2
        assert written.segment.max_timestamp == 1000
        assert written.segment.max_timestamp_before(BASE + 2) == (1000, BASE)
        written.reopened()


@pytest.mark.parametrize("over", [0, 1])
def test_a_large_file_without_a_row_has_lost_its_index(over: int) -> None:
    written = Written(1 << 30)
    empty = len(build([Record(BASE, 1000, None, b"")], base_offset=BASE))
    value = bytes(UNINDEXED_BYTES_MAX + over - empty - 4)
    while written.append(value=value).size != UNINDEXED_BYTES_MAX + over:
        difference = UNINDEXED_BYTES_MAX + over - written.batches[-1].size
        value = bytes(len(value) + difference)
        written = Written(1 << 30)
    written.segment.seal()
    again = Segment(written.disk, OpenFiles(written.disk), written.segment.stem, BASE, CREATED_MS)
    again.size = written.segment.size
    assert again.load(written.disk) is (not over)


def test_a_segment_that_is_read_anew_forgets_all_but_its_file() -> None:
    written = Written(300).many()
    before = state(written.segment)
    batches: Sequence[Batch] = list(written.segment.headers(0))
    written.segment.reset(written.disk)
    assert state(written.segment)[1:] == (BASE, -1, BASE, -1, 0, 0, None, None)
    for batch in batches:
        written.segment.added(batch, batch.position, 300)
    assert state(written.segment) == before
