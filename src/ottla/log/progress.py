"""How far the opening of all logs has come. A thread counts, others look: each field is set by one of them only."""

from __future__ import annotations


class OpeningProgress:
    __slots__ = ("began_at", "done", "is_complete", "total")

    def __init__(self) -> None:
        self.began_at: float | None = None
        """Set by the owner, who has a clock."""
        self.total = 0
        self.done = 0
        self.is_complete = False

    def rate(self, now: float) -> float | None:
        """Logs per second; None while nothing is known, and when all are done."""
        if self.is_complete or self.began_at is None or not self.done or now <= self.began_at:
            return None
        return self.done / (now - self.began_at)

    def seconds_left(self, now: float) -> float | None:
        if self.is_complete:
            return 0.0
        rate = self.rate(now)
        return None if rate is None else (self.total - self.done) / rate

    def words(self, now: float) -> str:
        told = f"{self.done} of {self.total}"
        rate, left = self.rate(now), self.seconds_left(now)
        if rate is None or left is None or self.is_complete:
            return told
        return f"{told}, {rate:.0f} a second, {left:.0f} s left"
