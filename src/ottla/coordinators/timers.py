"""Timers of a shard, by name. A shard has no clock: its host calls it when the next timer is due."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

Key = tuple[str, ...]


class _Timer(NamedTuple):
    at: float
    action: Callable[[], None]


class Timers:
    """Setting a timer that is set already moves it. Every heartbeat moves a session's timer, and sessions rarely
    expire. So a move to a later time leaves the queue alone: the entry is checked when its old time comes."""

    def __init__(self) -> None:
        self._timers: dict[Key, _Timer] = {}
        self._queued: dict[Key, float] = {}
        """When the queue will check a key; never later than its timer."""
        self._queue: list[tuple[float, Key]] = []

    def set(self, key: Key, at: float, action: Callable[[], None]) -> None:
        self._timers[key] = _Timer(at, action)
        if at < self._queued.get(key, inf):
            self._queued[key] = at
            heappush(self._queue, (at, key))

    def cancel(self, key: Key) -> None:
        self._timers.pop(key, None)

    def at(self, key: Key) -> float:
        """When it is due; inf if it is not set."""
        timer = self._timers.get(key)
        return inf if timer is None else timer.at

    def next_look(self) -> float:
        return self._queue[0][0] if self._queue else inf

    def due(self, now: float) -> Iterator[tuple[Key, Callable[[], None]]]:
        """Each due action once, with its name. A timer that an action sets for now comes with the next call."""
        ready = []
        while self._queue and self._queue[0][0] <= now:
            queued_at, key = heappop(self._queue)
            if self._queued.get(key) != queued_at:
                continue  # the timer was moved to an earlier time; this is its old entry
            del self._queued[key]
            timer = self._timers.get(key)
            if timer is None:
                continue
            if timer.at <= now:
                ready.append((key, timer))
            else:
                self._queued[key] = timer.at
                heappush(self._queue, (timer.at, key))
        for key, timer in ready:
            if self._timers.get(key) is timer:  # an earlier action may have cancelled or moved it
                del self._timers[key]
                yield key, timer.action
