"""Two hundred simulated and twenty real runs with unclean elections under load: what `ottla losses` names is exactly what the
test's own ledger lacks, and `ottla recover` brings back every record that a disk still holds."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest

from ottla.sim.run.outcome import Verdict
from ottla.sim.run.scenario import run_seed
from ottla.sim.run.unclean import unclean_options
from support.cluster import ProcessCluster
from support.unclean import (
    CONFIG,
    TOPIC,
    assert_exact,
    named,
    one_unclean_election,
    ottla,
    read_back,
)

pytestmark = pytest.mark.slow
SEEDS = 200
RUNS = 20
SETTINGS = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "200"}


@pytest.mark.timeout(7200)
def test_two_hundred_seeds_name_exactly_what_they_lost() -> None:
    logging.disable(logging.CRITICAL)
    try:
        lost = 0
        for seed in range(SEEDS):
            outcome = run_seed(seed, options=unclean_options(seed))
            assert outcome.verdict is Verdict.PASSED, f"seed {seed}: {outcome.problem}"
            lost += outcome.records_lost
    finally:
        logging.disable(logging.NOTSET)
    assert lost > SEEDS, "too few records were lost to show anything"


@pytest.mark.timeout(3600)
def test_twenty_real_unclean_elections_are_named_exactly_and_recovered(tmp_path: Path) -> None:
    chance = random.Random(18)
    with ProcessCluster(tmp_path, 5, SETTINGS) as cluster:
        cluster.create_topic(
            TOPIC, assignment=[[4, 5]], config={**CONFIG, "internal.segment.bytes": "65536"}
        )
        cluster.create_topic("recovered", assignment=[[1, 2]])
        ledgers = []
        for run in range(RUNS):
            before = {loss["held_by"][0]["kept"] for loss in named(cluster)}
            ledgers.append(one_unclean_election(cluster, run, chance))
            (loss,) = [each for each in named(cluster) if each["held_by"][0]["kept"] not in before]
            assert_exact(ledgers[-1], loss, set(read_back(cluster, TOPIC)))
        (done,) = ottla(cluster, "recover", "--all", "--to", "recovered")
        assert done["not_kept"] == []
        named_records = sum(each["end_offset"] - each["first_offset"] for each in named(cluster))
        assert done["copied"] == named_records
        back = read_back(cluster, "recovered")
        assert len(back) == len(set(back)) == named_records
        in_the_log = set(read_back(cluster, TOPIC))
        for ledger in ledgers:
            lost = {value for value in ledger.acknowledged.values() if value not in in_the_log}
            assert lost <= set(back)
