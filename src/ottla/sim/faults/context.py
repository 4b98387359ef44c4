"""What every fault needs: nodes to strike, random numbers of its own, and nodes that start again.

The faults are methods of its subclasses, by theme. `registry` lists them, `Nemesis` lets them strike.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from ottla.metadata.image import PartitionImage
from ottla.sim.clients.mover import Mover
from ottla.sim.clients.operator import (
    PREFERRED,
    Operator,
    some_partition,
)
from ottla.sim.cluster.nodes import SimCluster, SimNode
from ottla.sim.engine.tcp import Way
from ottla.sim.oracle.evidence import Evidence
from ottla.wire.types import TopicPartition

CLIENTS = "clients"
"""The host of all clients."""


class FaultContext:
    """The cluster as faults see it, with the helpers that several faults share."""

    def __init__(
        self,
        cluster: SimCluster,
        evidence: Evidence,
        operator: Operator,
        mover: Mover,
        chance: random.Random,
    ) -> None:
        self.counts: dict[str, int] = {}
        self.struck: list[int] = []
        """The numbers of the faults that struck (`FaultPlan.only`)."""
        self.log: list[str] = []
        """What was announced, each line with its time."""
        self._cluster = cluster
        self._evidence = evidence
        self._operator = operator
        self._mover = mover
        self.on_wrong_disk: list[Callable[[], None]] = []
        """Called before a disk first returns other bytes than were written to it."""
        self._failing_soon: set[int] = set()
        """Nodes whose disks will fail soon."""
        self._plan_random = chance
        """Decides when which fault strikes."""
        self._random = random.Random(chance.getrandbits(64))
        """Of the fault that strikes now."""
        self._restart_random = {id: random.Random(chance.getrandbits(64)) for id in cluster.nodes}
        """By node: decides when it is started after its process ended by itself."""
        self._is_over = False
        """Everything is healed, or about to be: no fault strikes any more."""
        self._ambushed: dict[int, random.Random] = {}
        """Nodes that lose their power when they are proposed for an ISR, each with the generator for its times."""
        self._absent: SimNode | None = None
        """The node that stays down, or cut off, while everything else is healed."""
        self._to_unplug: set[int] = set()
        """Nodes whose machines lose their power when their controlled shutdown is complete."""
        self._network = cluster.world.network

    def _count(self, kind: str) -> None:
        """A fault of this kind has taken effect."""
        self.counts[kind] = self.counts.get(kind, 0) + 1

    @contextmanager
    def _drawing_from(self, chance: random.Random) -> Iterator[None]:
        """Each fault draws from a generator of its own, whatever strikes before its last step."""
        before, self._random = self._random, chance
        try:
            yield
        finally:
            self._random = before

    def _later(self, shortest_s: float, longest_s: float, work: Callable[[], object]) -> None:
        """After a random time between the two, unless everything is healed by then."""
        delay_s = self._random.uniform(shortest_s, longest_s)
        self._after(delay_s, lambda: None if self._is_over else work())

    def _after(self, delay_s: float, work: Callable[[], object]) -> None:
        """Also if everything is healed by then. The work draws from a generator that is seeded now."""
        chance = random.Random(self._random.getrandbits(64))

        def due() -> None:
            with self._drawing_from(chance):
                work()

        self._cluster.world.loop.after_s(delay_s, due)

    def _pick(self, *states: str) -> SimNode | None:
        """A random node in one of these states (`SimNode.state`); None if there is none."""
        nodes = [node for node in self._cluster.nodes.values() if node.state in states]
        return self._random.choice(nodes) if nodes else None

    def _announce(self, what: str) -> None:
        """For the trace, the log of faults and the notes of a violation. The text is part of a run's hash."""
        self._cluster.world.loop.trace.quote("nemesis", what)
        self.log.append(f"{self._cluster.world.loop.time():.6f} nemesis: {what}")
        self._evidence.note_everywhere(what)

    def _names(self) -> list[str]:
        """The host names of all nodes, in random order."""
        names = [node.host.name for node in self._cluster.nodes.values()]
        self._random.shuffle(names)
        return names

    def _some_partition(self) -> tuple[TopicPartition, PartitionImage] | None:
        return some_partition(self._evidence.image, self._random)

    def _active_controller(self) -> SimNode | None:
        for node in self._cluster.nodes.values():
            quorum = node.node.quorum if node.node is not None else None
            if node.state == "up" and quorum is not None and quorum.is_active:
                return node
        return None

    def _kill(self, node: SimNode) -> None:
        if node.is_up:
            self._announce(f"kills node {node.id}")
            node.kill()

    def _start(self, node: SimNode) -> None:
        if node.is_up or node is self._absent:
            return
        if node.host.disk.has_lost_pages:
            self._replace_disk(node)
        else:
            self._announce(f"starts node {node.id}")
            node.start()

    def _start_later(self, node: SimNode) -> None:
        """Within 15 s, also if everything is healed by then."""
        longest = self._random.choice((0.05, 1.0, 5.0, 15.0))
        self._after(self._random.uniform(0.001, longest), partial(self._start, node))

    def _may_harm(self, node: SimNode) -> bool:
        """Whether this node may lose records: no other node lacks any, or will soon."""
        harmed = {*self._evidence.doubtful_nodes(), *self._failing_soon} | {
            other.id for other in self._cluster.nodes.values() if other.host.disk.has_lost_pages
        }
        return not harmed - {node.id}

    def _cut_power(self, node: SimNode) -> bool:
        """If it may: False if another node may lack records."""
        if not self._may_harm(node):
            return False
        self._lose_power(node)
        return True

    def _lose_power(self, node: SimNode) -> None:
        self._announce(f"cuts the power of node {node.id}")
        self._evidence.power_lost(node.id)
        node.kill(power_loss=True)

    def _partition_for(self, lasting_s: float, *groups: list[str]) -> None:
        ways = self._network.partition(*groups)
        self._later(lasting_s, lasting_s, partial(self._network.unblock, ways))

    def _heal_later(self, ways: list[Way]) -> None:
        """Only these lines: another fault may have blocked others."""

        def heal() -> None:
            self._announce("heals the network, where " + ", ".join(f"{a} → {b}" for a, b in ways))
            self._network.unblock(ways)

        self._later(0.1, self._random.choice((1.0, 5.0, 20.0)), heal)

    def _slow(self, source: str, target: str, delay_s: float, longest_s: float) -> None:
        """Delay all that one host sends to another, for 1 s to `longest_s`."""
        if source == target:
            return
        self._announce(f"slows the line from {source} to {target} by {delay_s} s")
        links = self._network.conditions.slow_links
        links[source, target] = delay_s

        def mend() -> None:
            links.pop((source, target), None)

        self._later(1.0, longest_s, mend)

    def _others_vote(self, node: SimNode) -> bool:
        """Whether all other nodes still have their vote in the quorum; where voters may change, whether enough have."""
        if self._evidence.quorum.is_dynamic:
            return self._evidence.quorum.can_lose(node.id)
        others = [other for other in self._cluster.nodes.values() if other is not node]
        return all(self._evidence.has_vote(other.id) for other in others)

    def _empty_disk(self, node: SimNode) -> None:
        """The node is down afterwards."""
        self._announce(f"gives node {node.id} an empty disk")
        node.kill(power_loss=True)
        node.host.disk.wipe()
        self._evidence.disk_replaced(node.id)

    def _replace_disk(self, node: SimNode) -> None:
        """Pages that a failed flush did not write are not written by the next one either, though they can still be
        read. So the machine is restarted, not only the process."""
        self._announce(f"mends the disk of node {node.id}")
        self._evidence.power_lost(node.id)
        node.kill(power_loss=True)
        self._start_later(node)

    def _move_leadership(self, key: TopicPartition, replicas: list[int]) -> None:
        self._announce(f"wants {key} to be led by {replicas[0]}")
        self._operator.reassign(key, replicas)
        self._later(0.01, 0.1, lambda: self._operator.elect(key, PREFERRED))
