"""Every experiment of the lab in its small version, in every run of the tests: it shows what it must."""

from __future__ import annotations

import json
from functools import cache

import pytest

from ottla.lab.experiment import all_experiments
from ottla.lab.results import ExperimentResult, result_from_json
from ottla.lab.runner import options_for, run_experiment

EACH_EXPERIMENT = pytest.mark.parametrize("name", list(all_experiments()))


def run_small(name: str) -> ExperimentResult:
    experiment = all_experiments()[name]
    return run_experiment(experiment, options_for(experiment, small=True), jobs=1)


@cache
def small_result(name: str) -> ExperimentResult:
    return run_small(name)


def as_read(result: ExperimentResult) -> ExperimentResult:
    return result_from_json(json.loads(json.dumps(result.to_json())))


@EACH_EXPERIMENT
def test_a_small_run_shows_what_it_must(name: str) -> None:
    result = small_result(name)
    assert not result.failed_expectations
    assert result.experiment == name
    assert result.finding.endswith(".") and "\n" not in result.finding
    assert result.command.startswith(f"ottla lab run {name} ") and "--small" in result.command
    assert set(result.designs) == set(all_experiments()[name].designs())


@EACH_EXPERIMENT
def test_its_tables_have_rows_and_its_charts_have_points(name: str) -> None:
    result = small_result(name)
    assert result.tables
    for table in result.tables:
        assert table.rows, f"{table.title} is empty"
        assert {len(row) for row in table.rows} == {len(table.columns)}, table.title
    assert result.charts or result.timelines, "there is nothing to look at"
    for chart in result.charts:
        assert chart.series, f"{chart.title} has no series"
        assert all(chart.series.values()), f"{chart.title} has a series without points"
    for timeline in result.timelines:
        assert timeline.steps and timeline.verdict, timeline.title


@EACH_EXPERIMENT
def test_what_it_found_can_be_written_and_read(name: str) -> None:
    again = as_read(small_result(name))
    assert as_read(again) == again
    assert json.dumps(again.to_json()) == json.dumps(small_result(name).to_json())


def test_the_same_seeds_find_the_same() -> None:
    """With the experiment that has the fewest runs."""
    experiments = all_experiments()
    name = min(
        experiments,
        key=lambda each: len(experiments[each].runs(options_for(experiments[each], small=True))),
    )
    assert json.dumps(run_small(name).to_json()) == json.dumps(small_result(name).to_json())
