"""What a mutation is: a known bug, put back into the product for the length of one simulated run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from ottla.sim.engine.patches import Patch, patched


@dataclass(frozen=True, slots=True)
class Mutation:
    name: str
    bug: str
    """Where it is known from."""
    breaks: str
    patches: Callable[[], list[Patch]]
    likely: str
    """The profile of the runs that are the first to meet it, or the kind of fault that they have; empty for any."""

    def applied(self) -> AbstractContextManager[None]:
        return patched(self.patches())


MUTATIONS: dict[str, Mutation] = {}


def mutation(
    bug: str, likely: str = ""
) -> Callable[[Callable[[], list[Patch]]], Callable[[], list[Patch]]]:
    """Registers a bug by the name of the function; its docstring says what it breaks."""

    def register(patches: Callable[[], list[Patch]]) -> Callable[[], list[Patch]]:
        assert patches.__doc__ is not None
        breaks = " ".join(patches.__doc__.split())
        assert patches.__name__ not in MUTATIONS
        MUTATIONS[patches.__name__] = Mutation(patches.__name__, bug, breaks, patches, likely)
        return patches

    return register
