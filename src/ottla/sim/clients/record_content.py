"""What the records of the simulated producers contain: each value occurs once in a run.

In the compacted topic (`clients.compacted_table`) a record also has a key, and some records are tombstones.
"""

from __future__ import annotations

import zlib

from ottla.records.record import Record
from ottla.sim.oracle.history import TABLE
from ottla.wire.types import TopicPartition

NAME = "name"


def key_of(partition: TopicPartition, value: bytes) -> bytes | None:
    """In the table one of about a hundred keys, so that most newest values lie in closed segments. None elsewhere."""
    return value[-2:] if partition.topic == TABLE else None


def is_tombstone(partition: TopicPartition, value: bytes) -> bool:
    """In the table one record of six deletes its key: it has no value, and a header names it."""
    return partition.topic == TABLE and zlib.crc32(value) % 6 == 0


def record_of(partition: TopicPartition, number: int, timestamp_ms: int, value: bytes) -> Record:
    """The record that is written for this value."""
    key = key_of(partition, value)
    if is_tombstone(partition, value):
        return Record(number, timestamp_ms, key, None, ((NAME, value),))
    return Record(number, timestamp_ms, key, value)


def name_of(record: Record) -> bytes:
    """The value that the record was made for."""
    return record.value or dict(record.headers).get(NAME) or b""
