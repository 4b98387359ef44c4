"""What a run came to: its verdict, and what was counted in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum


class Verdict(IntEnum):
    """Also the exit code."""

    PASSED = 0
    CRASH = 10
    """An unexpected exception."""
    SAFETY = 20
    """An invariant was broken."""
    LIVENESS = 30
    """The cluster did not come to rest in time."""


@dataclass
class RunOutcome:
    seed: int
    verdict: Verdict
    problem: str
    """What was wrong; empty if nothing was."""
    digest: str
    events: int
    virtual_s: float
    cpu_s: float = 0.0
    """The processor time of the simulation; not part of the run."""
    acknowledged: int = 0
    unknown: int = 0
    read: int = 0
    losses: int = 0
    """Ranges of records that the cluster itself recorded as possibly lost."""
    records_lost: int = 0
    """Committed, not in the log in the end, named and kept by brokers; counted in runs of unclean elections only."""
    transactions: int = 0
    excused: int = 0
    """Transactions of which such a loss excuses something."""
    faults: dict[str, int] = field(default_factory=dict)
    struck: list[int] = field(default_factory=list)
    """The numbers of those faults, for `FaultPlan.only`."""
    fault_log: list[str] = field(default_factory=list)
    """What the nemesis did, each line with its time."""
    marks: dict[str, int] = field(default_factory=dict)
    """The rare states that the run met, and how often."""
    trace: list[str] | None = None

    @property
    def speed(self) -> float:
        """Virtual seconds for each second of processor time."""
        return self.virtual_s / max(self.cpu_s, 1e-9)
