"""Each kind of fault on its own: it strikes, and the cluster comes to rest after it.

A new row of `registry.FAULTS` is tested here without further work: `pytest tests/unit/sim/test_faults.py -k NAME`.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator

import pytest

from ottla.sim.faults.plan import FaultPlan
from ottla.sim.faults.registry import FAULTS, Rate, kinds
from ottla.sim.run.options import RunOptions
from ottla.sim.run.outcome import RunOutcome, Verdict
from ottla.sim.run.scenario import run_seed

SEED = 3
TROUBLE_S = 8.0
EVERY_S = 0.7
NEEDS = {"elect_preferred": "kill"}
"""Faults that find nothing to strike unless another one struck before."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run_with(kind: str) -> RunOutcome:
    options = RunOptions.draw(SEED, TROUBLE_S)
    if kind == "change_voters":
        options.change_voters(random.Random(SEED))
    options.faults.use_only(kind)
    if kind in NEEDS:
        options.faults.include(NEEDS[kind])
    options.faults.every_s = EVERY_S
    # Closed and flushed segments, for those that damage them.
    options.topic_settings |= {"segment.bytes": "2048", "flush.ms": "1000"}
    options.settings["log.flush.scheduler.interval.ms"] = "1000"
    if kind == "rot":
        options.pause_s = 0.2
    return run_seed(SEED, options=options)


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_strikes_and_the_cluster_comes_to_rest(kind: str) -> None:
    outcome = run_with(kind)
    assert outcome.verdict is Verdict.PASSED, outcome.problem
    assert outcome.faults.get(kind), f"{kind} did not strike in {TROUBLE_S} s"


def test_every_fault_says_what_it_does_and_how_it_ends() -> None:
    assert all(fault.does and fault.undone for fault in FAULTS.values())


def test_a_plan_knows_every_fault_and_draws_none_that_is_for_profiles() -> None:
    plan = FaultPlan.draw(random.Random(SEED))
    assert list(plan.weights) == list(FAULTS)
    assert not any(plan.weights[kind] for kind in kinds(Rate.PROFILE))
