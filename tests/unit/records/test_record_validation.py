"""What a broker refuses from a client, with which code; and that forged contents never hurt a reader."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from time import perf_counter

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.batch import CorruptBatch, read_batch, validate_from_client
from ottla.records.compression import Codec
from ottla.records.record import Record, build, check_records, records
from ottla.wire.errors import ErrorCode, KafkaError

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def three(**options) -> bytearray:
    return build([Record(i, NOW_MS, b"k", b"value") for i in range(3)], **options)


def one() -> bytearray:
    return build([Record(0, NOW_MS, b"k", b"value")])


def patched(buf: bytearray, layout: str, at: int, value: int) -> bytearray:
    """With one field changed and the CRC made good again: a forger's batch, not a damaged one."""
    struct.pack_into(layout, buf, at, value)
    struct.pack_into(">I", buf, 17, crc32c(buf[21:]))
    return buf


def forged(body: bytes, count: int, *, attributes: int = 0) -> bytearray:
    """Any bytes as the inside of a batch of `count` records."""
    buf = bytearray(61) + body
    struct.pack_into(
        ">qiibIhiqqqhii",
        buf,
        0,
        *(0, len(buf) - 12, -1, 2, 0, attributes, count - 1, NOW_MS, NOW_MS, -1, -1, -1, count),
    )
    struct.pack_into(">I", buf, 17, crc32c(buf[21:]))
    return buf


BAD: dict[str, tuple[ErrorCode, Callable[[], bytearray]]] = {
    "nothing": (ErrorCode.INVALID_RECORD, bytearray),
    "part of a header": (ErrorCode.INVALID_RECORD, lambda: three()[:60]),
    "a batch cut short": (ErrorCode.INVALID_RECORD, lambda: three()[:-1]),
    "two batches": (ErrorCode.INVALID_RECORD, lambda: three() + three()),
    "a byte after the batch": (ErrorCode.INVALID_RECORD, lambda: three() + b"\0"),
    "format v0": (ErrorCode.INVALID_RECORD, lambda: patched(three(), ">b", 16, 0)),
    "format v1": (ErrorCode.INVALID_RECORD, lambda: patched(three(), ">b", 16, 1)),
    "format v3": (ErrorCode.CORRUPT_MESSAGE, lambda: patched(three(), ">b", 16, 3)),
    "length below a header": (ErrorCode.CORRUPT_MESSAGE, lambda: patched(three(), ">i", 8, 48)),
    "negative length": (ErrorCode.CORRUPT_MESSAGE, lambda: patched(three(), ">i", 8, -1)),
    "wrong CRC": (ErrorCode.CORRUPT_MESSAGE, lambda: three()[:-1] + b"!"),
    "too large": (
        ErrorCode.MESSAGE_TOO_LARGE,
        lambda: build([Record(0, NOW_MS, None, bytes(2000))]),
    ),
    "codec 5": (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, lambda: patched(three(), ">h", 21, 5)),
    "codec 7": (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, lambda: patched(three(), ">h", 21, 7)),
    "control batch": (ErrorCode.INVALID_RECORD, lambda: three(control=True)),
    "delete horizon": (ErrorCode.INVALID_RECORD, lambda: patched(three(), ">h", 21, 0x40)),
    "unknown attribute": (ErrorCode.INVALID_RECORD, lambda: patched(three(), ">h", 21, 0x100)),
    "LogAppendTime": (ErrorCode.INVALID_TIMESTAMP, lambda: three(timestamp_type=1)),
    "base offset": (ErrorCode.INVALID_RECORD, lambda: patched(three(), ">q", 0, 1)),
    "offset delta": (ErrorCode.INVALID_RECORD, lambda: patched(three(), ">i", 23, 3)),
    "negative offset delta": (ErrorCode.INVALID_RECORD, lambda: patched(three(), ">i", 23, -1)),
    "no records": (ErrorCode.INVALID_RECORD, lambda: forged(b"", 0)),
    "negative count": (ErrorCode.INVALID_RECORD, lambda: patched(three(), ">i", 57, -3)),
    "wrong count": (ErrorCode.INVALID_RECORD, lambda: patched(three(), ">i", 57, 2)),
    "impossible count": (ErrorCode.INVALID_RECORD, lambda: forged(bytes(70), 11)),
    "impossible packed count": (
        ErrorCode.INVALID_RECORD,
        lambda: forged(bytes(70), 2**31 - 1, attributes=4),
    ),
    "packed nothing": (ErrorCode.INVALID_RECORD, lambda: forged(b"", 1, attributes=1)),
    "negative sequence": (ErrorCode.INVALID_RECORD, lambda: three(producer_id=1, producer_epoch=0)),
    "negative producer epoch": (
        ErrorCode.INVALID_RECORD,
        lambda: three(producer_id=1, base_sequence=0),
    ),
    "producer id -2": (ErrorCode.INVALID_RECORD, lambda: three(producer_id=-2)),
    "transaction without producer": (ErrorCode.INVALID_RECORD, lambda: three(transactional=True)),
    "first record too long": (ErrorCode.INVALID_RECORD, lambda: patched(one(), ">B", 61, 127)),
    "first record too short": (ErrorCode.INVALID_RECORD, lambda: patched(one(), ">B", 61, 2)),
    "first record of negative size": (ErrorCode.INVALID_RECORD, lambda: forged(b"\x01" * 40, 1)),
    "first record without an end": (ErrorCode.INVALID_RECORD, lambda: forged(b"\xff" * 40, 1)),
    "timestamp delta without an end": (
        ErrorCode.INVALID_RECORD,
        lambda: forged(b"\x4e\x00" + b"\xff" * 38, 1),
    ),
    "first offset delta 1": (ErrorCode.INVALID_RECORD, lambda: patched(one(), ">B", 64, 2)),
    "too old": (
        ErrorCode.INVALID_TIMESTAMP,
        lambda: build([Record(0, NOW_MS - HOUR_MS - 1), Record(1, NOW_MS)]),
    ),
    "from the future": (
        ErrorCode.INVALID_TIMESTAMP,
        lambda: build([Record(0, NOW_MS), Record(1, NOW_MS + HOUR_MS + 1)]),
    ),
}


def validated(buf: bytearray):
    return validate_from_client(
        memoryview(buf),
        max_bytes=1000,
        now_ms=NOW_MS,
        timestamp_before_max_ms=HOUR_MS,
        timestamp_after_max_ms=HOUR_MS,
    )


@pytest.mark.parametrize("case", BAD)
def test_a_bad_batch_gets_its_code(case: str) -> None:
    code, make = BAD[case]
    with pytest.raises(KafkaError) as refused:
        validated(make())
    assert refused.value.code == code
    assert refused.value.message


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(
    "producer",
    [
        {},
        {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0},
        {"producer_id": 7, "producer_epoch": 9, "base_sequence": 2**31 - 1, "transactional": True},
    ],
)
def test_a_good_batch_is_taken(codec: Codec, producer: dict[str, int]) -> None:
    buf = three(codec=codec, **producer)
    assert validated(buf) == read_batch(buf, 0)
    check_records(buf, read_batch(buf, 0))


@pytest.mark.parametrize(
    "timestamps", [(-1, -1), (NOW_MS - HOUR_MS, NOW_MS), (NOW_MS, NOW_MS + HOUR_MS), (NOW_MS, -1)]
)
def test_timestamps_at_the_limits_or_absent_are_taken(timestamps: tuple[int, int]) -> None:
    buf = build([Record(i, each) for i, each in enumerate(timestamps)])
    assert validated(buf) == read_batch(buf, 0)


def test_timestamps_are_unchecked_without_limits() -> None:
    buf = build([Record(0, 0)])
    assert validate_from_client(buf, max_bytes=1000, now_ms=NOW_MS) == read_batch(buf, 0)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_with_a_kafka_error_only(body: bytes, noise: bytes) -> None:
    for buf in (bytearray(body), bytearray(61) + noise, three()[:21] + noise):
        with pytest.raises(KafkaError):
            validated(buf)


@settings(max_examples=300)
@given(st.binary(min_size=1, max_size=120), st.integers(1, 12), st.sampled_from(Codec))
def test_forged_contents_are_read_or_refused_never_worse(body, count, codec) -> None:
    buf = forged(body, count, attributes=codec)
    batch = read_batch(buf, 0)
    try:
        assert len(list(records(buf, batch))) == count
    except CorruptBatch:
        with pytest.raises(KafkaError) as refused:
            check_records(buf, batch)
        assert refused.value.code == ErrorCode.INVALID_RECORD
    except KafkaError as error:
        assert error.code == ErrorCode.MESSAGE_TOO_LARGE


@settings(max_examples=300)
@given(st.data())
def test_a_batch_with_one_forged_byte_is_read_or_refused(data: st.DataObject) -> None:
    body = bytes(build([Record(i, NOW_MS + i, b"k", b"v", (("h", b"x"),)) for i in range(3)])[61:])
    at = data.draw(st.integers(0, len(body) - 1))
    buf = forged(body[:at] + data.draw(st.binary(min_size=1, max_size=1)) + body[at + 1 :], 3)
    try:
        assert len(list(records(buf, read_batch(buf, 0)))) == 3
    except CorruptBatch as refused:
        assert refused.why


INNER = {
    "key longer than the record": b"\x0e\x00\x00\x00\x7f\x01\x00\x00",
    "key size -2": b"\x0c\x00\x00\x00\x03\x01\x00",
    "more headers than bytes": b"\x0c\x00\x00\x00\x01\x01\x7e",
    "negative header count": b"\x0c\x00\x00\x00\x01\x01\x01",
    "header without a key": b"\x10\x00\x00\x00\x01\x01\x02\x01\x01",
    "record longer than its content": b"\x10\x00\x00\x00\x01\x01\x00\x00\x00",
    "offset delta past the last": b"\x0c\x00\x00\x02\x01\x01\x00",
    "number of 33 bits": b"\x14\x00\x00\xff\xff\xff\xff\x1f\x01\x01\x00",
    "number of 6 bytes": b"\x16\x00\x00\x80\x80\x80\x80\x80\x00\x01\x01\x00",
}


@pytest.mark.parametrize("case", INNER)
def test_inner_sizes_and_counts_are_held_against_the_bytes(case: str) -> None:
    buf = forged(INNER[case], 1)
    with pytest.raises(CorruptBatch):
        list(records(buf, read_batch(buf, 0)))


def test_offsets_inside_a_batch_must_rise() -> None:
    record = b"\x0c\x00\x00\x00\x01\x01\x00"
    buf = forged(record * 2, 2)
    with pytest.raises(CorruptBatch, match="follows"):
        list(records(buf, read_batch(buf, 0)))


def test_header_keys_that_are_no_utf8_do_not_hide_the_batch() -> None:
    buf = forged(b"\x12\x00\x00\x00\x01\x01\x02\x02\xff\x01", 1)
    assert next(records(buf, read_batch(buf, 0))).headers == (("\ufffd", None),)


def test_validation_costs_no_step_per_record() -> None:
    """The CRC and a fixed number of steps: ten thousand records take about as long as one of that size."""
    many = build([Record(i, NOW_MS, None, bytes(100)) for i in range(10_000)])
    single = build([Record(0, NOW_MS, None, random.Random(1).randbytes(len(many) - 75))])

    def seconds(buf: bytearray) -> float:
        best = 1.0
        for _ in range(50):
            start = perf_counter()
            validate_from_client(buf, max_bytes=1 << 21)
            best = min(best, perf_counter() - start)
        return best

    assert seconds(many) < 3 * seconds(single) + 20e-6
