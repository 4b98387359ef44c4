"""Seeds with security: they keep all rules, and they meet what they are for."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from ottla.sim.run.options import RunOptions
from ottla.sim.run.outcome import Verdict
from ottla.sim.run.profiles import SECURE
from ottla.sim.run.scenario import run_seed

TROUBLE_S = 8.0
SEEDS = 3
MET = (
    "forged node refused",
    "login refused",
    "request before a login",
    "right taken away",
    "things that exist and do not",
    "users that exist and do not",
    "visitor allowed",
    "visitor refused",
    "wrong certificate refused",
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def secure_seeds() -> list[int]:
    drawn = (seed for seed in range(200) if RunOptions.draw(seed).is_likely_to_meet(SECURE))
    return [seed for seed, _ in zip(drawn, range(SEEDS), strict=False)]


def test_a_secure_seed_keeps_all_rules() -> None:
    met: Counter[str] = Counter()
    for seed in secure_seeds():
        outcome = run_seed(seed, options=RunOptions.draw(seed, TROUBLE_S))
        assert outcome.verdict is Verdict.PASSED, outcome.problem
        met.update(outcome.marks)
    assert [state for state in MET if not met[state]] == []


def test_a_secure_seed_runs_the_same_twice() -> None:
    options = [RunOptions.draw(secure_seeds()[0], 2.0) for _ in range(2)]
    one, other = (run_seed(each.seed, options=each) for each in options)
    assert one.digest == other.digest
