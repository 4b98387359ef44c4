"""What consumers put into the opaque fields of the classic protocol: a member's subscription and its assignment.

A coordinator of a classic group need not understand them, with two exceptions. Offsets of a topic that no member of a
group reads may expire. And a group that changes its protocol (`migration`) takes its members' subscriptions along.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.wire.record_codec import (
    INT16,
    INT32,
    NULLABLE_BYTES,
    NULLABLE_STRING,
    STRING,
    MalformedRecord,
    Message,
    Reader,
    Writer,
    array,
    message,
    read_message,
    struct_of,
    wire,
    write_message,
)

PROTOCOL_TYPE = "consumer"
NEWEST_VERSION = 3
"""Later versions can only add fields at the end, which are not read."""

PartitionsByTopic = Mapping[str, frozenset[int]]


@message
class NamedPartitions(Message):
    topic: str = wire(STRING)
    partitions: tuple[int, ...] | None = wire(array(INT32, nullable=True))


PARTITIONS = array(struct_of(NamedPartitions), nullable=True)


@message
class SubscribedTopics(Message):
    """How every version of a subscription begins."""

    topics: tuple[str, ...] | None = wire(array(STRING, nullable=True))


@message
class ConsumerProtocolSubscription(SubscribedTopics):
    user_data: bytes | None = wire(NULLABLE_BYTES)
    owned_partitions: tuple[NamedPartitions, ...] | None = wire(PARTITIONS, since=1, default=())
    generation_id: int = wire(INT32, since=2, default=-1)
    rack_id: str | None = wire(NULLABLE_STRING, since=3, default=None)


@message
class AssignedPartitions(Message):
    """How every version of an assignment begins."""

    assigned_partitions: tuple[NamedPartitions, ...] | None = wire(PARTITIONS)


@message
class ConsumerProtocolAssignment(AssignedPartitions):
    user_data: bytes | None = wire(NULLABLE_BYTES)


class Subscription(NamedTuple):
    version: int
    topics: tuple[str, ...]
    owned: PartitionsByTopic
    rack_id: str | None


def _versioned(data: bytes) -> tuple[int, Reader]:
    reader = Reader(data, flexible=False)
    version = int(INT16.read(reader))
    reader.version = min(max(version, 0), NEWEST_VERSION)
    return version, reader


def _by_topic(partitions: tuple[NamedPartitions, ...] | None) -> PartitionsByTopic:
    return {each.topic: frozenset(each.partitions or ()) for each in partitions or ()}


def read_subscription(metadata: bytes) -> Subscription | None:
    """None if it is not a consumer's subscription."""
    try:
        version, reader = _versioned(metadata)
        found = read_message(ConsumerProtocolSubscription, reader)
    except MalformedRecord:
        return None
    owned = _by_topic(found.owned_partitions)
    return Subscription(version, found.topics or (), owned, found.rack_id)


def subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """None if it is not a consumer's subscription. What follows the topics is not read."""
    try:
        _, reader = _versioned(metadata)
        return read_message(SubscribedTopics, reader).topics or ()
    except MalformedRecord:
        return None


def read_assignment(assignment: bytes) -> PartitionsByTopic | None:
    """None if it is not a consumer's assignment. A member that has none yet is assigned nothing."""
    if not assignment:
        return {}
    try:
        _, reader = _versioned(assignment)
        return _by_topic(read_message(AssignedPartitions, reader).assigned_partitions)
    except MalformedRecord:
        return None


def write_assignment(version: int, partitions: PartitionsByTopic) -> bytes:
    writer = Writer(flexible=False)
    INT16.write(writer, version)
    assigned = tuple(
        NamedPartitions(topic=topic, partitions=tuple(sorted(numbers)))
        for topic, numbers in sorted(partitions.items())
    )
    write_message(writer, ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=None))
    return bytes(writer.data)
