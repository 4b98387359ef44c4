"""The product's truncation rule over 2,000 random schedules of the lab: nothing is lost, and nothing diverges."""

from __future__ import annotations

import os
from functools import partial

import pytest

from ottla.lab.truncation.search import run_seed
from ottla.sim.run.seeds import workers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

SEEDS = 2000


def test_P29_the_product_loses_nothing_and_diverges_nowhere_over_2000_random_schedules() -> None:
    with workers(os.cpu_count() or 1) as pool:
        outcomes = list(pool.map(partial(run_seed, "leader-epochs"), range(SEEDS), chunksize=20))
    assert len(outcomes) == SEEDS
    bad = [
        each
        for each in outcomes
        if each.lost or each.differing or each.is_stuck or each.failures or not each.acknowledged
    ]
    assert not bad, bad
