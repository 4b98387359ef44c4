"""An asyncio event loop whose time, scheduling and network are driven by a seed.

Nothing here uses the operating system. Methods of `AbstractEventLoop` that this class does not implement raise.
Time jumps to the next event. Every callback takes a microsecond of virtual time, so that code that polls for a later
time makes progress. Timers and arrivals that are due at the same instant run in a random order. `call_soon` keeps its
order, as asyncio promises.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import itertools
import logging
import math
import random
import sys
import threading
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any, NamedTuple, TypeVar, TypeVarTuple

from ottla.sim.engine.process import Died, SimProcess, current_process
from ottla.sim.engine.tcp import TcpNetwork
from ottla.sim.engine.trace import Trace
from ottla.sim.engine.transports import SimServer, SimTransport, create_connection, create_server

logger = logging.getLogger(__name__)
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

NS = 1_000_000_000
START_NS = 1_000 * NS
"""Not zero, so that 0 meaning "never" differs from "at the start"."""
CALLBACK_NS = 1_000
BUSY_CALLBACKS_MAX = 2_000_000
"""This many callbacks without an idle instant are a livelock."""
COLLECT_EVERY_EVENTS = 200_000
"""The garbage collector runs finalisers. It runs only at fixed events, so that every run is the same."""


class Deadlock(Exception):
    """No event is left, and something still waits."""


class Livelock(Exception):
    """Callbacks schedule callbacks endlessly, and the loop is never idle."""


class SimHandle(asyncio.Handle):
    __slots__ = ("process",)
    process: SimProcess | None


class QuietHandle(SimHandle):
    """Work of the operating system for a process. No code of a node runs, so no check is needed after it."""

    __slots__ = ()


class SimTimerHandle(asyncio.TimerHandle):
    __slots__ = ("process",)
    process: SimProcess | None


class MachineEvent:
    """An event of the simulated machine itself: a segment arrives, a write completes."""

    __slots__ = ("arguments", "function")

    def __init__(self, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments


class SimFuture(asyncio.Future[T]):
    """A future whose hash does not depend on its address."""

    def __init__(self, *, loop: SimLoop) -> None:
        self.number = loop.next_number()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.number


class SimTask(asyncio.Task[T]):
    def __init__(
        self,
        coro: Coroutine[Any, Any, T],
        *,
        loop: SimLoop,
        name: str | None,
        context: Context | None,
    ) -> None:
        self.number = loop.next_number()
        self.process = context.get(current_process) if context else current_process.get()
        super().__init__(coro, loop=loop, name=name or f"task-{self.number}", context=context)

    def __hash__(self) -> int:
        return self.number


class Unhandled(NamedTuple):
    """A call of the loop's exception handler."""

    host: str
    message: str
    exception: BaseException | None


class SimLoop(asyncio.AbstractEventLoop):
    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.seed = seed
        self.events = 0
        self.unhandled: list[Unhandled] = []
        self.trace = Trace(lambda: self._now_ns, keep_lines=keep_trace)
        self._now_ns = START_NS
        self._ready: deque[SimHandle | SimTimerHandle | MachineEvent] = deque()
        self._heap: list[tuple[int, float, int, SimTimerHandle | MachineEvent]] = []
        self._cancelled_timers = 0
        self._busy = 0
        self._numbers = itertools.count(1)
        self._schedule_random = self.random_for("schedule")
        self._executor_random = self.random_for("executor")
        self.executor_delays_s: dict[str, tuple[float, float]] = {}
        """Host → shortest and longest time of work in a thread, which simulates a slow disk."""
        self._exception_handler: Callable[[Any, dict[str, Any]], object] | None = None
        self._async_generators: dict[int, weakref.ref[AsyncGenerator[Any, Any]]] = {}
        self._stopping = False
        self._running_thread: int | None = None
        self._closed = False
        self._burying = False
        self._in_machinery = False
        self.after_event: Callable[[SimProcess], None] | None = None
        """Called with the process after each of its callbacks; invariant checkers use it."""
        self.network = TcpNetwork(self)

    # Seeds and numbers

    def random_for(self, concern: str) -> random.Random:
        """One generator per concern: another draw for one concern does not change the others."""
        return random.Random(f"{self.seed}/{concern}")

    def next_number(self) -> int:
        return next(self._numbers)

    # Time

    def time(self) -> float:
        return self._now_ns / NS

    @property
    def now_ns(self) -> int:
        return self._now_ns

    # Scheduling

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = SimHandle(callback, args, self, context)
        handle.process = context.get(current_process) if context else current_process.get()
        if not self._burying:
            self._check_closed()
            self._ready.append(handle)
        return handle

    def call_soon_quietly(self, callback: Callable[[], object]) -> None:
        """As `call_soon`, but `after_event` is not called afterwards."""
        handle = QuietHandle(callback, (), self, None)
        handle.process = current_process.get()
        if not self._burying:
            self._ready.append(handle)

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        if self._running_thread not in (None, threading.get_ident()):
            raise RuntimeError("a thread in a simulation: its timing would not be repeatable")
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = SimTimerHandle(when, callback, args, self, context)
        handle.process = context.get(current_process) if context else current_process.get()
        if not self._burying:
            self._check_closed()
            self._push(math.ceil(when * NS), handle)
        return handle

    def at_ns(self, when_ns: int, function: Callable[..., None], *args: Any) -> None:
        """Schedule an event of the machine, independent of any process."""
        self._push(when_ns, MachineEvent(function, args))

    def after_s(self, delay: float, function: Callable[..., None], *args: Any) -> None:
        self.at_ns(self._now_ns + int(delay * NS), function, *args)

    def _push(self, when_ns: int, item: SimTimerHandle | MachineEvent) -> None:
        order = self._schedule_random.random()
        heapq.heappush(self._heap, (when_ns, order, next(self._numbers), item))

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers would fill the heap. Remove them when they are more than half of it."""
        self._cancelled_timers += 1
        if self._cancelled_timers > 100 and self._cancelled_timers * 2 > len(self._heap):
            self._heap = [
                entry
                for entry in self._heap
                if isinstance(entry[3], MachineEvent) or not entry[3].cancelled()
            ]
            heapq.heapify(self._heap)
            self._cancelled_timers = 0

    def run_as(
        self, process: SimProcess | None, context: Context, function: Callable[[], object]
    ) -> None:
        """Call code of a process from the machine: at once, when the process is resumed, or never if it is dead.

        "At once" is possible only from an event of the machine, never within another callback of a node.
        """
        if self._in_machinery and (process is None or process.running):
            self._in_machinery = False
            try:
                context.run(function)
            except Died:
                assert process is not None and process.funeral is not None
            except Exception as problem:
                self._record(process, "a callback from the machinery failed", problem)
            finally:
                self._in_machinery = True
            if process is not None and process.funeral is not None:
                process.funeral()
            elif process is not None and self.after_event is not None:
                self.after_event(process)
        elif process is None or process.alive:
            handle = SimHandle(function, (), self, context)
            handle.process = process
            self._ready.append(handle)

    # Running

    def run_forever(self) -> None:
        self._stopping = False
        self._run(lambda: self._stopping, None)
        self._stopping = False

    def run_until_complete(self, future: Any) -> Any:
        self._check_closed()
        task = asyncio.ensure_future(future, loop=self)
        self._run(task.done, None)
        return task.result()

    def run_until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Run until `condition` holds or the virtual time is over. Returns whether the condition held."""
        return self._run(condition, self._now_ns + int(timeout_s * NS))

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._running_thread is not None

    def _run(self, until: Callable[[], bool], deadline_ns: int | None) -> bool:
        self._check_closed()
        if self.is_running():
            raise RuntimeError("this event loop is already running")
        with collector_at_rest(), self._as_running_loop():
            while not until():
                if deadline_ns is not None and self._now_ns >= deadline_ns:
                    return False
                if not self._ready and not self._advance(deadline_ns):
                    if deadline_ns is None:
                        raise Deadlock("nothing is scheduled any more")
                    self._now_ns = deadline_ns
                    return until()
                self._turn()
        return True

    def _advance(self, deadline_ns: int | None) -> bool:
        """Nothing is ready: jump to the next event. False if none is due before the deadline."""
        self._busy = 0
        if not self._heap or (deadline_ns is not None and self._heap[0][0] > deadline_ns):
            return False
        self._now_ns = max(self._now_ns, self._heap[0][0])
        return True

    def _turn(self) -> None:
        ready, heap, after_event = self._ready, self._heap, self.after_event
        while heap and heap[0][0] <= self._now_ns:
            due = heapq.heappop(heap)[3]
            if isinstance(due, SimTimerHandle) and due.cancelled():
                self._cancelled_timers = max(0, self._cancelled_timers - 1)
            else:
                ready.append(due)
        turn = len(ready)
        for _ in range(turn):
            item = ready.popleft()
            self._now_ns += CALLBACK_NS
            if isinstance(item, MachineEvent):
                self._in_machinery = True
                item.function(*item.arguments)
                self._in_machinery = False
            elif not item.cancelled():
                process = item.process
                if process is None:
                    item._run()
                elif process.alive and not process.paused:
                    item._run()
                    if process.funeral is not None:
                        process.funeral()
                    elif after_event is not None and not isinstance(item, QuietHandle):
                        after_event(process)
                elif process.alive:
                    process.deferred.append(item)
        self.events += turn
        self._busy += turn
        if self._busy > BUSY_CALLBACKS_MAX:
            raise Livelock(f"{self._busy} callbacks without an idle instant")
        if self.events // COLLECT_EVERY_EVENTS != (self.events - turn) // COLLECT_EVERY_EVENTS:
            gc.collect()

    @contextmanager
    def _as_running_loop(self) -> Iterator[None]:
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(
            firstiter=self._async_generator_begins, finalizer=self._async_generator_dropped
        )
        self._running_thread = threading.get_ident()
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(outer)
            self._running_thread = None
            sys.set_asyncgen_hooks(*hooks)

    # Processes

    def resume(self, process: SimProcess) -> None:
        process.paused = False
        deferred, process.deferred = process.deferred, []
        for handle in deferred:
            assert isinstance(handle, SimHandle | SimTimerHandle)
            self._ready.append(handle)

    def bury(self, process: SimProcess) -> None:
        """The process is dead: none of its callbacks runs again, and no `finally` of its tasks."""
        process.alive = False
        process.paused = False
        process.deferred.clear()
        for task in self._tasks_of(process):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            process.dead_tasks.append(task)

    def _tasks_of(self, process: SimProcess | None) -> list[SimTask[Any]]:
        tasks = [
            task
            for task in asyncio.all_tasks(self)
            if isinstance(task, SimTask) and (process is None or task.process is process)
        ]
        return sorted(tasks, key=lambda task: task.number)

    # Futures, tasks, executors

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self)

    def create_task(
        self,
        coro: Any,
        *,
        name: str | None = None,
        context: Context | None = None,
        **kwargs: Any,
    ) -> asyncio.Task[Any]:
        assert not kwargs, f"tasks of a simulation take no {sorted(kwargs)}"
        self._check_closed()
        if self._burying:
            coro.close()  # started by a `finally`: it will never run
        return SimTask(coro, loop=self, name=name, context=context)

    def set_task_factory(self, factory: Any) -> None:
        if factory is not None:
            raise RuntimeError("tasks of a simulation are its own")

    def get_task_factory(self) -> Any:
        return None

    def run_in_executor(
        self, executor: Any, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Do the work inline at a random instant, and set the result at a later one.

        So a node can die before the work took effect, and between its effect and its result.
        """
        process = current_process.get()
        host = process.host if process else ""
        shortest, longest = self.executor_delays_s.get(host, (0.00005, 0.002))
        future: SimFuture[T] = SimFuture(loop=self)

        def work() -> None:
            if future.cancelled():
                return
            try:
                result, problem = func(*args), None
            except Exception as raised:
                result, problem = None, raised
            self.trace("thread", host, type(problem).__name__ if problem else "done")
            delay = self._executor_random.uniform(0, (longest - shortest) / 2)
            self.call_later(delay, deliver, result, problem)

        def deliver(result: Any, problem: Exception | None) -> None:
            if future.cancelled():
                return
            if problem is not None:
                future.set_exception(problem)
            else:
                future.set_result(result)

        self.call_later(self._executor_random.uniform(shortest, (shortest + longest) / 2), work)
        return future

    def set_default_executor(self, executor: Any) -> None:
        raise RuntimeError("a simulation has no threads")

    # Errors

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        if enabled:
            raise RuntimeError("asyncio's debug mode measures real time")

    def set_exception_handler(
        self, handler: Callable[[Any, dict[str, Any]], object] | None
    ) -> None:
        self._exception_handler = handler

    def get_exception_handler(self) -> Callable[[Any, dict[str, Any]], object] | None:
        return self._exception_handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        task = context.get("task") or context.get("future")
        process = task.process if isinstance(task, SimTask) else current_process.get()
        self._record(process, context["message"], context.get("exception"))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._burying or self._closed or isinstance(context.get("exception"), Died):
            return
        if self._exception_handler is not None:
            self._exception_handler(self, context)
        else:
            self.default_exception_handler(context)

    def _record(
        self, process: SimProcess | None, message: str, problem: BaseException | None
    ) -> None:
        host = process.host if process else ""
        self.unhandled.append(Unhandled(host, message, problem))
        logger.error(
            "unhandled exception host=%s message=%s", host or "outside", message, exc_info=problem
        )

    # Async generators

    def _async_generator_begins(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._async_generators[self.next_number()] = weakref.ref(generator)

    def _async_generator_dropped(self, generator: AsyncGenerator[Any, Any]) -> None:
        if not self._closed and not self._burying:
            self.call_soon(lambda: self.create_task(_finish(generator)))

    async def shutdown_asyncgens(self) -> None:
        for _number, reference in sorted(self._async_generators.items()):
            generator = reference()
            if generator is not None:
                await generator.aclose()
        self._async_generators.clear()

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        return None

    # The end

    def is_closed(self) -> bool:
        return self._closed

    def _check_closed(self) -> None:
        if self._closed:
            raise RuntimeError("Event loop is closed")

    def close(self) -> None:
        """End the simulation. Waiting tasks are ended here, not later by the garbage collector."""
        if self._closed:
            return
        if self.is_running():
            raise RuntimeError("Cannot close a running event loop")
        self._burying = True
        self.trace.end()
        for task in self._tasks_of(None):
            _end(task)
        self._burying = False
        self._ready.clear()
        self._heap.clear()
        self._closed = True

    # Network

    async def getaddrinfo(
        self,
        host: Any,
        port: Any,
        *,
        family: int = 0,
        type: int = 0,
        proto: int = 0,
        flags: int = 0,
    ) -> Any:
        return self.network.getaddrinfo(host, port)

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> SimServer:
        return create_server(self, protocol_factory, host, port, **options)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        return await create_connection(self, protocol_factory, host, port, **options)


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Disable the garbage collector. Use it around a whole run: enabling it again scans everything."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


async def _finish(generator: AsyncGenerator[Any, Any]) -> None:
    await generator.aclose()


def _end(task: SimTask[Any]) -> None:
    """Unwind a task that will never run again. Its actions while it unwinds have no effect."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine = task.get_coro()
    try:
        if coroutine is not None:
            coroutine.close()
    except (Exception, asyncio.CancelledError) as problem:
        logger.debug("task failed at the end task=%s error=%s", task.get_name(), problem)
