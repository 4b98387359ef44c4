"""The nemesis: what goes wrong in a run, how often and for how long, all drawn from its seed.

It keeps within the contract of RELIABILITY: a machine loses its power, or its disk, only while every other
replica is known to hold all that is committed; else a loss would prove nothing.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from ottla.sim.checkers import Checkers
from ottla.sim.cluster import DATA, SimCluster, SimNode
from ottla.sim.tcp import NetworkConditions

CLIENTS = "clients"


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
        """Some kinds are left out of a run, so that others are seen undisturbed."""
        weights = {kind: chance.choice((0, 1, 1, 2, 4)) for kind in KINDS if kind not in LONG}
        if not any(weights.values()):
            weights["kill"] = 1
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
        weights |= {kind: chance.choice((0, 0, 1, 2, 4)) for kind in LONG}
        return plan

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
        self, cluster: SimCluster, checkers: Checkers, plan: FaultPlan, chance: random.Random
    ) -> None:
        self.counts: dict[str, int] = {}
        self.struck: list[int] = []
        """The numbers of the faults that came about."""
        self.story: list[str] = []
        self._cluster = cluster
        self._checkers = checkers
        self._plan = plan
        self._dice = chance
        self._random = random.Random(chance.getrandbits(64))
        self._is_over = False
        self._to_unplug: set[int] = set()
        """Nodes whose machines lose their power when they have stopped."""
        self._network = cluster.world.network
        cluster.on_end.append(self._node_left)

    async def run(self) -> None:
        self._network.conditions = self._plan.conditions
        kinds = [kind for kind, weight in self._plan.weights.items() if weight]
        weights = [self._plan.weights[kind] for kind in kinds]
        for number in itertools.count():
            # Each fault has a chance of its own: when one is left out, the others are drawn as before.
            self._random = random.Random(self._dice.getrandbits(64))
            await asyncio.sleep(self._random.expovariate(1 / self._plan.every_s))
            if self._is_over:
                return
            (kind,) = self._random.choices(kinds, weights)
            if self._plan.only is not None and number not in self._plan.only:
                continue
            if KINDS[kind](self):
                self.counts[kind] = self.counts.get(kind, 0) + 1
                self.struck.append(number)

    def end(self) -> None:
        """No more faults; every machine, disk and line is whole again."""
        self._is_over = True
        world = self._cluster.world
        self._checkers.note_everywhere("everything is healed")
        self._network.conditions = NetworkConditions()
        self._network.heal()
        for node in self._cluster.nodes.values():
            node.host.disk.mend()
            world.loop.executor_delays_s.pop(node.host.name, None)
            process = node.process
            if process is not None and process.paused:
                node.host.resume()
            if node.has_failed_disk:
                self._checkers.power_lost(node.id)
                node.kill(power_loss=True)
            if not node.is_up:
                node.start()

    # Machines

    def _later(self, shortest_s: float, longest_s: float, work: Callable[[], object]) -> None:
        def due() -> None:
            if not self._is_over:
                work()

        delay = self._random.uniform(shortest_s, longest_s)
        self._cluster.world.loop.after_s(delay, due)

    def _pick(self, *states: str) -> SimNode | None:
        nodes = [node for node in self._cluster.nodes.values() if node.state in states]
        return self._random.choice(nodes) if nodes else None

    def _say(self, what: str) -> None:
        self._cluster.world.loop.trace("nemesis", what)
        self.story.append(f"{self._cluster.world.loop.time():.6f} {what}")
        self._checkers.note_everywhere(what)

    def _start(self, node: SimNode) -> None:
        if not node.is_up:
            self._say(f"starts node {node.id}")
            node.start()

    def _start_later(self, node: SimNode) -> None:
        longest = self._random.choice((0.05, 1.0, 5.0, 15.0))
        delay = self._random.uniform(0.001, longest)
        self._cluster.world.loop.after_s(delay, self._start, node)

    def _node_left(self, node: SimNode, failure: BaseException | None) -> None:
        self._say(f"node {node.id} left" + (f": {failure!r}" if failure else ""))
        if node.has_failed_disk:
            self._cluster.world.loop.after_s(0, self._replace_disk, node)
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

    def power_loss(self) -> bool:
        node = self._pick("up", "starting", "paused", "down")
        if node is None or not self._cut_power(node):
            return False
        self._start_later(node)
        return True

    def _cut_power(self, node: SimNode) -> bool:
        """Unless another may lack something already."""
        if any(id != node.id for id in self._checkers.doubtful_nodes()):
            return False
        self._say(f"cuts the power of node {node.id}")
        self._checkers.power_lost(node.id)
        node.kill(power_loss=True)
        return True

    def power_off(self) -> bool:
        """A planned one: the process stops in good order first, so nothing is lost."""
        if not self.stop():
            return False
        self._to_unplug.update(n.id for n in self._cluster.nodes.values() if n.is_stopping)
        return True

    def relapse(self) -> bool:
        """A machine that loses its power again and again, each time when it is just back; two others may
        not hear of it from each other meanwhile."""
        node = self._pick("up")
        if node is None or not self._cut_power(node):
            return False
        if self._random.random() < 0.5:
            one, other = [name for name in self._names() if name != node.host.name][:2]
            self._say(f"parts {one} from {other} only")
            self._network.partition([one], [other])
            self._heal_later()
        at = 0.0
        for _ in range(self._random.randint(2, 5)):
            at += self._random.uniform(0.02, 0.5)
            self._later(at, at, lambda: self._start(node))
            at += self._random.uniform(0.1, 3.0)
            self._later(at, at, lambda: self._cut_power(node))
        at += self._random.uniform(0.02, 3.0)
        self._later(at, at, lambda: self._start(node))
        return True

    def blackout(self) -> bool:
        """All processes are killed at once."""
        self._say("kills all nodes")
        for node in self._cluster.up:
            node.kill()
            self._start_later(node)
        return True

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
        node = self._pick("up")
        if node is None:
            return False
        self._say(f"stops node {node.id}")
        node.stop()
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
        source, target = self._names()[:2]
        self._say(f"slows the line from {source} to {target}")
        delay = self._random.choice((0.02, 0.2, 1.0))
        self._network.conditions.slow_links[source, target] = delay
        links = self._network.conditions.slow_links

        def mend() -> None:
            links.pop((source, target), None)

        self._later(1.0, 15.0, mend)
        return True

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
        if node is None or any(id != node.id for id in self._checkers.doubtful_nodes()):
            return False
        operation = self._random.choice(("write", "flush"))
        error = self._random.choice((errno.EIO, errno.ENOSPC))
        self._say(f"lets a {operation} of node {node.id} fail")
        node.host.disk.fail(operation, DATA, error=error, times=1)

        def mend() -> None:
            node.host.disk.mend()
            if node.has_failed_disk:
                self._replace_disk(node)

        self._later(1.0, 10.0, mend)
        return True

    def _replace_disk(self, node: SimNode) -> None:
        """What a failed flush did not write is not written by the next one either, though it can still be
        read: after such a failure the machine has to be started anew, not only the process."""
        self._say(f"mends the disk of node {node.id}")
        self._checkers.power_lost(node.id)
        node.kill(power_loss=True)
        self._start_later(node)


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
    "power_off": Nemesis.power_off,
    "relapse": Nemesis.relapse,
    "blackout": Nemesis.blackout,
    "seesaw": Nemesis.seesaw,
}

LONG = ("power_off", "relapse", "blackout", "seesaw")
"""Kinds that trouble the whole cluster for a while: most runs do without."""
