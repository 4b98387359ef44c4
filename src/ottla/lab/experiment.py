"""What an experiment is: a question, runs that can be spread over processes, and what they add up to.

Each experiment is a module of `ottla/lab/experiments` with an `EXPERIMENT`. A run is a call of a function of that module
with plain values, because it is sent to another process.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from ottla.lab.results import ExperimentResult


class Run(NamedTuple):
    """One unit of work: `function(*arguments)` in some process. It returns something that can be pickled."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class LabOptions:
    """What the command line chooses."""

    seeds: range
    designs: tuple[str, ...] = ()
    """Names; empty for all designs of the experiment's seam."""
    is_small: bool = False
    """The small version that is part of `scripts/test`: few seeds, small sizes, every design once."""


@dataclass(frozen=True)
class Experiment:
    name: str
    """As on the command line: `loss`."""
    title: str
    question: str
    promises: tuple[str, ...]
    designs: Callable[[], Sequence[str]]
    """The names of the designs that it compares."""
    default_seeds: int
    small_seeds: int
    runs: Callable[[LabOptions], Sequence[Run]]
    """The work, in an order that does not depend on anything else."""
    summarize: Callable[[LabOptions, Sequence[Any]], ExperimentResult]
    """The results of the runs, in their order, added up."""


@cache
def all_experiments() -> dict[str, Experiment]:
    package = import_module("ottla.lab.experiments")
    found = [
        import_module(f"{package.__name__}.{module.name}").EXPERIMENT
        for module in pkgutil.iter_modules(package.__path__)
    ]
    return {each.name: each for each in sorted(found, key=lambda each: each.name)}


def command_of(name: str, options: LabOptions) -> str:
    """The command that runs the experiment again."""
    seeds = options.seeds
    chosen = f"{seeds.start}..{seeds.stop}" if seeds.start else str(seeds.stop)
    words = [f"ottla lab run {name}", f"--seeds {chosen}"]
    words += [f"--design {each}" for each in options.designs]
    if options.is_small:
        words.append("--small")
    return " ".join(words)
