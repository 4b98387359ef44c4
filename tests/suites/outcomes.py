"""What the tests of a suite said in two runs, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

NAME_WIDTH = 60
WHY_WIDTH = 100


class Said(Enum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Outcome(NamedTuple):
    said: Said
    why: str = ""


Outcomes = Mapping[str, Outcome]
NOT_RUN = Outcome(Said.SKIPPED, "not run")


class Pair(NamedTuple):
    name: str
    plain: Outcome
    secured: Outcome

    @property
    def differs(self) -> bool:
        """A test that leaves itself out in one run need not run in the other, but what runs has to pass."""
        return (self.plain.said is Said.FAILED) is not (self.secured.said is Said.FAILED)

    def __str__(self) -> str:
        why = next((each.why for each in (self.secured, self.plain) if each.why), "")
        line = f"{self.name[:NAME_WIDTH]:{NAME_WIDTH}} {self.plain.said.value:8} {self.secured.said.value:8}"
        return f"{line} {why[:WHY_WIDTH]}".rstrip()


def compared(plain: Outcomes, secured: Outcomes) -> list[Pair]:
    names = sorted({*plain, *secured})
    return [Pair(name, plain.get(name, NOT_RUN), secured.get(name, NOT_RUN)) for name in names]


def table(pairs: list[Pair]) -> str:
    head = f"{'test':{NAME_WIDTH}} {'plain':8} {'secured':8} why"
    return "\n".join([head, *map(str, pairs)])


def summary(pairs: list[Pair]) -> str:
    """In the order in which docs/SECURITY.md has them."""

    def count(plain: Said | None, secured: Said | None) -> int:
        return sum(
            (plain is None or pair.plain.said is plain)
            and (secured is None or pair.secured.said is secured)
            for pair in pairs
        )

    both = count(Said.PASSED, Said.PASSED)
    failed = count(Said.FAILED, Said.FAILED)
    differing = sum(pair.differs for pair in pairs)
    left_out = len(pairs) - both - failed - differing
    return f"{len(pairs)} tests: {both} passed in both, {differing} differ, {failed} failed in both, {left_out} left out in one or both"
