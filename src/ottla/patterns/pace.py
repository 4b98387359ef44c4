"""How much of the event loop the patterns of one principal may take.

One pattern costs milliseconds at most, but somebody can send a thousand, each of them another. What they cost is counted for
each principal, in visited states (`patterns.re2`), and who has used up his share comes again later.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import TypeAlias

from ottla.patterns.re2 import WORK_MAX, compiled

WORK_PER_S = 10 * WORK_MAX
"""About a tenth of the loop."""
BURST = 2 * WORK_PER_S
NAME_WORK = 5
"""To match one name, steps that are known included, takes as long as to visit so many states."""
OWNERS_MAX = 1000


Select: TypeAlias = Callable[[str, Iterable[str], float], tuple[str, ...]]
"""(pattern, names, now): those that match, in order."""


class TooManyPatterns(Exception):
    """Of this owner, for the moment."""


def select_freely(pattern: str, names: Iterable[str], now: float) -> tuple[str, ...]:
    return compiled(pattern).select(names)


class PatternPace:
    def __init__(self) -> None:
        self._debts: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        """What each owner had used, and when; those of late come last."""

    def select(
        self, owner: Hashable, pattern: str, names: Iterable[str], now: float
    ) -> tuple[str, ...]:
        """Those that match, in order; `owner` pays for it."""
        used, since = self._debts.pop(owner, (0.0, now))
        used = max(0.0, used - (now - since) * WORK_PER_S)
        if used > BURST:
            self._debts[owner] = used, now
            raise TooManyPatterns
        names = tuple(names)
        work = WORK_MAX  # of one that is refused
        try:
            matcher = compiled(pattern)
            selected = matcher.select(names)
            work = matcher.size + matcher.work
        finally:
            self._debts[owner] = used + work + NAME_WORK * len(names), now
            if len(self._debts) > OWNERS_MAX:
                self._debts.popitem(last=False)
        return selected
