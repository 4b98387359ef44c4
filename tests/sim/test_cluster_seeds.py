"""Whole nodes under load and faults: every seed must keep every invariant, and come to rest in the end.

A failing seed prints its replay command.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from ottla.sim.scenario import Options, Verdict, run_seed

TROUBLE_S = 6.0

REGRESSIONS = {
    12: "a stopping broker acknowledged a record after its logs were closed",
    16: "a killed process's unflushed names were never flushed by its successor",
    109: "after a restart a producer's retries were taken for a gap",
    177: "three followers and two session slots: none was ever answered",
    259: "a flush that failed while the broker stopped left a clean-shutdown marker",
    354: "a high watermark told with a diverging answer was never told again",
    734: "a follower went on with a session that did not know its partition",
}
"""What a seed found when it was new. Its course changes with the code, so each has a unit test too."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What nodes log of the faults they meet would be the greater part of the time."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def check(options: Options, replay: str) -> None:
    outcome = run_seed(options.seed, options=options)
    assert outcome.verdict is Verdict.PASSED, (
        f"{outcome.verdict.name}\n{outcome.problem}\nagain: {replay}"
    )


@pytest.mark.parametrize("seed", range(36))
def test_invariants_hold_and_the_cluster_comes_to_rest(seed: int) -> None:
    replay = f"python -m ottla.sim --seed {seed} --trouble {TROUBLE_S}"
    check(Options.draw(seed, TROUBLE_S), replay)


@pytest.mark.slow
@pytest.mark.parametrize("seed", sorted(REGRESSIONS))
def test_seeds_that_once_failed(seed: int) -> None:
    check(Options.draw(seed), f"python -m ottla.sim --seed {seed}")
