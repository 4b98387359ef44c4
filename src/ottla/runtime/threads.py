"""Work in a thread, also while the system can start none.

A container may be at its limit of threads (pids.max) for a moment. `run_in_executor` raises RuntimeError then, and keeps the
work in its queue: a thread may carry it out later, or none ever does. A flush that is lost like that would hold up all later
ones of its log. So the work is done here and now: the event loop waits for it, and goes on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Generic, TypeVar

T = TypeVar("T")


class _Once(Generic[T]):
    """Work that two may be asked to do. Both get the result of the one that came first."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._is_taken = Lock()
        self._done: Future[T] = Future()

    def __call__(self) -> T:
        if self._is_taken.acquire(blocking=False):
            try:
                self._done.set_result(self._work())
            except BaseException as error:
                self._done.set_exception(error)
        return self._done.result()


def in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    loop = asyncio.get_running_loop()
    once = _Once(work)
    try:
        return loop.run_in_executor(None, once)
    except RuntimeError:
        done: asyncio.Future[T] = loop.create_future()
        try:
            done.set_result(once())
        except Exception as error:
            done.set_exception(error)
        return done


def several_at_a_time(calls: Sequence[Callable[[], None]], threads_max: int) -> None:
    """In this thread and as many more as can be started. Returns when all calls have ended; they keep their errors themselves."""
    left = deque(calls)
    errors: list[BaseException] = []

    def work() -> None:
        while left:
            try:
                call = left.popleft()
            except IndexError:
                return  # another thread has taken the last one
            try:
                call()
            except BaseException as error:
                errors.append(error)

    others: list[Thread] = []
    for _ in range(min(threads_max, len(calls)) - 1):
        other = Thread(target=work, name="disk")
        try:
            other.start()
        except RuntimeError:
            break
        others.append(other)
    work()
    for other in others:
        other.join()
    for error in errors:
        raise error
