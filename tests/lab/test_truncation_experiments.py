"""The experiments `loss` and `divergence`: what they report, and what makes them fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.lab.experiment import LabOptions, all_experiments
from ottla.lab.runner import options_for, run_experiment
from ottla.lab.truncation.search import SeedOutcome
from ottla.lab.truncation.study import play_named, truncation_designs

GOOD = SeedOutcome(
    0, "leader-epochs", 10, [], 0, 0, "", False, [], 12, 2, [(0.5, "no more faults")]
)


@pytest.mark.parametrize("name", ["loss", "divergence"])
def test_P29_P44_the_small_run_shows_what_it_must(name: str) -> None:
    experiment = all_experiments()[name]
    result = run_experiment(experiment, options_for(experiment, seeds=range(1), small=True))
    assert not result.failed_expectations
    assert list(result.designs) == ["leader-epochs", "hw-truncation", "kip101-first"]
    scripted, search, *_ = result.tables
    counts = {(row[0], row[1]): row[2] for row in scripted.rows}
    if name == "loss":
        assert counts["loss", "hw-truncation"] == 1
        assert counts["loss", "leader-epochs"] == counts["loss", "kip101-first"] == 0
        assert len(result.contradictions) == 1
    else:
        assert counts["divergence", "hw-truncation"] == 1
        assert counts["fast-failover", "kip101-first"] == 2
        assert (
            counts["divergence", "leader-epochs"] == counts["fast-failover", "leader-epochs"] == 0
        )
    assert [row[0] for row in search.rows] == list(result.designs)
    assert all(len(row) == len(search.columns) for row in search.rows)
    assert len(result.timelines) == 6
    assert set(result.charts[0].series) == set(result.designs)


def summarized(name: str, seeds: range, outcomes: dict[str, list[SeedOutcome]]) -> Any:
    """With scenarios as they are, and these outcomes of the search."""
    experiment = all_experiments()[name]
    options = LabOptions(seeds, tuple(outcomes))
    played = [
        play_named(*run.arguments) for run in experiment.runs(options) if run.function is play_named
    ]
    found = [outcome for of_design in outcomes.values() for outcome in of_design]
    return experiment.summarize(options, [*played, *found])


def outcomes_of(design: str, seeds: range, **bad: Any) -> list[SeedOutcome]:
    """All good, but for the last."""
    good = [replace(GOOD, design=design, seed=seed) for seed in seeds]
    return [*good[:-1], replace(good[-1], **bad)]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"lost": ["p0:3"]}, "leader-epochs has 1 records lost in seed 9"),
        ({"is_stuck": True}, "leader-epochs has 0 records lost in seed 9, and a replica is stuck"),
        ({"failures": ["node 1: AssertionError()"]}, "in seed 9; node 1: AssertionError()"),
    ],
)
def test_P29_a_loss_of_the_product_fails_the_experiment(bad: dict[str, Any], why: str) -> None:
    seeds = range(10)
    result = summarized(
        "loss", seeds, {"leader-epochs": outcomes_of("leader-epochs", seeds, **bad)}
    )
    (told,) = result.failed_expectations
    assert told.endswith(why)


def test_P44_a_search_that_finds_nothing_in_200_seeds_fails_the_experiment() -> None:
    for count, wanted in ((199, 0), (200, 1)):
        good = outcomes_of("hw-truncation", range(count))
        result = summarized("divergence", range(count), {"hw-truncation": good})
        assert len(result.failed_expectations) == wanted


def test_the_first_bad_seed_comes_with_the_command_that_replays_it() -> None:
    seeds = range(5, 10)
    bad = outcomes_of("hw-truncation", seeds, lost=["p0:3", "p0:4"])
    result = summarized("loss", seeds, {"hw-truncation": bad})
    (row,) = result.tables[1].rows
    assert row[-2:] == (9, "ottla lab run loss --seeds 9..10 --design hw-truncation")
    assert "hw-truncation in 1 of 5 (first in seed 9)" in result.finding
    assert result.charts[0].series["hw-truncation"] == [(1, 0), (2, 0), (3, 0), (4, 0), (5, 1)]


def test_the_faults_that_runs_skipped_are_in_the_table_for_each_design() -> None:
    seeds = range(3)
    outcomes = {
        "leader-epochs": outcomes_of("leader-epochs", seeds),
        "hw-truncation": outcomes_of("hw-truncation", seeds, skipped=5),
    }
    table = summarized("loss", seeds, outcomes).tables[1]
    assert table.title.startswith("Random schedules, drawn the same for each design")
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [(row["faults"], row["skipped"]) for row in rows] == [(36, 6), (36, 9)]


def test_a_replay_of_one_seed_tells_what_happened_in_it() -> None:
    bad = outcomes_of("hw-truncation", range(9, 10), lost=["p0:3"], difference="offset 1 is so")
    result = summarized("loss", range(9, 10), {"hw-truncation": bad})
    events = result.tables[-1]
    assert events.title == "What happened in seed 9 under hw-truncation"
    assert list(events.rows) == [
        (0.5, "no more faults"),
        (0.5, "lost: p0:3"),
        (0.5, "the replicas differ: offset 1 is so"),
    ]


def test_all_truncation_designs_are_compared() -> None:
    assert truncation_designs() == ["leader-epochs", "hw-truncation", "kip101-first"]
