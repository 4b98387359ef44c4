"""Which faults a run has and how often: drawn from its seed before it begins."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import Enum

from ottla.sim.engine.tcp import NetworkConditions
from ottla.sim.faults.registry import FAULTS, Rate, kinds


class Absence(Enum):
    """In which way one node is away when all else is healed."""

    DEAD = "dead"
    CUT_OFF = "cut off"


@dataclass
class FaultPlan:
    """The mean time between faults, the weight of each kind, and how good the network is."""

    every_s: float = 2.0
    weights: dict[str, int] = field(default_factory=dict)
    conditions: NetworkConditions = field(default_factory=NetworkConditions)
    only: frozenset[int] | None = None
    """The numbers of the faults that strike; None for all."""

    @staticmethod
    def draw(chance: random.Random) -> FaultPlan:
        """Most kinds are left out of a run, so that the others, and their combinations, occur often and without
        disturbance."""
        sampled = kinds(Rate.SAMPLED)
        count = chance.choice((2, 3, 4, 6, 8, len(sampled)))
        weights = dict.fromkeys(FAULTS, 0)
        weights |= {kind: chance.choice((1, 1, 2, 4)) for kind in chance.sample(sampled, count)}
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
        weights |= {kind: chance.choice((0, 0, 1, 2)) for kind in kinds(Rate.HALF_OF_RUNS)}
        return plan

    def leave_out(self, *kinds: str) -> None:
        """If nothing is left then, nodes are killed."""
        self.weights |= dict.fromkeys(kinds, 0)
        if not any(self.weights.values()):
            self.weights["kill"] = 1

    def use_only(self, kind: str) -> None:
        """All faults are of this kind."""
        self.weights = {kind: 1}

    def include(self, *kinds: str) -> None:
        self.weights |= {kind: max(1, self.weights.get(kind, 0)) for kind in kinds}

    def part(self, share: float) -> int:
        """The weight of a kind that makes this share of what the others make."""
        return max(1, round(sum(self.weights.values()) * share))

    def favour(self, kind: str) -> None:
        """Two of three faults are of this kind: for profiles."""
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
