"""The nemesis: what goes wrong in a run, how often and for how long, all drawn from its seed.

It keeps within the contract of RELIABILITY: a machine loses its power, or its disk, only while every other
replica is known to hold all that is committed; else a loss would prove nothing. Only in an outage several lose their
power at once: then what was not flushed may be gone, as Kafka's contract says, and all that was flushed may not.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial

from ottla.metadata.image import PartitionImage
from ottla.metadata.records import NO_LEADER
from ottla.records.batch import HEADER_BYTES
from ottla.replica.partition import Partition, Proposal
from ottla.sim.checkers import Checkers
from ottla.sim.cluster import DATA, METADATA, SimCluster, SimNode
from ottla.sim.coverage import mark
from ottla.sim.disk import CHANGES
from ottla.sim.operator import (
    HIGH_WATERMARK,
    PREFERRED,
    Operator,
    other_replicas,
    some_partition,
)
from ottla.sim.oracle import Seen
from ottla.sim.tcp import NetworkConditions
from ottla.wire.types import TopicPartition

CLIENTS = "clients"
CLOCK_SLOW_MS_MAX = 50 * 60 * 1000
"""A record from more than an hour ahead is refused (message.timestamp.after.max.ms)."""
CLOCK_FAST_MS_MAX = 6 * 60 * 60 * 1000
"""Less than what a silent producer's state outlives, by the wall clock."""


class Absence(Enum):
    """How one node is missing when all else is healed."""

    DEAD = "dead"
    CUT_OFF = "cut off"


@dataclass
class FaultPlan:
    """How a run is troubled: the mean time between faults, and the weight of each kind."""

    every_s: float = 2.0
    weights: dict[str, int] = field(default_factory=dict)
    conditions: NetworkConditions = field(default_factory=NetworkConditions)
    only: frozenset[int] | None = None
    """The numbers of the faults that come about; None for all."""

    @staticmethod
    def draw(chance: random.Random) -> FaultPlan:
        """Each run has a character: most kinds are left out of it, so that the others, and what comes of
        them together, are seen often and undisturbed."""
        count = chance.choice((2, 3, 4, 6, 8, len(SHORT)))
        weights = dict.fromkeys(KINDS, 0)
        weights |= {kind: chance.choice((1, 1, 2, 4)) for kind in chance.sample(SHORT, count)}
        plan = FaultPlan(
            every_s=chance.choice((0.3, 1.0, 2.0, 5.0)),
            weights=weights,
            conditions=NetworkConditions(
                latency_s=chance.choice((0.0002, 0.001, 0.01)),
                jitter_s=chance.choice((0.0, 0.0003, 0.005)),
                spike_rate=chance.choice((0.0, 0.0, 0.002, 0.02)),
                cut_rate=chance.choice((0.0, 0.1, 0.5)),
                reset_rate=chance.choice((0.0, 0.0, 0.0005, 0.002)),
                refuse_rate=chance.choice((0.0, 0.0, 0.02)),
            ),
        )
        weights |= {kind: chance.choice((0, 0, 1, 2)) for kind in LONG}
        return plan

    def leave_out(self, *kinds: str) -> None:
        self.weights |= dict.fromkeys(kinds, 0)
        if not any(self.weights.values()):
            self.weights["kill"] = 1

    def include(self, *kinds: str) -> None:
        self.weights |= {kind: max(1, self.weights.get(kind, 0)) for kind in kinds}

    def favour(self, kind: str) -> None:
        """Two of three faults are of this kind."""
        self.weights[kind] = 2 * sum(self.weights.values())

    def describe(self) -> str:
        kinds = " ".join(f"{kind}:{weight}" for kind, weight in self.weights.items() if weight)
        calm = NetworkConditions()
        network = " ".join(
            f"{name}={value}"
            for name, value in vars(self.conditions).items()
            if value != getattr(calm, name)
        )
        return f"every {self.every_s}s [{kinds}] network [{network or 'calm'}]"


class Nemesis:
    def __init__(
        self,
        cluster: SimCluster,
        checkers: Checkers,
        operator: Operator,
        plan: FaultPlan,
        chance: random.Random,
    ) -> None:
        self.counts: dict[str, int] = {}
        self.struck: list[int] = []
        """The numbers of the faults that came about."""
        self.story: list[str] = []
        self._cluster = cluster
        self._checkers = checkers
        self._operator = operator
        self.on_wrong_disk: list[Callable[[], None]] = []
        """Called before a disk first gives back what was never written to it."""
        self._armed: set[int] = set()
        """Nodes whose disks will fail soon."""
        self._plan = plan
        self._dice = chance
        self._random = random.Random(chance.getrandbits(64))
        """That of the deed which is done now."""
        self._departures = {id: random.Random(chance.getrandbits(64)) for id in cluster.nodes}
        """When a node that left by itself comes back."""
        self._is_over = False
        self._ambushed: dict[int, random.Random] = {}
        """Nodes that lose their power when they are proposed for an ISR, and what chance says about when."""
        self._absent: SimNode | None = None
        """Who is left out when everything else is healed."""
        self._to_unplug: set[int] = set()
        """Nodes whose machines lose their power when they have stopped."""
        self._network = cluster.world.network
        cluster.on_end.append(self._node_left)
        checkers.on_proposal.append(self._spring)

    async def run(self) -> None:
        self._network.conditions = replace(self._plan.conditions, slow_links={})
        kinds = [kind for kind, weight in self._plan.weights.items() if weight]
        weights = [self._plan.weights[kind] for kind in kinds]
        for number in itertools.count():
            # When, of which kind and whatever it draws: when one is left out, the others are as before.
            chance = random.Random(self._dice.getrandbits(64))
            (kind,) = chance.choices(kinds, weights)
            await asyncio.sleep(chance.expovariate(1 / self._plan.every_s))
            if self._is_over:
                return
            if self._plan.only is not None and number not in self._plan.only:
                continue
            with self._drawing_from(chance):
                struck = KINDS[kind](self)
            if struck:
                self.struck.append(number)
                if kind not in PREPARED:
                    self._happened(kind)

    def _happened(self, kind: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1

    @contextmanager
    def _drawing_from(self, chance: random.Random) -> Iterator[None]:
        """Each deed has a chance of its own, however many others are done before it is through."""
        before, self._random = self._random, chance
        try:
            yield
        finally:
            self._random = before

    def end(self, absence: Absence | None = None) -> SimNode | None:
        """No more faults; every machine, disk and line is whole again. One that the others can do without may be
        left out."""
        self._is_over = True
        self._absent = None if absence is None else self._dispensable()
        world = self._cluster.world
        self._checkers.note_everywhere("everything is healed")
        self._network.conditions = NetworkConditions()
        self._network.heal()
        self._armed.clear()
        # Only one gets a new disk, for the sake of the quorum: one that has not noticed its damage yet.
        doubtful = self._checkers.doubtful_nodes()
        for node in sorted(self._cluster.nodes.values(), key=lambda node: node.id not in doubtful):
            node.host.disk.mend()
            node.host.disk.forget_death()
            node.host.clock.wall_error_ms = 0
            if node.host.disk.is_wrong and self._others_vote(node):
                self._empty_disk(node)
            world.loop.executor_delays_s.pop(node.host.name, None)
            process = node.process
            if process is not None and process.paused:
                node.host.resume()
            if node.has_failed_disk or node.host.disk.has_lost_pages:
                self._checkers.power_lost(node.id)
                node.kill(power_loss=True)
            if not node.is_up and node is not self._absent:
                node.start()
        if self._absent is not None and absence is Absence.DEAD:
            self._kill(self._absent)
        elif self._absent is not None:
            name = self._absent.host.name
            self._say(f"isolates {name} for good")
            others = [other for other in self._names() if other != name]
            self._network.partition([name], [*others, CLIENTS])
        return self._absent

    def _dispensable(self) -> SimNode | None:
        """One without which the others are a quorum and have, in sync or eligible, everything that is committed."""
        able = [
            node.id
            for node in self._cluster.nodes.values()
            if node.state == "up"
            and not (node.has_failed_disk or node.host.disk.has_lost_pages)
            and not node.host.disk.is_wrong
        ]
        found = [
            node
            for node in self._cluster.nodes.values()
            if not {id for id in self._cluster.nodes if id != node.id}.difference(able)
            and self._others_vote(node)
            and self._checkers.may_lose(node.id)
        ]
        return self._dice.choice(found) if found else None

    def replace_a_wrong_disk(self, *, at_any_cost: bool) -> None:
        """A leader whose log is damaged, where others have yet to copy it, does not get over it by itself."""
        nodes = list(self._cluster.nodes.values())
        for node in nodes:
            if (
                node.host.disk.is_wrong
                and all(other.state == "up" for other in nodes)
                and self._others_vote(node)
                and (at_any_cost or self._checkers.may_lose(node.id))
            ):
                self._empty_disk(node)
                self._start(node)
                return

    def bring_back(self, node: SimNode) -> None:
        self._absent = None
        self._network.heal()
        self._start(node)

    # Machines

    def _later(self, shortest_s: float, longest_s: float, work: Callable[[], object]) -> None:
        """Unless everything is healed by then."""
        delay_s = self._random.uniform(shortest_s, longest_s)
        self._after(delay_s, lambda: None if self._is_over else work())

    def _after(self, delay_s: float, work: Callable[[], object]) -> None:
        """Whatever the work draws, it draws from a chance that is drawn now."""
        chance = random.Random(self._random.getrandbits(64))

        def due() -> None:
            with self._drawing_from(chance):
                work()

        self._cluster.world.loop.after_s(delay_s, due)

    def _pick(self, *states: str) -> SimNode | None:
        nodes = [node for node in self._cluster.nodes.values() if node.state in states]
        return self._random.choice(nodes) if nodes else None

    def _say(self, what: str) -> None:
        self._cluster.world.loop.trace("nemesis", what)
        self.story.append(f"{self._cluster.world.loop.time():.6f} {what}")
        self._checkers.note_everywhere(what)

    def _start(self, node: SimNode) -> None:
        if node.is_up or node is self._absent:
            return
        if node.host.disk.has_lost_pages:
            self._replace_disk(node)
        else:
            self._say(f"starts node {node.id}")
            node.start()

    def _start_later(self, node: SimNode) -> None:
        longest = self._random.choice((0.05, 1.0, 5.0, 15.0))
        self._after(self._random.uniform(0.001, longest), partial(self._start, node))

    def _node_left(self, node: SimNode, failure: BaseException | None) -> None:
        self._say(f"node {node.id} left" + (f": {failure!r}" if failure else ""))
        with self._drawing_from(self._departures[node.id]):
            if node.has_failed_disk:
                self._after(0, partial(self._replace_disk, node))
            else:
                if node.id in self._to_unplug:
                    self._later(0, 0, partial(self._cut_power, node))
                self._start_later(node)
        self._to_unplug.discard(node.id)

    def kill(self) -> bool:
        node = self._pick("up", "up", "starting", "paused", "stopping")
        if node is None:
            return False
        self._kill(node)
        self._start_later(node)
        return True

    def _may_harm(self, node: SimNode) -> bool:
        """Unless another may lack something already, or soon."""
        harmed = {*self._checkers.doubtful_nodes(), *self._armed} | {
            other.id for other in self._cluster.nodes.values() if other.host.disk.has_lost_pages
        }
        return not harmed - {node.id}

    def power_loss(self) -> bool:
        node = self._pick("up", "starting", "paused", "down")
        if node is None or not self._cut_power(node):
            return False
        self._start_later(node)
        return True

    def _cut_power(self, node: SimNode) -> bool:
        if not self._may_harm(node):
            return False
        self._lose_power(node)
        return True

    def _lose_power(self, node: SimNode) -> None:
        self._say(f"cuts the power of node {node.id}")
        self._checkers.power_lost(node.id)
        node.kill(power_loss=True)

    def power_off(self) -> bool:
        """A planned one: the process stops in good order first, so nothing is lost."""
        if not self.stop():
            return False
        self._to_unplug.update(n.id for n in self._cluster.nodes.values() if n.is_stopping)
        return True

    def relapse(self) -> bool:
        """A machine that loses its power again and again, each time when it is just back; two others may
        not hear of it from each other meanwhile, or what they tell the controller comes late."""
        node = self._pick("up")
        if node is None or not self._cut_power(node):
            return False
        one, other = [name for name in self._names() if name != node.host.name][:2]
        disturbance = self._random.choice(("none", "cut", "slow", "slow"))
        if disturbance == "cut":
            self._say(f"parts {one} from {other} only")
            self._network.partition([one], [other])
            self._heal_later()
        elif disturbance == "slow":
            controller = self._active_controller()
            delay_s = self._random.choice((0.3, 0.7, 1.4))
            for name in self._names():
                if controller is not None and name != node.host.name:
                    self._slow(name, controller.host.name, delay_s, 10.0)
        at = 0.0
        for _ in range(self._random.randint(2, 5)):
            at += self._random.uniform(0.01, 0.2)
            self._later(at, at, lambda: self._start(node))
            at += self._random.choice((0.3, 1.0, 3.0)) * self._random.uniform(0.3, 1.0)
            self._later(at, at, lambda: self._cut_power(node))
        at += self._random.uniform(0.02, 3.0)
        self._later(at, at, lambda: self._start(node))
        return True

    def ambush(self) -> bool:
        """A machine goes down and is back at once. Either it loses it again when it is proposed for an
        ISR, and proposals reach the controller late; or its leaders hear late from it how far it has got."""
        controller = self._active_controller()
        nodes = [node for node in self._cluster.up if node.state == "up" and node is not controller]
        if controller is None or not nodes:
            return False
        node = self._random.choice(nodes)
        if not self._fell(node):
            return False
        others = [
            name for name in self._names() if name not in (node.host.name, controller.host.name)
        ]
        delay_s = self._random.choice((0.3, 0.7, 1.4))
        if self._random.random() < 0.5:
            self._ambushed[node.id] = random.Random(self._random.getrandbits(64))
            for name in others:
                self._slow(name, controller.host.name, delay_s, 10.0)
        else:
            for name in others:
                self._slow(node.host.name, name, delay_s, 10.0)
        self._later(0.01, 0.2, partial(self._start, node))
        return True

    def _spring(self, partition: Partition, proposal: Proposal) -> None:
        for id, _ in proposal.isr:
            if id not in partition.isr and id in self._ambushed and not self._is_over:
                chance, node = self._ambushed.pop(id), self._cluster.nodes[id]
                after_s = self._cluster.world.loop.after_s
                after_s(chance.uniform(0.0, 0.02), partial(self._fell_again, node))
                after_s(chance.uniform(0.03, 0.1), self._start, node)

    def _fell_again(self, node: SimNode) -> None:
        self._fell(node)

    def _fell(self, node: SimNode) -> bool:
        """The process dies, and everybody sees its connections close; then the power goes. So the controller
        need not wait for a session to end before the next life may register."""
        if self._is_over or not self._may_harm(node):
            return False
        self._kill(node)
        return self._cut_power(node)

    def tug(self) -> bool:
        """Two replicas of a partition cannot reach each other and lead it in turn, and both stay in sync: each
        has records that the other never saw. Then they meet, and it goes on like that for a while."""
        found, controller = self._some_partition(), self._active_controller()
        if found is None or controller is None:
            return False
        key, partition = found
        able = [
            id
            for id in partition.isr
            if id != controller.id and self._cluster.nodes[id].state == "up"
        ]
        if len(able) < 2:
            return False
        one, other = self._random.sample(able, 2)
        others = [id for id in partition.replicas if id not in (one, other)]
        apart = [self._cluster.nodes[id].host.name for id in (one, other)]
        self._say(f"parts {apart[0]} from {apart[1]}, which are to lead {key} in turn")
        self._network.partition(apart[:1], apart[1:])
        at = 0.0
        meet = self._random.randint(3, 7)
        for turn in range(meet + self._random.randint(0, 4)):
            if turn == meet:
                self._later(at, at, self._network.heal)
            self._later(at, at, partial(self._lead_by, key, [one, other, *others]))
            at += self._random.uniform(0.3, 1.2)
            one, other = other, one
        self._later(at, at, self._network.heal)
        return True

    def hop(self) -> bool:
        """Leadership of one partition moves on, time and again: each leader is cut off from the other nodes
        for a while, and clients may still reach it."""
        found = self._some_partition()
        if found is None:
            return False
        at = 0.0
        for _ in range(self._random.randint(2, 5)):
            self._later(at, at, partial(self._cut_off_leader, found[0]))
            at += self._random.uniform(0.5, 5.0)
            self._later(at, at, self._network.heal)
            at += self._random.uniform(0.05, 3.0)
        return True

    def _cut_off_leader(self, key: TopicPartition) -> None:
        topic = self._checkers.image.topics.get(key.topic)
        leader = NO_LEADER if topic is None else topic.partitions[key.partition].leader
        if leader != NO_LEADER:
            name = self._cluster.nodes[leader].host.name
            self._say(f"isolates {name}, which leads {key}")
            self._network.partition([name], [other for other in self._names() if other != name])

    def swing(self) -> bool:
        """Leadership of one partition goes round among its replicas, which stay in sync; the news of it may
        reach one of them late."""
        found = self._some_partition()
        if found is None:
            return False
        key, partition = found
        controller = self._active_controller()
        if controller is not None and self._random.random() < 0.7:
            late = self._cluster.nodes[self._random.choice(partition.replicas)].host.name
            self._slow(late, controller.host.name, self._random.choice((0.2, 1.0)), 10.0)
        replicas, at = list(partition.replicas), 0.0
        for _ in range(self._random.randint(2, 8)):
            replicas = [*replicas[1:], replicas[0]]
            self._later(at, at, partial(self._lead_by, key, replicas))
            at += self._random.uniform(0.05, 1.5)
        return True

    def _lead_by(self, key: TopicPartition, replicas: list[int]) -> None:
        self._say(f"wants {key} to be led by {replicas[0]}")
        self._operator.reassign(key, replicas)
        self._later(0.01, 0.1, lambda: self._operator.elect(key, PREFERRED))

    def blackout(self) -> bool:
        """All processes are killed at once."""
        self._say("kills all nodes")
        for node in self._cluster.up:
            node.kill()
            self._start_later(node)
        return True

    def outage(self) -> bool:
        """Several machines lose their power in the same moment, or all of them."""
        nodes = list(self._cluster.nodes.values())
        if not self._all_are_whole():
            return False
        count = self._random.choice((2, len(nodes), len(nodes)))
        for node in self._random.sample(nodes, count):
            self._lose_power(node)
            self._start_later(node)
        return True

    def _all_are_whole(self) -> bool:
        return all(self._may_harm(node) for node in self._cluster.nodes.values())

    def seesaw(self) -> bool:
        """Two machines that are not up together: each comes back when the other is just gone. If there are
        partitions with no other replicas, they are those of one of them."""
        pairs = [
            [self._cluster.nodes[id] for id in partition.replicas]
            for topic in self._checkers.image.topics.values()
            for partition in topic.partitions
            if len(partition.replicas) == 2
        ]
        one, other = self._random.sample(
            self._random.choice(pairs or [list(self._cluster.nodes.values())]), 2
        )
        at = 0.0
        for _ in range(self._random.randint(2, 5)):
            self._later(at, at, partial(self._kill, one))
            back = at + self._random.uniform(0.02, 0.5)
            self._later(back, back, partial(self._start, other))
            at += self._random.uniform(0.5, 4.0)
            one, other = other, one
        for node in (one, other):
            self._later(at, at + 2.0, partial(self._start, node))
        return True

    def _kill(self, node: SimNode) -> None:
        if node.is_up:
            self._say(f"kills node {node.id}")
            node.kill()

    def stop(self) -> bool:
        """Half of the time, the active controller."""
        node = self._active_controller() if self._random.random() < 0.5 else self._pick("up")
        if node is None:
            return False
        self._say(f"stops node {node.id}")
        node.stop()
        return True

    def _active_controller(self) -> SimNode | None:
        for node in self._cluster.nodes.values():
            quorum = node.node.quorum if node.node is not None else None
            if node.state == "up" and quorum is not None and quorum.is_active:
                return node
        return None

    def clock(self) -> bool:
        """A wall clock is set, forward or back."""
        node = self._random.choice(list(self._cluster.nodes.values()))
        error_ms = self._random.choice(
            (
                0,
                -self._random.randrange(CLOCK_SLOW_MS_MAX),
                self._random.randrange(CLOCK_FAST_MS_MAX),
            )
        )
        self._say(f"sets the clock of node {node.id} to {error_ms / 1000:+.3f} s")
        node.host.clock.wall_error_ms = error_ms
        return True

    def pause(self) -> bool:
        node = self._pick("up", "starting")
        if node is None:
            return False
        self._say(f"pauses node {node.id}")
        node.host.pause()
        process = node.process

        def resume() -> None:
            if node.process is process and process is not None and process.paused:
                self._say(f"resumes node {node.id}")
                node.host.resume()

        self._later(0.05, self._random.choice((0.5, 5.0, 20.0)), resume)
        return True

    # Lines

    def _names(self) -> list[str]:
        names = [node.host.name for node in self._cluster.nodes.values()]
        self._random.shuffle(names)
        return names

    def _heal_later(self) -> None:
        def heal() -> None:
            self._say("heals the network")
            self._network.heal()

        self._later(0.1, self._random.choice((1.0, 5.0, 20.0)), heal)

    def isolate(self) -> bool:
        name = self._names()[0]
        others = [other for other in self._names() if other != name]
        if self._random.random() < 0.5:
            others.append(CLIENTS)
        self._say(f"isolates {name}")
        self._network.partition([name], others)
        self._heal_later()
        return True

    def halves(self) -> bool:
        names = self._names()
        cut = self._random.randint(1, len(names) - 1)
        self._say(f"parts {sorted(names[:cut])} from {sorted(names[cut:])}")
        self._network.partition(names[:cut], names[cut:])
        self._heal_later()
        return True

    def one_way(self) -> bool:
        source, target = self._names()[:2]
        self._say(f"lets nothing pass from {source} to {target}")
        self._network.block(source, target)
        self._heal_later()
        return True

    def bridge(self) -> bool:
        one, other = self._names()[:2]
        self._say(f"parts {one} from {other} only")
        self._network.partition([one], [other])
        self._heal_later()
        return True

    def flap(self) -> bool:
        """A line that comes and goes."""
        one, other = self._names()[:2]
        self._say(f"lets the line between {one} and {other} flap")
        at = 0.0
        for _ in range(self._random.randint(2, 6)):
            at += self._random.uniform(0.05, 2.0)
            self._later(at, at, lambda: self._network.partition([one], [other]))
            at += self._random.uniform(0.05, 2.0)
            self._later(at, at, self._network.heal)
        return True

    def reset(self) -> bool:
        node = self._pick("up", "starting", "paused")
        if node is None:
            return False
        self._say(f"resets the connections of node {node.id}")
        node.host.reset_connections()
        return True

    def slow_line(self) -> bool:
        """Half of the time, that of a node to the active controller."""
        source, target = self._names()[:2]
        controller = self._active_controller()
        if controller is not None and self._random.random() < 0.5:
            target = controller.host.name
            source = next(name for name in self._names() if name != target)
        self._slow(source, target, self._random.choice((0.02, 0.2, 1.0)), 15.0)
        return True

    def _slow(self, source: str, target: str, delay_s: float, longest_s: float) -> None:
        if source == target:
            return
        self._say(f"slows the line from {source} to {target} by {delay_s} s")
        links = self._network.conditions.slow_links
        links[source, target] = delay_s

        def mend() -> None:
            links.pop((source, target), None)

        self._later(1.0, longest_s, mend)

    # Disks

    def slow_disk(self) -> bool:
        node = self._pick("up")
        if node is None:
            return False
        self._say(f"slows the disk of node {node.id}")
        node.host.slow_disk(0.01, self._random.choice((0.1, 0.5, 2.0)))
        self._later(1.0, 10.0, lambda: node.host.slow_disk(0.00005, 0.002))
        return True

    def disk_fault(self) -> bool:
        """A log directory fails for good; a new process finds the disk mended."""
        node = self._pick("up")
        if node is None or not self._may_harm(node):
            return False
        operation = self._random.choice(("write", "flush", "rename", "flush_dir", "open"))
        where = self._random.choice((DATA, DATA, METADATA))
        error = self._random.choice((errno.EIO, errno.ENOSPC))
        self._say(f"lets a {operation} of node {node.id} in {where} fail")
        strikes = partial(self._happened, "disk_fault")
        node.host.disk.fail(operation, where, error=error, times=1, strikes=strikes)
        self._mend_later(node)
        return True

    def full_disk(self) -> bool:
        """There is room for little more, or for nothing."""
        node = self._pick("up")
        if node is None or not self._may_harm(node):
            return False
        self._say(f"fills the disk of node {node.id}")
        on_full = partial(self._happened, "full_disk")
        node.host.disk.fill(self._random.choice((0, 100, 5000)), on_full)
        self._mend_later(node)
        return True

    def _mend_later(self, node: SimNode) -> None:
        self._armed.add(node.id)

        def mend() -> None:
            self._armed.discard(node.id)
            node.host.disk.mend()
            if node.has_failed_disk:
                self._replace_disk(node)

        self._later(1.0, 10.0, mend)

    def die_midway(self) -> bool:
        """A process dies between two changes of its disk: while it runs, stops or starts. Sometimes its machine
        loses its power then."""
        node = self._pick("up", "starting", "stopping")
        if node is None or node.host.disk.is_doomed:
            return False
        change = self._random.choice((None, None, "rename", "remove", "truncate", *CHANGES))
        countdown = self._random.randint(1, self._random.choice((1, 3, 30 if change else 300)))
        with_power = self._random.random() < 0.5
        self._say(f"lets node {node.id} die before its {countdown}. {change or 'change'} from now")

        def is_power_loss() -> bool:
            return with_power and self._may_harm(node)

        node.host.die_before(change, countdown, is_power_loss, partial(self._died, node))
        occasion = self._random.choice(("none", "none", "stop", "start"))
        if occasion == "stop" and node.state == "up":
            node.stop()
        elif occasion == "start":
            self._kill(node)
            self._later(0.001, 0.2, partial(self._start, node))
        self._later(1.0, 20.0, node.host.disk.forget_death)
        return True

    def _died(self, node: SimNode, change: str, power_loss: bool) -> None:
        how = "with the power of its machine" if power_loss else "alone"
        self._say(f"node {node.id} dies before a {change}, {how}")
        self._happened("die_midway")
        mark(f"died before a {change}")
        self._checkers.died_midway(node.id)
        if power_loss:
            self._checkers.power_lost(node.id)
        node.kill(power_loss=power_loss)
        with self._drawing_from(self._departures[node.id]):
            self._start_later(node)

    def empty_disk(self) -> bool:
        """A machine comes back with a new disk; another has all that it had."""
        node = self._random.choice(list(self._cluster.nodes.values()))
        voters = [other.node.quorum for other in self._cluster.nodes.values() if other.node]
        all_vote = all(quorum is not None and quorum.raft.has_vote for quorum in voters)
        if not (
            self._may_harm(node)
            and self._checkers.may_lose(node.id)
            and all_vote
            and len(voters) == len(self._cluster.nodes)
        ):
            return False
        self._empty_disk(node)
        self._start_later(node)
        return True

    def _others_vote(self, node: SimNode) -> bool:
        """Whether no other node has lost what it promised as a voter."""
        others = [other for other in self._cluster.nodes.values() if other is not node]
        return all(self._checkers.has_vote(other.id) for other in others)

    def _empty_disk(self, node: SimNode) -> None:
        self._say(f"gives node {node.id} an empty disk")
        node.kill(power_loss=True)
        node.host.disk.wipe()
        self._checkers.disk_replaced(node.id)

    def rot(self) -> bool:
        """A bit of a segment that is closed and flushed is no longer what it was."""
        found = self._some_closed_segment()
        if found is None:
            return False
        node, key, path, batch = found
        for callback in self.on_wrong_disk:
            callback()
        self._checkers.disk_is_wrong(node.id, key)
        at = self._random.randrange(batch.position + HEADER_BYTES, batch.position + batch.size)
        self._say(f"lets a bit of {path} on node {node.id} rot, at {at}")
        node.host.disk.rot(path, at)
        return True

    def misdirect(self) -> bool:
        """A write to the end of a log lands elsewhere in the file."""
        node = self._pick("up")
        if node is None or not (self._may_harm(node) and self._checkers.may_lose(node.id)):
            return False
        keys = self._checkers.replicas_on(node.id)
        if not keys:
            return False
        key = self._random.choice(keys)
        log = self._checkers.log_of(node.id, key)
        path = f"{log.path}/{log.segment_bases[-1]:020d}.log"
        self._say(f"misdirects the next write to {path} on node {node.id}")

        def strikes() -> None:
            for callback in self.on_wrong_disk:
                callback()
            self._checkers.disk_is_wrong(node.id, key)
            self._happened("misdirect")

        node.host.disk.fail("misdirect", path, times=1, strikes=strikes)
        self._mend_later(node)
        return True

    def _some_closed_segment(self) -> tuple[SimNode, TopicPartition, str, Seen] | None:
        node = self._pick("up")
        if node is None or not (self._may_harm(node) and self._checkers.may_lose(node.id)):
            return None
        found = []
        for key in self._checkers.replicas_on(node.id):
            log = self._checkers.log_of(node.id, key)
            found += [
                (node, key, f"{log.path}/{batch.segment:020d}.log", batch)
                for batch in self._checkers.copy_of(node.id, key).batches
                if batch.segment in log.segment_bases[:-1] and batch.end <= log.recovery_point
            ]
        return self._random.choice(found) if found else None

    def _replace_disk(self, node: SimNode) -> None:
        """What a failed flush did not write is not written by the next one either, though it can still be
        read: after such a failure the machine has to be started anew, not only the process."""
        self._say(f"mends the disk of node {node.id}")
        self._checkers.power_lost(node.id)
        node.kill(power_loss=True)
        self._start_later(node)

    # Somebody administers

    def _some_partition(self) -> tuple[TopicPartition, PartitionImage] | None:
        return some_partition(self._checkers.image, self._random)

    def elect_preferred(self) -> bool:
        found = self._some_partition()
        if found is None:
            return False
        self._say(f"elects the preferred leader of {found[0]}")
        self._operator.elect(found[0], PREFERRED, partial(self._happened, "elect_preferred"))
        return True

    def reassign(self) -> bool:
        """Perhaps to brokers that are down; perhaps it is cancelled, or another one follows."""
        found = self._some_partition()
        if found is None:
            return False
        key, partition = found
        wished = other_replicas(partition, list(self._cluster.nodes), self._random)
        self._say(f"moves {key} from {list(partition.replicas)} to {wished}")
        self._operator.reassign(key, wished, partial(self._happened, "reassign"))
        if self._random.random() < 0.4:
            longest = self._random.choice((0.02, 0.2, 3.0))
            self._later(0.001, longest, lambda: self._cancel(key))
        return True

    def _cancel(self, key: TopicPartition) -> None:
        self._say(f"cancels the reassignment of {key}")
        self._operator.reassign(key, None)

    def min_isr(self) -> bool:
        found = self._some_partition()
        if found is None:
            return False
        value = str(self._random.randint(1, len(found[1].replicas)))
        self._say(f"sets min.insync.replicas of {found[0].topic} to {value}")
        done = partial(self._happened, "min_isr")
        self._operator.configure(found[0].topic, "min.insync.replicas", value, done)
        return True

    def retention(self) -> bool:
        found = self._some_partition()
        if found is None:
            return False
        value = self._random.choice(("-1", "0", "2000", "20000"))
        self._say(f"sets retention.bytes of {found[0].topic} to {value}")
        done = partial(self._happened, "retention")
        self._operator.configure(found[0].topic, "retention.bytes", value, done)
        return True

    def delete_records(self) -> bool:
        found = self._some_partition()
        if found is None:
            return False
        key = found[0]
        end = self._checkers.ledgers[key].end if key in self._checkers.ledgers else 0
        offset = HIGH_WATERMARK if self._random.random() < 0.3 else self._random.randint(0, end)
        self._say(f"deletes the records of {key} below {offset}")
        self._checkers.expiry.asked(key, offset)
        self._operator.delete_records(key, offset, partial(self._happened, "delete_records"))
        return True

    def recreate(self) -> bool:
        """One at a time: whoever makes it anew must know its shape."""
        found = self._some_partition()
        if found is None or self._operator.is_busy:
            return False
        name = found[0].topic
        self._say(f"deletes {name} and makes it anew")
        wait_s = self._random.choice((0.0, 0.1, 2.0))
        done = partial(self._happened, "recreate")
        self._operator.recreate(self._checkers.image, name, wait_s, done)
        return True


KINDS: dict[str, Callable[[Nemesis], bool]] = {
    "kill": Nemesis.kill,
    "power_loss": Nemesis.power_loss,
    "stop": Nemesis.stop,
    "pause": Nemesis.pause,
    "isolate": Nemesis.isolate,
    "halves": Nemesis.halves,
    "one_way": Nemesis.one_way,
    "bridge": Nemesis.bridge,
    "flap": Nemesis.flap,
    "reset": Nemesis.reset,
    "slow_line": Nemesis.slow_line,
    "slow_disk": Nemesis.slow_disk,
    "disk_fault": Nemesis.disk_fault,
    "full_disk": Nemesis.full_disk,
    "empty_disk": Nemesis.empty_disk,
    "rot": Nemesis.rot,
    "misdirect": Nemesis.misdirect,
    "die_midway": Nemesis.die_midway,
    "clock": Nemesis.clock,
    "elect_preferred": Nemesis.elect_preferred,
    "reassign": Nemesis.reassign,
    "min_isr": Nemesis.min_isr,
    "retention": Nemesis.retention,
    "delete_records": Nemesis.delete_records,
    "recreate": Nemesis.recreate,
    "power_off": Nemesis.power_off,
    "relapse": Nemesis.relapse,
    "blackout": Nemesis.blackout,
    "outage": Nemesis.outage,
    "seesaw": Nemesis.seesaw,
    "hop": Nemesis.hop,
    "swing": Nemesis.swing,
    "ambush": Nemesis.ambush,
    "tug": Nemesis.tug,
}

PREPARED = frozenset(
    (
        *(
            "disk_fault",
            "full_disk",
            "misdirect",
            "die_midway",
            "elect_preferred",
            "reassign",
            "min_isr",
        ),
        *("retention", "delete_records", "recreate"),
    )
)
"""Kinds that count when they come true, not when they are prepared or asked for."""
LONG = ("power_off", "relapse", "blackout", "outage", "seesaw", "hop", "swing")
"""Kinds that trouble the whole cluster for a while: most runs do without."""
STAGED = ("ambush", "tug")
"""Kinds that a profile favours; no other run has them."""
SHORT = tuple(kind for kind in KINDS if kind not in (*LONG, *STAGED))
