"""Loaded by every Python process of a Spark job that is started with this directory on its path: it makes the sink meet a
fault at a given point. The product has no such switch.

`OTTLA_FAULT` names a file with one line: the point, and which processes to kill when it is reached ("self" is the one
that reached it). The file is renamed when that happens, so that it happens once, and in one process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any


def meet(point: str) -> None:
    path = os.environ["OTTLA_FAULT"]
    try:
        with open(path) as plan:
            wanted, *victims = plan.read().split()
        if wanted != point:
            return
        os.rename(path, path + ".met")
    except (FileNotFoundError, ValueError):
        return
    for victim in victims:
        os.kill(os.getpid() if victim == "self" else int(victim), signal.SIGKILL)


def around(owner: Any, name: str, before: str, after: str) -> None:
    inner: Callable[..., Any] = getattr(owner, name)

    def wrapped(*args: Any, **named: Any) -> Any:
        meet(before)
        result = inner(*args, **named)
        meet(after)
        return result

    setattr(owner, name, wrapped)


def install() -> None:
    from ottla.spark.write.producer import TaskProducer
    from ottla.spark.write.sink import SinkDriver

    around(TaskProducer, "_started", "task:begins", "task:has-begun")
    around(TaskProducer, "_seal", "task:sends", "task:has-sent")
    around(TaskProducer, "finish", "task:flushes", "task:has-flushed")

    do, commit = SinkDriver.do, SinkDriver.commit

    async def does(self: Any, step: Any) -> Any:
        name = type(step).__name__
        meet(f"driver:before-{name}")
        result = await do(self, step)
        meet(f"driver:after-{name}")
        return result

    async def commits(self: Any, written: Any) -> Any:
        result = await commit(self, written)
        meet("driver:amid-CommitTransactions")
        return result

    SinkDriver.do = does  # type: ignore[method-assign]
    SinkDriver.commit = commits  # type: ignore[method-assign]


if "OTTLA_FAULT" in os.environ:
    install()
