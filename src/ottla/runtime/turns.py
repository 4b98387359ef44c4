"""Long work on the event loop, in slices: others have their turns in between."""

from __future__ import annotations

import asyncio

from ottla.runtime.seams import Clock

SLICE_S = 0.002


class Turns:
    """Of one piece of work. It calls `pause` often; that costs nothing until the slice is used up."""

    __slots__ = ("_clock", "_until")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = clock.monotonic() + SLICE_S

    async def pause(self) -> None:
        if self._clock.monotonic() >= self._until:
            await asyncio.sleep(0)
            self._until = self._clock.monotonic() + SLICE_S
