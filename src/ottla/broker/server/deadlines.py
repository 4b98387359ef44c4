"""Waiting for something that may never come, without a task or a timer of its own."""

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
"""Limits are told in milliseconds, and timers may be early by as much."""
LINES_KEPT = 16
"""So many lines may be empty before they are looked through."""


class Patient(Protocol):
    def time_is_up(self) -> None: ...


Line: TypeAlias = OrderedDict[Patient, float]
"""Those that wait equally long, in the order in which they came, with the moment when their time is up. (A plain
dict takes longer to say who is first, the more have left.)"""


class Deadlines:
    """Time limits of parked requests. Nearly all of them are answered long before, and there is one for each
    request, so a limit must cost next to nothing: whoever waits equally long stands in one line, and only the
    head of a line has a timer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines: dict[int, Line] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._tidy_at = LINES_KEPT

    def add(self, waiting: Patient, now: float, limit_ms: int) -> Line:
        """The line that it stands in: who waits no longer takes itself out."""
        line = self._lines.get(limit_ms)
        if line is None:
            line = self._new_line(limit_ms)
        line[waiting] = now + limit_ms / 1000
        return line

    def _new_line(self, limit_ms: int) -> Line:
        if len(self._lines) >= self._tidy_at:
            self._forget_empty_lines()
        line = self._lines[limit_ms] = OrderedDict()
        self._look_again(limit_ms, limit_ms / 1000)
        return line

    def _forget_empty_lines(self) -> None:
        """Clients choose how long they wait: lines that nobody stands in must not become many. Nor may looking for
        them cost each new line as much as there are lines, so that is done when they have doubled."""
        for limit_ms in [limit_ms for limit_ms, line in self._lines.items() if not line]:
            self._timers.pop(limit_ms).cancel()
            del self._lines[limit_ms]
        self._tidy_at = max(LINES_KEPT, 2 * len(self._lines))

    def _look_again(self, limit_ms: int, seconds: float) -> None:
        self._timers[limit_ms] = asyncio.get_running_loop().call_later(
            seconds, self._look_at, limit_ms
        )

    def _look_at(self, limit_ms: int) -> None:
        line = self._lines[limit_ms]
        now = self._clock.monotonic()
        try:
            while line:
                head = next(iter(line))
                if line[head] - now > RESOLUTION_S:
                    break
                del line[head]
                head.time_is_up()
        finally:
            if line:
                self._look_again(limit_ms, next(iter(line.values())) - now)
            else:
                del self._lines[limit_ms], self._timers[limit_ms]
