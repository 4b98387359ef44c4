"""What of a log is not flushed, and how much of that a flush under way covers.

A flush is planned, carried out in a thread, and reported when it has ended. The log goes on meanwhile: what is written,
truncated or renamed after the plan was made is not part of the plan.
"""

from __future__ import annotations

from ottla.log.config import LogConfig

NO_LIMIT = (1 << 63) - 1


class Unflushed:
    """Of one log."""

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
        """`everything`: it is unknown what was flushed before the log was opened."""
        self.names = everything
        """Files were created, renamed or removed since the directory was flushed last."""
        self.identity = everything
        """The log's directory and its topic id."""
        self.cut = everything
        """The newest file was shortened since it was flushed last."""
        self.cut_may_come_back = everything
        """No flush that began after the last cut has ended: a power loss may undo the cut."""
        self._plans = 0
        self._lowest_cut = NO_LIMIT
        """The lowest offset the log was cut to while a plan was carried out."""
        self._since_ms: int | None = None
        """When `is_due` first saw records to flush."""

    @property
    def is_planned(self) -> bool:
        """A flush, or another plan that writes the same files, is under way."""
        return self._plans > 0

    def is_settled(self, config: LogConfig, finished: bool) -> bool:
        """Nothing becomes due by time alone. `finished`: a closed segment is not flushed."""
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
        """A plan covers everything that is noted here now, and nothing that is noted later."""
        self.names = self.identity = self.cut = False
        self._plans += 1

    def plan_identity(self) -> None:
        self.identity = False
        self._plans += 1

    def plan_nothing_of_this(self) -> None:
        """A plan that makes nothing durable, but must not run at the same time as another."""
        self._plans += 1

    def carried_out(self) -> None:
        self._plans -= 1
        if not self._plans:
            self._lowest_cut = NO_LIMIT

    def flushed(self, up_to: int) -> int:
        """A plan of everything was carried out. The offset up to which the present log is flushed."""
        covered = min(up_to, self._lowest_cut)
        self._since_ms = None
        if self._lowest_cut == NO_LIMIT:
            self.cut_may_come_back = False
        self.carried_out()
        return covered
