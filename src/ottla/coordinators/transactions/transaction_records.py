"""The records of `__transaction_state`: one per transactional id, in Kafka's schema."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from ottla.coordinators.shard import CoordinatorRecord
from ottla.wire.record_codec import (
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    CoordinatorKey,
    CoordinatorValue,
    MalformedRecord,
    Message,
    array,
    key_type,
    message,
    read_key,
    read_value,
    struct_of,
    wire,
    write_key,
    write_value,
)
from ottla.wire.types import TopicPartition

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME = -1


class TransactionState(IntEnum):
    """Numbers as in the records; `label` as Kafka's tools show it."""

    EMPTY = 0
    """The producer has an epoch and no transaction."""
    ONGOING = 1
    """Partitions were added."""
    PREPARE_COMMIT = 2
    """Decided, for good: the markers are being sent."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """Every partition has its marker."""
    COMPLETE_ABORT = 5
    DEAD = 6
    """Expired; never in a record."""
    PREPARE_EPOCH_FENCE = 7
    """Kafka's name for a step between two records; never in one."""

    @property
    def label(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))


PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """The state of a transactional id."""

    producer_id: int
    producer_epoch: int = NO_EPOCH
    state: TransactionState = TransactionState.EMPTY
    timeout_ms: int = 0
    partitions: frozenset[TopicPartition] = frozenset()
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id from the end of this transaction on, when the epochs of the present one are used up."""
    last_update_ms: int = 0
    start_ms: int = NO_TIME
    client_version: int = 0
    """transaction.version of the request that led to the present state."""
    last_producer_epoch: int = NO_EPOCH
    """The epoch before a bump that the producer itself asked for, and whose response it may have missed. Only in
    memory: a new producer of the same id must not inherit it."""


@message
class TransactionKey(CoordinatorKey):
    TYPE: ClassVar[int] = 0
    transactional_id: str = wire(STRING)


@message
class TransactionPartitions(Message):
    topic: str = wire(STRING)
    partitions: tuple[int, ...] = wire(array(INT32))


@message
class TransactionValue(CoordinatorValue):
    VERSION: ClassVar[int] = 1
    NEWEST: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 1
    producer_id: int = wire(INT64)
    previous_producer_id: int = wire(INT64, since=1, tag=0, default=NO_PRODUCER_ID)
    next_producer_id: int = wire(INT64, since=1, tag=1, default=NO_PRODUCER_ID)
    producer_epoch: int = wire(INT16)
    timeout_ms: int = wire(INT32)
    status: int = wire(INT8)
    topics: tuple[TransactionPartitions, ...] | None = wire(
        array(struct_of(TransactionPartitions), nullable=True)
    )
    last_update_ms: int = wire(INT64)
    start_ms: int = wire(INT64)
    client_version: int = wire(INT16, since=1, tag=2, default=0)


def transaction_record(
    transactional_id: str, transaction: TransactionMetadata
) -> CoordinatorRecord:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(number)
    assert transaction.state is not TransactionState.EMPTY or not topics, transaction
    value = TransactionValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        timeout_ms=transaction.timeout_ms,
        status=transaction.state,
        topics=None
        if transaction.state is TransactionState.EMPTY
        else tuple(
            TransactionPartitions(topic=topic, partitions=tuple(numbers))
            for topic, numbers in topics.items()
        ),
        last_update_ms=transaction.last_update_ms,
        start_ms=transaction.start_ms,
        client_version=transaction.client_version,
    )
    return CoordinatorRecord(_key(transactional_id), write_value(value))


def tombstone(transactional_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(_key(transactional_id), None)


def read_transaction(record: CoordinatorRecord) -> tuple[str, TransactionMetadata | None]:
    """(transactional id, its state; None if it was deleted). MalformedRecord if it says neither."""
    if key_type(record.key) != TransactionKey.TYPE:
        raise MalformedRecord(f"a key of type {key_type(record.key)}")
    transactional_id = read_key(TransactionKey, record.key).transactional_id
    if record.value is None:
        return transactional_id, None
    value = read_value(TransactionValue, record.value)
    try:
        state = TransactionState(value.status)
    except ValueError as error:
        raise MalformedRecord(str(error)) from error
    return transactional_id, TransactionMetadata(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        state=state,
        timeout_ms=value.timeout_ms,
        partitions=frozenset(
            TopicPartition(topic.topic, number)
            for topic in value.topics or ()
            for number in topic.partitions
        ),
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        last_update_ms=value.last_update_ms,
        start_ms=value.start_ms,
        client_version=value.client_version,
    )


def _key(transactional_id: str) -> bytes:
    return write_key(TransactionKey(transactional_id=transactional_id))
