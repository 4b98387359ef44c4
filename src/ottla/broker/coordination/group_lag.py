"""How far the groups that this broker coordinates are behind, in records and in seconds.

The coordinator knows what a group has committed. The leader of each partition knows where the log ends, and the first
record that is still unread: it is this broker, or it is asked with ListOffsets. Nothing is estimated. Where a leader does not
answer there is no number.

Nothing is measured unless somebody asks. Callers at the same time share one answer. The work for one answer is limited, and it
gives way to the other work of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from ottla.broker.cluster.broker_channels import BrokerChannels
from ottla.broker.cluster.metadata_cache import ClusterView
from ottla.broker.coordination.shard_host import Coordination
from ottla.broker.replication.first_unread import first_unread_by_level, question_about
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.coordinators.groups.group_descriptions import type_of
from ottla.coordinators.groups.group_shard import GroupShard
from ottla.coordinators.groups.offsets import OffsetAndMetadata
from ottla.log.errors import LogDirError
from ottla.log.unread import FirstRecord
from ottla.runtime.turns import Turns
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError
from ottla.wire.internal_topics import GROUP_METADATA_TOPIC
from ottla.wire.types import ZERO_UUID, TopicPartition

logger = logging.getLogger(__name__)

ASKED_AT_ONCE_MAX = 200
"""Partitions in one request. To read or write a request of that size takes a millisecond or two."""
TIMEOUT_S = 5.0
"""How long to wait for the leaders."""
LATEST = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
CONSUMER = -1


class PartitionLag(NamedTuple):
    """One group in one partition."""

    partition: TopicPartition
    committed: int
    end: int
    """The high watermark, as Kafka's tools use it."""
    unread: FirstRecord | None
    """What a consumer of the group would get next. None: it has read all there is."""
    unread_committed: FirstRecord | None
    """The same for a consumer that reads committed transactions only."""

    @property
    def records(self) -> int:
        return max(0, self.end - self.committed)


def seconds_behind(unread: FirstRecord | None, now_ms: int) -> float | None:
    """0 if nothing is unread. None: the record has no timestamp."""
    if unread is None:
        return 0.0
    return max(0.0, (now_ms - unread.timestamp) / 1000) if unread.timestamp >= 0 else None


class TopicLag:
    """One group in all partitions of a topic, added up."""

    __slots__ = ("committed", "largest", "oldest_ms", "records")

    def __init__(self) -> None:
        self.committed = 0
        self.records = 0
        self.largest = 0
        """Records in one partition."""
        self.oldest_ms: int | None = None
        """Timestamp of the oldest unread record. None: nothing is unread, or nothing of it has a timestamp."""

    def add(self, lag: PartitionLag) -> None:
        self.committed += lag.committed
        self.records += lag.records
        self.largest = max(self.largest, lag.records)
        if lag.unread is not None and lag.unread.timestamp >= 0:
            oldest = lag.unread.timestamp
            self.oldest_ms = oldest if self.oldest_ms is None else min(oldest, self.oldest_ms)


class GroupLag(NamedTuple):
    id: str
    state: str
    type: str
    protocol_type: str
    """Empty: offsets were committed without members."""
    members: int
    partitions: tuple[PartitionLag, ...]
    topics: Mapping[str, TopicLag]


class LagReport(NamedTuple):
    groups: tuple[GroupLag, ...]
    unknown: int
    """Partitions of groups whose leaders did not answer."""
    left_out: int
    """Partitions of groups beyond the limit."""


class _Group(NamedTuple):
    id: str
    state: str
    type: str
    protocol_type: str
    members: int
    offsets: dict[TopicPartition, int]


class _Answers:
    """What the leaders said."""

    def __init__(self) -> None:
        self.ends: dict[TopicPartition, int] = {}
        self.firsts: dict[tuple[int, TopicPartition, int], FirstRecord | None] = {}
        """By isolation level, partition, committed offset."""

    def lag(self, partition: TopicPartition, committed: int) -> PartitionLag | None:
        """None: it is not known."""
        end = self.ends.get(partition)
        if end is None:
            return None
        if committed >= end:
            return PartitionLag(partition, committed, end, None, None)
        keys = [(level, partition, committed) for level in (READ_UNCOMMITTED, READ_COMMITTED)]
        if not all(key in self.firsts for key in keys):
            return None
        return PartitionLag(partition, committed, end, *(self.firsts[key] for key in keys))


class GroupLagMeter:
    def __init__(
        self,
        node_id: int,
        coordination: Coordination,
        replicas: ReplicaManager,
        cluster: ClusterView,
        peers: BrokerChannels,
        partitions_max: int,
    ) -> None:
        self._node_id = node_id
        self._coordination = coordination
        self._replicas = replicas
        self._cluster = cluster
        self._peers = peers
        self._partitions_max = partitions_max
        self._under_way: asyncio.Task[LagReport] | None = None

    async def report(self) -> LagReport:
        if self._under_way is None:
            task = asyncio.get_running_loop().create_task(self._report(), name="group-lag")
            self._under_way = task
            task.add_done_callback(self._done)
        return await asyncio.shield(self._under_way)

    def _done(self, _: asyncio.Task[LagReport]) -> None:
        self._under_way = None

    def stop(self) -> None:
        if self._under_way is not None:
            self._under_way.cancel()

    async def _report(self) -> LagReport:
        turns = Turns(self._replicas.clock)
        groups, left_out = await self._groups(turns)
        by_leader: dict[int, dict[TopicPartition, set[int]]] = {}
        for group in groups:
            for partition, offset in group.offsets.items():
                leader = self._leader(partition)
                by_leader.setdefault(leader, {}).setdefault(partition, set()).add(offset)
                await turns.pause()
        answers = _Answers()
        await asyncio.gather(
            *(self._ask(leader, asked, answers) for leader, asked in by_leader.items())
        )
        found, unknown = [], 0
        for group in groups:
            known: list[PartitionLag] = []
            topics: dict[str, TopicLag] = {}
            for partition, committed in group.offsets.items():
                if (lag := answers.lag(partition, committed)) is not None:
                    known.append(lag)
                    topics.setdefault(partition.topic, TopicLag()).add(lag)
                await turns.pause()
            unknown += len(group.offsets) - len(known)
            found.append(GroupLag(*group[:5], tuple(known), topics))
        return LagReport(tuple(found), unknown, left_out)

    # -- what was committed -------------------------------------------------------------------------------

    async def _groups(self, turns: Turns) -> tuple[list[_Group], int]:
        """The groups of this coordinator with their offsets, and how many offsets are beyond the limit."""
        found: list[_Group] = []
        taken = left_out = 0
        for live in self._coordination.shards(GROUP_METADATA_TOPIC):
            if not live.is_loaded:
                continue
            shard = live.shard
            assert isinstance(shard, GroupShard)
            for group in list(shard.groups.values()):
                offsets = {}
                for partition, committed in list(shard.offsets.of(group.id).items()):
                    if self._exists(partition, committed):
                        offsets[partition] = committed.offset
                    await turns.pause()
                if taken + len(offsets) > self._partitions_max:
                    left_out += len(offsets)
                    offsets = {}
                taken += len(offsets)
                protocol_type = group.protocol_type or ""
                members = len(group.members)
                found.append(
                    _Group(
                        group.id, group.state_name, type_of(group), protocol_type, members, offsets
                    )
                )
        return found, left_out

    def _exists(self, partition: TopicPartition, committed: OffsetAndMetadata) -> bool:
        """Not where the topic was deleted: the coordinator is about to forget the offset."""
        topic = self._cluster.image.topics.get(partition.topic)
        return (
            topic is not None
            and partition.partition < len(topic.partitions)
            and committed.topic_id in (ZERO_UUID, topic.id)
        )

    def _leader(self, partition: TopicPartition) -> int:
        topic = self._cluster.image.topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return -1
        return topic.partitions[partition.partition].leader

    # -- what the leaders know ----------------------------------------------------------------------------

    async def _ask(
        self, leader: int, asked: Mapping[TopicPartition, set[int]], answers: _Answers
    ) -> None:
        """Whatever is answered in time counts."""
        if leader < 0:
            return
        try:
            async with asyncio.timeout(TIMEOUT_S):
                if leader == self._node_id:
                    await self._look(asked, answers)
                else:
                    await self._ask_other(leader, asked, answers)
        except (OSError, InvalidFrame, KafkaError) as error:
            logger.debug("leader did not tell the lag of groups leader=%d error=%s", leader, error)

    async def _look(self, asked: Mapping[TopicPartition, set[int]], answers: _Answers) -> None:
        """In the logs here."""
        turns = Turns(self._replicas.clock)
        for key, offsets in asked.items():
            await turns.pause()
            try:
                partition = self._replicas.get(*key)
                partition.leading()
                answers.ends[key] = end = partition.latest_offset(read_committed=False)
                for offset in offsets:
                    if offset < end:
                        await turns.pause()
                        found = await first_unread_by_level(partition, offset)
                        for level, record in enumerate(found):
                            answers.firsts[level, key, offset] = record
            except LogDirError as error:
                self._replicas.directory_failed(error)
            except KafkaError:
                continue

    async def _ask_other(
        self, leader: int, asked: Mapping[TopicPartition, set[int]], answers: _Answers
    ) -> None:
        for some in _in_parts(asked):
            ends = dict.fromkeys(some, LATEST)
            for key, found in await self._list_offsets(leader, ends, READ_UNCOMMITTED):
                answers.ends[key] = found.offset
            unread = {
                key: [offset for offset in asked[key] if offset < answers.ends.get(key, -1)]
                for key in some
            }
            while any(unread.values()):
                # A request names each partition once.
                offsets = {key: left.pop() for key, left in unread.items() if left}
                questions = {key: question_about(offset) for key, offset in offsets.items()}
                for level in (READ_UNCOMMITTED, READ_COMMITTED):
                    for key, found in await self._list_offsets(leader, questions, level):
                        answers.firsts[level, key, offsets[key]] = (
                            found if found.offset >= 0 else None
                        )

    async def _list_offsets(
        self, leader: int, asked: Mapping[TopicPartition, int], isolation_level: int
    ) -> list[tuple[TopicPartition, FirstRecord]]:
        """Those that the leader answers without an error."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for key, timestamp in asked.items():
            topics.setdefault(key.topic, []).append(
                {
                    "partition_index": key.partition,
                    "current_leader_epoch": -1,
                    "timestamp": timestamp,
                }
            )
        fields = {
            "replica_id": CONSUMER,
            "isolation_level": isolation_level,
            "topics": [{"name": name, "partitions": each} for name, each in topics.items()],
        }
        answer = await self._peers.request(leader, ApiKey.LIST_OFFSETS, fields, timeout_s=TIMEOUT_S)
        return [
            (
                TopicPartition(topic.name, found.partition_index),
                FirstRecord(int(found.timestamp), int(found.offset)),
            )
            for topic in answer.topics
            for found in topic.partitions
            if int(found.error_code) == ErrorCode.NONE
        ]


def _in_parts(keys: Iterable[TopicPartition]) -> Iterator[list[TopicPartition]]:
    left = iter(keys)
    while part := list(islice(left, ASKED_AT_ONCE_MAX)):
        yield part
