"""Groups and transactions of a run: which clients there are, and when they are at rest.

In these runs there are two topics, `in` and `out`. Producers write to `in`. A group of processors copies each record to
`out` in transactions, exactly once. Another group only commits offsets.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from ottla.sim.clients.connections import BACKOFF_S, ClientConnections
from ottla.sim.clients.group_clients import ClientBehaviour, CommittedReader, Committer
from ottla.sim.clients.group_members import (
    GROUP,
    TRANSACTION,
    ClassicMemberClient,
    ConsumerMemberClient,
    Coordinator,
    MemberClient,
)
from ottla.sim.clients.processors import Processor
from ottla.sim.cluster.nodes import SimCluster
from ottla.sim.engine.world import SimHost
from ottla.sim.oracle.evidence import Evidence
from ottla.sim.oracle.group_oracle import OFFSETS, TRANSACTIONS, GroupOracle, text
from ottla.wire.errors import InvalidFrame
from ottla.wire.types import TopicPartition

SOURCE, TARGET = "in", "out"
PROCESSORS, COMMITTERS = "processors", "committers"
FACTOR, MIN_ISR = 3, 2
RATE = 0.35
"""The share of seeds that have groups and transactions."""


@dataclass
class GroupPlan:
    processors: int
    committers: int
    partitions: tuple[int, int]
    """The number of partitions of `in` and of `out`."""
    speaks_new: dict[str, bool]
    """Which groups use the protocol of KIP-848."""
    modern: float
    """The share of processors of transaction.version 2."""
    static: float
    session_timeout_ms: int
    transaction_timeout_ms: int
    behaviour: ClientBehaviour

    @staticmethod
    def draw(seed: int) -> GroupPlan | None:
        chance = random.Random(f"{seed}/groups")
        if chance.random() >= RATE:
            return None
        return GroupPlan(
            processors=chance.choice((1, 2, 2, 3)),
            committers=chance.choice((0, 1, 2, 2)),
            partitions=(chance.choice((1, 2)), chance.choice((1, 2))),
            speaks_new={name: chance.random() < 0.5 for name in (PROCESSORS, COMMITTERS)},
            modern=chance.choice((0.0, 0.5, 1.0)),
            static=chance.choice((0.0, 0.0, 0.5)),
            session_timeout_ms=chance.choice((4000, 9000)),
            transaction_timeout_ms=chance.choice((2000, 10000)),
            behaviour=ClientBehaviour(
                pause_s=chance.choice((0.1, 0.3, 0.8)),
                abort=chance.choice((0.0, 0.2, 0.5)),
                pause=chance.choice((0.0, 0.05, 0.15)),
                crash=chance.choice((0.0, 0.02, 0.1)),
                leave=chance.choice((0.0, 0.05)),
                late=chance.choice((0.0, 0.1)),
                stale=chance.choice((0.0, 0.2)),
                rewind=chance.choice((0.0, 0.1)),
            ),
        )

    @property
    def topics(self) -> list[tuple[str, int, int, int]]:
        sources, targets = self.partitions
        return [(SOURCE, sources, FACTOR, MIN_ISR), (TARGET, targets, FACTOR, MIN_ISR)]

    @property
    def settings(self) -> dict[str, str]:
        return {
            "min.insync.replicas": str(MIN_ISR),
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": str(FACTOR),
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": str(FACTOR),
            "transaction.state.log.min.isr": str(MIN_ISR),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            "group.initial.rebalance.delay.ms": "100",
            "group.min.session.timeout.ms": "1000",
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.session.timeout.ms": str(self.session_timeout_ms),
            "group.consumer.min.heartbeat.interval.ms": "500",
            "group.consumer.heartbeat.interval.ms": "1000",
        }

    def describe(self) -> str:
        kinds = " ".join(
            f"{name}:{'consumer' if new else 'classic'}" for name, new in self.speaks_new.items()
        )
        behaviour = " ".join(
            f"{name}={rate}" for name, rate in vars(self.behaviour).items() if rate
        )
        return (
            f"{self.processors} processors ({self.modern:.0%} modern), {self.committers} "
            f"committers, {kinds}, {self.static:.0%} static, session {self.session_timeout_ms} ms, "
            f"transactions {self.transaction_timeout_ms} ms [{behaviour}]"
        )


class GroupWorkload:
    def __init__(
        self,
        plan: GroupPlan,
        host: SimHost,
        connections: Callable[[str], ClientConnections],
        chance: random.Random,
        end_of: Callable[[TopicPartition], int],
        standing: Callable[[TopicPartition], str],
    ) -> None:
        self.plan = plan
        self._behaviour = replace(plan.behaviour)
        self.oracle = GroupOracle(host.clock.monotonic, end_of, standing)
        self.processors: list[Processor] = []
        self.committers: list[Committer] = []
        self.readers: list[CommittedReader] = []
        self._host = host
        self._connections = connections
        self._random = chance
        self._sources = [TopicPartition(SOURCE, n) for n in range(plan.partitions[0])]
        self._targets = [TopicPartition(TARGET, n) for n in range(plan.partitions[1])]
        self._count = 0

    async def prepare(self) -> None:
        """The coordinators' topics are there."""
        connections = self._connections("groups")
        for kind in (GROUP, TRANSACTION):
            while True:
                try:
                    await Coordinator(connections, kind, PROCESSORS).find()
                    break
                except (OSError, TimeoutError, InvalidFrame):
                    await asyncio.sleep(BACKOFF_S)

    def begin(self) -> None:
        for number in range(self.plan.processors):
            self._begin_processor(f"id{number}", self._random.random() < self.plan.modern)
        for _ in range(self.plan.committers):
            self._begin_committer()
        for target in self._targets:
            name = f"{text(target)}-reader"
            reader = CommittedReader(self._connections(name), self.oracle, target, PROCESSORS)
            self.readers.append(reader)
            self._host.run(reader.run(), name=name)

    def _member(self, connections: ClientConnections, group: str, name: str) -> MemberClient:
        is_static = self._random.random() < self.plan.static
        kind = ConsumerMemberClient if self.plan.speaks_new[group] else ClassicMemberClient
        return kind(
            connections,
            self.oracle,
            group,
            name,
            self._sources,
            random.Random(self._random.getrandbits(64)),
            instance_id=f"{name}-static" if is_static else None,
            session_timeout_ms=self.plan.session_timeout_ms,
        )

    def _begin_processor(self, transactional_id: str, is_modern: bool) -> None:
        self._count += 1
        name = f"x{self._count}"
        connections = self._connections(name)
        processor = Processor(
            connections,
            self._member(connections, PROCESSORS, name),
            self.oracle,
            transactional_id,
            self._targets,
            random.Random(self._random.getrandbits(64)),
            self._behaviour,
            is_modern=is_modern,
            timeout_ms=self.plan.transaction_timeout_ms,
            on_pause=self._replace,
        )
        self.processors.append(processor)
        self._host.run(processor.run(), name=name)

    def _replace(self, paused: Processor) -> None:
        name = paused.transactional_id
        self.oracle.note(f"{paused.name} pauses, {name} gets another", name)
        self._begin_processor(paused.transactional_id, paused.is_modern)

    def _begin_committer(self) -> None:
        self._count += 1
        name = f"m{self._count}"
        connections = self._connections(name)
        committer = Committer(
            self._member(connections, COMMITTERS, name),
            self.oracle,
            random.Random(self._random.getrandbits(64)),
            self._behaviour,
        )
        self.committers.append(committer)
        self._host.run(committer.run(), name=name)

    # The end

    def calm(self) -> None:
        """From now on no client disturbs others."""
        self._behaviour.calm()
        for committer in self.committers:
            committer.stop()

    def unsettled(self, cluster: SimCluster, evidence: Evidence) -> list[str]:
        """Why groups and transactions are not at rest."""
        left = self._undecided(cluster)
        lost = self.oracle.losses
        processors = [each for each in self.processors if not each.is_retired]
        for group, members in (
            (PROCESSORS, [each.member for each in processors]),
            (COMMITTERS, [each.member for each in self.committers]),
        ):
            left += self._not_stable(group, members)
        left += [
            f"{each.member.name} of {COMMITTERS} has not read its committed offsets again"
            for each in self.committers
            if not each.has_read_back
        ]
        # The decision of a transaction may be lost: then its partitions never become stable.
        may_hang = [each for each in (OFFSETS, TRANSACTIONS) if each in lost]
        for source in self._sources:
            if may_hang:
                continue
            end = self._end_to_reach(evidence, source)
            if not any(each.positions.get(source, -1) >= end for each in processors):
                positions = {each.name: each.positions.get(source) for each in processors}
                left.append(
                    f"{text(source)} ends at {end}, but is processed only up to {positions}"
                )
        left += [
            f"{text(reader.partition)} is read up to {reader.position} of "
            f"{evidence.end_of(reader.partition)}"
            for reader in self.readers
            if reader.position < evidence.end_of(reader.partition)
            and not {reader.partition, TRANSACTIONS} & lost.keys()
        ]
        return left

    def _undecided(self, cluster: SimCluster) -> list[str]:
        """Partitions whose LSO is below the HW. Every transaction ends in each partition, at the latest by its timeout."""
        lossy = self.oracle.losses
        if TRANSACTIONS in lossy:
            return []
        return [
            f"node {id}, {text(key)}: LSO {partition.log.last_stable_offset}, {partition!r}"
            for id, node in cluster.nodes.items()
            if node.node is not None and node.node.broker is not None
            for key, partition in node.node.broker.replicas.partitions.items()
            if partition.log.last_stable_offset != partition.log.high_watermark and key not in lossy
        ]

    def _not_stable(self, group: str, members: list[MemberClient]) -> list[str]:
        if not members:
            return []
        owned = sorted(each for member in members for each in member.owned)
        if all(member.is_joined for member in members) and owned == self._sources:
            return []
        who = ", ".join(
            f"{member.name} ({member.member_id or 'no id'}, {member.generation}): "
            + (" ".join(map(text, member.owned)) if member.is_joined else "not joined")
            for member in members
        )
        return [f"group {group} is not stable: {who}"]

    def check_end(self, evidence: Evidence) -> None:
        lost = self.oracle.losses
        may_hang = OFFSETS in lost or TRANSACTIONS in lost
        sources = [] if may_hang else self._sources
        ends = {source: self._end_to_reach(evidence, source) for source in sources}
        unread = [
            reader.partition
            for reader in self.readers
            if reader.position < evidence.end_of(reader.partition)
        ]
        self.oracle.check_end(PROCESSORS, ends, unread)

    def _end_to_reach(self, evidence: Evidence, source: TopicPartition) -> int:
        """The end of the partition, or its first lost offset: the group may have gone further before the loss."""
        return int(min(evidence.end_of(source), self.oracle.lost_from(source)))
