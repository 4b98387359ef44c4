"""The process that a callback belongs to.

All nodes of a simulation share one event loop. A context variable separates them: everything that a node starts
inherits its `SimProcess`. So the loop can drop, or defer, exactly the callbacks of that node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.sim.engine.tcp import TcpListener, TcpSocket


class Died(BaseException):
    """Ends the code of a process that died within a callback. Not an `Exception`, so that the code cannot catch it."""


class SimProcess:
    """One run of a node, from its start to its death."""

    __slots__ = (
        "alive",
        "dead_tasks",
        "deferred",
        "funeral",
        "host",
        "listeners",
        "number",
        "paused",
        "sockets",
    )

    def __init__(self, host: str, number: int) -> None:
        self.host = host
        self.number = number
        self.alive = True
        self.paused = False
        self.deferred: list[asyncio.Handle] = []
        """Callbacks that were due while the process was paused, in order."""
        self.dead_tasks: list[asyncio.Task[object]] = []
        """Tasks of the dead process. They stay referenced, because collecting one would run its `finally`."""
        self.funeral: Callable[[], None] | None = None
        """Set if the process died within a callback; called when that callback has unwound."""
        self.sockets: dict[int, TcpSocket] = {}
        self.listeners: dict[int, TcpListener] = {}

    def __repr__(self) -> str:
        state = "paused" if self.paused else "running" if self.alive else "dead"
        return f"<process {self.number} on {self.host}, {state}>"

    @property
    def running(self) -> bool:
        return self.alive and not self.paused


current_process: ContextVar[SimProcess | None] = ContextVar("current_process", default=None)
"""None outside every node, for example in the script that drives the simulation."""
