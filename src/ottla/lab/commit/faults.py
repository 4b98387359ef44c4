"""Random outages of brokers. A schedule is plain data: the same one is run under each design."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import partial
from random import Random
from typing import NamedTuple

from ottla.lab.harness import LabCluster
from ottla.sim.engine.tcp import Way


class OutageKind(Enum):
    KILL = "kill -9; all that was written is still there"
    POWER_LOSS = "the machine loses its power, and what was not flushed may be lost"
    NEW_DISK = "the machine comes back with an empty disk"
    CUT_OFF = "no other node can be reached, clients can"
    SLOW_LINE = "what it sends to the other nodes is late"


class Outage(NamedTuple):
    begin_s: float
    end_s: float
    broker: int
    kind: OutageKind
    delay_s: float
    """Of a slow line."""


class OutageMix(NamedTuple):
    """How often what happens, and for how long."""

    up_s: float
    """Mean time between the outages of one broker."""
    kinds: Mapping[OutageKind, float]
    """By weight."""
    lasting_s: Sequence[tuple[float, float]]
    """Ranges of which one is drawn."""
    delay_s: Sequence[float] = (0.02, 0.2, 1.0)
    refill_s: float = 0.0
    """For so long after its return a broker on an empty disk still counts as out."""


def outages(
    chance: Random, brokers: Sequence[int], duration_s: float, mix: OutageMix, at_once_max: int
) -> list[Outage]:
    """At most `at_once_max` brokers are out at a time. Slow lines do not count."""
    wanted: list[Outage] = []
    for broker in brokers:
        at = chance.expovariate(1 / mix.up_s)
        while at < duration_s:
            kind = chance.choices(list(mix.kinds), list(mix.kinds.values()))[0]
            end = at + chance.uniform(*chance.choice(mix.lasting_s))
            wanted.append(Outage(at, end, broker, kind, chance.choice(mix.delay_s)))
            at = end + chance.expovariate(1 / mix.up_s)
    accepted: list[Outage] = []
    for outage in sorted(wanted, key=lambda each: each.begin_s):
        out = [
            other
            for other in accepted
            if _counts_until(other, mix) > outage.begin_s and other.kind is not OutageKind.SLOW_LINE
        ]
        if outage.kind is OutageKind.SLOW_LINE or len(out) < at_once_max:
            accepted.append(outage)
    return accepted


def _counts_until(outage: Outage, mix: OutageMix) -> float:
    return outage.end_s + (mix.refill_s if outage.kind is OutageKind.NEW_DISK else 0.0)


class OutageRun:
    """Lets the outages of a schedule happen, from now on."""

    def __init__(self, cluster: LabCluster, schedule: Sequence[Outage]) -> None:
        self._cluster = cluster
        self._ways: dict[int, list[Way]] = {}
        for outage in schedule:
            loop = cluster.world.loop
            loop.after_s(outage.begin_s, partial(self._begin, outage))
            loop.after_s(outage.end_s, partial(self._end, outage))

    def _begin(self, outage: Outage) -> None:
        node = self._cluster.sim.nodes[outage.broker]
        name = node.host.name
        network = self._cluster.world.network
        others = [each.host.name for each in self._cluster.sim.nodes.values() if each is not node]
        match outage.kind:
            case OutageKind.KILL:
                node.kill()
            case OutageKind.POWER_LOSS:
                node.kill(power_loss=True)
            case OutageKind.NEW_DISK:
                node.kill(power_loss=True)
                node.host.disk.wipe()
            case OutageKind.CUT_OFF:
                self._ways[outage.broker] = network.partition([name], others)
            case OutageKind.SLOW_LINE:
                for other in others:
                    network.conditions.slow_links[name, other] = outage.delay_s

    def _end(self, outage: Outage) -> None:
        node = self._cluster.sim.nodes[outage.broker]
        name = node.host.name
        network = self._cluster.world.network
        match outage.kind:
            case OutageKind.CUT_OFF:
                network.unblock(self._ways.pop(outage.broker))
            case OutageKind.SLOW_LINE:
                for way in [way for way in network.conditions.slow_links if way[0] == name]:
                    del network.conditions.slow_links[way]
            case _:
                if not node.is_up:
                    node.start()
