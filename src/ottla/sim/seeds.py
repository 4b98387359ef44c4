"""Many runs of the simulator: on several processes, added up."""

from __future__ import annotations

import logging
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from multiprocessing import get_context
from typing import NamedTuple

from ottla.sim.coverage import missing
from ottla.sim.faults import KINDS
from ottla.sim.scenario import Options, Outcome, Verdict, run_seed

HASH_SEED = "0"
"""Our own code does not depend on PYTHONHASHSEED; whatever it imports might."""


def run(options: Options) -> Outcome:
    return run_seed(options.seed, options=options)


def _prepare_worker() -> None:
    """It says nothing, not even when it is interrupted."""
    logging.disable()
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def outcomes(runs: Sequence[Options], jobs: int) -> Iterator[Outcome]:
    """In the order of `runs`."""
    if jobs == 1:
        yield from map(run, runs)
        return
    with ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=_prepare_worker
    ) as pool:
        try:
            yield from pool.map(run, runs)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


@dataclass
class Tally:
    """What many runs add up to."""

    count: int = 0
    virtual_s: float = 0.0
    events: int = 0
    losses: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    marks: Counter[str] = field(default_factory=Counter)
    failed: list[Outcome] = field(default_factory=list)
    _hash: bytes = b""

    def add(self, outcome: Outcome) -> None:
        self.count += 1
        self.virtual_s += outcome.virtual_s
        self.events += outcome.events
        self.losses += outcome.losses
        self.faults.update(outcome.faults)
        self.marks.update(outcome.marks)
        if outcome.verdict is not Verdict.PASSED:
            self.failed.append(outcome)
        line = f"{outcome.seed} {outcome.digest}".encode()
        self._hash = blake2b(self._hash + line, digest_size=16).digest()

    @property
    def verdict(self) -> Verdict:
        """That of the first run that failed."""
        return self.failed[0].verdict if self.failed else Verdict.PASSED

    @property
    def never_happened(self) -> list[str]:
        """Kinds of faults and rare states that none of the runs met."""
        return missing(self.marks, self.faults, KINDS)

    @property
    def digest(self) -> str:
        """Over the hashes of all runs, in order."""
        return self._hash.hex()


class Minimized(NamedTuple):
    outcome: Outcome
    """Of the run with the fewest faults that still fails in the same way."""
    runs: int


def symptom(outcome: Outcome) -> tuple[Verdict, str]:
    """What makes two failures the same: the verdict, and which invariant broke."""
    rule = outcome.problem.partition(" ")[0] if outcome.verdict is Verdict.SAFETY else ""
    return outcome.verdict, rule


def minimize(
    options: Options,
    failed: Outcome,
    tell: Callable[[int, Outcome], None] = lambda tried, smallest: None,
) -> Minimized:
    """Delta debugging over the faults of a failed run: leave out as many as can be left out, in ever smaller
    groups, until each single one that is left is needed. `tell` hears of each try."""
    assert failed.verdict is not Verdict.PASSED
    wanted = symptom(failed)
    smallest, tried = failed, 0
    groups = 2
    while len(smallest.struck) > 0:
        faults = smallest.struck
        size = -(-len(faults) // groups)
        for start in range(0, len(faults), size):
            rest = frozenset(faults[:start] + faults[start + size :])
            outcome = run(replace(options, faults=replace(options.faults, only=rest)))
            tried += 1
            if symptom(outcome) == wanted:
                smallest = outcome
                groups = max(groups - 1, 2)
                tell(tried, smallest)
                break
            tell(tried, smallest)
        else:
            if size == 1:
                break
            groups = min(groups * 2, len(faults))
    return Minimized(smallest, tried)
