"""What is built can be read, by us and by two clients written elsewhere, and the reverse."""

from __future__ import annotations

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_python_records
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records.batch import (
    HEADER_BYTES,
    CorruptBatch,
    assign,
    batches,
    check_crc,
    read_batch,
    set_max_timestamp,
)
from ottla.records.compression import Codec
from ottla.records.record import (
    ControlType,
    Record,
    build,
    control_batch,
    control_type,
    records,
)
from ottla.wire.errors import KafkaError

MAYBE_BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=8), MAYBE_BYTES), max_size=3).map(tuple)
FIELDS = st.tuples(st.integers(-1, 2**45), MAYBE_BYTES, MAYBE_BYTES, HEADERS)
CODECS = st.sampled_from(Codec)


@st.composite
def record_lists(draw: st.DrawFn, gaps: bool = True) -> tuple[int, list[Record]]:
    base = draw(st.integers(0, 2**50))
    steps = st.integers(1, 1000) if gaps else st.just(1)
    fields = draw(st.lists(FIELDS, min_size=1, max_size=20))
    offset = base
    result = []
    for each in fields:
        result.append(Record(offset, *each))
        offset += draw(steps)
    return base, result


def opened(buf: bytes | bytearray) -> list[Record]:
    batch = read_batch(buf, 0)
    assert batch.size == len(buf)
    check_crc(buf, batch)
    return list(records(buf, batch))


@given(record_lists(), CODECS)
def test_what_was_built_is_read_back(given_records: tuple[int, list[Record]], codec: Codec) -> None:
    base, written = given_records
    assert opened(build(written, base_offset=base, codec=codec)) == written


@pytest.mark.parametrize("codec", Codec)
def test_large_values_pass_every_codec(codec: Codec) -> None:
    pattern = bytes(range(256)) * 40
    written = [Record(i, i, b"k%d" % i, pattern * (i % 7)) for i in range(100)]
    assert opened(build(written, codec=codec)) == written


@given(
    record_lists(gaps=False),
    st.sampled_from([Codec.NONE, Codec.GZIP]),
    st.sampled_from([(-1, -1, -1, False), (5, 3, 17, False), (2**40, 1, 2**31 - 1, True)]),
    st.sampled_from([aiokafka_records, kafka_python_records]),
)
def test_a_batch_equals_that_of_other_clients(given_records, codec, producer, client) -> None:
    """Without compression to the byte; with it, in what is read out of it."""
    base, written = given_records
    written = [r._replace(timestamp=max(0, r.timestamp)) for r in written]  # -1: they differ
    producer_id, epoch, sequence, transactional = producer
    theirs_builder = client.DefaultRecordBatchBuilder(
        2, codec, transactional, producer_id, epoch, sequence, 1 << 20
    )
    for record in written:
        theirs_builder.append(
            record.offset - base, record.timestamp, record.key, record.value, list(record.headers)
        )
    theirs = bytearray(theirs_builder.build())
    ours = build(
        [record._replace(offset=record.offset - base) for record in written],
        codec=codec,
        leader_epoch=read_batch(theirs, 0).leader_epoch,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    if codec == Codec.NONE:
        assert ours == theirs
    assert opened(theirs) == opened(ours)
    _assert_read_alike_by(client, ours, opened(ours))


@given(record_lists(), CODECS)
def test_aiokafka_reads_every_codec(given_records, codec: Codec) -> None:
    base, written = given_records
    _assert_read_alike_by(aiokafka_records, build(written, base_offset=base, codec=codec), written)


@given(record_lists(gaps=False), st.sampled_from(list(Codec)))
def test_every_codec_of_aiokafka_is_read(given_records, codec: Codec) -> None:
    base, written = given_records
    written = [r._replace(timestamp=max(0, r.timestamp)) for r in written]  # -1: they differ
    written = [record._replace(offset=record.offset - base) for record in written]
    builder = aiokafka_records.DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    for record in written:
        builder.append(
            record.offset, record.timestamp, record.key, record.value, list(record.headers)
        )
    assert opened(bytes(builder.build())) == written


def _assert_read_alike_by(client, buf: bytearray, expected: list[Record]) -> None:
    theirs = client.DefaultRecordBatch(bytes(buf))
    assert theirs.validate_crc()
    read = [
        Record(r.offset, r.timestamp, r.key, r.value, tuple((k, v) for k, v in r.headers))
        for r in theirs
    ]
    # A missing timestamp is None for one of the two clients, -1 in the format.
    read = [r if r.timestamp is not None else r._replace(timestamp=-1) for r in read]
    assert read == expected


@given(record_lists(), CODECS, st.data())
def test_any_changed_byte_under_the_crc_is_detected(given_records, codec, data) -> None:
    base, written = given_records
    buf = build(written, base_offset=base, codec=codec)
    at = data.draw(st.integers(17, len(buf) - 1))  # the CRC itself and all that it covers
    buf[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptBatch):
        check_crc(buf, read_batch(buf, 0))


@given(record_lists(), st.integers(0, 2**62), st.integers(0, 2**31 - 1))
def test_assigning_a_place_leaves_the_crc_good(given_records, offset: int, epoch: int) -> None:
    base, written = given_records
    buf = build(written, base_offset=base)
    assigned = assign(buf, read_batch(buf, 0), offset, epoch)
    assert assigned == read_batch(buf, 0)
    assert (assigned.base_offset, assigned.leader_epoch) == (offset, epoch)
    check_crc(buf, assigned)
    assert [r.offset - offset for r in records(buf, assigned)] == [r.offset - base for r in written]


@given(record_lists(), CODECS, st.integers(0, 2**45))
def test_log_append_time_stamps_every_record(given_records, codec: Codec, now_ms: int) -> None:
    base, written = given_records
    buf = build(written, base_offset=base, codec=codec)
    stamped = set_max_timestamp(buf, read_batch(buf, 0), now_ms)
    assert stamped == read_batch(buf, 0)
    assert opened(buf) == [record._replace(timestamp=now_ms) for record in written]


def test_batches_walk_a_file_and_may_stop_at_a_partial_end() -> None:
    parts = [build([Record(o, 1, None, b"v" * o)], base_offset=o) for o in (3, 5, 9)]
    whole = b"".join(parts)
    assert [batch.base_offset for batch in batches(whole)] == [3, 5, 9]
    assert [batch.base_offset for batch in batches(whole, len(parts[0]))] == [5, 9]
    for cut in range(len(whole) - len(parts[2]) + 1, len(whole)):
        assert [b.base_offset for b in batches(whole[:cut], allow_partial=True)] == [3, 5]
        assert [b.base_offset for b in batches(whole, 0, cut, allow_partial=True)] == [3, 5]
        with pytest.raises(CorruptBatch):
            list(batches(whole[:cut]))


@pytest.mark.parametrize(
    ("base", "count", "last"), [(-1, 3, -1), (0, 1, 0), (7, 3, 9), (2**31 - 2, 4, 1)]
)
def test_sequences_wrap(base: int, count: int, last: int) -> None:
    buf = build([Record(i, 0) for i in range(count)], producer_id=1, base_sequence=base)
    assert read_batch(buf, 0).last_sequence == last


def test_control_batches_carry_typed_records() -> None:
    buf = control_batch(
        [(ControlType.KRAFT_VERSION, b"a"), (ControlType.KRAFT_VOTERS, b"b")],
        timestamp=5,
        base_offset=10,
        leader_epoch=3,
    )
    batch = read_batch(buf, 0)
    assert batch.is_control
    assert not batch.is_transactional
    inside = list(records(buf, batch))
    assert [(r.offset, control_type(r), r.value) for r in inside] == [
        (10, ControlType.KRAFT_VERSION, b"a"),
        (11, ControlType.KRAFT_VOTERS, b"b"),
    ]


def test_a_transaction_marker_is_read_as_one_by_other_clients() -> None:
    buf = control_batch(
        [(ControlType.COMMIT, bytes(6))],
        timestamp=0,
        producer_id=4,
        producer_epoch=1,
        transactional=True,
    )
    batch = kafka_python_records.DefaultRecordBatch(bytes(buf))
    assert batch.is_control_batch
    assert batch.is_transactional
    assert next(iter(batch)).commit


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_a_control_record_without_a_type_is_corrupt(key: bytes | None) -> None:
    with pytest.raises(KafkaError):
        control_type(Record(0, 0, key))


def test_an_empty_batch_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build([])


@pytest.mark.parametrize("size", range(HEADER_BYTES))
def test_a_cut_header_is_corrupt_not_an_index_error(size: int) -> None:
    with pytest.raises(CorruptBatch):
        read_batch(bytes(size), 0)
