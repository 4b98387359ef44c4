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
from ottla.broker.replication.first_unread import first_unread, question_about
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.coordinators.groups.group_descriptions import type_of
from ottla.coordinators.groups.group_shard import GroupShard
from ottla.coordinators.groups.offsets import OffsetAndMetadata
from ottla.log.errors import LogDirError
from ottla.log.unread import FirstRecord
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError
from ottla.wire.internal_topics import GROUP_METADATA_TOPIC
from ottla.wire.types import ZERO_UUID, TopicPartition

logger = logging.getLogger(__name__)

ASKED_AT_ONCE_MAX = 200
"""Partitions in one request. To read or write a request of that size takes a millisecond or two."""
TURN_MAX = 200
"""Partitions looked at in one turn of the event loop."""
TIMEOUT_S = 2.0
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


class GroupLag(NamedTuple):
    id: str
    state: str
    type: str
    protocol_type: str
    """Empty: offsets were committed without members."""
    members: int
    partitions: tuple[PartitionLag, ...]


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
        groups, left_out = await self._groups()
        by_leader: dict[int, dict[TopicPartition, set[int]]] = {}
        for group in groups:
            for partition, offset in group.offsets.items():
                leader = self._leader(partition)
                by_leader.setdefault(leader, {}).setdefault(partition, set()).add(offset)
        answers = _Answers()
        await asyncio.gather(
            *(self._ask(leader, asked, answers) for leader, asked in by_leader.items())
        )
        found, unknown = [], 0
        for group in groups:
            lags = [answers.lag(*place) for place in group.offsets.items()]
            known = tuple(lag for lag in lags if lag is not None)
            unknown += len(lags) - len(known)
            found.append(GroupLag(*group[:5], known))
        return LagReport(tuple(found), unknown, left_out)

    # -- what was committed -------------------------------------------------------------------------------

    async def _groups(self) -> tuple[list[_Group], int]:
        """The groups of this coordinator with their offsets, and how many offsets are beyond the limit."""
        found: list[_Group] = []
        taken = left_out = in_turn = 0
        for live in self._coordination.shards(GROUP_METADATA_TOPIC):
            if not live.is_loaded:
                continue
            shard = live.shard
            assert isinstance(shard, GroupShard)
            for group in list(shard.groups.values()):
                offsets = dict(self._existing(shard.offsets.of(group.id)))
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
                in_turn += 1 + len(offsets)
                if in_turn >= TURN_MAX:
                    await asyncio.sleep(0)
                    in_turn = 0
        return found, left_out

    def _existing(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Iterator[tuple[TopicPartition, int]]:
        """Without those of deleted topics, which the coordinator is about to forget."""
        topics = self._cluster.image.topics
        for partition, committed in offsets.items():
            topic = topics.get(partition.topic)
            if (
                topic is not None
                and partition.partition < len(topic.partitions)
                and committed.topic_id in (ZERO_UUID, topic.id)
            ):
                yield partition, committed.offset

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
        for number, (key, offsets) in enumerate(asked.items()):
            if number % TURN_MAX == TURN_MAX - 1:
                await asyncio.sleep(0)
            try:
                partition = self._replicas.get(*key)
                partition.leading()
                answers.ends[key] = end = partition.latest_offset(read_committed=False)
                for offset in offsets:
                    for level in (READ_UNCOMMITTED, READ_COMMITTED) if offset < end else ():
                        answers.firsts[level, key, offset] = await first_unread(
                            partition, offset, read_committed=level == READ_COMMITTED
                        )
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
