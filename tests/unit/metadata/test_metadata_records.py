"""The metadata records on the wire: golden bytes from Kafka 4.3.1, and what must be refused."""

from __future__ import annotations

import dataclasses
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata import records as r
from ottla.wire.primitives import uvarint
from ottla.wire.record_codec import MalformedRecord, Reader, Writer, write_message

TOPIC = UUID(int=77)


def framed(key: int, version: int, body: bytes) -> bytes:
    return bytes([1]) + uvarint(key) + uvarint(version) + body


def test_a_noop_is_the_four_bytes_kafka_writes() -> None:
    assert r.encode(r.NoOpRecord()) == bytes.fromhex("01140000")


def test_a_feature_level_is_the_bytes_kafka_writes() -> None:
    record = r.FeatureLevelRecord(name="metadata.version", feature_level=30)
    expected = bytes.fromhex("010c0011") + b"metadata.version" + bytes.fromhex("001e00")
    assert r.encode(record) == expected
    assert r.decode(expected) == record


def test_an_empty_isr_is_written_and_an_absent_one_is_not() -> None:
    untouched = r.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=1)
    emptied = dataclasses.replace(untouched, isr=())
    assert r.decode(r.encode(untouched)).isr is None  # type: ignore[attr-defined]
    assert r.decode(r.encode(emptied)).isr == ()  # type: ignore[attr-defined]


def test_a_registration_change_takes_the_lowest_version_that_carries_it() -> None:
    def version(**changes: Any) -> int:
        return r.encode(r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2, **changes))[2]

    assert version(fenced=1) == 0
    assert version(in_controlled_shutdown=1) == 1
    assert version(log_dirs=(UUID(int=9),)) == 2
    assert version(cordoned_log_dirs=()) == 3


def test_an_older_version_reads_with_defaults_for_what_it_lacks() -> None:
    newest = r.RegisterBrokerRecord(
        broker_id=3,
        incarnation_id=UUID(int=1),
        broker_epoch=8,
        end_points=(r.Endpoint(name="PLAINTEXT", host="h", port=9092),),
        features=(),
        rack=None,
    )
    body = Writer()
    write_message(body, newest)
    assert r.decode(framed(0, 0, bytes(body.data))) == newest


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (b"\x02\x14\x00\x00", "frame version 2"),
        (b"\x01\x06\x00\x00", "unknown metadata record type 6"),
        (b"\x01\x7f\x00\x00", "unknown metadata record type 127"),
        (b"\x01\x14\x01\x00", "NoOpRecord version 1"),
        (b"\x01\x14\x00\x00\x00", "1 bytes after the end of NoOpRecord"),
        (b"\x01\x14\x00", "varint is cut short"),
        (b"\x01\x0c\x00\x00\x00\x1e\x00", "null where the schema has none"),
    ],
)
def test_what_is_not_a_known_record_is_refused_with_its_reason(
    value: bytes, complaint: str
) -> None:
    with pytest.raises(MalformedRecord, match=complaint):
        r.decode(value)


def test_a_huge_element_count_is_refused_before_anything_is_allocated() -> None:
    body = bytes(4) + TOPIC.bytes + b"\xff\xff\xff\xff\x0f"
    with pytest.raises(MalformedRecord, match="elements in"):
        r.decode(framed(3, 2, body))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_nothing_but_malformed_record(value: bytes) -> None:
    try:
        record = r.decode(value)
    except MalformedRecord:
        return
    assert r.decode(r.encode(record)) == record or record != record  # NaN quotas


INT32S = st.integers(-(2**31), 2**31 - 1)
IDS = st.tuples() | st.lists(INT32S, max_size=4).map(tuple)
UUIDS = st.integers(0, 2**128 - 1).map(lambda i: UUID(int=i))


@given(
    st.builds(
        r.PartitionChangeRecord,
        partition_id=INT32S,
        topic_id=UUIDS,
        isr=st.none() | IDS,
        leader=INT32S,
        replicas=st.none() | IDS,
        removing_replicas=st.none() | IDS,
        adding_replicas=st.none() | IDS,
        leader_recovery_state=st.integers(-1, 1),
        eligible_leader_replicas=st.none() | IDS,
        last_known_elr=st.none() | IDS,
        directories=st.none() | st.lists(UUIDS, max_size=3).map(tuple),
    )
)
def test_a_partition_change_comes_back_as_it_was_written(record: r.PartitionChangeRecord) -> None:
    assert r.decode(r.encode(record)) == record


def test_every_record_type_of_the_table_is_known_under_its_key() -> None:
    keys = [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 14, 15, *range(17, 29)]
    assert sorted(r.RECORD_TYPES) == keys


def test_varints_wider_than_five_bytes_are_refused() -> None:
    with pytest.raises(MalformedRecord):
        Reader(b"\x80\x80\x80\x80\x80\x01").uvarint()
