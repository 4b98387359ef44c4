"""The committed offsets of one shard, and those of open transactions, which count when these commit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from ottla.coordinators.groups.context import Topics
from ottla.coordinators.groups.group_records import OffsetCommitKey, OffsetCommitValue
from ottla.coordinators.shard import ProducerStamp
from ottla.wire.types import ZERO_UUID, TopicPartition


class OffsetAndMetadata(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int
    """When it expires, if the client said so (before KIP-211); else -1."""
    record_offset: int
    """The offset of its record: of two commits the later one counts."""
    topic_id: UUID
    """Of which topic of that name; zero in records of older versions."""


OffsetsByPartition = dict[TopicPartition, OffsetAndMetadata]


class GroupOffsets:
    """All offsets of one shard, by group. Changed by replay only."""

    def __init__(self) -> None:
        self._committed: dict[str, OffsetsByPartition] = {}
        self._pending: dict[int, dict[str, OffsetsByPartition]] = {}
        """By producer id: offsets written in transactions that have not ended."""
        self._open: dict[str, dict[int, None]] = {}
        """Producers with pending offsets, by group."""

    def of(self, group: str) -> OffsetsByPartition:
        return self._committed.get(group, {})

    def groups(self) -> list[str]:
        """All groups that have an offset, committed or pending."""
        return list(dict.fromkeys((*self._committed, *self._open)))

    def is_pending(self, group: str, partition: TopicPartition) -> bool:
        return any(
            partition in self._pending[producer].get(group, {})
            for producer in self._open.get(group, {})
        )

    def has_pending(self, group: str) -> bool:
        return group in self._open

    def partitions(self, group: str) -> Iterator[TopicPartition]:
        """Every partition with an offset, committed or pending, once."""
        known = dict.fromkeys(self.of(group))
        for producer in self._open.get(group, {}):
            known.update(dict.fromkeys(self._pending[producer].get(group, {})))
        return iter(known)

    def stale(self, group: str, topics: Topics) -> Iterator[TopicPartition]:
        """Partitions whose offsets are all of topics that no longer exist."""
        for partition in self.partitions(group):
            found = [self.of(group).get(partition)]
            found += [
                self._pending[each].get(group, {}).get(partition)
                for each in self._open.get(group, ())
            ]
            if all(is_stale(topics, partition, each) for each in found if each is not None):
                yield partition

    # -- replay

    def replay(
        self,
        offset: int,
        key: OffsetCommitKey,
        value: OffsetCommitValue | None,
        producer: ProducerStamp | None,
    ) -> None:
        partition = TopicPartition(key.topic, key.partition)
        if value is None:
            self._remove(key.group, partition)
            return
        committed = OffsetAndMetadata(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            offset,
            value.topic_id,
        )
        if producer is None:
            self._committed.setdefault(key.group, {})[partition] = committed
        elif producer.producer_id >= 0:
            # Former versions wrote some without a producer id, which no marker would ever end.
            pending = self._pending.setdefault(producer.producer_id, {})
            pending.setdefault(key.group, {})[partition] = committed
            self._open.setdefault(key.group, {})[producer.producer_id] = None

    def _remove(self, group: str, partition: TopicPartition) -> None:
        partitions = self._committed.get(group)
        if partitions is not None:
            partitions.pop(partition, None)
            if not partitions:
                del self._committed[group]
        for producer in self._open.get(group, {}):
            self._pending[producer].get(group, {}).pop(partition, None)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        for group, partitions in self._pending.pop(producer_id, {}).items():
            producers = self._open[group]
            del producers[producer_id]
            if not producers:
                del self._open[group]
            if committed:
                self._commit(group, partitions)

    def _commit(self, group: str, partitions: OffsetsByPartition) -> None:
        for partition, pending in partitions.items():
            kept = self._committed.setdefault(group, {})
            current = kept.get(partition)
            if current is None or pending.record_offset > current.record_offset:
                kept[partition] = pending


def is_stale(topics: Topics, partition: TopicPartition, committed: OffsetAndMetadata) -> bool:
    """Whether its topic is gone, though there may be a new one of the same name."""
    current = topics.id_of(partition.topic)
    return current is None or committed.topic_id not in (ZERO_UUID, current)
