"""How much of a fetch answer is opened: a few bytes on the wire may be gigabytes of objects."""

from __future__ import annotations

import pytest

from ottla.client.group_lag import PartitionLag, most_seconds
from ottla.client.model import FetchedRecords
from ottla.client.opening import HEADERS_MAX, Opening, opened
from ottla.records.record import Record, build
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.fetch_messages import FetchedPartition

GZIP = 1
MB = 1 << 20


def a_record(offset: int, size: int = 1, headers: int = 0) -> Record:
    return Record(offset, 1000 + offset, None, bytes(size), (("", b""),) * headers)


def answer(*batches: list[Record]) -> FetchedPartition:
    data = b"".join(build(each, base_offset=each[0].offset, codec=GZIP) for each in batches)
    return FetchedPartition(
        None,
        None,
        partition=0,
        error=ErrorCode.NONE,
        high_watermark=99,
        last_stable_offset=99,
        log_start_offset=0,
        records=memoryview(data),
    )


def offsets(found: FetchedRecords) -> list[int]:
    return [each.offset for each in found.records]


def test_a_batch_that_unpacks_to_too_much_is_named_and_passed_over() -> None:
    told = answer([a_record(0)], [a_record(1, 3 * MB), a_record(2)], [a_record(3)])
    found = opened(told, 0, Opening(2 * MB))
    assert offsets(found) == [0, 3]
    assert [(each.base_offset, each.last_offset) for each in found.closed] == [(1, 2)]
    assert found.next_offset == 4


def test_what_was_sent_as_large_as_it_is_is_opened() -> None:
    data = memoryview(bytes(build([a_record(0, 3 * MB)])))
    found = opened(answer([a_record(0)])._replace(records=data), 0, Opening(2 * MB))
    assert offsets(found) == [0]


def test_a_record_of_too_many_headers_is_not_made_of_objects() -> None:
    told = answer([a_record(0)], [a_record(1), a_record(2, headers=HEADERS_MAX + 1)], [a_record(3)])
    found = opened(told, 0, Opening())
    assert offsets(found) == [0, 1, 3]
    assert [each.base_offset for each in found.closed] == [1]


def test_enough_is_kept_and_the_next_answer_goes_on_there() -> None:
    told = answer([a_record(n, MB) for n in range(5)], [a_record(n, MB) for n in range(5, 8)])
    place, rounds = 0, []
    while place < 8:
        found = opened(told, place, Opening(kept_bytes=2 * MB))
        rounds.append(offsets(found))
        assert found.next_offset > place, "there is always a first one"
        place = found.next_offset
    assert rounds == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_small_records_count_as_the_objects_that_they_become() -> None:
    found = opened(answer([a_record(n) for n in range(5000)]), 0, Opening(kept_bytes=MB))
    assert 2000 < len(found.records) < 5000


def test_one_opening_is_for_all_partitions() -> None:
    opening = Opening(kept_bytes=MB)
    assert offsets(opened(answer([a_record(0, 2 * MB)]), 0, opening)) == [0]
    later = opened(answer([a_record(0)]), 0, opening)
    assert (later.records, later.next_offset, later.batches) == ([], 0, ())


def test_who_sets_no_limit_gets_everything() -> None:
    told = answer([a_record(0, 15 * MB)], [a_record(1, headers=HEADERS_MAX + 1)])
    assert offsets(opened(told, 0)) == [0, 1]


def test_a_corrupt_batch_is_an_error_however_it_is_opened() -> None:
    data = build([a_record(0)])
    data[-1] ^= 1
    told = answer([a_record(0)])._replace(records=memoryview(data))
    with pytest.raises(KafkaError) as caught:
        opened(told, 0, Opening())
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_the_time_of_the_first_record_is_that_of_its_batch_where_that_is_closed() -> None:
    large, small = [a_record(0, 3 * MB)], [a_record(1)]
    assert opened(answer(large, small), 0, Opening(2 * MB)).first_timestamp == 1000
    assert opened(answer(small), 1, Opening(2 * MB)).first_timestamp == 1001
    assert opened(answer([a_record(0)], [a_record(1, 3 * MB)]), 0, Opening(2 * MB)).first_timestamp == 1000  # fmt: skip
    assert opened(answer(small), 2, Opening()).first_timestamp is None


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        ([None], 0.0),
        ([None, 4_000], 6.0),
        ([-9_000_000_000_000_000], None),
        ([-1, None], None),
        ([0, 4_000], 6.0),
        ([], 0.0),
    ],
)
def test_a_time_that_cannot_be_makes_no_age(times: list[int | None], seconds: float | None) -> None:
    lags = [PartitionLag("t", n, 0, 0, 10, time) for n, time in enumerate(times)]
    assert most_seconds(lags, 10_000) == seconds
