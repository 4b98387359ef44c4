"""A cluster as the planner sees it: brokers with racks and disks, partitions with their bytes and their traffic.

A partition that is being moved has its old and its new replicas meanwhile. Plans take it as it will be at the end: else they
would take all of them for its replicas, and keep them.

Everything but the traffic comes through Kafka's protocol. The traffic is what ottla's brokers measure; of other brokers
it is unknown, and plans balance the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import NamedTuple

from ottla.balance.departures import settled
from ottla.balance.model import BalancedBroker, BalancedPartition, Standing
from ottla.client.admin import Admin, DescribedTopic, LogDir, Place
from ottla.client.client import Client
from ottla.client.connections import Unreachable
from ottla.client.model import Reassignment
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.internal_topics import UNLISTED_TOPICS

PATIENCE_S = 5.0


class ClusterPicture(NamedTuple):
    brokers: list[BalancedBroker]
    partitions: list[BalancedPartition]
    """As they will be when the moves that go on are over."""
    moving: Mapping[Place, Reassignment]
    """These moves."""

    @property
    def members(self) -> list[BalancedBroker]:
        return [each for each in self.brokers if each.standing is Standing.MEMBER]

    def within(self, ids: Collection[int]) -> list[BalancedBroker]:
        """The brokers, of which only these may carry something. KafkaError if one of them is unknown or down."""
        living = {each.id for each in self.brokers if each.standing is Standing.MEMBER}
        for id in sorted(set(ids) - living):
            known = any(each.id == id for each in self.brokers)
            what = "does not answer" if known else "is no broker of this cluster"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"broker {id} {what}")
        return [
            each._replace(standing=Standing.LEAVING)
            if each.standing is Standing.MEMBER and each.id not in ids
            else each
            for each in self.brokers
        ]


async def cluster_picture(
    client: Client,
    topics: Collection[str] | None = None,
    rates: Mapping[Place, float] | None = None,
) -> ClusterPicture:
    """Of these topics, or of all, internal ones too. KafkaError if one does not exist."""
    admin = Admin(client)
    moving = await _moving(client)
    cluster = await client.describe_cluster()
    living = {each.id for each in (await client.metadata([])).brokers}
    dirs = await _log_dirs(admin, sorted(living))
    brokers = [
        BalancedBroker(
            each.id,
            each.rack,
            _capacity(dirs.get(each.id, ())),
            Standing.MEMBER
            if not each.fenced and _takes_replicas(dirs.get(each.id, ()))
            else Standing.ABSENT,
        )
        for each in sorted(cluster.brokers)
    ]
    sizes: dict[Place, int] = {}
    for directories in dirs.values():
        for directory in directories:
            for replica in directory.replicas:
                if not replica.future:
                    sizes[replica.place] = max(sizes.get(replica.place, 0), replica.size)
    known = {} if rates is None else rates
    partitions = [
        BalancedPartition(
            topic.name,
            each.partition,
            each.replicas,
            each.leader,
            sizes.get((topic.name, each.partition), 0),
            known.get((topic.name, each.partition), 0.0),
        )
        for topic in await _topics(admin, topics)
        for each in topic.partitions
    ]
    moving |= await _moving(client)  # also what has begun while the replicas were asked for
    ends = {place: change.goal for place, change in moving.items()}
    return ClusterPicture(brokers, settled(partitions, ends), moving)


async def _moving(client: Client) -> dict[Place, Reassignment]:
    return {(each.topic, each.partition): each for each in await client.reassignments()}


async def _topics(admin: Admin, wanted: Collection[str] | None) -> list[DescribedTopic]:
    if wanted is None:
        listed = {each.name for each in await admin.list_topics()}
        found = await admin.describe_topics(listed | UNLISTED_TOPICS)
    else:
        found = await admin.describe_topics(wanted)
    topics = []
    for name, topic in sorted(found.items()):
        if isinstance(topic, DescribedTopic):
            topics.append(topic)
        elif wanted is not None:
            raise KafkaError(topic.code, f"topic {name}")
        elif topic.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # gone, or never made
            raise topic
    return topics


async def _log_dirs(admin: Admin, brokers: Collection[int]) -> dict[int, list[LogDir]]:
    """Of those that answer."""

    async def ask(broker: int) -> list[LogDir] | None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await admin.log_dirs(broker)
        except (OSError, Unreachable):
            return None

    answers = await asyncio.gather(*(ask(broker) for broker in brokers))
    return {id: found for id, found in zip(brokers, answers, strict=True) if found is not None}


def _takes_replicas(directories: Collection[LogDir]) -> bool:
    """A broker all of whose directories are cordoned keeps what it has, and gets nothing more (KIP-1066)."""
    return any(not each.cordoned for each in directories)


def _capacity(directories: Collection[LogDir]) -> int | None:
    """What logs take now, and what is free."""
    total = 0
    for each in directories:
        if each.error is not None:
            continue
        if each.usable_bytes is None:
            return None
        total += each.usable_bytes + sum(replica.size for replica in each.replicas)
    return total or None
