"""Records that only the disk has are brought into memory by threads; the fetch that wants them is parked meanwhile.

A read that waits for the disk keeps the loop from everybody whom it serves: one consumer of yesterday's records would
hold up every acknowledgement, for seconds where the disk is slow.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import Protocol

from ottla.runtime import FileRange

logger = logging.getLogger(__name__)

AT_ONCE_MAX = 2
"""A disk that is read in more places at once is no faster, and the threads are those in which logs are flushed: even
where a machine has one processor there are five, and a quorum must not wait for its turn behind consumers."""


class Waiter(Protocol):
    @property
    def is_wanted(self) -> bool:
        """Whether anybody still waits for it."""

    def brought(self) -> None:
        """It is in memory now, if it could be read."""


class ColdReads:
    """A broker's: few at a time, the others in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[FileRange, Waiter]] = deque()
        self._under_way = 0

    def bring(self, wanted: FileRange, waiter: Waiter) -> None:
        """`waiter` hears of it on a later turn of the loop."""
        self._waiting.append((wanted, waiter))
        self._begin()

    def _begin(self) -> None:
        while self._waiting and self._under_way < AT_ONCE_MAX:
            wanted, waiter = self._waiting.popleft()
            if not waiter.is_wanted:
                continue
            loop = asyncio.get_running_loop()
            try:
                reading = loop.run_in_executor(
                    None, wanted.file.bring, wanted.position, wanted.size
                )
            except (
                RuntimeError
            ):  # the system gives us no thread: then the loop has to wait for the disk
                loop.call_soon(waiter.brought)
                continue
            self._under_way += 1
            reading.add_done_callback(partial(self._done, waiter))

    def _done(self, waiter: Waiter, reading: asyncio.Future[None]) -> None:
        self._under_way -= 1
        if not reading.cancelled() and (problem := reading.exception()) is not None:
            # Whoever waited reads it again, and takes the directory offline if that fails too.
            logger.warning("what was to be fetched cannot be read: %s", problem)
        self._begin()
        if waiter.is_wanted:
            waiter.brought()
