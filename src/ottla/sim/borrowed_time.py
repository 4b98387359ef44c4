"""Virtual time and seeded chance for code that asks the standard library for them.

Ours is handed a clock and a generator. aiokafka and the like call `time.monotonic`, `random.shuffle` and `uuid4`; inside
`borrowed_time(world)` those answer from the simulation. Import such code inside, too: a name that it took with
`from time import …` before cannot be replaced any more.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from ottla.sim.loop import START_NS
from ottla.sim.world import WALL_START_MS, World


@contextmanager
def borrowed_time(world: World) -> Iterator[None]:
    loop = world.loop
    chance = loop.random_for("third parties")

    def monotonic_ns() -> int:
        return loop.now_ns

    def wall_ns() -> int:
        return WALL_START_MS * 1_000_000 + loop.now_ns - START_NS

    state = random.getstate()
    random.seed(chance.getrandbits(64))
    with (
        patch.object(time, "monotonic", loop.time),
        patch.object(time, "monotonic_ns", monotonic_ns),
        patch.object(time, "perf_counter", loop.time),
        patch.object(time, "perf_counter_ns", monotonic_ns),
        patch.object(time, "time", lambda: wall_ns() / 1e9),
        patch.object(time, "time_ns", wall_ns),
        patch.object(os, "urandom", chance.randbytes),
        patch.object(random, "_urandom", chance.randbytes),  # secrets and SystemRandom
    ):
        try:
            yield
        finally:
            random.setstate(state)
