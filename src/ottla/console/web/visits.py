"""Who is let in: on an open cluster everybody, as one viewer; on a secured one whoever has logged in there, each as a viewer of
its own.

A visit begins with a login that the cluster accepts. It ends with a logout, with nobody looking for a while, after a time
whatever happens, when the cluster refuses its user, and with the console. Only a hash of its name is kept here, so that what
this process remembers is of no use in a browser.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Protocol, Self

from ottla.client.client import Client
from ottla.console.web.viewer import Viewer
from ottla.runtime.seams import Clock

logger = logging.getLogger(__name__)

VISITS_MAX: Final = 50
OF_A_USER_MAX: Final = 5
"""With these somebody's browsers and machines have enough, and one user cannot take the places of all."""
IDLE_S: Final = 30 * 60.0
"""No page is open, no run of moves is under way, and nothing was asked for so long."""
WHOLE_S: Final = 12 * 3600.0
"""A visit is over after so long, however busy."""
SWEEP_S: Final = 5.0


class Visits(Protocol):
    """What the application asks."""

    wants_login: bool
    token: str
    """For pages of nobody, who may only log in."""

    def viewer_of(self, name: str | None) -> Viewer | None:
        """The viewer of a visit's name; None if nobody is let in by it."""

    def end_streams(self) -> None:
        """The console is about to end."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class OpenHouse:
    """Of an open cluster: one viewer for all."""

    wants_login = False

    def __init__(self, connect: Callable[[], Client], clock: Clock, token: str) -> None:
        self.token = token
        self._viewer = Viewer(connect, clock, token)

    def viewer_of(self, name: str | None) -> Viewer | None:
        return self._viewer

    def end_streams(self) -> None:
        self._viewer.ended.set()

    async def __aenter__(self) -> Self:
        await self._viewer.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._viewer.__aexit__(kind, error, trace)


class Visit:
    def __init__(self, viewer: Viewer, now: float) -> None:
        self.viewer = viewer
        self.began = now
        self.seen = now
        self.stack = AsyncExitStack()

    @property
    def is_busy(self) -> bool:
        """Somebody looks, or a run of moves is under way, which would stop in its middle."""
        run = self.viewer.move_run
        return self.viewer.streams > 0 or (run is not None and not run.is_over)

    def is_over(self, now: float) -> bool:
        idle = now - self.seen > IDLE_S and not self.is_busy
        return idle or now - self.began > WHOLE_S or self.viewer.watch.is_refused


class TooManyVisits(Exception):
    """All places are taken by people who are looking."""


class Registered:
    """Of a secured cluster: a viewer for each login."""

    wants_login = True

    def __init__(self, clock: Clock, chance: Callable[[], str]) -> None:
        """`chance` makes text that nobody can guess."""
        self.token = chance()
        self.clock = clock
        self._chance = chance
        self._visits: dict[str, Visit] = {}
        self._sweeping: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._visits)

    def viewer_of(self, name: str | None) -> Viewer | None:
        visit = None if name is None else self._visits.get(_hash(name))
        now = self.clock.monotonic()
        if visit is None or visit.is_over(now):
            return None
        visit.seen = now
        return visit.viewer

    def end_streams(self) -> None:
        for visit in self._visits.values():
            visit.viewer.ended.set()

    async def begin(self, connect: Callable[[], Client], user: str) -> str:
        """The name of a new visit. Of too many of one user the oldest ends. TooManyVisits if all places are taken by people who
        look."""
        await self._make_room(user)
        name = self._chance()
        viewer = Viewer(connect, self.clock, self._chance(), user=user, is_open=False)
        visit = Visit(viewer, self.clock.monotonic())
        key = _hash(name)
        self._visits[key] = visit  # at once, so that others who begin meanwhile count it
        try:
            await visit.stack.enter_async_context(viewer)
        except BaseException:
            self._visits.pop(key, None)
            raise
        logger.info("a visit begins user=%s visits=%d", user, len(self._visits))
        return name

    async def end(self, name: str) -> None:
        key = _hash(name)
        if key in self._visits:
            await self._end(key, "logout")

    async def _make_room(self, user: str) -> None:
        def oldest(keys: list[str]) -> str:
            return min(keys, key=lambda key: self._visits[key].seen)

        while theirs := [key for key, each in self._visits.items() if each.viewer.user == user]:
            if len(theirs) < OF_A_USER_MAX:
                break
            idle = [key for key in theirs if not self._visits[key].is_busy]
            await self._end(oldest(idle or theirs), "another of the same user")
        while len(self._visits) >= VISITS_MAX:
            idle = [key for key, each in self._visits.items() if not each.is_busy]
            if not idle:
                raise TooManyVisits
            await self._end(oldest(idle), "room for another")

    async def _end(self, key: str, why: str) -> None:
        visit = self._visits.pop(key)
        logger.info("a visit ends user=%s why=%s", visit.viewer.user, why)
        await visit.stack.aclose()

    async def sweep(self) -> None:
        """End what is over."""
        now = self.clock.monotonic()
        for key in [key for key, visit in self._visits.items() if visit.is_over(now)]:
            refused = self._visits[key].viewer.watch.is_refused
            await self._end(key, "the cluster refuses this user" if refused else "time")

    async def _sweep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                await self.sweep()
            except Exception:
                logger.exception("visits were not swept")

    async def __aenter__(self) -> Self:
        self._sweeping = asyncio.create_task(self._sweep_for_ever())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        for key in list(self._visits):
            await self._end(key, "the console ends")


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode(errors="replace")).hexdigest()
