"""What the leaders of partitions know about committed offsets: where the log ends, and which record is the next.

The leader of a partition is this broker, or another one that is asked with ListOffsets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from ottla.broker.cluster.broker_channels import BrokerChannels
from ottla.broker.cluster.metadata_cache import ClusterView
from ottla.broker.replication.first_unread import first_unread_by_level, question_about
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.log.errors import LogDirError
from ottla.log.unread import FirstRecord
from ottla.runtime.turns import Turns
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError
from ottla.wire.types import TopicPartition

logger = logging.getLogger(__name__)

ASKED_AT_ONCE_MAX = 200
"""Partitions in one request. To read or write a request of that size takes a millisecond or two."""
TIMEOUT_S = 1.0
"""How long to wait for the leaders."""
LATEST = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
CONSUMER = -1


class OffsetLag(NamedTuple):
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


class LeaderAnswers:
    """What the leaders said."""

    def __init__(self) -> None:
        self.ends: dict[TopicPartition, int] = {}
        self.firsts: dict[tuple[int, TopicPartition, int], FirstRecord | None] = {}
        """By isolation level, partition, committed offset."""

    def lag(self, partition: TopicPartition, committed: int) -> OffsetLag | None:
        """None: it is not known."""
        end = self.ends.get(partition)
        if end is None:
            return None
        if committed >= end:
            return OffsetLag(partition, committed, end, None, None)
        keys = [(level, partition, committed) for level in (READ_UNCOMMITTED, READ_COMMITTED)]
        if not all(key in self.firsts for key in keys):
            return None
        return OffsetLag(partition, committed, end, *(self.firsts[key] for key in keys))


class PartitionLeaders:
    """Asks the leaders, each for all of its partitions."""

    def __init__(
        self,
        node_id: int,
        replicas: ReplicaManager,
        cluster: ClusterView,
        peers: BrokerChannels,
    ) -> None:
        self._node_id = node_id
        self._replicas = replicas
        self._cluster = cluster
        self._peers = peers

    async def ask(self, offsets: Mapping[TopicPartition, set[int]]) -> LeaderAnswers:
        turns = Turns(self._replicas.clock)
        by_leader: dict[int, dict[TopicPartition, set[int]]] = {}
        for partition, asked in offsets.items():
            leader = self._cluster.leader_of(partition.topic, None, partition.partition)
            if leader is not None and leader[0] >= 0:
                by_leader.setdefault(leader[0], {})[partition] = asked
            await turns.pause()
        answers = LeaderAnswers()
        await asyncio.gather(
            *(self._ask(leader, asked, answers) for leader, asked in by_leader.items())
        )
        return answers

    async def _ask(
        self, leader: int, asked: Mapping[TopicPartition, set[int]], answers: LeaderAnswers
    ) -> None:
        """Whatever is answered in time counts."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                if leader == self._node_id:
                    await self._look(asked, answers)
                else:
                    await self._ask_other(leader, asked, answers)
        except (OSError, InvalidFrame, KafkaError) as error:
            logger.debug("leader did not tell the lag of groups leader=%d error=%s", leader, error)

    async def _look(self, asked: Mapping[TopicPartition, set[int]], answers: LeaderAnswers) -> None:
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
        self, leader: int, asked: Mapping[TopicPartition, set[int]], answers: LeaderAnswers
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
