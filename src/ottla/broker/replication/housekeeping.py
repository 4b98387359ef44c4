"""A broker's periodic tasks: shrink ISRs, checkpoint, flush, apply retention, compact.

fsync, writing checkpoint files and deleting old files run in a thread. Its input is captured before, so the event
loop can continue to append.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import islice
from typing import Any

from ottla.broker.replication.listener import ReplicaListener
from ottla.broker.replication.log_cleaner import Cleaning
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.config.node_settings import Settings
from ottla.log.flushing import LOGS_AT_ONCE
from ottla.log.log import Log
from ottla.runtime import Clock
from ottla.runtime.threads import in_thread

logger = logging.getLogger(__name__)

CALLS_PER_PARTITION_AND_S_MAX = 2.2
"""Budget, checked by test_counted_work: the calls that a node may make each second for an idle partition."""
FLUSH_CHECK_S = 1.0
"""How often to look for logs that must be flushed (flush.ms, finished segments)."""


ROOM_CHECK_S = 1.0
"""How often to look whether disks have room, besides what is looked at while records are written."""

CHECKPOINT_S_MIN = 0.05

CLEAN_CHECK_S = 0.01
"""The interval if log.cleaner.backoff.ms=0: scanning all logs must not take all the time."""


class Housekeeping(ReplicaListener):
    def __init__(self, settings: Settings, clock: Clock, replicas: ReplicaManager) -> None:
        self._settings = settings
        self._clock = clock
        self._replicas = replicas
        self._tasks: list[asyncio.Task[None]] = []
        self._in_threads: dict[asyncio.Future[Any], None] = {}
        self._cleaning = Cleaning(settings, clock, replicas, self._in_thread)
        self._cleaners = 0
        self._clean_interval_s = max(settings.log_cleaner_backoff_ms / 1000, CLEAN_CHECK_S)
        self._has_started = False
        self._new: list[Log] = []
        self._identifying: asyncio.Task[None] | None = None
        replicas.listeners.append(self)  # logs are also made before `start`, with the first image

    def start(self) -> None:
        settings = self._settings
        every = self._every
        every(settings.replica_lag_time_max_ms / 2000, self._shrink_isrs)
        every(self._checkpoint_interval_s(), self._checkpoint)
        every(settings.log_retention_check_interval_ms / 1000, self._retention)
        if settings.ottla_disk_watermark_percent < 100:
            every(ROOM_CHECK_S, self._look_for_room)
        every(min(settings.log_flush_scheduler_interval_ms / 1000, FLUSH_CHECK_S), self._flush_due)
        self._has_started = True
        self._start_cleaners()

    def configure_cleaner(
        self, threads: int, backoff_ms: int, dedupe_bytes: int, bytes_per_second: float
    ) -> None:
        """log.cleaner.*, which may change while the node runs. Cleaners that are too many finish their round and rest."""
        self._cleaning.configure(threads, dedupe_bytes, bytes_per_second)
        self._clean_interval_s = max(backoff_ms / 1000, CLEAN_CHECK_S)
        self._start_cleaners()

    def _start_cleaners(self) -> None:
        if not self._has_started or not self._settings.log_cleaner_enable:
            return
        while self._cleaners < self._cleaning.threads:
            clean = partial(self._clean, self._cleaners)
            self._every(lambda: self._clean_interval_s, clean, "compaction")
            self._cleaners += 1

    async def _clean(self, number: int) -> None:
        if number < self._cleaning.threads:
            await self._cleaning.clean_all_dirty()

    def _checkpoint_interval_s(self) -> float:
        """High watermarks, recovery points and log starts are written together, at the shortest of their
        intervals."""
        settings = self._settings
        wanted_ms = min(
            settings.replica_high_watermark_checkpoint_interval_ms,
            settings.log_flush_offset_checkpoint_interval_ms,
            settings.log_flush_start_offset_checkpoint_interval_ms,
        )
        return max(wanted_ms / 1000, CHECKPOINT_S_MIN)

    async def stop(self) -> None:
        """Wait for writes in threads to finish, because the logs are closed next."""
        self._new.clear()
        tasks = [*self._tasks, *([self._identifying] if self._identifying is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._in_threads:
            await asyncio.wait(self._in_threads)

    def _every(
        self,
        interval_s: float | Callable[[], float],
        work: Callable[[], Coroutine[Any, Any, None]],
        name: str = "",
    ) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(interval_s() if callable(interval_s) else interval_s)
                try:
                    await work()
                except Exception:
                    task = name or getattr(work, "__name__", "")
                    logger.exception("periodic task failed, will retry task=%s", task)

        self._tasks.append(asyncio.get_running_loop().create_task(repeat()))

    async def _shrink_isrs(self) -> None:
        self._replicas.review_isrs()

    async def _checkpoint(self) -> None:
        logs = self._replicas.logs
        checkpoint = logs.checkpoint_plan()
        await self._in_thread(checkpoint.run)
        logs.checkpointed(checkpoint)

    async def _retention(self) -> None:
        dropped = self._replicas.retention()
        if dropped:
            logger.info("retention removed segments count=%d", dropped)
        logs = self._replicas.logs
        removal = logs.removal_plan(self._clock.wall_ms())
        if removal:
            await self._in_thread(removal.run)
            logs.removed(removal)

    async def _look_for_room(self) -> None:
        self._replicas.logs.look_for_room()

    async def _flush_due(self) -> None:
        now_ms = self._clock.wall_ms()
        unsettled = self._replicas.logs.unsettled
        await self._flush_identities(list(unsettled))
        logs = iter(list(unsettled))
        while some := list(islice(logs, LOGS_AT_ONCE)):
            await self._flush([log for log in some if _is_in_use(log) and log.flush_due(now_ms)])
            for log in some:
                if not _is_in_use(log) or log.is_settled:
                    unsettled.pop(log, None)

    def log_created(self, log: Log) -> None:
        """Make the log's directory entry and topic id durable at once, not at the next flush check. A power loss
        that leaves either of them incomplete would lose the whole log. In a thread, since a topic may have many."""
        self._new.append(log)
        if self._identifying is None or self._identifying.done():
            self._identifying = asyncio.get_running_loop().create_task(self._identify_new())

    async def _identify_new(self) -> None:
        while self._new:
            new, self._new = self._new, []
            await self._flush_identities(new)

    async def _flush_identities(self, logs: list[Log]) -> None:
        plan = self._replicas.logs.identity_plan(log for log in logs if _is_in_use(log))
        if plan:
            await self._in_thread(plan.run)
            self._replicas.logs.flushed(plan)

    async def _flush(self, logs: list[Log]) -> None:
        # A failed fsync is never retried: the unwritten pages may be gone from the page cache too.
        plan = self._replicas.logs.flush_plan(logs)
        if plan:
            await self._in_thread(plan.run)
            self._replicas.logs.flushed(plan)

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        running = in_thread(work)
        self._in_threads[running] = None
        running.add_done_callback(lambda done: self._in_threads.pop(done, None))
        return await asyncio.shield(running)


def _is_in_use(log: Log) -> bool:
    return log.failed is None and not log.gone
