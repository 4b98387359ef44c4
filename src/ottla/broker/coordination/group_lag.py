"""How far the groups that this broker coordinates are behind, in records and in seconds.

The coordinator knows what a group has committed, and asks the leaders for the rest (`offset_lag`). Nothing is estimated.
Where a leader does not answer there is no number.

Nothing is measured unless somebody asks. Callers at the same time share one answer. The work for one answer is limited, and it
gives way to the other work of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from ottla.broker.cluster.metadata_cache import ClusterView
from ottla.broker.coordination.offset_lag import OffsetLag, PartitionLeaders
from ottla.broker.coordination.shard_host import Coordination
from ottla.coordinators.groups.group_descriptions import type_of
from ottla.coordinators.groups.group_shard import GroupShard
from ottla.coordinators.groups.offsets import OffsetAndMetadata
from ottla.runtime import Clock
from ottla.runtime.turns import Turns
from ottla.wire.internal_topics import GROUP_METADATA_TOPIC
from ottla.wire.types import ZERO_UUID, TopicPartition


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

    def add(self, lag: OffsetLag) -> None:
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
    partitions: tuple[OffsetLag, ...]
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


class GroupLagMeter:
    def __init__(
        self,
        clock: Clock,
        coordination: Coordination,
        cluster: ClusterView,
        leaders: PartitionLeaders,
        partitions_max: int,
    ) -> None:
        self._clock = clock
        self._coordination = coordination
        self._cluster = cluster
        self._leaders = leaders
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
        turns = Turns(self._clock)
        groups, left_out = await self._groups(turns)
        asked: dict[TopicPartition, set[int]] = {}
        for group in groups:
            for partition, offset in group.offsets.items():
                asked.setdefault(partition, set()).add(offset)
                await turns.pause()
        answers = await self._leaders.ask(asked)
        found, unknown = [], 0
        for group in groups:
            known: list[OffsetLag] = []
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
