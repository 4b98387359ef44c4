"""Which mutants are tried: drawn by a seed, from each package as many as its share of all that can be made."""

from __future__ import annotations

import random
from pathlib import Path

from mutants.operators import Mutant, mutants_of

PACKAGES: dict[str, tuple[str, ...]] = {
    "log": ("ottla/log",),
    "replica": ("ottla/replica",),
    "raft": ("ottla/raft",),
    "metadata": ("ottla/metadata",),
    "controller": ("ottla/controller",),
    "coordinators": ("ottla/coordinators",),
    "broker": ("ottla/broker/replication", "ottla/broker/cluster", "ottla/broker/coordination"),
}
"""What decides about records. Packages that only move or show bytes are left out."""


def package_of(path: str) -> str:
    return next(name for name, roots in PACKAGES.items() if path.startswith(roots))


def everything(source_root: Path) -> dict[str, list[Mutant]]:
    """By package, in the order of paths and lines."""
    found = {}
    for name, roots in PACKAGES.items():
        paths = sorted(path for root in roots for path in (source_root / root).rglob("*.py"))
        found[name] = [
            mutant
            for path in paths
            for mutant in mutants_of(path.relative_to(source_root).as_posix(), path.read_text())
        ]
    return found


def draw(population: dict[str, list[Mutant]], count: int, seed: int) -> list[Mutant]:
    """In random order, so that the beginning of a sample is a sample, too."""
    chance = random.Random(seed)
    total = sum(map(len, population.values()))
    drawn = [
        mutant
        for mutants in population.values()
        for mutant in chance.sample(mutants, min(len(mutants), round(count * len(mutants) / total)))
    ]
    chance.shuffle(drawn)
    return drawn
