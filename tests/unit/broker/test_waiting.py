"""Time limits of parked requests: each is kept, and none costs a timer."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.server.deadlines import QUEUES_KEPT, RESOLUTION_S, DeadlineQueue, Deadlines
from ottla.sim.engine.world import SimHost, World


class Waiting:
    def __init__(self, host: SimHost, fails: bool = False) -> None:
        self._host = host
        self._fails = fails
        self.ended_at: float | None = None

    def time_is_up(self) -> None:
        self.ended_at = self._host.runtime.clock.monotonic()
        if self._fails:
            raise ValueError("of this one")


class Rig:
    def __init__(self, world: World) -> None:
        self.world = world
        self.host = world.node("a")
        self.deadlines = Deadlines(self.host.runtime.clock)

    def now(self) -> float:
        return self.host.runtime.clock.monotonic()

    def add(self, limit_ms: int, *, fails: bool = False) -> tuple[Waiting, float]:
        """One that waits from now on, and when its time will be up."""
        waiting = Waiting(self.host, fails)

        async def add() -> None:
            self.line = self.deadlines.add(waiting, self.now(), limit_ms)

        due = self.now() + limit_ms / 1000
        self.host.complete(add())
        return waiting, due


def test_each_is_told_when_its_own_time_is_up() -> None:
    with World(1) as world:
        rig = Rig(world)
        waiting = []
        for limit_ms in (500, 30, 500, 2000, 30):
            waiting.append(rig.add(limit_ms))
            world.run_for(0.02)
        world.run_for(3)
    for each, due in waiting:
        assert each.ended_at == pytest.approx(due, abs=2 * RESOLUTION_S)


def test_who_leaves_the_line_is_not_told_and_those_behind_are_in_time() -> None:
    with World(1) as world:
        rig = Rig(world)
        first, _ = rig.add(500)
        line = rig.line
        world.run_for(0.2)
        second, due = rig.add(500)
        assert rig.line is line
        del line[first]
        world.run_for(1)
    assert first.ended_at is None
    assert second.ended_at == pytest.approx(due, abs=2 * RESOLUTION_S)


def test_queues_that_nobody_stands_in_are_forgotten() -> None:
    with World(1) as world:
        rig = Rig(world)
        for limit_ms in range(1_000_000, 1_000_100):
            waiting, _ = rig.add(limit_ms)
            del rig.line[waiting]
            assert len(rig.deadlines._queues) == len(rig.deadlines._timers) <= QUEUES_KEPT
        world.run_for(1001)
        assert not rig.deadlines._queues and not rig.deadlines._timers


class CountedQueues(dict[int, DeadlineQueue]):
    times_looked_through = 0

    def items(self) -> Any:
        self.times_looked_through += 1
        return super().items()


def test_each_may_have_a_limit_of_its_own_and_queues_are_seldom_looked_through() -> None:
    with World(1) as world:
        rig = Rig(world)
        lines = rig.deadlines._queues = CountedQueues()
        waiting = [rig.add(limit_ms) for limit_ms in range(1_000, 3_000, 2)]
        assert len(lines) == 1000 and lines.times_looked_through <= 7
        world.run_for(4)
        assert not rig.deadlines._queues and not rig.deadlines._timers
    for each, due in waiting:
        assert each.ended_at == pytest.approx(due, abs=2 * RESOLUTION_S)


def test_one_that_fails_keeps_nobody_else_waiting() -> None:
    with World(1) as world:
        rig = Rig(world)
        rig.add(500, fails=True)
        other, due = rig.add(500)
        world.run_for(1)
        assert any("of this one" in str(problem) for problem in world.problems())
    assert other.ended_at == pytest.approx(due, abs=2 * RESOLUTION_S)
