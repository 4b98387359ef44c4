"""The nemesis: it lets the faults of a plan strike during a run, and heals everything at its end.

It stays within the contract of RELIABILITY: a machine loses its power, or its disk, only while every other replica is
known to hold all that is committed; otherwise a loss would prove nothing. The exception is an outage, in which several
machines lose their power at once: then what was not flushed may be lost, and what was flushed may not.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from dataclasses import replace
from functools import partial

from ottla.sim.clients.mover import Mover
from ottla.sim.clients.operator import Operator
from ottla.sim.cluster.nodes import SimCluster, SimNode
from ottla.sim.engine.tcp import NetworkConditions
from ottla.sim.faults.administration import Administration
from ottla.sim.faults.context import CLIENTS
from ottla.sim.faults.directories import DirectoryFaults
from ottla.sim.faults.disks import DiskFaults
from ottla.sim.faults.lines import LineFaults
from ottla.sim.faults.machines import MachineFaults
from ottla.sim.faults.plan import Absence, FaultPlan
from ottla.sim.faults.registry import FAULTS
from ottla.sim.oracle.evidence import Evidence


class Nemesis(MachineFaults, LineFaults, DiskFaults, DirectoryFaults, Administration):
    """All faults, struck as the plan says, and healed at the end."""

    def __init__(
        self,
        cluster: SimCluster,
        evidence: Evidence,
        operator: Operator,
        mover: Mover,
        plan: FaultPlan,
        chance: random.Random,
    ) -> None:
        super().__init__(cluster, evidence, operator, mover, chance)
        self._plan = plan
        cluster.on_end.append(self._node_left)

    async def run(self) -> None:
        self._network.conditions = replace(self._plan.conditions, slow_links={})
        kinds = [kind for kind, weight in self._plan.weights.items() if weight]
        weights = [self._plan.weights[kind] for kind in kinds]
        for number in itertools.count():
            # One generator for each fault: if one is left out (`FaultPlan.only`), the others stay the same.
            chance = random.Random(self._plan_random.getrandbits(64))
            (kind,) = chance.choices(kinds, weights)
            await asyncio.sleep(chance.expovariate(1 / self._plan.every_s))
            if self._is_over:
                return
            if self._plan.only is not None and number not in self._plan.only:
                continue
            with self._drawing_from(chance):
                struck = FAULTS[kind].strike(self)
            if struck:
                self.struck.append(number)
                if not FAULTS[kind].takes_effect_later:
                    self._count(kind)

    def end(self, absence: Absence | None = None) -> SimNode | None:
        """No more faults; every machine, disk and line is whole again. With `absence`, one node that the others can do
        without stays away; that node is returned."""
        self._is_over = True
        self._absent = None if absence is None else self._dispensable()
        world = self._cluster.world
        self._evidence.note_everywhere("everything is healed")
        self._network.conditions = NetworkConditions()
        self._network.heal()
        self._failing_soon.clear()
        # At most one node gets a new disk, or the quorum would lose votes: first one that has not found its damage yet.
        doubtful = self._evidence.doubtful_nodes()
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
            if node.host.disk.has_lost_pages:
                self._evidence.power_lost(node.id)
                node.kill(power_loss=True)
            if not node.is_up and node is not self._absent:
                node.start()
        if self._absent is not None and absence is Absence.DEAD:
            self._kill(self._absent)
        elif self._absent is not None:
            name = self._absent.host.name
            self._announce(f"isolates {name} for good")
            others = [other for other in self._names() if other != name]
            self._network.partition([name], [*others, CLIENTS])
        return self._absent

    def _dispensable(self) -> SimNode | None:
        """A node without which the others are a quorum, and hold everything committed in their ISRs and ELRs."""
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
            and self._evidence.may_lose(node.id)
        ]
        return self._plan_random.choice(found) if found else None

    def replace_a_wrong_disk(self, *, at_any_cost: bool) -> None:
        """A leader whose log is damaged where followers have yet to copy it cannot repair itself."""
        nodes = list(self._cluster.nodes.values())
        for node in nodes:
            if (
                node.host.disk.is_wrong
                and all(other.state == "up" for other in nodes)
                and self._others_vote(node)
                and (at_any_cost or self._evidence.may_lose(node.id))
            ):
                self._empty_disk(node)
                self._start(node)
                return

    def bring_back(self, node: SimNode) -> None:
        self._absent = None
        self._network.heal()
        self._start(node)

    def _node_left(self, node: SimNode, failure: BaseException | None) -> None:
        self._announce(f"node {node.id} left" + (f": {failure!r}" if failure else ""))
        with self._drawing_from(self._restart_random[node.id]):
            if node.has_failed_disk:
                self._after(0, partial(self._replace_disk, node))
            else:
                if node.id in self._to_unplug:
                    self._later(0, 0, partial(self._cut_power, node))
                self._start_later(node)
        self._to_unplug.discard(node.id)
