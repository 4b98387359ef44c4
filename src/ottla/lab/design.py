"""What a design is: a replacement for one part of the product, at a named seam.

To add a design, add a file to `ottla/lab/designs` that assigns one to its constant for it. It is found there by itself.
docs/LAB.md shows one as an example, and says which experiments it takes part in.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from importlib import import_module
from typing import Any


class Seam(Enum):
    """The parts of the product that a design may replace. The value is the question that such a part answers."""

    TRUNCATION = "Where does a follower cut its log before it copies its leader's?"
    COMMIT = "When is a record committed, and who may lead after a failure?"
    PROPAGATION = "How do decisions about leaders reach the brokers?"
    TRANSFER = "How do records get from the leader to its followers?"
    LOCK = "How do clients of ZooKeeper agree on one of them?"


@dataclass(frozen=True)
class Design:
    name: str
    """As on the command line: `hw-truncation`."""
    seam: Seam
    promise: str
    """Its code in docs/PROMISES.md."""
    summary: str
    """One sentence."""
    part: Any
    """The replacement. Its type depends on the seam; the experiments of the seam know what to do with it."""
    is_product: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further settings of every node."""
    topic_settings: Mapping[str, str] = field(default_factory=dict)


@cache
def all_designs() -> dict[str, Design]:
    """Every design by name: the product's first within each seam, then by name."""
    package = import_module("ottla.lab.designs")
    found: list[Design] = []
    for module in pkgutil.iter_modules(package.__path__):
        loaded = import_module(f"{package.__name__}.{module.name}")
        design = getattr(loaded, "DESIGN", None)
        if not isinstance(design, Design):
            raise TypeError(f"{loaded.__file__} has no design: it must assign one to its constant")
        found.append(design)
    order = list(Seam)
    found.sort(key=lambda each: (order.index(each.seam), not each.is_product, each.name))
    names = [each.name for each in found]
    assert len(set(names)) == len(names), f"two designs of one name: {names}"
    return {each.name: each for each in found}


def designs_of(seam: Seam) -> list[Design]:
    return [each for each in all_designs().values() if each.seam is seam]


def design_named(name: str) -> Design:
    """KeyError if there is none."""
    return all_designs()[name]
