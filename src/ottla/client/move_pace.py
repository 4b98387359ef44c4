"""The throttle of one run of moves: named before anything is copied, adapted while it is, and kept.

It also says in words what holds copying back, since a rate at its floor looks like a fault to whoever waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from ottla.balance.pace import Copied, CopyPace
from ottla.client.admin import Place
from ottla.client.client import Client
from ottla.client.connections import SecurityRefused, Unreachable
from ottla.client.produce_latency import ProduceLatency
from ottla.client.throttled_moves import Copying, MoveThrottle
from ottla.wire.errors import ErrorCode, KafkaError

T = TypeVar("T")
logger = logging.getLogger(__name__)

PATIENCE_S = 120.0
"""How long a cluster may not answer, for example without an active controller."""
RETRY_PAUSE_S = 0.2
TOLD_AFTER_S = 1.0
QUIET_READINGS = 4
QUIET_S = 1.0
KEPT_EVERY_S = 5.0
"""Between two looks whether the throttle is still there."""

Throttle = CopyPace | int | None
"""An adapted rate, a fixed one, or none."""


async def patiently(attempt: Callable[[], Awaitable[T]]) -> T:
    """Try again what fails because a broker or the controller has died. Whoever waits for longer than a moment is told."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    is_told = False
    while True:
        try:
            return await attempt()
        except SecurityRefused:
            raise
        except (OSError, Unreachable) as error:
            if loop.time() > began + PATIENCE_S:
                raise
            why = str(error)
        except KafkaError as error:
            gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not error.retriable or error.code is gone or loop.time() > began + PATIENCE_S:
                raise
            why = str(error)
        if not is_told and loop.time() > began + TOLD_AFTER_S:
            is_told = True
            logger.warning("the cluster does not answer, asking it again why=%s", why)
        await asyncio.sleep(RETRY_PAUSE_S)


def least_seconds(bytes_: int, rate: int | None) -> float:
    """How long a broker copies so much at least: the one estimate from a throttle, in progress and in explanations."""
    return bytes_ / rate if rate else 0.0


class MovePace:
    def __init__(self, client: Client, throttle: Throttle, brokers: Iterable[int]) -> None:
        self._wish = throttle
        self._throttle = MoveThrottle(client)
        self._brokers = set(brokers)
        self._latency = ProduceLatency(client, self._brokers)
        self._named: dict[Place, Copying] = {}
        self._limited_to: int | None = None
        self.limited: set[int] = set()
        """Brokers that have got a rate from here; they may have died since."""
        self._unlimited: set[int] = set()
        """Brokers that were down when the limit was set."""
        self._owners: tuple[str, ...] = ()
        """Topics that somebody throttles with "*": then the rates are his, too."""
        self._looked_at = 0.0
        self._latency_s: float | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """What `MoveProgress` says of it."""
        return {
            "throttle": self._limited_to,
            "latency_s": self._latency_s,
            "held_by": self._held_by(),
        }

    def _held_by(self) -> str | None:
        if self._owners:
            return f'the throttle that topic {self._owners[0]} has for all of its replicas ("*")'
        if isinstance(self._wish, CopyPace) and self._limited_to is not None:
            return self._wish.held_by
        return None

    async def begin(self, *, is_quiet: bool) -> None:
        """Before anything is moved. `is_quiet`: the cluster is as it is without moves, so it is measured."""
        if self._wish is None:
            return
        named = await patiently(self._throttle.named)
        self._owners = tuple(sorted(topic for topic, names in named.items() if names.has_all))
        if isinstance(self._wish, CopyPace) and not self._owners:
            await patiently(self._latency.find_pages)
            if is_quiet:
                self._wish.quiet_s = await self._quiet()

    async def _quiet(self) -> float:
        """How long producers wait before anything is moved: the least of some short times, because this command's own start
        takes its share of a small machine."""
        readings = []
        for _ in range(QUIET_READINGS):
            await asyncio.sleep(QUIET_S)
            readings.append(await self._latency.read())
            self._latency.begin()
        return min((each for each in readings if each is not None), default=0.0)

    async def cover(self, moves: Mapping[Place, Copying]) -> None:
        """Throttle these, which begin only afterwards; or take away the throttle of those that an earlier command began."""
        copied = {place: move for place, move in moves.items() if move.destinations}
        if not copied:
            return
        if self._wish is None:
            await patiently(lambda: self._throttle.lift(copied))
            return
        self._named |= copied
        await patiently(lambda: self._throttle.add_replicas(copied))
        await self._limit(self._rate)
        self._looked_at = -KEPT_EVERY_S  # the rates may have gone with what was copied before
        self._latency.begin()

    @property
    def _rate(self) -> int:
        assert self._wish is not None
        return self._wish if isinstance(self._wish, int) else self._wish.rate

    async def _limit(self, rate: int) -> None:
        """Also a broker that was down and is back."""
        if self._owners:
            return
        brokers = self._brokers if rate != self._limited_to else self._unlimited
        if brokers:
            missed = await patiently(lambda: self._throttle.limit_living(brokers, rate))
            self._unlimited = set(missed)
            self.limited |= set(brokers) - self._unlimited
            self._limited_to = rate

    async def adapt(self, open_: Collection[Place], copied: Copied) -> None:
        """After a look at how far it is, of which `open_` is still being copied."""
        if self._limited_to is None:
            return
        await self._keep(open_)
        if isinstance(self._wish, CopyPace):
            if self._latency.is_settled:
                self._latency.begin()
            self._latency_s = await self._latency.read()
            before, is_settled = self._wish.rate, self._latency.is_settled
            rate = self._wish.read(self._latency_s, copied, is_settled=is_settled)
            if rate != before:
                self._latency.begin()
        await self._limit(self._rate)

    async def _keep(self, open_: Collection[Place]) -> None:
        """Others that move replicas remove what seems left over, also what this command was just about to begin."""
        now = asyncio.get_running_loop().time()
        if now - self._looked_at < KEPT_EVERY_S:
            return
        self._looked_at = now
        held = {place: move for place, move in self._named.items() if place in open_}
        await patiently(lambda: self._throttle.add_replicas(held))
        limited = await patiently(self._throttle.limited_brokers)
        self._unlimited |= self._brokers - set(limited)
