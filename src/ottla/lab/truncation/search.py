"""Random schedules for the truncation designs: a small cluster, one partition, and faults that a seed decides.

A schedule is drawn from the seed before the run, so the same one is drawn for each design. A fault that is impossible when
its time comes is skipped: leadership for a broker that is not ready or not in the ISR, the death of a dead broker, the
start of a live one, and the death of the last in-sync replica if the schedule spares it. That depends on the run, so
designs may skip different faults. What is skipped is counted. The designs differ in what is lost or differs when everything is at rest again.

What excuses a loss is in `excuses`. The topic does not allow unclean elections, and four of five schedules spare the last
in-sync replica.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.events import Event
from ottla.events.replication import Truncated
from ottla.lab.design import design_named
from ottla.lab.harness import LabCluster, simulated
from ottla.lab.truncation.agreement import ReplicaLogs, differences, first_difference_text
from ottla.lab.truncation.excuses import may_lose_records
from ottla.metadata.image import Delta, MetadataImage, PartitionImage
from ottla.metadata.records import NO_LEADER
from ottla.records.record import Record, build
from ottla.sim.clients.connections import ClientConnections
from ottla.sim.cluster.nodes import SimNode
from ottla.sim.scripts.leader_moves import move_leader
from ottla.wire import produce
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import ErrorCode, InvalidFrame
from ottla.wire.types import TopicPartition

PARTITION = TopicPartition("t", 0)
ALL, LEADER = -1, 1
PRODUCE_VERSION = APIS[ApiKey.PRODUCE].max_version
LATENCY_S = 0.004
"""As between data centres: what happens during a round trip happens often enough to be found."""
TOPIC_SETTINGS = {"min.insync.replicas": "1", "unclean.leader.election.enable": "false"}
SETTINGS = {
    # A replica that cannot fetch for a while stays in the ISR, as in KIP-279's fast failover.
    "replica.lag.time.max.ms": "10000",
    "replica.fetch.wait.max.ms": "200",
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "500",
    "auto.leader.rebalance.enable": "false",
}
REST_S_MAX = 10.0
"""If the replicas have not caught up after so long without faults, they never will."""


# The schedule


class ScheduledFault(NamedTuple):
    at_s: float
    """Since the topic was created."""
    kind: str
    """A method of `_SearchRun`."""
    brokers: tuple[int, ...]


@dataclass(frozen=True)
class Schedule:
    brokers: int
    spares_the_last: bool
    """No fault takes a broker while it is the only live one in the ISR."""
    faults: tuple[ScheduledFault, ...]
    pauses_s: tuple[float, ...]
    """The mean pause between records, for each producer. The last producer has acks=1, all others acks=all."""


ROUNDS = 5


def schedule_of(seed: int) -> Schedule:
    chance = random.Random(f"{seed}/truncation")
    brokers = chance.choice((2, 3, 3))
    faults: list[ScheduledFault] = []
    at = 0.3
    for _ in range(ROUNDS):
        draw = chance.choice((_ambush, _ambush, _tug, _part, _crash, _deaf))
        faults += draw(chance, at, chance.sample(range(1, brokers + 1), brokers))
        at += chance.uniform(0.2, 1.0)
    return Schedule(
        brokers,
        spares_the_last=chance.random() < 0.8,
        faults=tuple(sorted(faults)),
        pauses_s=(chance.choice((0.05, 0.1)), 0.1, chance.choice((0.05, 0.2))),
    )


def _ambush(chance: random.Random, at: float, ids: list[int]) -> Iterator[ScheduledFault]:
    """A new epoch begins, and its leader dies soon after."""
    yield ScheduledFault(at, "moves", (ids[0],))
    at += chance.uniform(0.0, 0.03)
    yield ScheduledFault(at, chance.choice(("kills", "cuts_power")), (ids[0],))
    yield ScheduledFault(at + chance.uniform(0.2, 1.0), "starts", (ids[0],))


def _tug(chance: random.Random, at: float, ids: list[int]) -> Iterator[ScheduledFault]:
    """Two replicas that cannot reach each other lead in turn, and stay in the ISR."""
    one, other = ids[:2]
    yield ScheduledFault(at, "parts", (one, other))
    for _ in range(chance.randint(2, 4)):
        at += chance.uniform(0.1, 0.5)
        yield ScheduledFault(at, "moves", (one,))
        one, other = other, one
    yield ScheduledFault(at + chance.uniform(0.05, 0.3), "joins", (one, other))


def _part(chance: random.Random, at: float, ids: list[int]) -> Iterator[ScheduledFault]:
    """Two replicas cannot reach each other; answers on the way are late or lost."""
    yield ScheduledFault(at, "parts", tuple(ids[:2]))
    if chance.random() < 0.5:
        yield ScheduledFault(at + chance.uniform(0.0, 0.3), "resets", tuple(ids[:2]))
    yield ScheduledFault(at + chance.uniform(0.2, 0.8), "joins", tuple(ids[:2]))


def _crash(chance: random.Random, at: float, ids: list[int]) -> Iterator[ScheduledFault]:
    yield ScheduledFault(at, chance.choice(("kills", "cuts_power")), (ids[0],))
    yield ScheduledFault(at + chance.uniform(0.2, 1.0), "starts", (ids[0],))


def _deaf(chance: random.Random, at: float, ids: list[int]) -> Iterator[ScheduledFault]:
    """A broker hears no decision of the controller for a while, and the leadership moves meanwhile."""
    yield ScheduledFault(at, "deafens", (ids[0],))
    for id in chance.sample(ids, len(ids)):
        at += chance.uniform(0.05, 0.3)
        yield ScheduledFault(at, "moves", (id,))
    yield ScheduledFault(at + chance.uniform(0.05, 0.3), "hears", (ids[0],))


# The run


@dataclass(frozen=True)
class SeedOutcome:
    """What one seed found under one design."""

    seed: int
    design: str
    acknowledged: int
    lost: list[str]
    """Acknowledged records that the leader does not have at rest, without an excuse."""
    excused: int
    """The same, but acknowledged before an election that may lose records."""
    differing: int
    """Offsets below the common high watermark at which the replicas differ."""
    difference: str
    """The first of them in words."""
    is_stuck: bool
    """The replicas did not catch up with their leader, though nothing hindered them."""
    failures: list[str]
    """Nodes that ended by themselves."""
    faults: int
    """That the schedule has."""
    skipped: int
    """Of them, because they were impossible in the state of the run."""
    events: list[tuple[float, str]] = field(repr=False)
    """When the schedule did what, what the controller decided, and which replica truncated."""


def run_seed(design: str, seed: int) -> SeedOutcome:
    schedule = schedule_of(seed)
    with simulated(
        seed,
        nodes=schedule.brokers + 1,
        design=design_named(design).part,
        settings=SETTINGS,
        controllers=1,
    ) as cluster:
        cluster.world.network.conditions.latency_s = LATENCY_S
        cluster.start()
        cluster.create_topic(PARTITION.topic, 1, schedule.brokers, TOPIC_SETTINGS)
        run = _SearchRun(cluster, schedule)
        run.play()
        return run.outcome(design, seed)


class Acknowledgement(NamedTuple):
    value: str
    epoch: int
    """The newest leader epoch when the answer came: it was not written in a later one."""


class _SearchRun:
    def __init__(self, cluster: LabCluster, schedule: Schedule) -> None:
        self.cluster = cluster
        self.schedule = schedule
        self.events: list[tuple[float, str]] = []
        self._began_at = cluster.now
        self._network = cluster.world.network
        *self._brokers, self._controller = cluster.sim.nodes.values()
        node = self._controller.node
        assert node is not None and node.quorum is not None
        self._quorum = node.quorum
        self._decided = self.decision
        self._lossy_epoch = -1
        """The newest epoch that began with an election that may lose records."""
        node.quorum.on_image.append(self._metadata_changed)
        cluster.sim.subscribe(self._happened, Truncated)
        self._acknowledged: list[Acknowledgement] = []
        self._is_stopping = False
        self._skipped = 0

    @property
    def decision(self) -> PartitionImage:
        return self._quorum.image.topics[PARTITION.topic].partitions[PARTITION.partition]

    def _metadata_changed(self, image: MetadataImage, delta: Delta) -> None:
        before, now = self._decided, self.decision
        self._decided = now
        if (before.leader_epoch, before.isr) != (now.leader_epoch, now.isr):
            leader = "nobody" if now.leader == NO_LEADER else f"broker {now.leader}"
            members = ", ".join(map(str, now.isr)) or "empty"
            self._note(f"{leader} leads epoch {now.leader_epoch}, the ISR is {members}")
        if may_lose_records(before, now):
            self._lossy_epoch = now.leader_epoch

    def _happened(self, node: SimNode, event: Event) -> None:
        if isinstance(event, Truncated):
            self._note(
                f"broker {node.id} truncates its log from {event.end_offset} to {event.first_offset}"
            )

    def _note(self, what: str) -> None:
        self.events.append((round(self.cluster.now - self._began_at, 3), what))

    def play(self) -> None:
        host = self.cluster.clients
        *careful, last = enumerate(self.schedule.pauses_s)
        for (number, pause_s), acks in [*((each, ALL) for each in careful), (last, LEADER)]:
            host.run(self._produce(f"p{number}", acks, pause_s))
        for fault in self.schedule.faults:
            self.cluster.run_for(self._began_at + fault.at_s - self.cluster.now)
            getattr(self, fault.kind)(*fault.brokers)
        self._rest()

    def _rest(self) -> None:
        """No more faults and no more records, until the replicas have caught up."""
        self._network.heal()
        self._is_stopping = True
        for broker in self._brokers:
            if not broker.is_up:
                broker.start()
        self._note("no more faults")
        self.is_stuck = not self.cluster.run_until(self._is_at_rest, REST_S_MAX)

    def _is_at_rest(self) -> bool:
        replicas = [self.cluster.replica(broker.id, PARTITION) for broker in self._brokers]
        if len(self.decision.isr) < len(self._brokers):
            return False
        ends = {
            None if each is None else (each.log.log_end, each.log.high_watermark)
            for each in replicas
        }
        return len(ends) == 1 and all(end is not None and end[0] == end[1] for end in ends)

    # Faults

    def moves(self, leader: int) -> None:
        if leader in self.decision.isr and self.cluster.sim.nodes[leader].is_ready:
            self._note(f"the controller gives the leadership to broker {leader}")
            move_leader(self._controller, PARTITION, leader)
        else:
            self._skipped += 1

    def kills(self, id: int) -> None:
        self._stop(id, power_loss=False)

    def cuts_power(self, id: int) -> None:
        self._stop(id, power_loss=True)

    def _stop(self, id: int, *, power_loss: bool) -> None:
        others = [each for each in self.decision.isr if each != id]
        is_last = not any(self.cluster.sim.nodes[each].is_ready for each in others)
        node = self.cluster.sim.nodes[id]
        if node.is_up and not (is_last and self.schedule.spares_the_last):
            self._note(f"broker {id} {'loses its power' if power_loss else 'is killed'}")
            node.kill(power_loss=power_loss)
        else:
            self._skipped += 1

    def starts(self, id: int) -> None:
        node = self.cluster.sim.nodes[id]
        if not node.is_up:
            self._note(f"broker {id} starts")
            node.start()
        else:
            self._skipped += 1

    def parts(self, one: int, other: int) -> None:
        self._note(f"brokers {one} and {other} cannot reach each other")
        self._network.partition([self._name(one)], [self._name(other)])

    def joins(self, one: int, other: int) -> None:
        self._note(f"brokers {one} and {other} reach each other again")
        first, second = self._name(one), self._name(other)
        self._network.unblock([(first, second), (second, first)])

    def resets(self, one: int, other: int) -> None:
        self._note(f"the connections between brokers {one} and {other} break")
        self.cluster.sim.nodes[one].host.reset_connections(self._name(other))

    def deafens(self, id: int) -> None:
        self._note(f"broker {id} hears nothing from the controller")
        self._network.block(self._controller.host.name, self._name(id))

    def hears(self, id: int) -> None:
        self._note(f"broker {id} hears the controller again")
        self._network.unblock([(self._controller.host.name, self._name(id))])

    def _name(self, id: int) -> str:
        return self.cluster.sim.nodes[id].host.name

    # Producers

    async def _produce(self, name: str, acks: int, pause_s: float) -> None:
        """One record after the other, each sent once: what is not acknowledged is not expected."""
        connections = ClientConnections(self.cluster.clients, self.cluster.sim.bootstrap[:-1], name)
        chance = self.cluster.world.loop.random_for(f"producer {name}")
        for number in itertools.count():
            await asyncio.sleep(chance.expovariate(1 / pause_s))
            if self._is_stopping:
                return
            value = f"{name}:{number}"
            try:
                if await self._send(connections, value, acks):
                    if acks == ALL:
                        epoch = self.decision.leader_epoch
                        self._acknowledged.append(Acknowledgement(value, epoch))
                else:
                    connections.forget(PARTITION)
            except (OSError, TimeoutError, InvalidFrame):
                connections.forget(PARTITION)

    async def _send(self, connections: ClientConnections, value: str, acks: int) -> bool:
        place, channel = await connections.leader(PARTITION)
        records = memoryview(build([Record(0, 0, None, value.encode())]))
        data = produce.PartitionData(PARTITION.topic, place.topic_id, PARTITION.partition, records)
        request = produce.ProduceRequest(None, acks, 3000, [data])
        result = await connections.call(
            channel,
            ApiKey.PRODUCE,
            PRODUCE_VERSION,
            produce.write_request(PRODUCE_VERSION, request),
            lambda frame, start: produce.read_response(PRODUCE_VERSION, frame, start).results[0],
        )
        return bool(result.error == ErrorCode.NONE)

    # What is there at rest

    def outcome(self, design: str, seed: int) -> SeedOutcome:
        replicas, leader = self._replicas(), self.decision.leader
        led = set(replicas[leader][1].values()) if leader in replicas else set()
        missing = [each for each in self._acknowledged if each.value not in led]
        lost = [each.value for each in missing if each.epoch >= self._lossy_epoch]
        differing = differences(replicas)
        return SeedOutcome(
            seed,
            design,
            len(self._acknowledged),
            lost,
            len(missing) - len(lost),
            len(differing),
            first_difference_text(replicas) if differing else "",
            self.is_stuck,
            [*self.cluster.failures, *self.cluster.world.problems()],
            len(self.schedule.faults),
            self._skipped,
            self.events,
        )

    def _replicas(self) -> ReplicaLogs:
        found = {}
        for broker in self._brokers:
            replica = self.cluster.replica(broker.id, PARTITION)
            stored = self.cluster.records_on_disk(broker.id, PARTITION)
            if replica is not None:
                found[broker.id] = (
                    replica.log.high_watermark,
                    {record.offset: record.value for record in stored},
                )
        return found
