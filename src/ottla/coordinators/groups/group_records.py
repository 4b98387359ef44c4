"""The records of `__consumer_offsets`: committed offsets and groups, in Kafka's schemas.

Every version that Kafka has written is read; what is written is what Kafka 4.3 writes.
"""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from ottla.coordinators.shard import CoordinatorRecord
from ottla.wire.record_codec import (
    BYTES,
    INT8,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    UUID_TYPE,
    CoordinatorKey,
    CoordinatorValue,
    Message,
    array,
    key_type,
    message,
    read_key,
    read_value,
    struct_of,
    tagged_nullable_struct_of,
    wire,
    write_key,
    write_value,
)
from ottla.wire.types import ZERO_UUID

# -- committed offsets ------------------------------------------------------------------------------------


@message
class OffsetCommitKey(CoordinatorKey):
    TYPE: ClassVar[int] = 1  # type 0, of very old versions, has the same body
    group: str = wire(STRING)
    topic: str = wire(STRING)
    partition: int = wire(INT32)


@message
class OffsetCommitValue(CoordinatorValue):
    VERSION: ClassVar[int] = 4
    NEWEST: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 4
    offset: int = wire(INT64)
    leader_epoch: int = wire(INT32, since=3, default=-1)
    metadata: str = wire(STRING)
    commit_timestamp: int = wire(INT64)
    expire_timestamp: int = wire(INT64, since=1, until=1, default=-1)
    topic_id: UUID = wire(UUID_TYPE, since=4, tag=0, default=ZERO_UUID)


# -- groups of the classic protocol -----------------------------------------------------------------------


@message
class GroupMetadataKey(CoordinatorKey):
    TYPE: ClassVar[int] = 2
    group: str = wire(STRING)


@message
class MemberMetadata(Message):
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(NULLABLE_STRING, since=3, default=None)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    rebalance_timeout: int = wire(INT32, since=1, default=-1)
    session_timeout: int = wire(INT32)
    subscription: bytes = wire(BYTES)
    assignment: bytes = wire(BYTES)


@message
class GroupMetadataValue(CoordinatorValue):
    VERSION: ClassVar[int] = 3
    NEWEST: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 4
    protocol_type: str = wire(STRING)
    generation: int = wire(INT32)
    protocol: str | None = wire(NULLABLE_STRING)
    leader: str | None = wire(NULLABLE_STRING)
    current_state_timestamp: int = wire(INT64, since=2, default=-1)
    members: tuple[MemberMetadata, ...] = wire(array(struct_of(MemberMetadata)))


# -- groups of the consumer protocol (KIP-848) ------------------------------------------------------------


@message
class ConsumerGroupMetadataKey(CoordinatorKey):
    TYPE: ClassVar[int] = 3
    group_id: str = wire(STRING)


@message
class ConsumerGroupMetadataValue(CoordinatorValue):
    epoch: int = wire(INT32)
    metadata_hash: int = wire(INT64, tag=0, default=0)
    """Of the subscribed topics. If it changes, a new assignment is made."""


@message
class ConsumerGroupPartitionMetadataKey(CoordinatorKey):
    """Written before Kafka 4.1, where the hash replaced it. It is read so that it can be deleted."""

    TYPE: ClassVar[int] = 4
    group_id: str = wire(STRING)


@message
class ConsumerGroupMemberMetadataKey(CoordinatorKey):
    TYPE: ClassVar[int] = 5
    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


@message
class SupportedProtocol(Message):
    name: str = wire(STRING)
    metadata: bytes = wire(BYTES)


@message
class ClassicMemberMetadata(Message):
    session_timeout_ms: int = wire(INT32)
    supported_protocols: tuple[SupportedProtocol, ...] = wire(array(struct_of(SupportedProtocol)))


@message
class ConsumerGroupMemberMetadataValue(CoordinatorValue):
    instance_id: str | None = wire(NULLABLE_STRING)
    rack_id: str | None = wire(NULLABLE_STRING)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    subscribed_topic_names: tuple[str, ...] = wire(array(STRING))
    subscribed_topic_regex: str | None = wire(NULLABLE_STRING)
    rebalance_timeout_ms: int = wire(INT32)
    server_assignor: str | None = wire(NULLABLE_STRING)
    classic_member_metadata: ClassicMemberMetadata | None = wire(
        tagged_nullable_struct_of(ClassicMemberMetadata), tag=0, default=None
    )


@message
class ConsumerGroupTargetAssignmentMetadataKey(CoordinatorKey):
    TYPE: ClassVar[int] = 6
    group_id: str = wire(STRING)


@message
class ConsumerGroupTargetAssignmentMetadataValue(CoordinatorValue):
    assignment_epoch: int = wire(INT32)


@message
class TopicIdPartitions(Message):
    topic_id: UUID = wire(UUID_TYPE)
    partitions: tuple[int, ...] = wire(array(INT32))


@message
class ConsumerGroupTargetAssignmentMemberKey(CoordinatorKey):
    TYPE: ClassVar[int] = 7
    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


@message
class ConsumerGroupTargetAssignmentMemberValue(CoordinatorValue):
    topic_partitions: tuple[TopicIdPartitions, ...] = wire(array(struct_of(TopicIdPartitions)))


@message
class ConsumerGroupCurrentMemberAssignmentKey(CoordinatorKey):
    TYPE: ClassVar[int] = 8
    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


@message
class ConsumerGroupCurrentMemberAssignmentValue(CoordinatorValue):
    member_epoch: int = wire(INT32)
    previous_member_epoch: int = wire(INT32)
    state: int = wire(INT8)
    assigned_partitions: tuple[TopicIdPartitions, ...] = wire(array(struct_of(TopicIdPartitions)))
    partitions_pending_revocation: tuple[TopicIdPartitions, ...] = wire(
        array(struct_of(TopicIdPartitions))
    )


@message
class ConsumerGroupRegularExpressionKey(CoordinatorKey):
    TYPE: ClassVar[int] = 16
    group_id: str = wire(STRING)
    regular_expression: str = wire(STRING)


@message
class ConsumerGroupRegularExpressionValue(CoordinatorValue):
    topics: tuple[str, ...] = wire(array(STRING))
    version: int = wire(INT64)
    """Version of the metadata that the pattern was matched against."""
    timestamp: int = wire(INT64)


_SCHEMAS: dict[int, tuple[type[CoordinatorKey], type[CoordinatorValue] | None]] = {
    0: (OffsetCommitKey, OffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, None),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}


def read_record(record: CoordinatorRecord) -> tuple[CoordinatorKey, CoordinatorValue | None] | None:
    """Key and value (None: deleted), or None for a type of record that is not known here (of a share or streams group,
    or of a later version). MalformedRecord if the bytes do not follow their schema."""
    schemas = _SCHEMAS.get(key_type(record.key))
    if schemas is None:
        return None
    key = read_key(schemas[0], record.key)
    if record.value is None or schemas[1] is None:
        return key, None
    return key, read_value(schemas[1], record.value)


def put(
    key: CoordinatorKey, value: CoordinatorValue, version: int | None = None
) -> CoordinatorRecord:
    return CoordinatorRecord(write_key(key), write_value(value, version))


def delete(key: CoordinatorKey) -> CoordinatorRecord:
    return CoordinatorRecord(write_key(key), None)
