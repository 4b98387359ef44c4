"""Time limits of parked requests, without a task or a timer for each."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Protocol, TypeAlias

from ottla.runtime import Clock


async def is_set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait until `event` is set, at most so long."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


RESOLUTION_S = 0.001
"""Limits are given in milliseconds, and timers may be early by as much."""
QUEUES_KEPT = 16
"""So many queues may be empty before they are looked through."""


class Expiring(Protocol):
    """What has a deadline."""

    def time_is_up(self) -> None: ...


DeadlineQueue: TypeAlias = OrderedDict[Expiring, float]
"""Those with the same time limit, in the order in which they came, each with its deadline. (In a plain dict it takes
longer to find the first, the more were removed.)"""


class Deadlines:
    """The deadlines of parked requests.

    Nearly all requests are answered long before their deadline, and every request has one. So a deadline must cost
    next to nothing: requests with the same time limit share a queue, and only the head of a queue has a timer.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queues: dict[int, DeadlineQueue] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._tidy_at = QUEUES_KEPT

    def add(self, waiting: Expiring, now: float, limit_ms: int) -> DeadlineQueue:
        """The queue that it is in: the caller removes it from there when it no longer waits."""
        queue = self._queues.get(limit_ms)
        if queue is None:
            queue = self._new_queue(limit_ms)
        queue[waiting] = now + limit_ms / 1000
        return queue

    def waiting(self) -> list[Expiring]:
        """All that wait now."""
        return [each for queue in self._queues.values() for each in queue]

    def _new_queue(self, limit_ms: int) -> DeadlineQueue:
        if len(self._queues) >= self._tidy_at:
            self._forget_empty_queues()
        queue = self._queues[limit_ms] = OrderedDict()
        self._start_timer(limit_ms, limit_ms / 1000)
        return queue

    def _forget_empty_queues(self) -> None:
        """Clients choose their time limits, so empty queues must not become many. Each new queue must not cost a look at
        all of them, so that is done when their number has doubled."""
        for limit_ms in [limit_ms for limit_ms, queue in self._queues.items() if not queue]:
            self._timers.pop(limit_ms).cancel()
            del self._queues[limit_ms]
        self._tidy_at = max(QUEUES_KEPT, 2 * len(self._queues))

    def _start_timer(self, limit_ms: int, seconds: float) -> None:
        self._timers[limit_ms] = asyncio.get_running_loop().call_later(
            seconds, self._expire, limit_ms
        )

    def _expire(self, limit_ms: int) -> None:
        queue = self._queues[limit_ms]
        now = self._clock.monotonic()
        try:
            while queue:
                head = next(iter(queue))
                if queue[head] - now > RESOLUTION_S:
                    break
                del queue[head]
                head.time_is_up()
        finally:
            if queue:
                self._start_timer(limit_ms, next(iter(queue.values())) - now)
            else:
                del self._queues[limit_ms], self._timers[limit_ms]
