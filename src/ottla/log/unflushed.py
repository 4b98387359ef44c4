"""What of a log a power loss may still take, and what a flush that is under way covers of it.

Flushes are planned, carried out in a thread, and reported when they have ended; the log goes on meanwhile. What is
written, cut or renamed after the plan was made is not part of it: this remembers which.
"""

from __future__ import annotations

from ottla.log.config import LogConfig

NO_LIMIT = (1 << 63) - 1


class Unflushed:
    __slots__ = (
        "_lowest_cut",
        "_plans",
        "_since_ms",
        "cut",
        "cut_may_come_back",
        "identity",
        "names",
    )

    def __init__(self, *, everything: bool) -> None:
        """`everything`: nobody knows what was flushed before the log was opened."""
        self.names = everything
        """Files were created, renamed or removed since the directory was flushed last."""
        self.identity = everything
        """That the log is there, and whose it is."""
        self.cut = everything
        """The newest file was shortened since it was flushed last."""
        self.cut_may_come_back = everything
        """No flush that began after the last cut has ended: a power loss may undo the cut."""
        self._plans = 0
        self._lowest_cut = NO_LIMIT
        """The lowest offset the log was cut to while a plan was carried out."""
        self._since_ms: int | None = None
        """When somebody first saw that there were records to flush."""

    @property
    def is_planned(self) -> bool:
        """A flush, or another plan that writes the same files, is under way."""
        return self._plans > 0

    def is_settled(self, config: LogConfig, finished: bool) -> bool:
        """Nothing becomes due by time alone; `finished`: a segment that ended is not flushed."""
        return not (
            self._plans
            or self.identity
            or self.cut_may_come_back
            or config.flush_ms < NO_LIMIT
            or finished
        )

    def is_due(self, now_ms: int, config: LogConfig, records: int, finished: bool) -> bool:
        if self._plans:
            return False
        if self.cut_may_come_back:
            return True
        if not records:
            self._since_ms = None
            return False
        if self._since_ms is None:
            self._since_ms = now_ms
        return (
            records >= config.flush_messages
            or now_ms - self._since_ms >= config.flush_ms
            or finished
        )

    def was_cut(self, offset: int) -> None:
        self.cut = self.cut_may_come_back = True
        if self._plans:
            self._lowest_cut = min(self._lowest_cut, offset)

    def plan_all(self) -> None:
        """All that is marked here is part of the plan now; what is marked from now on is not."""
        self.names = self.identity = self.cut = False
        self._plans += 1

    def plan_identity(self) -> None:
        self.identity = False
        self._plans += 1

    def plan_nothing_of_this(self) -> None:
        """A plan that makes nothing durable, but must not meet another."""
        self._plans += 1

    def carried_out(self) -> None:
        self._plans -= 1
        if not self._plans:
            self._lowest_cut = NO_LIMIT

    def flushed(self, up_to: int) -> int:
        """A plan of everything was carried out: how far it covers what is there now."""
        covered = min(up_to, self._lowest_cut)
        self._since_ms = None
        if self._lowest_cut == NO_LIMIT:
            self.cut_may_come_back = False
        self.carried_out()
        return covered
