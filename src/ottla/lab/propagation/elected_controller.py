"""One broker decides for all: the controller, elected through an ephemeral znode (v2 and v3, P46 and P47).

It watches the znodes of the brokers. It writes each decision to the partition's state znode before it tells any broker
of it. As Kafka's did until 1.1, it works on one partition after the other: read its state, decide, write it, each
operation to its end. A new controller reads the state of every partition before it decides anything.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable
from contextlib import suppress

from ottla.lab.propagation.member import ZooKeeperMember
from ottla.lab.propagation.notification import Notification
from ottla.lab.propagation.znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    FIRST_EPOCH,
    TOPICS,
    PartitionDecision,
    RegisteredBroker,
    encoded,
    state_path,
    undecided,
)
from ottla.lab.zookeeper.errors import BadVersion, NodeExists, NoNode
from ottla.lab.zookeeper.model import CreateNode
from ottla.metadata.records import NO_LEADER
from ottla.wire.types import TopicPartition


class ControllerContext:
    """What the active controller knows. It is read from ZooKeeper when it is elected."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.brokers: dict[int, RegisteredBroker] = {}
        self.states: dict[TopicPartition, PartitionDecision] = {}
        self.topics: dict[str, None] = {}

    def elected(self, state: PartitionDecision) -> PartitionDecision:
        """The first replica that is alive and in sync leads. With nobody in sync alive, nobody leads."""
        alive = tuple(id for id in state.isr if id in self.brokers)
        leader = state.leader
        if leader not in self.brokers:
            leader = next((id for id in state.replicas if id in alive), NO_LEADER)
        return state._replace(
            leader=leader,
            leader_epoch=state.leader_epoch + (leader != state.leader),
            isr=alive or state.isr,  # the last one in sync stays, for it has all that is committed
        )


class ControlledMember(ZooKeeperMember):
    """A broker that may be elected controller, and that does what the controller says."""

    controller: ControllerContext | None = None
    """Set while this broker is the active controller and has read all state."""
    elected_at: float | None = None
    """When it created the controller's znode."""
    active_at: float | None = None
    """When it had read all state."""
    controller_epoch = -1
    """Of the last controller that this broker obeyed."""

    # -- what carries the decisions ----------------------------------------------------------------

    @abstractmethod
    async def begin_receiving(self) -> None:
        """Take notifications from the controller."""

    @abstractmethod
    async def begin_sending(self) -> None:
        """We are the controller."""

    @abstractmethod
    async def notify(self, broker: RegisteredBroker, notification: Notification) -> None:
        """Returns when the notification is on its way."""

    def broker_gone(self, broker: int) -> None:
        """Nothing more can be said to it."""

    notifies_at_once = False
    """Whether each decision is sent when it is written, or all of an event together when the last one is."""

    # -- as a broker -------------------------------------------------------------------------------

    async def take_part(self) -> None:
        self.controller = None
        await self.begin_receiving()
        await self._elect()

    def receive(self, notification: Notification) -> bool:
        """Do what the controller says. Whether it is the newest controller that we know of."""
        if notification.controller_epoch < self.controller_epoch:
            return False
        self.controller_epoch = notification.controller_epoch
        self.publish_brokers({each.id: each for each in notification.brokers})
        self.publish_decisions(notification.decisions)
        return True

    async def write_isr(self, decision: PartitionDecision) -> int:
        stat = await self.client.set(
            state_path(decision.key), decision.state(self.controller_epoch), decision.version
        )
        return stat.version

    # -- the election ------------------------------------------------------------------------------

    async def _elect(self) -> None:
        """The first to create the znode is the controller. The others watch it."""
        with suppress(NodeExists):
            await self.client.create(CONTROLLER, encoded(self.id), ephemeral=True)
        stat = await self.client.exists(CONTROLLER, self.when(self._elect))
        if stat is None:
            await self._elect()
            return
        if stat.ephemeral_owner != self.client.session:
            return
        self.elected_at = self.runtime.clock.monotonic()
        data, stat = await self.client.get(CONTROLLER_EPOCH)
        controller = ControllerContext(json.loads(data) + 1)
        await self.client.set(CONTROLLER_EPOCH, encoded(controller.epoch), stat.version)
        await self._load(controller)
        await self.begin_sending()
        self.controller = controller
        self.active_at = self.runtime.clock.monotonic()
        await self.tell(controller.brokers.values(), controller.states.values())
        await self._brokers_changed()
        await self._topics_changed()

    async def _load(self, controller: ControllerContext) -> None:
        """Read the brokers, the topics, and the state of every partition."""
        controller.brokers = await self.learn_brokers(self.when(self._brokers_changed))
        for name in await self.client.children(TOPICS, self.when(self._topics_changed)):
            try:
                for state in undecided(await self.read_topic(name)):
                    data, stat = await self.client.get(state_path(state.key))
                    controller.states[state.key] = state.with_state(data, stat.version)
            except NoNode:
                continue  # a topic so new that no controller has decided about it
            controller.topics[name] = None

    # -- as the controller -------------------------------------------------------------------------

    async def _brokers_changed(self) -> None:
        controller = self.controller
        if controller is None:
            return
        before = controller.brokers
        controller.brokers = await self.learn_brokers(self.when(self._brokers_changed))
        for id in before:
            if id not in controller.brokers:
                self.broker_gone(id)
        await self.decide(
            state.key for state in controller.states.values() if controller.elected(state) != state
        )
        new = [each for id, each in controller.brokers.items() if before.get(id) != each]
        if new:
            await self.tell(new, controller.states.values())

    async def _topics_changed(self) -> None:
        """Every replica that is alive is in sync, and the first of them leads."""
        controller = self.controller
        if controller is None:
            return
        for name in await self.client.children(TOPICS, self.when(self._topics_changed)):
            if name not in controller.topics:
                states = [
                    controller.elected(state)._replace(leader_epoch=FIRST_EPOCH, version=0)
                    for state in undecided(await self.read_topic(name))
                ]
                with suppress(NodeExists):  # created by us, and the answer was lost
                    await self.client.multi(
                        [CreateNode(state_path(s.key), s.state(controller.epoch)) for s in states]
                    )
                controller.topics[name] = None
                controller.states.update((state.key, state) for state in states)
                await self.tell(controller.brokers.values(), states)

    async def decide(self, keys: Iterable[TopicPartition]) -> None:
        """Elect anew for each of them, and notify all brokers."""
        controller = self.controller
        assert controller is not None
        decided = []
        for key in list(keys):
            state = await self.write_decision(key)
            controller.states[key] = state
            decided.append(state)
            if self.notifies_at_once:
                await self.tell(controller.brokers.values(), [state])
        if decided and not self.notifies_at_once:
            await self.tell(controller.brokers.values(), decided)

    async def write_decision(
        self, key: TopicPartition, leader: int | None = None
    ) -> PartitionDecision:
        """Kafka's electLeaderForPartition: read, decide, and write if nobody else has since."""
        controller = self.controller
        assert controller is not None
        while True:
            data, stat = await self.client.get(state_path(key))
            now = controller.states[key].with_state(data, stat.version)
            decided = controller.elected(now)
            if leader is not None:
                decided = now._replace(leader=leader, leader_epoch=now.leader_epoch + 1)
            if decided == now:
                return now
            with suppress(BadVersion):  # its leader wrote another ISR meanwhile
                stat = await self.client.set(
                    state_path(key), decided.state(controller.epoch), stat.version
                )
                return decided._replace(version=stat.version)

    async def tell(
        self, brokers: Iterable[RegisteredBroker], decisions: Iterable[PartitionDecision]
    ) -> None:
        controller = self.controller
        assert controller is not None
        alive = tuple(controller.brokers.values())
        notification = Notification(controller.epoch, alive, tuple(decisions))
        for broker in list(brokers):
            await self.notify(broker, notification)
