"""Who waits for a partition: parked produces for a commit, fetch sessions and shards for news (Kafka's purgatory).

Requests that wait (acks=all, long polls) are completed by the event they wait for. What changes during a turn of the
event loop is collected and reported once at its end, so that a burst of appends wakes a follower once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from ottla.replica.observer import News
from ottla.replica.partition import Partition
from ottla.runtime import Clock
from ottla.wire.errors import ErrorCode


class Watcher(Protocol):
    """Wants to know of a partition's news: a fetch session, for example."""

    def partition_changed(self, partition: Partition, news: int) -> Sleeper | None:
        """Who is to be woken when all news of the turn are reported."""


class Sleeper(Protocol):
    def wake(self, now: float) -> None: ...


class AwaitedCommit(Protocol):
    """Waits for a partition's high watermark: an acks=all produce, for example."""

    def committed(self, partition: Partition) -> None: ...
    def not_committed(self, partition: Partition, error: ErrorCode) -> None: ...


class _Until:
    def __init__(self, condition: Callable[[], bool], future: asyncio.Future[None]) -> None:
        self.condition = condition
        self.future = future

    def partition_changed(self, partition: Partition, news: int) -> None:
        if not self.future.done() and self.condition():
            self.future.set_result(None)


class _Queue(OrderedDict[AwaitedCommit, list[int]]):
    """Who waits for which offsets of a partition, in the order in which they came."""

    is_sorted = True
    """That order is the order of the offsets. It is not when a batch came again, and its first copy is not committed."""


class Purgatory:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._news: dict[Partition, int] = {}
        self._watchers: dict[Partition, dict[Watcher, None]] = {}
        self._awaiting: dict[Partition, _Queue] = {}
        """Of thousands that time out together each takes itself out, so that must not cost more the more there are."""

    @property
    def waiting_for_commits(self) -> int:
        return sum(len(queue) for queue in self._awaiting.values())

    # -- waiting -----------------------------------------------------------------------------------

    def watch(self, partition: Partition, watcher: Watcher) -> None:
        self._watchers.setdefault(partition, {})[watcher] = None

    def unwatch(self, partition: Partition, watcher: Watcher) -> None:
        watchers = self._watchers.get(partition)
        if watchers is not None:
            watchers.pop(watcher, None)
            if not watchers:
                del self._watchers[partition]

    def await_commit(self, partition: Partition, offset: int, waiting: AwaitedCommit) -> None:
        """`waiting` is called when the high watermark reaches `offset`, or when that can no longer be. Who waits for
        several offsets of a partition asks for all of them at once, and is called for each."""
        assert partition.log.high_watermark < offset
        queue = self._awaiting.get(partition)
        if queue is None:
            queue = self._awaiting[partition] = _Queue()
        if offset < partition.log.log_end:
            queue.is_sorted = False
        offsets = queue.get(waiting)
        if offsets is None:
            queue[waiting] = [offset]
        else:
            assert waiting is next(reversed(queue)), "others have come since"
            offsets.append(offset)

    def stop_awaiting(self, partition: Partition, waiting: AwaitedCommit) -> None:
        queue = self._awaiting.get(partition)
        if queue is not None:
            queue.pop(waiting, None)
            if not queue:
                del self._awaiting[partition]

    async def until(self, partition: Partition, condition: Callable[[], bool]) -> None:
        """Wait for news of the partition that make the condition true. Limits are the caller's."""
        if condition():
            return
        waiting = _Until(condition, asyncio.get_running_loop().create_future())
        self.watch(partition, waiting)
        try:
            await waiting.future
        finally:
            self.unwatch(partition, waiting)

    # -- news --------------------------------------------------------------------------------------

    def changed(self, partition: Partition, news: int) -> None:
        """Reported at the end of this turn of the loop, to those who wait now."""
        if partition not in self._watchers and partition not in self._awaiting:
            return  # whoever comes later looks at the partition first
        if not self._news:
            asyncio.get_running_loop().call_soon(self._report)
        self._news[partition] = self._news.get(partition, 0) | news

    def _report(self) -> None:
        changed, self._news = self._news, {}
        woken: dict[Sleeper, None] = {}
        for partition, news in changed.items():
            if news & News.AWAITED and partition in self._awaiting:
                self.complete_awaiting(partition, news)
            for watcher in list(self._watchers.get(partition, ())):
                sleeper = watcher.partition_changed(partition, news)
                if sleeper is not None:
                    woken[sleeper] = None
        if woken:
            now = self._clock.monotonic()
            for sleeper in woken:
                sleeper.wake(now)

    def complete_awaiting(self, partition: Partition, news: int) -> None:
        """Those who wait for a commit of this partition, as far as the news decides about them."""
        queue = self._awaiting[partition]
        if not queue.is_sorted:
            # Once for all that came again in this turn. Who waits for several offsets is answered with the last one.
            by_offset = sorted(queue.items(), key=lambda each: max(each[1]))
            queue = self._awaiting[partition] = _Queue(by_offset)
        high_watermark = partition.log.high_watermark
        error = None
        if news & News.DEPOSED:
            # What was appended then may be gone, even if we lead again by now. In a new epoch of a leader
            # that stayed (a reassignment ends) it is still there, and is waited for.
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            high_watermark = -1
        elif news & News.ISR_SHRUNK and partition.is_under_min_isr:
            error = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        while queue:
            waiting, offsets = next(iter(queue.items()))
            is_committed = offsets[0] <= high_watermark
            if not is_committed and error is None:
                break
            del offsets[0]
            if not offsets:
                del queue[waiting]
            if is_committed:
                waiting.committed(partition)
            elif error is not None:
                waiting.not_committed(partition, error)
        if not queue:
            self._awaiting.pop(partition, None)
