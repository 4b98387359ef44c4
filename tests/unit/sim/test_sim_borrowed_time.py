"""Code that asks the standard library for time and chance gets the simulation's."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
import uuid

from ottla.sim import World, borrowed_time


def ask() -> tuple[object, ...]:
    return (
        time.time(),
        time.monotonic(),
        time.perf_counter_ns(),
        random.random(),
        uuid.uuid4(),
        secrets.token_hex(8),
    )


def answers(seed: int) -> list[tuple[object, ...]]:
    async def work() -> list[tuple[object, ...]]:
        first = ask()
        await asyncio.sleep(3600)
        return [first, ask()]

    with World(seed) as world, borrowed_time(world):
        return world.node("a").complete(work(), timeout_s=4000)


def test_time_and_chance_repeat_with_the_seed_and_follow_virtual_time() -> None:
    first, second = answers(1)
    assert [first, second] == answers(1)
    assert answers(2)[0][3:] != first[3:]
    assert float(str(second[0])) - float(str(first[0])) > 3599
    assert float(str(second[1])) - float(str(first[1])) > 3599


def test_the_real_ones_are_back_afterwards() -> None:
    random.seed(5)
    expected = random.random()
    random.seed(5)
    answers(1)
    assert random.random() == expected
    assert time.time() > 1_600_000_000 and uuid.uuid4() != uuid.uuid4()
