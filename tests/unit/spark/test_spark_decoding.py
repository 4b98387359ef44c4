"""Batches become rows: the slow decoder against what was written, the fast one against the slow one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.records.batch import Batch, CorruptBatch, batches
from ottla.records.record import ControlType, Record, build, control_batch
from ottla.spark.errors import SparkSourceError
from ottla.spark.read import native, rows
from ottla.spark.read.native import Decoder
from ottla.spark.read.rows import ByteColumn, Rows, Wanted, grouped
from ottla.spark.read.visible import visible

ALL = Wanted(0, 1 << 62, key=True, value=True, headers=True)

payloads = st.one_of(st.none(), st.binary(max_size=40))
names = st.one_of(st.sampled_from(["a", "trace-id", ""]), st.text(max_size=5))
records = st.lists(
    st.tuples(payloads, payloads, st.lists(st.tuples(names, payloads), max_size=3)),
    min_size=1,
    max_size=8,
)
logs = st.lists(
    st.tuples(records, st.sampled_from([0, 0, 1, 2, 3, 4]), st.booleans(), st.integers(0, 3)),
    min_size=1,
    max_size=5,
)


def written(log: Sequence[Any]) -> tuple[bytearray, list[Record]]:
    """Batches one after the other, offsets with gaps as after compaction; and the records in them."""
    data, all_records, offset = bytearray(), [], 0
    for contents, codec, by_broker, gap in log:
        offset += gap
        made = [
            Record(offset + i * (1 + gap), 1_700_000_000_000 + 7 * i, key, value, tuple(headers))
            for i, (key, value, headers) in enumerate(contents)
        ]
        data += build(made, base_offset=offset, codec=codec, timestamp_type=int(by_broker))
        newest = made[-1].timestamp
        all_records += [each._replace(timestamp=newest) if by_broker else each for each in made]
        offset = made[-1].offset + 1
    return data, all_records


def values(column: ByteColumn, count: int) -> list[bytes | None]:
    offsets, data = list(column.offsets), bytes(column.data)
    valid = [True] * count if column.validity is None else bits(column.validity, count)
    assert valid.count(False) == column.nulls
    return [
        data[start:end] if there else None
        for start, end, there in zip(offsets, offsets[1:], valid, strict=False)
    ]


def bits(bitmap: Any, count: int) -> list[bool]:
    packed = bytes(bitmap)
    return [bool(packed[i >> 3] >> (i & 7) & 1) for i in range(count)]


def unpacked_rows(made: Rows) -> list[tuple[Any, ...]]:
    count = made.rows
    nothing = [None] * count
    keys = nothing if made.key is None else values(made.key, count)
    contents = nothing if made.value is None else values(made.value, count)
    headers: list[Any] = nothing
    if made.headers is not None:
        entries = list(
            zip(
                values(made.headers.keys, made.headers.entries),
                values(made.headers.values, made.headers.entries),
                strict=True,
            )
        )
        ends = list(made.headers.offsets)
        full = made.headers.validity
        there = [True] * count if full is None else bits(full, count)
        headers = [entries[ends[i] : ends[i + 1]] if there[i] else None for i in range(count)]
    columns = (keys, contents, list(made.offset), list(made.timestamp), list(made.timestamp_type), headers)  # fmt: skip
    return list(zip(*columns, strict=True))


def expected(found: Sequence[Record], by_broker: Sequence[int], wanted: Wanted) -> list[Any]:
    return [
        (
            each.key if wanted.key else None,
            each.value if wanted.value else None,
            each.offset,
            each.timestamp * 1000,
            kind,
            [(name.encode(), content) for name, content in each.headers]
            if wanted.headers and each.headers
            else None,
        )
        for each, kind in zip(found, by_broker, strict=True)
        if wanted.start <= each.offset < wanted.end
    ]


def kinds(log: Sequence[Any]) -> list[int]:
    return [int(by_broker) for contents, _, by_broker, _ in log for _ in contents]


@given(logs, st.integers(0, 20), st.integers(0, 40), st.booleans(), st.booleans(), st.booleans())
def test_rows_are_what_was_written(
    log: Any, start: int, size: int, key: bool, value: bool, headers: bool
) -> None:
    data, found = written(log)
    wanted = Wanted(start, start + size, key, value, headers)
    made = rows.decode(data, list(batches(data)), wanted)
    assert unpacked_rows(made) == expected(found, kinds(log), wanted)


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    pytest.importorskip("numba", reason="needs numba: scripts/setup --spark")
    from ottla.spark.read.kernels import machine_code

    code: Path = tmp_path_factory.mktemp("code") / "code.o"
    code.write_bytes(machine_code())
    decoder = Decoder(code)
    decoder._look()
    assert decoder._function is not None
    return decoder


@given(logs, st.integers(0, 20), st.integers(0, 40), st.booleans(), st.booleans(), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_fast_decoder_makes_the_same_rows(
    fast: Decoder, log: Any, start: int, size: int, key: bool, value: bool, headers: bool
) -> None:
    data, _ = written(log)
    found = list(batches(data))
    wanted = Wanted(start, start + size, key, value, headers)
    slow = rows.decode(data, found, wanted)
    assert unpacked_rows(fast.decode(data, found, wanted)) == unpacked_rows(slow)
    ascii_names = all(name.isascii() for contents, *_ in log for *_, h in contents for name, _ in h)
    made = fast._fast(data, found, wanted)
    assert made is not None or (headers and not ascii_names), "it was the fast one that made them"


@given(logs, st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_fast_decoder_leaves_what_is_malformed_to_the_slow_one(
    fast: Decoder, log: Any, chance: st.DataObject
) -> None:
    """Any byte of the records may be any other. Both take it, with the same rows, or both refuse it."""
    plain = [(contents, 0, by_broker, gap) for contents, _, by_broker, gap in log]
    data, _ = written(plain)
    found = list(batches(data))
    batch = chance.draw(st.sampled_from(found))
    place = chance.draw(st.integers(batch.position + 61, batch.end - 1))
    data[place] = chance.draw(st.integers(0, 255))
    try:
        slow = unpacked_rows(rows.decode(data, found, ALL))
    except (CorruptBatch, SparkSourceError) as error:
        assert fast._fast(data, found, ALL) is None
        with pytest.raises(type(error)):
            fast.decode(data, found, ALL)
    else:
        assert unpacked_rows(fast.decode(data, found, ALL)) == slow


NANOSECONDS = 1_700_000_000_000_000_000


def test_a_timestamp_that_spark_cannot_hold_is_told_with_its_offset() -> None:
    data = build([Record(5, NANOSECONDS, None, b"v")], base_offset=5)
    with pytest.raises(SparkSourceError, match=f"offset 5 has the timestamp {NANOSECONDS} ms"):
        rows.decode(data, list(batches(data)), ALL)


def test_the_fast_decoder_does_not_make_another_time_of_it(fast: Decoder) -> None:
    data = build([Record(5, NANOSECONDS, None, b"v")], base_offset=5)
    assert fast._fast(data, list(batches(data)), ALL) is None


def test_whoever_decodes_much_has_it_compiled_and_goes_on_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba", reason="needs numba: scripts/setup --spark")
    monkeypatch.setattr(native, "_ROWS_WORTH_COMPILING", 1)
    data = build([Record(i, 0, b"k", b"v") for i in range(5)])
    found = list(batches(data))
    code = tmp_path / "code.o"
    decoder = Decoder(code)
    first = unpacked_rows(decoder.decode(data, found, ALL))
    deadline = time.monotonic() + 100
    while not code.exists():
        assert unpacked_rows(decoder.decode(data, found, ALL)) == first
        assert time.monotonic() < deadline, "the compiler has not finished"
        time.sleep(0.2)
    assert unpacked_rows(decoder.decode(data, found, ALL)) == first
    assert decoder._function is not None


def test_without_numba_all_is_decoded_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "find_spec", lambda name: None)
    data = build([Record(i, 0, b"k", b"v") for i in range(5)])
    assert Decoder().decode(data, list(batches(data)), ALL).rows == 5


def test_groups_are_bounded_in_rows_and_bytes() -> None:
    def batch(count: int, size: int) -> Batch:
        return Batch(0, size, 0, 0, 2, 0, 0, count - 1, 0, 0, -1, -1, -1, count)

    small = [batch(6_000, 100)] * 5
    assert [len(group) for group in grouped(small)] == [3, 2]
    large = [batch(1, 3 << 20)] * 5 + [batch(1, 100 << 20)]
    assert [len(group) for group in grouped(large)] == [2, 2, 1, 1]
    assert list(grouped([])) == []


# -- what is shown


def transactional(offset: int, producer: int, value: bytes) -> bytearray:
    return build(
        [Record(offset, 0, None, value)], base_offset=offset, producer_id=producer,
        producer_epoch=0, base_sequence=0, transactional=True,
    )  # fmt: skip


def marker(offset: int, producer: int, kind: ControlType) -> bytearray:
    return control_batch(
        [(kind, bytes(6))], timestamp=0, base_offset=offset, producer_id=producer,
        producer_epoch=0, transactional=True,
    )  # fmt: skip


def shown(data: bytes, aborted: Any, start: int = 0, end: int = 100) -> list[int]:
    found = visible(data, batches(data), start=start, end=end, aborted=aborted)
    return [batch.base_offset for batch in found]


def test_aborted_transactions_are_seen_only_by_those_who_read_uncommitted() -> None:
    data = bytes(
        transactional(0, 1, b"lost")
        + transactional(1, 2, b"kept")
        + build([Record(2, 0, None, b"plain")], base_offset=2)
        + marker(3, 1, ControlType.ABORT)
        + transactional(4, 1, b"kept too")
        + marker(5, 2, ControlType.COMMIT)
        + marker(6, 1, ControlType.COMMIT)
    )
    assert shown(data, aborted=[(1, 0)]) == [1, 2, 4]
    assert shown(data, aborted=None) == [0, 1, 2, 4], "markers are never rows"
    assert shown(data, aborted=[(1, 0)], start=2, end=4) == [2]


def test_a_producer_may_abort_twice_within_a_fetch() -> None:
    data = bytes(
        transactional(0, 1, b"lost")
        + marker(1, 1, ControlType.ABORT)
        + transactional(2, 1, b"kept")
        + marker(3, 1, ControlType.COMMIT)
        + transactional(4, 1, b"lost again")
        + marker(5, 1, ControlType.ABORT)
    )
    assert shown(data, aborted=[(1, 4), (1, 0)]) == [2]
