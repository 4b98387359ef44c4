"""Records that only the disk has are brought into memory by threads; the fetch that wants them is parked meanwhile.

A read that waits for the disk would block the event loop: one consumer of yesterday's records would hold up every
acknowledgement, for seconds where the disk is slow.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from functools import partial
from typing import Protocol, TypeAlias

from ottla.runtime import FileRange

logger = logging.getLogger(__name__)

AT_ONCE_MAX = 2
"""A disk that is read in more places at once is no faster, and the threads are those in which logs are flushed: even
where a machine has one processor there are five, and a quorum must not wait for its turn behind consumers."""
PER_OWNER_MAX = 8
"""Each has a file open, whoever may have asked for it, and others wait behind it."""

Key: TypeAlias = tuple[str, int, int]


class Waiter(Protocol):
    @property
    def is_wanted(self) -> bool:
        """Whether its records are still waited for."""

    def brought(self) -> None:
        """It is in memory now, if it could be read."""

    def supersede(self) -> None:
        """Another waiter of the same owner takes its place."""


class ColdRead:
    """A range on its way, and all who want it: the last of each owner."""

    __slots__ = ("first_owner", "key", "range", "waiters")

    def __init__(self, key: Key, range: FileRange, owner: object) -> None:
        self.key = key
        self.range = range
        self.first_owner = owner
        self.waiters: dict[object, Waiter] = {}

    @property
    def is_wanted(self) -> bool:
        return any(waiter.is_wanted for waiter in self.waiters.values())


class ColdReads:
    """A broker's: few at a time, the others in the order in which they came."""

    def __init__(self) -> None:
        self._reads: dict[Key, ColdRead] = {}
        self._waiting: deque[ColdRead] = deque()
        self._under_way = 0
        self._of_owner: Counter[object] = Counter()

    def bring(self, wanted: FileRange, waiter: Waiter, owner: object) -> bool:
        """`waiter.brought` is called on a later turn of the loop. False if its owner already waits for too much."""
        key = (wanted.file.path, wanted.position, wanted.size)
        read = self._reads.get(key)
        if read is None:
            if self._of_owner[owner] >= PER_OWNER_MAX:
                return False
            read = self._reads[key] = ColdRead(key, wanted, owner)
            self._of_owner[owner] += 1
            self._waiting.append(read)
        if (before := read.waiters.get(owner)) is not None:
            before.supersede()
        read.waiters[owner] = waiter
        self._begin()
        return True

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting and self._under_way < AT_ONCE_MAX:
            read = self._waiting.popleft()
            if not read.is_wanted:
                self._end(read)
                continue
            wanted = read.range
            try:
                reading = loop.run_in_executor(
                    None, wanted.file.bring, wanted.position, wanted.size
                )
            except RuntimeError:
                # The system gives us no thread: then the loop has to wait for the disk.
                loop.call_soon(self._report, read)
                continue
            self._under_way += 1
            reading.add_done_callback(partial(self._done, read))

    def _done(self, read: ColdRead, reading: asyncio.Future[None]) -> None:
        self._under_way -= 1
        if not reading.cancelled() and (problem := reading.exception()) is not None:
            # Whoever waited reads it again, and takes the directory offline if that fails too.
            logger.warning("read ahead of a fetch failed: %s", problem)
        self._begin()
        self._report(read)

    def _report(self, read: ColdRead) -> None:
        self._end(read)
        for waiter in list(read.waiters.values()):
            if waiter.is_wanted:
                waiter.brought()

    def _end(self, read: ColdRead) -> None:
        del self._reads[read.key]
        self._of_owner[read.first_owner] -= 1
        if not self._of_owner[read.first_owner]:
            del self._of_owner[read.first_owner]
