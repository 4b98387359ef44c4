"""Who waits until a node has looked at his password. That takes milliseconds of a processor, so it is done in two threads.

Networks take turns (an address, or a /64 of IPv6): a storm from one delays nobody else by more than a login. Every second
turn is of those where somebody has logged in before, and what has failed lately comes last. So a storm from many networks does not hold up clients who come again, and is
over for new ones once each of these networks has failed.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Final

from ottla.runtime import Clock
from ottla.security.failures import FailureDelays, network_of
from ottla.security.login import Accepted, Work

COMPUTED_AT_ONCE: Final = 2
"""More would take the processor from clients who have logged in."""
WAITING_MAX: Final = 128
"""Logins of one network that may wait. A machine whose clients all come at once has fewer. Further ones are closed unanswered."""
WAITING_AFTER_FAILURE_MAX: Final = 16
"""The same for a network that has failed lately."""
KNOWN_MAX: Final = 10_000
"""Networks where somebody has logged in that are remembered."""
NICENESS: Final = 10
"""Of the threads: where processors are scarce, those who have logged in come first."""


class PasswordQueue:
    """Of one node, for all of its listeners."""

    def __init__(self, clock: Clock, delays: FailureDelays) -> None:
        self._clock = clock
        self._delays = delays
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By network; whose turn is next comes first."""
        self._computing = 0
        self._known: dict[str, None] = {}
        """Networks where somebody has logged in; the latest comes last."""
        self._prefers_known = False
        """Every second time: else one user could keep all others out who have not been here."""

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    async def compute(
        self, work: Work, host: str, is_wanted: Callable[[], bool]
    ) -> Accepted | None:
        """None also if nobody wants to know any more. ConnectionError if too many of its network wait."""
        network = network_of(host)
        await self._turn(network)
        try:
            if not is_wanted():
                return None
            accepted = await asyncio.get_running_loop().run_in_executor(_threads(), work.run)
            if accepted is not None:
                self._logged_in(network)
            return accepted
        finally:
            self._computing -= 1
            self._next()

    async def _turn(self, network: str) -> None:
        if self._computing < COMPUTED_AT_ONCE:
            self._computing += 1
            return
        waiting = self._waiting.setdefault(network, deque())
        most = WAITING_AFTER_FAILURE_MAX if self._has_failed(network) else WAITING_MAX
        if len(waiting) >= most:
            raise ConnectionError("too many logins of its address wait")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was its turn already
                self._computing -= 1
                self._next()
            raise

    def _has_failed(self, network: str) -> bool:
        return self._delays.failed_lately(network, self._clock.monotonic())

    def _logged_in(self, network: str) -> None:
        self._known.pop(network, None)
        if len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[network] = None

    def _rank(self, network: str) -> int:
        if self._has_failed(network):
            return 2
        return 0 if (network in self._known) == self._prefers_known else 1

    def _next(self) -> None:
        while self._waiting and self._computing < COMPUTED_AT_ONCE:
            self._prefers_known = not self._prefers_known
            network = min(self._waiting, key=self._rank)  # of equal ones, whose turn is next
            waiting = self._waiting.pop(network)
            turn = waiting.popleft()
            if waiting:
                self._waiting[network] = waiting  # behind the others
            if not turn.done():
                self._computing += 1
                turn.set_result(None)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(COMPUTED_AT_ONCE, "ottla-passwords", _give_way)


def _give_way() -> None:
    """Linux has a priority for each thread. Elsewhere it would be the whole process's."""
    with suppress(OSError, AttributeError):
        if os.uname().sysname == "Linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
