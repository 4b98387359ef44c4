"""When a visit is over, and how many there may be. The cluster is never asked: the viewers' clients find nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, cast

import pytest

from ottla.client.client import Client
from ottla.client.connections import ConnectionsClosed
from ottla.console.web import moves
from ottla.console.web import visits as module
from ottla.console.web.application import instance_of
from ottla.console.web.visits import IDLE_S, OF_A_USER_MAX, WHOLE_S, Registered, TooManyVisits


class SetClock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return round(self.now * 1000)


class NoNetwork:
    async def connect(self, *_: Any, **__: Any) -> Any:
        raise ConnectionRefusedError


def connect() -> Client:
    network: Any = NoNetwork()
    return Client(network, [("nowhere", 1)])


def with_visits(
    work: Callable[[Registered, SetClock], Awaitable[None]],
) -> None:
    async def run() -> None:
        clock, numbers = SetClock(), count()
        registered = Registered(clock, lambda: f"secret-{next(numbers)}")
        try:
            await work(registered, clock)
        finally:
            await registered.__aexit__(None, None, None)

    asyncio.run(run())


def test_a_name_that_nobody_was_given_lets_nobody_in() -> None:
    async def work(visits: Registered, clock: SetClock) -> None:
        name = await visits.begin(connect, "alice")
        viewer = visits.viewer_of(name)
        assert viewer is not None
        assert viewer.user == "alice"
        for other in (None, "", "secret-0", name.upper(), name + "x", "\udcff"):
            assert visits.viewer_of(other) is None
        assert name not in str(visits.__dict__), "only a hash is kept"

    with_visits(work)


def test_it_ends_when_nobody_looks_for_a_while() -> None:
    async def work(visits: Registered, clock: SetClock) -> None:
        name = await visits.begin(connect, "alice")
        clock.now += IDLE_S - 1
        assert visits.viewer_of(name) is not None
        clock.now += IDLE_S - 1
        assert visits.viewer_of(name) is not None, "each look counts"
        clock.now += IDLE_S + 1
        assert visits.viewer_of(name) is None
        await visits.sweep()
        assert len(visits) == 0

    with_visits(work)


def test_an_open_page_keeps_it_but_not_for_ever() -> None:
    async def work(visits: Registered, clock: SetClock) -> None:
        name = await visits.begin(connect, "alice")
        viewer = visits.viewer_of(name)
        assert viewer is not None
        viewer.streams = 1
        clock.now += WHOLE_S - 1
        await visits.sweep()
        assert visits.viewer_of(name) is viewer
        clock.now += 2
        await visits.sweep()
        assert visits.viewer_of(name) is None
        assert viewer.ended.is_set(), "its streams end"

    with_visits(work)


class Run:
    is_over = False


def test_a_run_of_moves_keeps_it_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VISITS_MAX", 1)

    async def work(visits: Registered, clock: SetClock) -> None:
        name = await visits.begin(connect, "alice")
        viewer, run = visits.viewer_of(name), cast(Any, Run())
        assert viewer is not None
        viewer.move_run = run
        clock.now += IDLE_S + 1
        await visits.sweep()
        assert visits.viewer_of(name) is viewer
        with pytest.raises(TooManyVisits):
            await visits.begin(connect, "bob")
        run.is_over = True
        clock.now += IDLE_S + 1
        assert visits.viewer_of(name) is None
        run.is_over = False
        clock.now += WHOLE_S
        await visits.sweep()
        assert len(visits) == 0

    with_visits(work)


class Moves:
    """A reassigner whose run does not end."""

    def __init__(self) -> None:
        self.cleaned = 0

    async def run(self, *_: Any, **__: Any) -> Any:
        yield None
        await asyncio.Event().wait()

    async def remove_left_over(self) -> None:
        await asyncio.sleep(0)
        self.cleaned += 1


def test_a_run_that_stops_with_its_visit_leaves_no_limit_that_nothing_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Moves()
    monkeypatch.setattr(moves, "Reassigner", lambda client: made)

    async def work(visits: Registered, clock: SetClock) -> None:
        name = await visits.begin(connect, "alice")
        viewer = visits.viewer_of(name)
        assert viewer is not None
        viewer.move_run = moves.MoveRun(viewer.client, {("orders", 0): (1,)}, None)
        viewer.work(viewer.move_run.go(), viewer.connect())
        await asyncio.sleep(0.01)
        assert made.cleaned == 0
        await visits.end(name)
        assert made.cleaned == 1
        assert viewer.move_run.is_over

    with_visits(work)


def test_a_logout_ends_it_at_once() -> None:
    async def work(visits: Registered, clock: SetClock) -> None:
        name = await visits.begin(connect, "alice")
        viewer = visits.viewer_of(name)
        await visits.end(name)
        assert visits.viewer_of(name) is None
        assert viewer is not None
        assert viewer.ended.is_set()
        await visits.end(name)  # twice is harmless

    with_visits(work)


def test_with_a_visit_its_clients_end_for_good() -> None:
    """A search or a live tail that has one does not go on with the rights of who logged out."""

    async def work(visits: Registered, clock: SetClock) -> None:
        name = await visits.begin(connect, "alice")
        viewer = visits.viewer_of(name)
        assert viewer is not None
        clients = [viewer.client, viewer.connect()]
        for client in clients:
            with pytest.raises(ConnectionRefusedError):
                await client.connections.at(("nowhere", 1))
        clock.now += WHOLE_S + 1
        await visits.sweep()
        for client in (*clients, viewer.client, viewer.connect()):
            with pytest.raises(ConnectionsClosed):
                await client.connections.at(("nowhere", 1))

    with_visits(work)


def test_it_ends_when_the_cluster_refuses_its_user() -> None:
    async def work(visits: Registered, clock: SetClock) -> None:
        name = await visits.begin(connect, "alice")
        viewer = visits.viewer_of(name)
        assert viewer is not None
        viewer.watch._structure.refusals = 99
        assert visits.viewer_of(name) is None
        await visits.sweep()
        assert len(visits) == 0

    with_visits(work)


def test_there_are_so_many_and_who_looks_is_not_pushed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VISITS_MAX", 2)

    async def work(visits: Registered, clock: SetClock) -> None:
        first = await visits.begin(connect, "alice")
        clock.now += 1
        second = await visits.begin(connect, "bob")
        looking = visits.viewer_of(first)
        assert looking is not None
        looking.streams = 1
        third = await visits.begin(connect, "carol")
        assert visits.viewer_of(second) is None
        assert visits.viewer_of(first) is looking
        pushed = visits.viewer_of(third)
        assert pushed is not None
        pushed.streams = 1
        with pytest.raises(TooManyVisits):
            await visits.begin(connect, "dave")

    with_visits(work)


def test_one_user_takes_only_a_few_places_however_many_pages_are_open() -> None:
    async def work(visits: Registered, clock: SetClock) -> None:
        names = []
        bob = await visits.begin(connect, "bob")
        for _ in range(OF_A_USER_MAX + 3):
            names.append(await visits.begin(connect, "alice"))
            viewer = visits.viewer_of(names[-1])
            assert viewer is not None
            viewer.streams = 1
            clock.now += 1
        let_in = [visits.viewer_of(name) is not None for name in names]
        assert let_in == [False] * 3 + [True] * OF_A_USER_MAX, "the oldest gave way"
        assert visits.viewer_of(bob) is not None

    with_visits(work)


def test_many_logins_of_one_user_at_the_same_time_are_counted() -> None:
    async def work(visits: Registered, clock: SetClock) -> None:
        await asyncio.gather(*(visits.begin(connect, "alice") for _ in range(20)))
        assert len(visits) == OF_A_USER_MAX

    with_visits(work)


def test_pages_of_two_visits_count_versions_of_different_models() -> None:
    """A page that comes back says what it had last: of another visit that is nothing, also in the same process."""

    async def work(visits: Registered, clock: SetClock) -> None:
        viewers = [visits.viewer_of(await visits.begin(connect, "alice")) for _ in range(2)]
        found = {instance_of("one process", each) for each in viewers if each is not None}
        assert len(found) == 2
        assert viewers[0] is not None
        assert instance_of("another process", viewers[0]) not in found
        assert viewers[0].token not in "".join(found)

    with_visits(work)
