"""Arrow columns to records: what is written is what a reader of batches finds, and both encoders write the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="needs what Spark needs: scripts/setup --spark")
np = pytest.importorskip("numpy", reason="needs what Spark needs: scripts/setup --spark")
encode_numba = pytest.importorskip(
    "ottla.spark.write.encode_numba", reason="needs numba: scripts/setup --spark"
)

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from ottla.client.partitioner import partition_for  # noqa: E402
from ottla.records.batch import HEADER_BYTES, read_batch  # noqa: E402
from ottla.records.record import Record, build, records  # noqa: E402
from ottla.spark.errors import SparkSourceError  # noqa: E402
from ottla.spark.write import encode as encode_python  # noqa: E402
from ottla.spark.write.encode import STICKY, Columns, columns_of  # noqa: E402

ENCODERS = [encode_python, encode_numba]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SEED = 12345

Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]

some_bytes = st.one_of(st.none(), st.binary(max_size=200))
rows = st.lists(
    st.tuples(
        some_bytes,
        some_bytes,
        st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3),
    ),
    min_size=1,
    max_size=40,
)


def batch_of(found: list[Row], **more: Any) -> Any:
    key, value, headers = zip(*found, strict=True)
    return pa.record_batch(
        {
            "key": pa.array(key, pa.binary()),
            "value": pa.array(value, pa.binary()),
            "headers": pa.array([[{"key": k, "value": v} for k, v in each] for each in headers], HEADERS),
            **more,
        }
    )  # fmt: skip


def decoded(body: Any, count: int) -> list[Record]:
    header = bytearray(build([Record(0, 0)])[:HEADER_BYTES])
    header[8:12] = (HEADER_BYTES + len(body) - 12).to_bytes(4, "big")
    header[23:27] = (count - 1).to_bytes(4, "big")
    header[57:61] = count.to_bytes(4, "big")
    data = bytes(header) + bytes(body)
    return list(records(data, read_batch(data, 0)))


def encoded(encoder: Any, columns: Columns, which: Any, room: int = 1 << 20) -> tuple[Any, Any]:
    out = np.zeros(room, np.uint8)
    done = encoder.encode(columns, np.array(which, np.int64), 0, SEED, out, 0)
    return done, out[: done.position]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows)
def test_both_encoders_write_the_rows_as_records(found: list[Row]) -> None:
    columns = columns_of(batch_of(found), "t")
    which = list(range(len(found)))
    slow, slow_bytes = encoded(encode_python, columns, which)
    fast, fast_bytes = encoded(encode_numba, columns, which)
    assert slow == fast
    assert bytes(slow_bytes) == bytes(fast_bytes)
    read = decoded(fast_bytes, len(found))
    assert [(each.offset, each.key, each.value, list(each.headers)) for each in read] == [
        (i, key, value, headers) for i, (key, value, headers) in enumerate(found)
    ]


@pytest.mark.parametrize("encoder", ENCODERS)
def test_what_has_no_room_is_left_for_the_next_batch(encoder: Any) -> None:
    columns = columns_of(batch_of([(None, b"x" * 100, []) for _ in range(10)]), "t")
    done, body = encoded(encoder, columns, range(10), room=350)
    assert done.rows == 3
    assert [each.value for each in decoded(body, 3)] == [b"x" * 100] * 3
    assert encode_python.record_bytes_max(columns, 0) >= len(body) // 3


@pytest.mark.parametrize("encoder", ENCODERS)
def test_deltas_go_on_where_the_last_call_ended(encoder: Any) -> None:
    columns = columns_of(batch_of([(None, str(i).encode(), []) for i in range(300)]), "t")
    out = np.zeros(1 << 16, np.uint8)
    first = encoder.encode(columns, np.arange(100), 0, SEED, out, 0)
    second = encoder.encode(columns, np.arange(100, 300), 100, SEED, out, first.position)
    read = decoded(out[: second.position], 300)
    assert [each.offset for each in read] == list(range(300))
    whole = encoder.encode(columns, np.arange(300), 0, SEED, np.zeros(1 << 16, np.uint8), 0)
    assert (first.checksum + second.checksum) % 2**64 == whole.checksum


@pytest.mark.parametrize("encoder", ENCODERS)
def test_the_checksum_does_not_depend_on_the_order_but_on_everything_else(encoder: Any) -> None:
    found: list[Row] = [(b"k", b"v", []), (None, b"kv", []), (b"", b"", [("h", None)])]
    columns = columns_of(batch_of(found), "t")
    one, _ = encoded(encoder, columns, [0, 1, 2])
    other, _ = encoded(encoder, columns, [2, 0, 1])
    assert one.checksum == other.checksum
    others: list[list[Row]] = [
        [(b"k", b"w", []), *found[1:]],
        [(b"kv", b"", []), *found[1:]],
        [(None, b"v", []), *found[1:]],
        [*found[:2], (b"", b"", [("h", b"")])],
        [*found[:2], (b"", b"", [])],
    ]
    sums = {
        encoded(encoder, columns_of(batch_of(changed), "t"), [0, 1, 2])[0].checksum
        for changed in others
    }
    assert len(sums) == 5
    assert one.checksum not in sums


@pytest.mark.parametrize("encoder", ENCODERS)
def test_partitions_are_those_of_the_rows_then_of_the_keys(encoder: Any) -> None:
    keys = [None, b"", b"a", b"ab", b"abc", b"abcd", b"abcdefgh", b"\xff" * 13]
    found: list[Row] = [(key, b"v", []) for key in keys]
    given_partitions = pa.array([None, None, 7, *[None] * 5], pa.int32())
    columns = columns_of(batch_of(found, partition=given_partitions), "t")
    out = np.zeros(len(keys), np.int64)
    encoder.choose_partitions(columns, [31], out)
    wanted = [STICKY if key is None else partition_for(key, 31) for key in keys]
    wanted[2] = 7
    assert list(out) == wanted


@pytest.mark.parametrize("encoder", ENCODERS)
def test_topics_have_their_own_numbers_of_partitions(encoder: Any) -> None:
    found: list[Row] = [(b"key", b"v", []) for _ in range(4)]
    columns = columns_of(batch_of(found, topic=pa.array(["a", "b", "a", "b"])), None)
    assert columns.topics == ("a", "b")
    out = np.zeros(4, np.int64)
    encoder.choose_partitions(columns, [5, 1000], out)
    assert list(out) == [partition_for(b"key", count) for count in (5, 1000, 5, 1000)]


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("kind", [pa.string, pa.large_string, pa.binary, pa.large_binary])
def test_a_slice_of_any_kind_of_column(encoder: Any, kind: Callable[[], Any]) -> None:
    values = [None if i % 3 == 0 else f"value {i}" for i in range(20)]
    array = pa.array([v if "string" in kind.__name__ else v and v.encode() for v in values], kind())
    batch = pa.record_batch({"value": array, "key": array}).slice(7, 9)
    _, body = encoded(encoder, columns_of(batch, "t"), range(9))
    read = decoded(body, 9)
    wanted = [None if v is None else v.encode() for v in values[7:16]]
    assert [each.value for each in read] == wanted == [each.key for each in read]


def test_a_slice_with_headers() -> None:
    found: list[Row] = [(None, b"v", [(f"h{i}", str(i).encode())] * (i % 3)) for i in range(10)]
    batch = batch_of(found).slice(3, 5)
    for encoder in ENCODERS:
        _, body = encoded(encoder, columns_of(batch, "t"), range(5))
        assert [list(each.headers) for each in decoded(body, 5)] == [h for _, _, h in found[3:8]]


def test_rows_that_cannot_be_written_are_refused() -> None:
    with pytest.raises(SparkSourceError, match="no topic"):
        columns_of(batch_of([(None, b"v", [])], topic=pa.array([None], pa.string())), None)
    with pytest.raises(SparkSourceError, match="negative"):
        columns_of(batch_of([(None, b"v", [])], partition=pa.array([-1], pa.int32())), "t")
    headers = pa.array([[{"key": None, "value": b"x"}]], HEADERS)
    with pytest.raises(SparkSourceError, match="no key"):
        columns_of(pa.record_batch({"value": pa.array([b"v"]), "headers": headers}), "t")
