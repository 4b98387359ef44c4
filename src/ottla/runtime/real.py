"""The runtime of a real node: the clock, disks and network of this machine, and the loop they run on."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from ottla.runtime.files import RealDisk
from ottla.runtime.seams import Runtime, Tls
from ottla.runtime.sockets import RealNetwork
from ottla.runtime.tls_options import TlsOptions

T = TypeVar("T")

THREAD_TURN_S = 0.0005
"""How long the loop waits for a thread that computes, as compaction does. Python's default of 5 ms would be added to
every system call of the loop."""

YOUNG_COLLECTIONS_MAX = 100
"""How many collections of younger objects precede one that looks at all of them, 10 by default. A replica consists of fifty
objects that the cyclic collector looks at: all of 10,000 replicas take it 0.4 s, in which nobody is answered, and a
failover makes enough new objects to bring that about."""


class RealClock:
    monotonic = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


def real_runtime(
    loop: asyncio.AbstractEventLoop, seed: int | None = None, *, near: bool = False
) -> Runtime:
    """The seams of one node on `loop`. Without a seed the randomness is the system's. `near`: use Unix sockets to other
    nodes of this machine."""
    return Runtime(
        clock=RealClock(),
        disk=RealDisk(),
        network=RealNetwork(loop, near=near),
        # What others see of it (ids, nonces) must not tell them what comes next.
        random=random.SystemRandom() if seed is None else random.Random(seed),
        make_tls=_make_tls,
        cpu_s=time.process_time,
    )


def _make_tls(options: TlsOptions) -> Tls:
    from ottla.runtime.tls import RealTls

    return RealTls(options)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on uvloop, as `asyncio.run` would on asyncio's loop."""
    import uvloop  # takes 100 ms, which commands without a loop save

    sys.setswitchinterval(THREAD_TURN_S)
    gc.set_threshold(*gc.get_threshold()[:2], YOUNG_COLLECTIONS_MAX)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def keep_for_good() -> None:
    """What is there now stays until the process ends, as far as anybody knows: the cyclic collector need not look at it
    again. For a node that has opened its logs. Of those that are deleted later a cycle may remain, once each."""
    gc.freeze()
