"""The `Mutation` class and its registration. How to add one: see the package."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from ottla.sim.engine.patches import Patch, patched


@dataclass(frozen=True, slots=True)
class Mutation:
    """A known bug, put back into the product for one simulated run."""

    name: str
    bug: str
    """The issue in Kafka's tracker, or "own"."""
    breaks: str
    """What it breaks, in a sentence."""
    patches: Callable[[], list[Patch]]
    likely: str
    """The profile, or the kind of fault, of the seeds to try first; empty for any."""

    def applied(self) -> AbstractContextManager[None]:
        return patched(self.patches())


MUTATIONS: dict[str, Mutation] = {}


def mutation(
    bug: str, likely: str = ""
) -> Callable[[Callable[[], list[Patch]]], Callable[[], list[Patch]]]:
    """Register a bug by the name of the function, whose docstring says what it breaks."""

    def register(patches: Callable[[], list[Patch]]) -> Callable[[], list[Patch]]:
        assert patches.__doc__ is not None, (
            f"{patches.__name__}: say in its docstring what it breaks"
        )
        breaks = " ".join(patches.__doc__.split())
        assert patches.__name__ not in MUTATIONS
        MUTATIONS[patches.__name__] = Mutation(patches.__name__, bug, breaks, patches, likely)
        return patches

    return register
