"""Runs experiments, on several processes, with progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ottla.lab.experiment import Experiment, LabOptions, Run
from ottla.lab.results import ExperimentResult
from ottla.sim.run.seeds import workers

Progress = Callable[[int, int], None]
"""(done, of)"""


def options_for(
    experiment: Experiment,
    *,
    seeds: range | None = None,
    designs: Sequence[str] = (),
    small: bool = False,
) -> LabOptions:
    """`seeds`: None for the experiment's own number of seeds."""
    count = experiment.small_seeds if small else experiment.default_seeds
    return LabOptions(range(count) if seeds is None else seeds, tuple(designs), small)


def call(run: Run) -> Any:
    return run.function(*run.arguments)


def run_experiment(
    experiment: Experiment,
    options: LabOptions,
    jobs: int = 1,
    progress: Progress = lambda done, of: None,
) -> ExperimentResult:
    runs = list(experiment.runs(options))
    found: list[Any] = []

    def collect(results: Iterable[Any]) -> None:
        progress(0, len(runs))
        for result in results:
            found.append(result)
            progress(len(found), len(runs))

    if jobs == 1:
        collect(map(call, runs))
    else:
        with workers(jobs) as pool:
            collect(pool.map(call, runs))
    return experiment.summarize(options, found)
