"""Threads read records that are not in the page cache; the fetch that needs them is parked meanwhile.

A blocking read would stop the event loop: one consumer of old records would delay every acknowledgement, by seconds
on a slow disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from functools import partial
from typing import Protocol, TypeAlias

from ottla.runtime import FileRange
from ottla.runtime.threads import in_thread

logger = logging.getLogger(__name__)

AT_ONCE_MAX = 2
"""More concurrent reads do not make a disk faster. Logs are flushed in the same threads, of which there are five even
on a machine with one processor, and the quorum's flushes must not queue behind consumers."""
PER_OWNER_MAX = 8
"""Each read holds a file open, and the reads of other owners queue behind it."""

Key: TypeAlias = tuple[str, int, int]


class Waiter(Protocol):
    @property
    def is_wanted(self) -> bool:
        """Whether the records are still needed."""

    def brought(self) -> None:
        """The read has ended; the range is in memory unless the read failed."""

    def supersede(self) -> None:
        """Another waiter of the same owner replaces this one."""


class ColdRead:
    """A range being read, and its waiters: the latest of each owner."""

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
    """A broker's cold reads: a few at a time, the others in order of arrival."""

    def __init__(self) -> None:
        self._reads: dict[Key, ColdRead] = {}
        self._waiting: deque[ColdRead] = deque()
        self._under_way = 0
        self._of_owner: Counter[object] = Counter()
        self.count = 0
        """Reads that were not in the page cache, since the start."""
        self.bytes = 0

    def bring(self, wanted: FileRange, waiter: Waiter, owner: object) -> bool:
        """`waiter.brought` is called on a later turn of the loop. False if the owner has too many reads waiting."""
        key = (wanted.file.path, wanted.position, wanted.size)
        read = self._reads.get(key)
        if read is None:
            if self._of_owner[owner] >= PER_OWNER_MAX:
                return False
            read = self._reads[key] = ColdRead(key, wanted, owner)
            self._of_owner[owner] += 1
            self._waiting.append(read)
            self.count += 1
            self.bytes += wanted.size
        if (before := read.waiters.get(owner)) is not None:
            before.supersede()
        read.waiters[owner] = waiter
        self._begin()
        return True

    def _begin(self) -> None:
        while self._waiting and self._under_way < AT_ONCE_MAX:
            read = self._waiting.popleft()
            if not read.is_wanted:
                self._end(read)
                continue
            wanted = read.range
            reading = in_thread(partial(wanted.file.bring, wanted.position, wanted.size))
            self._under_way += 1
            reading.add_done_callback(partial(self._done, read))

    def _done(self, read: ColdRead, reading: asyncio.Future[None]) -> None:
        self._under_way -= 1
        if not reading.cancelled() and (problem := reading.exception()) is not None:
            # The waiters read the range again, and take the directory offline if that fails too.
            logger.warning("read ahead of a fetch failed error=%s", problem)
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
