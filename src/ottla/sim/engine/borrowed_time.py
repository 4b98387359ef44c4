"""Virtual time and seeded randomness for code that uses the standard library's.

Our own code gets a clock and a generator as parameters. aiokafka and others call `time.monotonic`, `random.shuffle` and
`uuid4`. Inside `borrowed_time(world)` these functions use the simulation. Import such code inside too: a name imported
before with `from time import …` cannot be replaced.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from ottla.sim.engine.loop import START_NS
from ottla.sim.engine.world import WALL_START_MS, World

CHANCE = (
    "betavariate",
    "choice",
    "choices",
    "expovariate",
    "gauss",
    "getrandbits",
    "normalvariate",
    "randbytes",
    "randint",
    "random",
    "randrange",
    "sample",
    "shuffle",
    "triangular",
    "uniform",
)
"""The functions of `random` are methods of one hidden generator. A seeded one replaces it."""


@contextmanager
def borrowed_time(world: World) -> Iterator[None]:
    loop = world.loop
    chance = loop.random_for("third parties")

    def monotonic_ns() -> int:
        return loop.now_ns

    def wall_ns() -> int:
        return WALL_START_MS * 1_000_000 + loop.now_ns - START_NS

    answers = {
        (time, "monotonic"): loop.time,
        (time, "monotonic_ns"): monotonic_ns,
        (time, "perf_counter"): loop.time,
        (time, "perf_counter_ns"): monotonic_ns,
        (time, "time"): lambda: wall_ns() / 1e9,
        (time, "time_ns"): wall_ns,
        (os, "urandom"): chance.randbytes,
        (random, "_urandom"): chance.randbytes,  # secrets and SystemRandom
    }
    for name in CHANCE:
        answers[random, name] = getattr(chance, name)
    with ExitStack() as patches:
        for (module, name), answer in answers.items():
            patches.enter_context(patch.object(module, name, answer))
        yield
