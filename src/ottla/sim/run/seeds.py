"""Many runs of the simulator: on several processes, added up."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from multiprocessing import active_children, get_context, parent_process
from typing import NamedTuple

from ottla.sim.faults.registry import FAULTS
from ottla.sim.oracle.coverage import RARE, missing
from ottla.sim.run.options import RunOptions
from ottla.sim.run.outcome import RunOutcome, Verdict
from ottla.sim.run.scenario import run_seed

HASH_SEED = "0"
"""Our own code does not depend on PYTHONHASHSEED; whatever it imports might."""


def run(options: RunOptions) -> RunOutcome:
    outcome = run_seed(options.seed, options=options)
    gc.collect()
    return outcome


def prepare_worker() -> None:
    """It says nothing, leaves it to whoever wants its results to be interrupted, and ends with that one, however it
    ended. What it imported is not looked at by the collector after every seed."""
    logging.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.freeze()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def workers(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Whoever leaves before they are through, being interrupted or having heard enough, does not wait for them."""
    with ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=prepare_worker
    ) as pool:
        try:
            yield pool
        except BaseException:
            for worker in active_children():
                worker.terminate()
            raise


RunAll = Callable[[Sequence[RunOptions]], Iterator[RunOutcome]]
"""Outcomes in the order of what is run. What nobody waits for any more is left out."""


@contextmanager
def runner(jobs: int) -> Iterator[RunAll]:
    if jobs == 1:
        yield lambda runs: (run(options) for options in runs)
    else:
        with workers(jobs) as pool:
            yield lambda runs: pool.map(run, runs)


def outcomes(runs: Sequence[RunOptions], jobs: int) -> Generator[RunOutcome, None, None]:
    with runner(jobs) as run_all:
        yield from run_all(runs)


def speed_text(virtual_s: float, cpu_s: float) -> str:
    speed = virtual_s / max(cpu_s, 1e-9)
    return f"{speed:.0f} virtual seconds per CPU second ({cpu_s:.1f} s of CPU time)"


@dataclass
class Tally:
    """What many runs add up to."""

    count: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    events: int = 0
    losses: int = 0
    transactions: int = 0
    excused: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    marks: Counter[str] = field(default_factory=Counter)
    failed: list[RunOutcome] = field(default_factory=list)
    _hash: bytes = b""

    def add(self, outcome: RunOutcome) -> None:
        self.count += 1
        self.virtual_s += outcome.virtual_s
        self.cpu_s += outcome.cpu_s
        self.events += outcome.events
        self.losses += outcome.losses
        self.transactions += outcome.transactions
        self.excused += outcome.excused
        self.faults.update(outcome.faults)
        self.marks.update(outcome.marks)
        if outcome.verdict is not Verdict.PASSED:
            self.failed.append(outcome)
        line = f"{outcome.seed} {outcome.digest}".encode()
        self._hash = blake2b(self._hash + line, digest_size=16).digest()

    @property
    def speed(self) -> float:
        """Virtual seconds for each second that a processor worked."""
        return self.virtual_s / max(self.cpu_s, 1e-9)

    def progress(self, wanted: int, seconds: float) -> str:
        """How far it is after so many real seconds, how fast, and how long it will take."""
        left_s = (wanted - self.count) * seconds / max(self.count, 1)
        return (
            f"{self.count} of {wanted} seeds in {seconds:.0f} s, {len(self.failed)} failed; "
            f"{self.virtual_s / 3600:.1f} virtual hours, {speed_text(self.virtual_s, self.cpu_s)}; "
            f"{left_s / 60:.0f} min left"
        )

    @property
    def verdict(self) -> Verdict:
        """That of the first run that failed."""
        return self.failed[0].verdict if self.failed else Verdict.PASSED

    def rare_states(self) -> Iterator[tuple[str, int]]:
        """Each of them, and how often it was met."""
        return ((word, self.marks[word]) for word in RARE)

    @property
    def never_happened(self) -> list[str]:
        """Kinds of faults and rare states that none of the runs met."""
        return missing(self.marks, self.faults, FAULTS)

    @property
    def digest(self) -> str:
        """Over the hashes of all runs, in order."""
        return self._hash.hex()


class Minimized(NamedTuple):
    outcome: RunOutcome
    """Of the run with the fewest faults that still fails in the same way."""
    runs: int


def symptom(outcome: RunOutcome) -> tuple[Verdict, str]:
    """What makes two failures the same: the verdict, and which invariant broke."""
    rule = outcome.problem.partition(" ")[0] if outcome.verdict is Verdict.SAFETY else ""
    return outcome.verdict, rule


def minimize(
    options: RunOptions,
    failed: RunOutcome,
    tell: Callable[[int, RunOutcome], None] = lambda tried, smallest: None,
    jobs: int = 1,
) -> Minimized:
    """Delta debugging over the faults of a failed run: leave out as many as can be left out, in ever smaller
    groups, until each single one that is left is needed. `tell` hears of each try, so it knows the best when somebody
    loses patience."""
    assert failed.verdict is not Verdict.PASSED
    wanted = symptom(failed)
    smallest, tried = failed, 0
    groups = 2
    with runner(jobs) as run_all:
        while len(smallest.struck) > 0:
            faults = smallest.struck
            size = -(-len(faults) // groups)
            smaller = [
                frozenset(faults[:start] + faults[start + size :])
                for start in range(0, len(faults), size)
            ]
            for outcome in run_all([options.with_faults(only) for only in smaller]):
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
