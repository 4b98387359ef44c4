"""Each kind of fault on its own: it strikes, and the cluster comes to rest after it.

A new row of `registry.FAULTS` is tested here without further work: `pytest tests/unit/sim/test_faults.py -k NAME`.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator

import pytest

from ottla.sim.faults import directories
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


def run_with(kind: str, *, keep_trace: bool = False) -> RunOutcome:
    options = RunOptions.draw(SEED, TROUBLE_S)
    if kind == "change_voters":
        options.change_voters(random.Random(SEED))
    if kind == "move_directory":
        directories.give_two(options.settings, options.faults, random.Random(SEED))
    options.faults.use_only(kind)
    if kind in NEEDS:
        options.faults.include(NEEDS[kind])
    options.faults.every_s = EVERY_S
    # Closed and flushed segments, for those that damage them.
    options.topic_settings |= {"internal.segment.bytes": "2048", "flush.ms": "1000"}
    options.settings["log.flush.scheduler.interval.ms"] = "1000"
    if kind == "rot":
        options.pause_s = 0.2
    return run_seed(SEED, keep_trace=keep_trace, options=options)


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


def test_a_frozen_connection_carries_nothing_until_it_is_thawed_and_others_go_on() -> None:
    outcome = run_with("freeze", keep_trace=True)
    hosts: dict[str, frozenset[str]] = {}
    frozen: Counter[str] = Counter()
    ever_frozen: set[str] = set()
    thawed, carried_again, went_on = 0, 0, 0
    for line in outcome.trace or []:
        _, label, *words = line.split()
        match label, words:
            case "connect", [one, other, source, target]:
                hosts[one] = hosts[other] = frozenset((source, target))
            case "freeze", _:
                frozen.update(words)
                ever_frozen.update(words)
            case "thaw", _:
                frozen.subtract(words)
                thawed += 1
            case "heal", _:
                frozen.clear()
            case "data" | "end" | "reset", [number, *_]:
                assert frozen[number] <= 0, line
                carried_again += number in ever_frozen
                went_on += any(hosts[number] == hosts[other] for other in +frozen)
    assert thawed and carried_again and went_on
    assert not +frozen


def test_no_records_expire_under_groups() -> None:
    """Nobody could tell then what a group or a transaction lost, and its clients would wait for what is gone."""
    drawn = [RunOptions.draw(seed) for seed in range(500)]
    with_groups = [each for each in drawn if each.groups is not None]
    assert with_groups and not any(each.records_expire for each in with_groups)
