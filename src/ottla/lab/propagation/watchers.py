"""v1: a partition's leader is whoever creates its ephemeral znode, and every replica watches that znode (P45).

No controller decides. When the znode goes, each replica reads the ISR, tries to create the znode, and reads who did.
Each acts on what it saw, when it saw it. Nothing fences a leader whose session is over and that does not know it yet.

Kafka's design of that time has no leader epoch. The product's log needs a number for each reign: it is the zxid that
created the leader's znode. No znode is written under a condition on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from ottla.lab.propagation.member import ZooKeeperMember
from ottla.lab.propagation.znodes import PartitionDecision, encoded, isr_path, leader_path
from ottla.lab.zookeeper.client import Watch, ZooKeeperClient
from ottla.lab.zookeeper.errors import NodeExists, NoNode
from ottla.lab.zookeeper.model import CreateNode, WatchEvent
from ottla.metadata.records import NO_LEADER
from ottla.wire.types import TopicPartition


class IsrWritten(NamedTuple):
    isr: tuple[int, ...]
    version: int


class WatchingMember(ZooKeeperMember):
    _watches: dict[TopicPartition, Watch]
    _begun: dict[TopicPartition, None]
    """Partitions whose first leader we have heard of, and not looked at yet."""

    @staticmethod
    def znodes_of(key: TopicPartition, replicas: tuple[int, ...]) -> list[CreateNode]:
        return [CreateNode(isr_path(key), encoded(replicas))]

    async def take_part(self) -> None:
        """Take the role that the znodes say in each partition of ours, or try to lead it."""
        self._watches, self._begun = {}, {}
        await self.learn_brokers(self.when(self._brokers_changed))
        await self.learn_topics(self.when(self._topics_changed))
        for topic in self.source.image.topics.values():
            await self._begin(TopicPartition(topic.name, n) for n in range(len(topic.partitions)))

    async def write_isr(self, decision: PartitionDecision) -> int:
        stat = await self.client.set(
            isr_path(decision.key), encoded(decision.isr), decision.version
        )
        return stat.version

    async def _brokers_changed(self) -> None:
        await self.learn_brokers(self.when(self._brokers_changed))

    async def _topics_changed(self) -> None:
        for topic in await self.learn_topics(self.when(self._topics_changed)):
            await self._begin(topic.partitions)

    # -- the first leader --------------------------------------------------------------------------

    async def _begin(self, keys: Iterable[TopicPartition]) -> None:
        """Roles in partitions of a new session. First roles are taken together, for nobody waits for them."""
        first = []
        for key in keys:
            decision = await self._first_role(key)
            if decision is None:
                continue
            if self.known(key).leader == NO_LEADER:
                first.append(decision)
            else:
                self.publish_decisions([decision])
        self.publish_decisions(first)

    async def _first_role(self, key: TopicPartition) -> PartitionDecision | None:
        """Follow the leader that there is. If there is none, the preferred replica leads, and the others watch for it."""
        replicas = self.known(key).replicas
        if self.id not in replicas:
            return None
        another_leads = replicas[0] != self.id and self.source.image.is_alive(replicas[0])
        if another_leads and await self.client.exists(leader_path(key), self._watch(key)) is None:
            return None
        try:
            return await self._role(key)
        except NoNode:
            return await self._elected(key)

    # -- watches -----------------------------------------------------------------------------------

    def _watch(self, key: TopicPartition) -> Watch:
        """One callback for each partition, so that the event of a znode that is watched twice is handled once."""
        found = self._watches.get(key)
        if found is None:
            found = self._watches[key] = partial(self._leader_changed, self.client, key)
        return found

    def _leader_changed(self, client: ZooKeeperClient, key: TopicPartition, _: WatchEvent) -> None:
        if client is not self.client or self.is_stopped:
            return
        if self.known(key).leader != NO_LEADER:
            self.work.do(partial(self._elect, key))
        else:
            if not self._begun:
                self.work.do(self._begin_some)
            self._begun[key] = None

    async def _begin_some(self) -> None:
        begun, self._begun = self._begun, {}
        await self._begin(begun)

    # -- another leader ----------------------------------------------------------------------------

    async def _elect(self, key: TopicPartition) -> None:
        decision = await self._elected(key)
        if decision is not None:
            self.publish_decisions([decision])

    async def _elected(self, key: TopicPartition) -> PartitionDecision | None:
        """The leader's znode is gone. Whoever creates it leads. A replica that is not in sync only watches for it."""
        data, stat = await self.client.get(isr_path(key))
        isr = tuple(json.loads(data))
        written: IsrWritten | None = None
        if self.id in isr:
            # The former leader's session is over, so it is not in sync.
            former = self.known(key).leader
            stay = tuple(id for id in isr if id == self.id or id != former)
            with suppress(NodeExists):
                await self.client.create(leader_path(key), encoded([self.id, stay]), ephemeral=True)
                written = IsrWritten(isr, stat.version)
                if stay != isr:
                    stat = await self.client.set(isr_path(key), encoded(stay), stat.version)
                    written = IsrWritten(stay, stat.version)
        try:
            return await self._role(key, written)
        except NoNode:
            if await self.client.exists(leader_path(key), self._watch(key)) is None:
                return None
            return await self._role(key)

    async def _role(
        self, key: TopicPartition, written: IsrWritten | None = None
    ) -> PartitionDecision | None:
        """Read who leads, and watch his znode. NoNode if nobody does."""
        data, stat = await self.client.get(leader_path(key), self._watch(key))
        leader, isr = json.loads(data)
        known = self.known(key)
        if (known.leader, known.leader_epoch) == (leader, stat.czxid):
            return None
        version = known.version
        if leader == self.id:
            isr, version = written or await self._read_isr(key)
        return known._replace(
            leader=leader, leader_epoch=stat.czxid, isr=tuple(isr), version=version
        )

    async def _read_isr(self, key: TopicPartition) -> IsrWritten:
        data, stat = await self.client.get(isr_path(key))
        return IsrWritten(tuple(json.loads(data)), stat.version)
