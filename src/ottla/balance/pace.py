"""How fast replicas are copied, so that clients keep their latency.

The rate rises while the clients' latency is near that of a quiet cluster, and falls by half when it is not: what TCP does
with a congested line. A rate that is too low never ends, because producers write faster than followers copy. So copying
that makes no progress gets more, whatever the latency.
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
STUCK_AFTER = 15
"""Readings without progress."""


@dataclass
class CopyPace:
    """The rate for each broker, in bytes per second."""

    quiet_s: float
    """The latency before copying began."""
    rate: int = START
    least: int = LEAST
    most: int = MOST
    _without_progress: int = 0

    @property
    def allowed_s(self) -> float:
        return max(ALLOWED_MIN_S, self.quiet_s * ALLOWED_TIMES)

    def read(self, latency_s: float | None, *, progress: bool = True) -> int:
        """The next rate, after a reading of the latency. None: nobody produces, so nobody is harmed."""
        self._without_progress = 0 if progress else self._without_progress + 1
        if self._without_progress >= STUCK_AFTER:
            self._without_progress = 0
            self._set(self.rate * 2)
        elif latency_s is not None and latency_s > self.allowed_s:
            self._set(self.rate // 2)
        elif latency_s is None or latency_s < 0.75 * self.allowed_s:
            self._set(self.rate * 5 // 4)
        return self.rate

    def _set(self, rate: int) -> None:
        self.rate = max(self.least, min(self.most, rate))
