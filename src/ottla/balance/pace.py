"""How fast replicas are copied, so that clients keep their latency.

The rate rises while the clients' latency is near that of a quiet cluster, and falls by half when it is not: what TCP does
with a congested line. It rises quickly until it was once too high, and slowly from then on: each time it is too high,
somebody waits.

Three things are not the copying's doing. Where nothing arrives at all (its destination is down, or has no room), no
latency tells anything about the rate, so the rate stays. Where producers write as fast as followers copy, it would
never end: so it gets twice as much, whatever the latency, and does not go back below that until half of it is enough. And
where clients wait although next to nothing is copied, they wait for something else: then this is what the cluster is like
without copying, and the rate may rise from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

MEGABYTE = 1_000_000
START = 10 * MEGABYTE
LEAST = 1 * MEGABYTE
MOST = 1000 * MEGABYTE
ALLOWED_TIMES = 2.0
"""How much worse than the quiet one a latency may be."""
ALLOWED_MIN_S = 0.01
"""A latency below this harms nobody."""
FIRST_STEP, STEP = 1.5, 1.1
"""How much faster it becomes at once, before and after it was once too fast."""
STUCK_AFTER = 15
"""Readings after which copying does not come nearer to its end."""
AT_FLOOR = 8
"""Settled readings at the lowest rate that are too high: something else is slow, or that rate is lower than it was."""
PLENTY = 0.75
"""Of what is copied so much brings the end nearer. Then half of the rate is still twice what producers add."""


class Copied(NamedTuple):
    """How far copying is."""

    seconds: float
    moved: int
    """Bytes that have arrived since it began."""
    left: int
    """Bytes that are still to be copied; producers add to them."""


@dataclass
class CopyPace:
    """The rate for each broker, in bytes per second."""

    quiet_s: float
    """The latency without copying."""
    rate: int = START
    least: int = LEAST
    most: int = MOST
    _last: Copied | None = None
    _nearest: Copied | None = None
    """Since the rate was last found too low for an end."""
    _not_nearer: int = 0
    """Readings since then."""
    _tried: int = 0
    """The sum of their rates."""
    _enough: int = 0
    """At half of this rate it would never end."""
    _at_floor: int = 0
    _least_at_floor: float = 0.0
    _came_to_floor: Copied | None = None
    _step: float = FIRST_STEP
    _latency_s: float | None = None

    @property
    def allowed_s(self) -> float:
        return max(ALLOWED_MIN_S, self.quiet_s * ALLOWED_TIMES)

    @property
    def _floor(self) -> int:
        return max(self.least, self._enough)

    @property
    def held_by(self) -> str | None:
        """Which reading holds it back, in words."""
        if self._latency_s is None or self._latency_s <= self.allowed_s:
            return None
        floor = ", and it does not fall further" if self.rate == self._floor else ""
        return f"producers wait {_ms(self._latency_s)}, more than the {_ms(self.allowed_s)} that are allowed{floor}"

    def read(
        self, latency_s: float | None, copied: Copied | None = None, *, is_settled: bool = True
    ) -> int:
        """The next rate, after a reading of the latency. None: nobody produces, so nobody is harmed. `is_settled`: the
        present rate has held for long enough that a higher one may be tried."""
        self._latency_s = latency_s
        if copied is not None:
            last, self._last = self._last, copied
            if last is not None and copied.moved <= last.moved:
                return self.rate
            if self._never_ends(copied):
                return self.rate
        if latency_s is not None and latency_s > self.allowed_s:
            self._too_slow(latency_s, is_settled=is_settled)
        else:
            self._at_floor = 0
            if is_settled and (latency_s is None or latency_s < 0.75 * self.allowed_s):
                self._set(int(self.rate * self._step))
        return self.rate

    def _never_ends(self, copied: Copied) -> bool:
        """Whether it has not come nearer to its end for a while. Then it has got more."""
        if self._nearest is None or copied.left < self._nearest.left:
            self._nearest, self._not_nearer, self._tried = copied, 0, 0
            return False
        self._not_nearer += 1
        self._tried += self.rate
        if self._not_nearer < STUCK_AFTER:
            return False
        # A rate that was not used is not what is too low.
        seconds = max(copied.seconds - self._nearest.seconds, 0.001)
        used = int((copied.moved - self._nearest.moved) / seconds)
        too_low = min(self._tried // self._not_nearer, used)
        self._enough = min(self.most, max(self._enough, 2 * too_low))
        self._nearest = None
        self._set(self.rate)
        return True

    def _too_slow(self, latency_s: float, *, is_settled: bool) -> None:
        self._step = STEP
        if self.rate > self._floor:
            self._set(self.rate // 2)
            self._at_floor = 0
            return
        if not is_settled:
            return
        if self._at_floor == 0:
            self._least_at_floor, self._came_to_floor = latency_s, self._last
        self._least_at_floor = min(self._least_at_floor, latency_s)
        self._at_floor += 1
        if self._at_floor < AT_FLOOR:
            return
        self._at_floor = 0
        if self.rate == self.least:
            self.quiet_s = self._least_at_floor
        elif self._has_plenty:
            self._enough //= 2
            self._set(self.rate // 2)

    @property
    def _has_plenty(self) -> bool:
        if self._last is None or self._came_to_floor is None:
            return False
        moved = self._last.moved - self._came_to_floor.moved
        nearer = self._came_to_floor.left - self._last.left
        return nearer > PLENTY * moved

    def _set(self, rate: int) -> None:
        self.rate = max(self._floor, min(self.most, rate))


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"
