"""How fast replicas are copied, so that clients keep their latency.

The rate rises while the clients' latency is near that of a quiet cluster, and falls by half when it is not: what TCP does
with a congested line. It rises quickly until it was once too high, and slowly from then on: each time it is too high,
somebody waits.

Three things are not the copying's doing. Where nothing arrives at all (its destination is down, or has no room), no
latency tells anything about the rate, so the rate stays. Where producers write as fast as followers copy, it would
never end: so it gets twice as much, whatever the latency, and does not go back below that. And where clients wait although
next to nothing is copied, they wait for something else: then this is what the cluster is like without copying, and the
rate may rise from there.
"""

from __future__ import annotations

from dataclasses import dataclass

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
"""Settled readings at the lowest rate that are too high: something else is slow."""


@dataclass
class CopyPace:
    """The rate for each broker, in bytes per second."""

    quiet_s: float
    """The latency without copying."""
    rate: int = START
    least: int = LEAST
    most: int = MOST
    _least_left: int | None = None
    """Of the readings since the rate was last found too low for an end."""
    _not_closer: int = 0
    _tried: int = 0
    """The sum of the rates of these readings that came no nearer to the end."""
    _enough: int = 0
    """At half of this rate it would never end."""
    _at_floor: int = 0
    _least_at_floor: float = 0.0
    _step: float = FIRST_STEP
    _last: float | None = None

    @property
    def allowed_s(self) -> float:
        return max(ALLOWED_MIN_S, self.quiet_s * ALLOWED_TIMES)

    @property
    def _floor(self) -> int:
        return max(self.least, self._enough)

    @property
    def held_by(self) -> str | None:
        """Which reading holds it back, in words."""
        if self._last is None or self._last <= self.allowed_s:
            return None
        floor = ", and it does not fall further" if self.rate == self._floor else ""
        return f"producers wait {_ms(self._last)}, more than the {_ms(self.allowed_s)} that are allowed{floor}"

    def read(
        self,
        latency_s: float | None,
        *,
        progress: bool = True,
        left: int | None = None,
        is_settled: bool = True,
    ) -> int:
        """The next rate, after a reading of the latency. None: nobody produces, so nobody is harmed. `progress`: something
        was copied. `left`: bytes that are still to be copied. `is_settled`: the present rate has held for long enough that
        a higher one may be tried."""
        self._last = latency_s
        if not progress:
            return self.rate
        if left is None or self._least_left is None or left < self._least_left:
            self._least_left, self._not_closer, self._tried = left, 0, 0
        else:
            self._not_closer += 1
            self._tried += self.rate
        if self._not_closer >= STUCK_AFTER:
            self._enough = min(self.most, 2 * self._tried // self._not_closer)
            self._least_left, self._not_closer, self._tried = left, 0, 0
            self._set(self.rate)
        elif latency_s is not None and latency_s > self.allowed_s:
            self._too_slow(latency_s, is_settled=is_settled)
        else:
            self._at_floor = 0
            if is_settled and (latency_s is None or latency_s < 0.75 * self.allowed_s):
                self._set(int(self.rate * self._step))
        return self.rate

    def _too_slow(self, latency_s: float, *, is_settled: bool) -> None:
        self._step = STEP
        if self.rate > self._floor:
            self._set(self.rate // 2)
            self._at_floor = 0
            return
        if not is_settled or self.rate > self.least:
            return
        self._least_at_floor = min(self._least_at_floor, latency_s) if self._at_floor else latency_s
        self._at_floor += 1
        if self._at_floor >= AT_FLOOR:
            self.quiet_s, self._at_floor = self._least_at_floor, 0

    def _set(self, rate: int) -> None:
        self.rate = max(self._floor, min(self.most, rate))


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"
