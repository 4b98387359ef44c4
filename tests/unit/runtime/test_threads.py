"""Work in threads, of which the system may have no more for a moment."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from ottla.runtime.threads import in_thread, several_at_a_time


@contextmanager
def no_threads() -> Iterator[None]:
    def fail(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        yield


def test_calls_are_made_without_a_thread_to_make_them() -> None:
    made: list[int] = []
    with no_threads():
        several_at_a_time([lambda: made.append(1)] * 10, 8)
    assert len(made) == 10


def test_work_that_gets_no_thread_is_done_once_and_reported() -> None:
    """The executor keeps it in its queue, and does it when it gets a thread."""
    done: list[str] = []

    def fail() -> None:
        raise OSError("the disk")

    async def run() -> None:
        executor = ThreadPoolExecutor(2)
        asyncio.get_running_loop().set_default_executor(executor)
        with no_threads():
            await in_thread(lambda: done.append("first"))
            with pytest.raises(OSError, match="the disk"):
                await in_thread(fail)
        await in_thread(lambda: done.append("second"))
        executor.shutdown()

    asyncio.run(run())
    assert done == ["first", "second"]
