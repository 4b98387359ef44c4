"""Work that is counted instead of timed: calls of functions, the same on every machine in every mood."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import ottla
from ottla.sim.engine.process import current_process

PRODUCT = f"{ottla.__path__[0]}/"
SIMULATOR = f"{PRODUCT}sim/"


class Calls:
    """Which functions the product's code called: those of its own, and those in C that it called itself."""

    def __init__(self) -> None:
        self.by_host: Counter[str | None] = Counter()
        """In a simulation, by the node that called."""
        self.by_name: Counter[tuple[str | None, str]] = Counter()

    def of(self, host: str | None) -> int:
        return self.by_host[host]

    def named(self, name: str) -> int:
        return sum(count for (_, called), count in self.by_name.items() if called == name)

    def most(self, host: str | None, count: int = 25) -> str:
        """For whoever has to find what became more."""
        called = {name: n for (where, name), n in self.by_name.items() if where == host}
        return "\n".join(f"{n:7} {name}" for name, n in Counter(called).most_common(count))

    def _note(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "call":
            name = frame.f_code.co_qualname if hasattr(frame.f_code, "co_qualname") else ""
        elif event == "c_call":
            name = called.__name__
        else:
            return
        path = frame.f_code.co_filename
        if path.startswith(PRODUCT) and not path.startswith(SIMULATOR):
            process = current_process.get()
            host = None if process is None else process.host
            self.by_host[host] += 1
            self.by_name[host, name] += 1


@contextmanager
def counted() -> Iterator[Calls]:
    calls = Calls()
    before = sys.getprofile()
    sys.setprofile(calls._note)
    try:
        yield calls
    finally:
        sys.setprofile(before)


class Steps:
    """How many instructions of the product's code ran: loops count here that call nothing."""

    def __init__(self) -> None:
        self.count = 0

    def _enter(self, frame: FrameType, event: str, arg: object) -> Any:
        if not frame.f_code.co_filename.startswith(PRODUCT):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._inside

    def _inside(self, frame: FrameType, event: str, arg: object) -> Any:
        self.count += event == "opcode"
        return self._inside


@contextmanager
def stepped() -> Iterator[Steps]:
    steps = Steps()
    before = sys.gettrace()
    sys.settrace(steps._enter)
    try:
        yield steps
    finally:
        sys.settrace(before)
