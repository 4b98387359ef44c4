"""The consumer's own words inside the classic protocol: what a member subscribes to, and what it is assigned.

To a coordinator of a classic group both are opaque; but offsets of a topic that nobody of a group reads may expire,
and a group that goes from one protocol to the other (`migration`) must be understood. Versions 0 to 3 are Kafka's:
1 added the partitions owned, 2 their generation, 3 the rack; what later ones may add comes last.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

PROTOCOL_TYPE = "consumer"

PartitionsByTopic = Mapping[str, frozenset[int]]
"""Partitions by topic name."""


class Subscription(NamedTuple):
    version: int
    topics: tuple[str, ...]
    owned: PartitionsByTopic
    rack_id: str | None


class _Malformed(Exception):
    pass


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def int16(self) -> int:
        return self._number(">h", 2)

    def int32(self) -> int:
        return self._number(">i", 4)

    def _number(self, form: str, size: int) -> int:
        return int(struct.unpack(form, self._take(size))[0])

    def _take(self, size: int) -> bytes:
        taken = self._data[self._position : self._position + size]
        if size < 0 or len(taken) < size:
            raise _Malformed
        self._position += size
        return taken

    def count(self) -> int:
        """Of an array; nothing in it takes less than a byte."""
        count = self.int32()
        if count > len(self._data):
            raise _Malformed
        return max(count, 0)

    def string(self) -> str:
        return self._take(self.int16()).decode()

    def nullable_string(self) -> str | None:
        length = self.int16()
        return None if length < 0 else self._take(length).decode()

    def skip_bytes(self) -> None:
        self._take(max(self.int32(), 0))

    def partitions(self) -> PartitionsByTopic:
        return {
            self.string(): frozenset(self.int32() for _ in range(self.count()))
            for _ in range(self.count())
        }


def read_subscription(metadata: bytes) -> Subscription | None:
    """None if it is not a consumer's subscription."""
    reader = _Reader(metadata)
    owned: PartitionsByTopic = {}
    rack_id = None
    try:
        version = reader.int16()
        topics = tuple(reader.string() for _ in range(reader.count()))
        reader.skip_bytes()
        if version >= 1:
            owned = reader.partitions()
        if version >= 2:
            reader.int32()
        if version >= 3:
            rack_id = reader.nullable_string()
    except (_Malformed, UnicodeDecodeError):
        return None
    return Subscription(version, topics, owned, rack_id)


def subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """None if it is not a consumer's subscription; whatever follows the topics is left alone."""
    reader = _Reader(metadata)
    try:
        reader.int16()
        return tuple(reader.string() for _ in range(reader.count()))
    except (_Malformed, UnicodeDecodeError):
        return None


def read_assignment(assignment: bytes) -> PartitionsByTopic | None:
    """None if it is not a consumer's assignment; a member that has none yet is assigned nothing."""
    if not assignment:
        return {}
    reader = _Reader(assignment)
    try:
        reader.int16()
        return reader.partitions()
    except (_Malformed, UnicodeDecodeError):
        return None


def write_assignment(version: int, partitions: PartitionsByTopic) -> bytes:
    parts = [struct.pack(">hi", version, len(partitions))]
    for topic, numbers in sorted(partitions.items()):
        name = topic.encode()
        parts.append(struct.pack(">h", len(name)) + name)
        parts.append(struct.pack(f">i{len(numbers)}i", len(numbers), *sorted(numbers)))
    return b"".join(parts) + struct.pack(">i", -1)  # no user data
