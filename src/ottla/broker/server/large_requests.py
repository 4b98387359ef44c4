"""Long lists in requests of clients take turns: one at a time, and after each of them others have the loop for longer than it took.

A list of ten thousand names takes a tenth of a second to read, to decide and to answer. Many of them, on many connections, would
leave no time for heartbeats and elections. Principals take turns, too, so nobody waits for all that another one has sent.

Many short lists take as long. So where rights count, what each principal uses of the loop's time is measured, and who has used much
of it lately takes turns with all that he asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple, TypeAlias

LARGE_BYTES: Final = 32 * 1024
"""A longer request of a client is large, unless it brings records. It has room for a thousand names."""
LARGE_RECORDS: Final = 1000
"""A request for more records of the metadata is large, however few bytes say it: a topic of 10,000 partitions has a short name."""
SHARE: Final = 0.5
"""Of the loop's time. Who uses no more of it never waits."""
BURST_S: Final = 0.2
"""What one principal may use at once, beyond its share."""
LONG_FETCH_BYTES: Final = 1024
"""Records count as nothing: they are what a node is there for, and quotas are for them. But a fetch that is longer than this names
many partitions, which costs time also where it brings nothing."""
PRINCIPALS_MAX: Final = 1000
"""Beyond so many, those are forgotten who used nothing lately."""
PAUSE: Final = 2.0
"""The loop is left to others for so many times as long as the last large request took."""
WAITING_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of one principal. A connection that brings more is closed."""


CallLater: TypeAlias = Callable[[float, Callable[[], None]], Any]


class _Waiting(NamedTuple):
    size: int
    work: Callable[[], None]


class Used:
    """How many seconds of the loop one principal has used lately. They run out at a steady rate."""

    __slots__ = ("_at", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        """As of the last addition: it is never too small."""
        self._at = 0.0

    def add(self, began: float, ended: float) -> None:
        self.seconds = self.left(began) + ended - began
        self._at = ended

    def left(self, now: float) -> float:
        return max(0.0, self.seconds - (now - self._at) * SHARE)

    def is_much(self, now: float) -> bool:
        return self.seconds > BURST_S and self.left(now) > BURST_S


class LargeRequests:
    """Of one node, for all of its listeners."""

    def __init__(self, now: Callable[[], float], call_later: CallLater) -> None:
        self._now = now
        self._call_later = call_later
        self._waiting: dict[Hashable, deque[_Waiting]] = {}
        """By owner; whose turn is next comes first."""
        self._bytes: dict[Hashable, int] = {}
        self._used: dict[Hashable, Used] = {}
        self._is_scheduled = False

    def __len__(self) -> int:
        return sum(len(each) for each in self._waiting.values())

    def used_by(self, owner: Hashable) -> Used:
        used = self._used.get(owner)
        if used is None:
            if len(self._used) >= PRINCIPALS_MAX:
                now = self._now()
                self._used = {who: each for who, each in self._used.items() if each.left(now)}
            used = self._used[owner] = Used()
        return used

    def has_room(self, owner: Hashable, size: int) -> bool:
        return self._bytes.get(owner, 0) + size <= WAITING_BYTES_MAX

    def add(self, owner: Hashable, size: int, work: Callable[[], None]) -> None:
        """Do this when its turn comes. `size`: the bytes that it keeps until then."""
        self._waiting.setdefault(owner, deque()).append(_Waiting(size, work))
        self._bytes[owner] = self._bytes.get(owner, 0) + size
        self._schedule(0.0)

    def _schedule(self, seconds: float) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_later(seconds, self._next)

    def _next(self) -> None:
        self._is_scheduled = False
        if not self._waiting:
            return
        owner = next(iter(self._waiting))
        waiting = self._waiting.pop(owner)
        size, work = waiting.popleft()
        self._bytes[owner] -= size
        if waiting:
            self._waiting[owner] = waiting  # behind the others
        else:
            del self._bytes[owner]
        began = self._now()
        try:
            work()
        finally:
            ended = self._now()
            self.used_by(owner).add(began, ended)
            # Also if nothing waits now: the next one may come at once.
            self._schedule(PAUSE * (ended - began))
