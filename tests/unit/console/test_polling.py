"""How often something is asked; on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from ottla.console.model.rows import Place
from ottla.console.watch.asking import LINGER_S, TOPICS, Interest, Interests, PlaceTurns
from ottla.console.watch.polling import BACKOFF_MAX_S, DENIED_S, Poll
from ottla.sim.engine.loop import SimLoop
from ottla.wire.errors import ErrorCode, KafkaError


def after(
    seconds: float,
    ask: Callable[[], Awaitable[None]],
    every_s: float,
    *,
    hurry_at: tuple[float, ...] = (),
    rest: float = 20.0,
) -> list[float]:
    """The times at which this was asked within these seconds."""
    times: list[float] = []

    async def watch() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def asked() -> None:
            times.append(round(loop.time() - began, 3))
            await ask()

        poll = Poll("something", asked, lambda: every_s, rest=rest)
        for at in hurry_at:
            loop.call_later(at, poll.hurry)
        task = asyncio.create_task(poll.run(lambda: None))
        await asyncio.sleep(seconds)
        task.cancel()

    with asyncio.Runner(loop_factory=lambda: SimLoop(1)) as runner:  # type: ignore[abstract]
        runner.run(watch())
    return times


async def at_once() -> None:
    return None


def test_it_is_asked_at_its_pace() -> None:
    assert len(after(60, at_once, 5)) == 12


def test_when_something_happened_it_is_asked_at_once() -> None:
    times = after(10, at_once, 60, hurry_at=(2.0, 5.0, 5.0))
    assert times == [0.0, 2.0, 5.0]


def test_many_events_do_not_make_many_questions() -> None:
    storm = tuple(1 + number / 1000 for number in range(1000))
    assert len(after(10, at_once, 60, hurry_at=storm)) < 25


def test_a_slow_answer_is_followed_by_a_longer_rest() -> None:
    async def slow() -> None:
        await asyncio.sleep(1)

    times = after(50, slow, 2, rest=10)
    assert [round(b - a) for a, b in pairwise(times)] == [11, 11, 11, 11]


def test_nobody_looks_away_for_minutes_because_somebody_did_not_answer() -> None:
    async def very_slow() -> None:
        await asyncio.sleep(10)

    times = after(80, very_slow, 2, rest=20)
    assert [round(b - a) for a, b in pairwise(times)] == [25, 25, 25]


def test_a_cluster_that_is_away_is_asked_less_and_less_but_soon_enough() -> None:
    async def lost() -> None:
        raise ConnectionError

    times = after(60, lost, 0.1)
    gaps = [round(b - a, 3) for a, b in pairwise(times)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == pytest.approx(BACKOFF_MAX_S, rel=0.1)


def test_what_one_may_not_see_is_seldom_asked_for() -> None:
    async def denied() -> None:
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    assert len(after(2 * DENIED_S + 1, denied, 1)) == 3


def test_a_bug_in_one_question_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    async def wrong() -> None:
        raise ZeroDivisionError

    assert len(after(21, wrong, 1)) >= 4
    assert "a question failed what=something" in caplog.text


class SetClock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return round(self.now * 1000)


def test_interest_lingers_and_is_told_when_it_begins() -> None:
    clock = SetClock()
    interests = Interests(clock)
    begun: list[Interest] = []
    interests.on_new.append(begun.append)
    orders = Interest("topic", "orders")
    with interests.looking(orders), interests.looking(orders), interests.looking(TOPICS):
        assert interests.of("topic") == [orders]
    assert begun == [orders, TOPICS]
    assert orders in interests
    with interests.looking(orders):
        assert begun == [orders, TOPICS]
    clock.now = LINGER_S + 1
    assert orders not in interests
    assert interests.of("topic") == []
    assert not interests._now
    assert not interests._until


@pytest.mark.parametrize(
    ("code", "forgotten"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 1),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 1),
        (ErrorCode.UNSUPPORTED_VERSION, 0),
        (ErrorCode.REQUEST_TIMED_OUT, 0),
    ],
)
def test_what_a_user_has_no_right_to_is_forgotten(code: ErrorCode, forgotten: int) -> None:
    calls: list[None] = []

    async def refused() -> None:
        raise KafkaError(code, "no")

    async def watch() -> None:
        poll = Poll("something", refused, lambda: 60.0, forget=lambda: calls.append(None))
        task = asyncio.create_task(poll.run(lambda: None))
        await asyncio.sleep(0.1)
        task.cancel()

    with asyncio.Runner(loop_factory=lambda: SimLoop(1)) as runner:  # type: ignore[abstract]
        runner.run(watch())
    assert len(calls) == forgotten


def test_of_more_places_than_are_asked_at_a_time_each_has_its_turn() -> None:
    turns = PlaceTurns(2)
    wanted: list[Place] = [("a", 0), ("b", 0), ("c", 0)]
    assert [turns.next(wanted) for _ in range(3)] == [
        [("a", 0), ("b", 0)],
        [("c", 0), ("a", 0)],
        [("b", 0), ("c", 0)],
    ]
    assert turns.next(wanted[:2]) == wanted[:2]
    assert turns.next([]) == []
