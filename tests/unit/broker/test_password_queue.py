"""Passwords are looked at two at a time: whose turn is next, and who is sent away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.broker.server import password_queue
from ottla.broker.server.password_queue import PasswordQueue
from ottla.runtime.real import RealClock
from ottla.security.failures import FailureDelays
from ottla.security.login import Accepted, Work

STRANGERS = "10.0.0.66"
ALICE = "10.0.0.7"


class Passwords:
    """A queue whose threads go on only when the test says so."""

    def __init__(self) -> None:
        self.delays = FailureDelays(10.0)
        self.queue = PasswordQueue(RealClock(), self.delays)
        self.done: list[str] = []
        self._go_on = threading.Semaphore(0)

    def ask(
        self, host: str, *, is_wanted: Callable[[], bool] = lambda: True
    ) -> asyncio.Task[Accepted | None]:
        def run() -> Accepted:
            assert self._go_on.acquire(timeout=20)
            self.done.append(host)
            return Accepted(host)

        return asyncio.ensure_future(self.queue.compute(Work(run), host, is_wanted))

    def failed(self, host: str) -> None:
        self.delays.failed(host, 0.1, RealClock().monotonic())

    def go_on(self, times: int = 1000) -> None:
        self._go_on.release(times)


def run(scenario: Callable[[Passwords], Coroutine[Any, Any, None]]) -> None:
    async def timed() -> None:
        async with asyncio.timeout(30):
            await scenario(Passwords())

    asyncio.run(timed())


def test_a_storm_from_one_network_delays_nobody_else_by_more_than_a_login() -> None:
    async def scenario(it: Passwords) -> None:
        storm = [it.ask(STRANGERS) for _ in range(100)]
        await asyncio.sleep(0)
        alice = it.ask(ALICE)
        await asyncio.sleep(0)
        it.go_on()
        await asyncio.gather(alice, *storm)
        # Two were in the threads, and two of the strangers' may be next.
        assert it.done.index(ALICE) <= 4
        assert not len(it.queue) and not it.queue._waiting

    run(scenario)


def test_the_addresses_of_one_ipv6_network_count_together() -> None:
    async def scenario(it: Passwords) -> None:
        storm = [it.ask(f"2001:db8::{number:x}") for number in range(100)]
        await asyncio.sleep(0)
        alice = it.ask(ALICE)
        await asyncio.sleep(0)
        it.go_on()
        await asyncio.gather(alice, *storm)
        assert it.done.index(ALICE) <= 4

    run(scenario)


def test_networks_that_have_failed_lately_come_after_all_others() -> None:
    async def scenario(it: Passwords) -> None:
        strangers = [f"10.0.1.{number}" for number in range(100)]
        for each in strangers:
            it.failed(each)
        storm = [it.ask(each) for each in strangers for _ in range(2)]
        await asyncio.sleep(0)
        alice = it.ask(ALICE)
        await asyncio.sleep(0)
        it.go_on()
        await asyncio.gather(alice, *storm)
        assert it.done.index(ALICE) <= 3

    run(scenario)


def test_every_second_turn_is_of_networks_where_somebody_has_logged_in() -> None:
    async def scenario(it: Passwords) -> None:
        it.go_on(1)
        await it.ask(ALICE)
        it.done.clear()
        storm = [it.ask(f"10.0.1.{number}") for number in range(200) for _ in range(2)]
        await asyncio.sleep(0)
        alice = it.ask(ALICE)
        await asyncio.sleep(0)
        it.go_on()
        await asyncio.gather(alice, *storm)
        assert it.done.index(ALICE) <= 4

    run(scenario)


@pytest.mark.parametrize(("has_failed", "most"), [(False, 5), (True, 2)])
def test_of_one_network_only_so_many_wait(
    monkeypatch: pytest.MonkeyPatch, has_failed: bool, most: int
) -> None:
    monkeypatch.setattr(password_queue, "WAITING_MAX", 5)
    monkeypatch.setattr(password_queue, "WAITING_AFTER_FAILURE_MAX", 2)

    async def scenario(it: Passwords) -> None:
        if has_failed:
            it.failed(STRANGERS)
        storm = [it.ask(STRANGERS) for _ in range(20)]
        await asyncio.sleep(0)
        alice = it.ask(ALICE)
        it.go_on()
        ended = await asyncio.gather(*storm, return_exceptions=True)
        assert sum(isinstance(each, Accepted) for each in ended) == 2 + most, "two are computed"
        assert sum(isinstance(each, ConnectionError) for each in ended) == 18 - most
        assert await alice == Accepted(ALICE)

    run(scenario)


def test_who_has_gone_costs_nothing() -> None:
    async def scenario(it: Passwords) -> None:
        first = [it.ask(STRANGERS) for _ in range(2)]
        gone = [it.ask(STRANGERS, is_wanted=lambda: False) for _ in range(50)]
        await asyncio.sleep(0)
        it.go_on(2)
        await asyncio.gather(*first)
        assert await asyncio.gather(*gone) == [None] * 50

    run(scenario)


def test_a_login_that_is_given_up_leaves_its_turn_to_the_next() -> None:
    async def scenario(it: Passwords) -> None:
        first = [it.ask(STRANGERS) for _ in range(2)]
        given_up, last = it.ask(STRANGERS), it.ask(STRANGERS)
        await asyncio.sleep(0)
        given_up.cancel()
        it.go_on()
        await asyncio.gather(*first)
        assert await last == Accepted(STRANGERS)
        assert not it.queue._computing

    run(scenario)
