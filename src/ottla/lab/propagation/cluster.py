"""A simulated cluster whose decisions travel as a design says: the product's quorum, or a ZooKeeper.

Three brokers have a replica of every partition. The product's quorum is three controllers beside them, so that a broker
that dies takes no controller with it. ZooKeeper is a leader and a follower.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from ottla.events import Event
from ottla.events.controller import BrokerFenced
from ottla.lab.design import Design
from ottla.lab.harness import START_S_MAX, LabCluster, NotStarted, simulated
from ottla.lab.propagation.elected_controller import ControlledMember
from ottla.lab.propagation.leader_and_isr import LEADER_AND_ISR_PORT
from ottla.lab.propagation.leader_and_isr import PROTOCOL as LEADER_AND_ISR_PROTOCOL
from ottla.lab.propagation.member import ZooKeeperMember
from ottla.lab.propagation.metadata_fetches import MetadataFetches
from ottla.lab.propagation.node import Propagation, ZooKeeperNode
from ottla.lab.propagation.views import LeaderViews
from ottla.lab.propagation.znodes import (
    BROKER_IDS,
    CONTROLLER_EPOCH,
    ROOT,
    STATE_QUEUES,
    TOPICS,
    TopicAssignment,
    encoded,
    partition_path,
    partitions_path,
    topic_path,
)
from ottla.lab.wire_counts import WireCounts
from ottla.lab.zookeeper.client import ZooKeeperClient
from ottla.lab.zookeeper.counts import ZooKeeperCounts
from ottla.lab.zookeeper.ensemble import ZooKeeperEnsemble
from ottla.lab.zookeeper.model import CreateNode
from ottla.sim.clients.connections import ClientConnections
from ottla.sim.cluster.nodes import CONTROLLER_PORT, SimNode
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.types import TopicPartition

BROKERS = (1, 2, 3)
CONTROLLERS = 3
SESSION_TIMEOUT_S = 6.0
"""Kafka's zookeeper.session.timeout.ms until 2.5. Whoever is silent for so long is dead, in every design."""
SIGN_OF_LIFE_S = SESSION_TIMEOUT_S / 3
"""Between two pings of ZooKeeper's client. A broker of the product sends a heartbeat as often."""
KILLED, GONE = "the process is killed", "the machine is gone"
"""How a node dies. Its system closes the connections of a killed process. Nothing closes those of a machine that is gone."""
DETECTION_S_MIN = SESSION_TIMEOUT_S - SIGN_OF_LIFE_S
DETECTION_S_MAX = SESSION_TIMEOUT_S + 0.5
"""Of a machine that is gone: the session timeout since its last sign of life, and what the network and the disks take."""
IDLE_S = 5.0
PARTITIONS_PER_TOPIC = 500
TOPICS_PER_REQUEST = 2
SETTLE_S_MAX = 600.0
SETTINGS = {"replica.fetch.wait.max.ms": "5000"}
"""Fetches that find nothing are not what is measured here, and most of what a large idle cluster does."""
QUORUM_SETTINGS = SETTINGS | {
    "broker.session.timeout.ms": f"{SESSION_TIMEOUT_S * 1000:.0f}",
    "broker.heartbeat.interval.ms": f"{SIGN_OF_LIFE_S * 1000:.0f}",
    "controller.quorum.fetch.timeout.ms": f"{SESSION_TIMEOUT_S * 1000:.0f}",
    "controller.quorum.request.timeout.ms": f"{SESSION_TIMEOUT_S * 1000:.0f}",
}
"""The product's timeouts have other defaults. The same ones as ZooKeeper's, so that designs are compared and not defaults."""
NO_DECISION = ("fetch", "broker_heartbeat")
"""Requests that controllers get without a decision too. Fetches that bring one are counted apart."""


@dataclass(frozen=True)
class Sent:
    """What was sent on the way to a decision and from there to the brokers. Records, and what keeps sessions alive, are not
    counted."""

    zookeeper: ZooKeeperCounts
    wire: WireCounts
    fetches: Counter[str]
    """By host: those that brought it a decision of the product's quorum."""

    @property
    def direct(self) -> int:
        """From the elected controller to the brokers."""
        return self.wire.number_of("leader_and_isr")

    def learnt(self, hosts: Sequence[str]) -> int:
        """Fetches that brought these hosts decisions of the product's quorum, or their commit."""
        return sum(self.fetches[host] for host in hosts)

    def asked_of_quorum(self, hosts: Sequence[str]) -> int:
        """Requests of these hosts for a decision of the product's quorum."""
        return sum(
            count
            for line, count in self.wire.requests.items()
            if line.port == CONTROLLER_PORT and line.client in hosts and line.api not in NO_DECISION
        )


class PropagationCluster:
    def __init__(self, lab: LabCluster, ensemble: ZooKeeperEnsemble | None) -> None:
        self.lab = lab
        self.ensemble = ensemble
        self.views = LeaderViews(BROKERS, lambda: lab.now)
        self.keys: list[TopicPartition] = []
        self._fenced: dict[int, None] = {}
        """Brokers that the product's controller has fenced since they died."""
        self._expired_before = 0
        """Sessions of ZooKeeper that had timed out when a broker died."""
        self._fetches = MetadataFetches()
        for node in lab.sim.nodes.values():
            node.host.runtime = self._fetches.counted(node.host.name, node.host.runtime)
        lab.sim.subscribe(self.views.observe)
        lab.sim.subscribe(self._observe)

    def _observe(self, node: SimNode, event: Event) -> None:
        if isinstance(event, BrokerFenced):
            self._fenced[event.broker] = None

    def node(self, id: int) -> SimNode:
        return self.lab.sim.nodes[id]

    # -- start -------------------------------------------------------------------------------------

    def start(self, partitions: int) -> None:
        """Start everything, and create topics with so many partitions in all."""
        if self.ensemble is not None:
            self.ensemble.start()
            self.lab.clients.complete(self._prepare_zookeeper(), START_S_MAX)
        self.lab.start()
        topics = assignments(partitions)
        self.keys = [key for topic in topics for key in topic.partitions]
        self.views.expect(self.keys)
        if self.ensemble is not None:
            self.lab.clients.complete(self._create_in_zookeeper(topics), SETTLE_S_MAX)
        else:
            self.lab.clients.complete(self._create_by_request(topics), SETTLE_S_MAX)
        self.settle()

    def settle(self) -> None:
        """Until the active brokers agree on an active leader of every partition."""
        if not self.lab.run_until(lambda: self.views.is_settled, SETTLE_S_MAX):
            raise NotStarted(
                f"{len(self.views.unsettled)} partitions have no agreed leader: "
                f"{list(self.views.unsettled)[:3]}; {self.lab.failures} {self.lab.world.problems()}"
            )

    async def admin(self) -> ZooKeeperClient:
        assert self.ensemble is not None
        network = self.lab.clients.runtime.network
        return await ZooKeeperClient.connect(
            network, self.ensemble.addresses, "admin", SESSION_TIMEOUT_S
        )

    async def _prepare_zookeeper(self) -> None:
        admin = await self.admin()
        for path in (ROOT, BROKER_IDS, TOPICS, STATE_QUEUES):
            await admin.create(path)
        await admin.create(CONTROLLER_EPOCH, encoded(0))
        await admin.close()

    async def _create_in_zookeeper(self, topics: Sequence[TopicAssignment]) -> None:
        """As kafka-topics.sh --zookeeper did, but each topic with all its znodes at once."""
        admin = await self.admin()
        member = self.member(BROKERS[0])
        for topic in topics:
            znodes = [
                CreateNode(topic_path(topic.topic), topic.data()),
                CreateNode(partitions_path(topic.topic)),
            ]
            for key, replicas in zip(topic.partitions, topic.replicas, strict=True):
                znodes.append(CreateNode(partition_path(key)))
                znodes += member.znodes_of(key, replicas)
            await admin.multi(znodes)
        await admin.close()

    async def _create_by_request(self, topics: Sequence[TopicAssignment]) -> None:
        connections = ClientConnections(self.lab.clients, self.lab.sim.bootstrap[:1], "admin")
        for first in range(0, len(topics), TOPICS_PER_REQUEST):
            wanted = [
                {
                    "name": topic.topic,
                    "num_partitions": -1,
                    "replication_factor": -1,
                    "assignments": [
                        {"partition_index": key.partition, "broker_ids": list(replicas)}
                        for key, replicas in zip(topic.partitions, topic.replicas, strict=True)
                    ],
                    "configs": [],
                }
                for topic in topics[first : first + TOPICS_PER_REQUEST]
            ]
            fields = {"topics": wanted, "timeout": 30_000, "validate_only": False}
            answer = await connections.ask(ApiKey.CREATE_TOPICS, fields)
            for topic in answer.topics:
                if int(topic.error_code) != ErrorCode.NONE:
                    raise NotStarted(f"{topic.name}: {ErrorCode(int(topic.error_code)).name}")

    # -- looking -----------------------------------------------------------------------------------

    def member(self, broker: int) -> ZooKeeperMember:
        node = self.node(broker).node
        assert isinstance(node, ZooKeeperNode) and node.member is not None
        return node.member

    @property
    def controller(self) -> int | None:
        """The node that decides: the active controller of either kind."""
        for id, node in self.lab.sim.nodes.items():
            running = node.node
            if running is None or not node.is_ready:
                continue
            if isinstance(running, ZooKeeperNode):
                member = running.member
                if isinstance(member, ControlledMember) and member.controller is not None:
                    return id
            elif running.quorum is not None and running.quorum.is_active:
                return id
        return None

    def sent(self) -> Sent:
        zookeeper = self.ensemble.counts if self.ensemble is not None else ZooKeeperCounts()
        return Sent(zookeeper.copy(), self.lab.counts.copy(), self._fetches.counts.copy())

    def sent_since(self, before: Sent) -> Sent:
        now = self.sent()
        return Sent(
            now.zookeeper.since(before.zookeeper),
            now.wire.since(before.wire),
            now.fetches - before.fetches,
        )

    # -- what happens to brokers -------------------------------------------------------------------

    def idle(self) -> None:
        """Let everything come to rest. The moment at which this ends is drawn: how long the last sign of life of a node
        is ago then decides about the time to the detection of its death."""
        moment = self.lab.world.loop.random_for("moment").uniform(0, SIGN_OF_LIFE_S)
        self.lab.run_for(IDLE_S + moment)

    def kill(self, broker: int, cause: str = KILLED) -> None:
        self._fenced.pop(broker, None)
        self._expired_before = 0 if self.ensemble is None else self.ensemble.counts.expired
        self.node(broker).kill(power_loss=cause == GONE)
        if broker in self.views.active:
            self.views.died(broker)

    def pause(self, broker: int) -> None:
        self.node(broker).host.pause()
        self.views.paused(broker)

    def resume(self, broker: int) -> None:
        self.node(broker).host.resume()
        self.views.resumed(broker)

    def cut(self, broker: int) -> None:
        """From what decides: ZooKeeper, or the controllers. Brokers and clients still reach it."""
        network, host = self.lab.world.network, self.node(broker).host.name
        for other in self._deciders:
            network.block(host, other)
            network.block(other, host)

    def heal(self) -> None:
        self.lab.world.network.heal()

    @property
    def _deciders(self) -> list[str]:
        if self.ensemble is not None:
            return [self.ensemble.leader.name, self.ensemble.follower.name]
        return [node.host.name for id, node in self.lab.sim.nodes.items() if id not in BROKERS]

    def knows_dead(self, broker: int) -> bool:
        """Whether those who decide have noticed that it died: its session is over, or it is fenced."""
        if self.ensemble is not None:
            return self.ensemble.counts.expired > self._expired_before
        return broker in self._fenced


def assignments(partitions: int) -> list[TopicAssignment]:
    """Replicas of partition i begin at broker i, as document 004 says. A topic has at most 500 partitions."""
    found = []
    for number, first in enumerate(range(0, partitions, PARTITIONS_PER_TOPIC)):
        count = min(PARTITIONS_PER_TOPIC, partitions - first)
        replicas = tuple(
            tuple(BROKERS[(i + j) % len(BROKERS)] for j in range(len(BROKERS)))
            for i in range(first, first + count)
        )
        found.append(TopicAssignment(f"t{number:03d}", UUID(int=number + 1, version=4), replicas))
    return found


@contextmanager
def propagating(seed: int, design: Design) -> Iterator[PropagationCluster]:
    """A cluster of that design that is not started yet."""
    part = design.part
    assert isinstance(part, Propagation)
    if part.member is None:
        nodes = len(BROKERS) + CONTROLLERS
        with simulated(seed, nodes=nodes, controllers=CONTROLLERS, settings=QUORUM_SETTINGS) as lab:
            yield PropagationCluster(lab, None)
        return
    with simulated(seed, nodes=len(BROKERS), settings=SETTINGS) as lab:
        ensemble = ZooKeeperEnsemble(lab.world, lab.counts)
        lab.counts.protocols[LEADER_AND_ISR_PORT] = LEADER_AND_ISR_PROTOCOL
        lab.sim.make_node = partial(
            ZooKeeperNode,
            member=part.member,
            ensemble=ensemble.addresses,
            session_timeout_s=SESSION_TIMEOUT_S,
        )
        yield PropagationCluster(lab, ensemble)
