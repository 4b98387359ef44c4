"""The records of `__consumer_offsets`, byte for byte."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from ottla.coordinators.groups.group_records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    SupportedProtocol,
    TopicIdPartitions,
    delete,
    put,
    read_record,
)
from ottla.coordinators.shard import CoordinatorRecord, partition_of
from ottla.wire.record_codec import (
    CoordinatorKey,
    CoordinatorValue,
    MalformedRecord,
    read_value,
    write_value,
)

ID = UUID(int=0x0102030405060708090A0B0C0D0E0F10)
ID_HEX = "0102030405060708090a0b0c0d0e0f10"

GOLDEN: list[tuple[CoordinatorKey, CoordinatorValue, str, str]] = [
    (
        OffsetCommitKey(group="g", topic="tt", partition=3),
        OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=7, topic_id=ID),
        "0001 0001 67 0002 7474 00000003",
        "0004 0000000000000005 00000002 02 6d 0000000000000007 01 00 10" + ID_HEX,
    ),
    (
        GroupMetadataKey(group="g"),
        GroupMetadataValue(
            protocol_type="c",
            generation=2,
            protocol="r",
            leader="l",
            current_state_timestamp=9,
            members=(
                MemberMetadata(
                    member_id="l",
                    client_id="i",
                    client_host="/h",
                    rebalance_timeout=3,
                    session_timeout=4,
                    subscription=b"S",
                    assignment=b"AA",
                ),
            ),
        ),
        "0002 0001 67",
        "0003 0001 63 00000002 0001 72 0001 6c 0000000000000009 00000001"
        "0001 6c ffff 0001 69 0002 2f68 00000003 00000004 00000001 53 00000002 4141",
    ),
    (
        ConsumerGroupMetadataKey(group_id="g"),
        ConsumerGroupMetadataValue(epoch=4, metadata_hash=1),
        "0003 0001 67",
        "0000 00000004 01 00 08 0000000000000001",
    ),
    (
        ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"),
        ConsumerGroupMemberMetadataValue(
            instance_id=None,
            rack_id="r",
            client_id="c",
            client_host="h",
            subscribed_topic_names=("t",),
            subscribed_topic_regex=None,
            rebalance_timeout_ms=5,
            server_assignor="u",
        ),
        "0005 0001 67 0001 6d",
        "0000 00 0272 0263 0268 02 0274 00 00000005 0275 00",
    ),
    (
        ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=4),
        "0006 0001 67",
        "0000 00000004 00",
    ),
    (
        ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m"),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=(TopicIdPartitions(topic_id=ID, partitions=(1, 2)),)
        ),
        "0007 0001 67 0001 6d",
        f"0000 02 {ID_HEX} 03 00000001 00000002 00 00",
    ),
    (
        ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=3,
            previous_member_epoch=2,
            state=1,
            assigned_partitions=(),
            partitions_pending_revocation=(TopicIdPartitions(topic_id=ID, partitions=(1,)),),
        ),
        "0008 0001 67 0001 6d",
        f"0000 00000003 00000002 01 01 02 {ID_HEX} 02 00000001 00 00",
    ),
    (
        ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="a*"),
        ConsumerGroupRegularExpressionValue(topics=("a",), version=8, timestamp=9),
        "0010 0001 67 0002 612a",
        "0000 02 0261 0000000000000008 0000000000000009 00",
    ),
]


@pytest.mark.parametrize(("key", "value", "key_hex", "value_hex"), GOLDEN)
def test_each_record_has_kafkas_bytes(
    key: CoordinatorKey, value: CoordinatorValue, key_hex: str, value_hex: str
) -> None:
    record = put(key, value)
    assert record.key == bytes.fromhex(key_hex)
    assert record.value == bytes.fromhex(value_hex)
    assert read_record(record) == (key, value)
    assert read_record(delete(key)) == (key, None)


@pytest.mark.parametrize("version", range(5))
def test_offsets_of_all_times_are_read(version: int) -> None:
    value = OffsetCommitValue(
        offset=5,
        leader_epoch=2 if version >= 3 else -1,
        metadata="m",
        commit_timestamp=7,
        expire_timestamp=8 if version == 1 else -1,
    )
    assert read_value(OffsetCommitValue, write_value(value, version)) == value


@pytest.mark.parametrize("version", range(5))
def test_groups_of_all_times_are_read(version: int) -> None:
    _, value, _, _ = GOLDEN[1]
    assert isinstance(value, GroupMetadataValue)
    read = read_value(GroupMetadataValue, write_value(value, version))
    assert (read.members[0].rebalance_timeout, read.current_state_timestamp) == (
        3 if version >= 1 else -1,
        9 if version >= 2 else -1,
    )


def test_a_classic_member_of_a_consumer_group_is_marked_as_kafka_does() -> None:
    _, value, _, value_hex = GOLDEN[3]
    assert isinstance(value, ConsumerGroupMemberMetadataValue)
    classic = ClassicMemberMetadata(
        session_timeout_ms=6, supported_protocols=(SupportedProtocol(name="r", metadata=b"S"),)
    )
    mixed = replace(value, classic_member_metadata=classic)
    raw = write_value(mixed)
    assert raw == bytes.fromhex(value_hex[:-2] + "01 00 0c 01 00000006 02 0272 0253 00 00")
    assert read_value(ConsumerGroupMemberMetadataValue, raw) == mixed


def test_the_oldest_keys_are_read_and_strange_ones_left_alone() -> None:
    record = put(OffsetCommitKey(group="g", topic="t", partition=0), GOLDEN[0][1])
    oldest = CoordinatorRecord(b"\x00\x00" + record.key[2:], record.value)
    assert read_record(oldest) == read_record(record)
    assert read_record(CoordinatorRecord(b"\x00\x0b\x00\x01g", b"\x00\x00")) is None


@pytest.mark.parametrize("cut", range(1, 12))
def test_cut_records_are_told_from_whole_ones(cut: int) -> None:
    for key, value, _, _ in GOLDEN:
        record = put(key, value)
        assert record.value is not None
        for broken in (
            CoordinatorRecord(record.key, record.value[:-cut]),
            CoordinatorRecord(record.key, record.value + bytes(cut)),
            CoordinatorRecord(record.key + bytes(cut), record.value),
        ):
            with pytest.raises(MalformedRecord):
                read_record(broken)


def test_a_version_of_the_future_is_not_guessed() -> None:
    with pytest.raises(MalformedRecord):
        read_value(OffsetCommitValue, b"\x00\x05" + bytes(40))


@pytest.mark.parametrize(
    ("group", "partition"),
    # Kafka: abs(hashCode) % 50, with Java's hash of the UTF-16 text.
    [
        ("", 0),
        ("g", 3),
        ("test-group", 12),
        ("ä", 28),
        ("𝄞", 44),
        ("consumers", 33),
        ("polygenelubricants", 0),
    ],
)
def test_a_group_is_found_where_java_would_look(group: str, partition: int) -> None:
    assert partition_of(group, 50) == partition


def test_a_member_is_read_that_apache_kafka_wrote() -> None:
    """Its 4.3 writes the tagged struct of members of the classic protocol also where it is null: as 0."""
    raw = bytes.fromhex(
        "000000000872646b61666b610b2f3132372e302e302e310218726561642d4b41464b412d636f6e666c75656e746e6577"
        "01000493e00001000100"
    )
    value = read_value(ConsumerGroupMemberMetadataValue, raw)
    assert value.subscribed_topic_names == ("read-KAFKA-confluentnew",)
    assert value.rebalance_timeout_ms == 300_000
    assert value.classic_member_metadata is None
