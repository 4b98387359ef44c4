"""The nemesis: what goes wrong in a run, how often and for how long, all drawn from its seed.

It keeps within the contract of RELIABILITY: a machine loses its power, or its disk, only while every other
replica is known to hold all that is committed; else a loss would prove nothing. Only in an outage several lose their
power at once: then what was not flushed may be gone, as Kafka's contract says, and all that was flushed may not.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial

from ottla.sim.clients.operator import (
    Operator,
)
from ottla.sim.cluster.nodes import SimCluster, SimNode
from ottla.sim.engine.tcp import NetworkConditions
from ottla.sim.faults.administration import Administration
from ottla.sim.faults.disks import DiskFaults
from ottla.sim.faults.fault import CLIENTS
from ottla.sim.faults.lines import LineFaults
from ottla.sim.faults.machines import MachineFaults
from ottla.sim.oracle.evidence import Evidence


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


class Nemesis(MachineFaults, LineFaults, DiskFaults, Administration):
    """Strikes by plan, and makes good in the end."""

    def __init__(
        self,
        cluster: SimCluster,
        evidence: Evidence,
        operator: Operator,
        plan: FaultPlan,
        chance: random.Random,
    ) -> None:
        super().__init__(cluster, evidence, operator, chance)
        self._plan = plan
        cluster.on_end.append(self._node_left)

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

    def end(self, absence: Absence | None = None) -> SimNode | None:
        """No more faults; every machine, disk and line is whole again. One that the others can do without may be
        left out."""
        self._is_over = True
        self._absent = None if absence is None else self._dispensable()
        world = self._cluster.world
        self._evidence.note_everywhere("everything is healed")
        self._network.conditions = NetworkConditions()
        self._network.heal()
        self._armed.clear()
        # Only one gets a new disk, for the sake of the quorum: one that has not noticed its damage yet.
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
            if node.has_failed_disk or node.host.disk.has_lost_pages:
                self._evidence.power_lost(node.id)
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
            and self._evidence.may_lose(node.id)
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
        self._say(f"node {node.id} left" + (f": {failure!r}" if failure else ""))
        with self._drawing_from(self._departures[node.id]):
            if node.has_failed_disk:
                self._after(0, partial(self._replace_disk, node))
            else:
                if node.id in self._to_unplug:
                    self._later(0, 0, partial(self._cut_power, node))
                self._start_later(node)
        self._to_unplug.discard(node.id)


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
