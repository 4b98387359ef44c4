"""Periodic compaction: log.cleaner.threads rounds at a time, each in small steps in a thread.

Between two steps a round returns to the event loop. There it stops if the log has changed so that the round is
void (a truncation, retention, deletion of the topic, a failed disk), puts finished segments in place, and waits if
it is faster than log.cleaner.io.max.bytes.per.second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.config.node_settings import Settings
from ottla.log.compaction import BYTES_PER_KEY, Compaction, NeedsRoom, Replacement
from ottla.log.errors import LogDirError
from ottla.log.log import Log
from ottla.runtime import Clock
from ottla.wire.errors import KafkaError

logger = logging.getLogger(__name__)


class Cleaning:
    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        replicas: ReplicaManager,
        in_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        self.threads = 0
        """Rounds at a time."""
        self._bytes_per_second = 0.0
        self._keys_max = 0
        self._clock = clock
        self._replicas = replicas
        self._in_thread = in_thread
        self._busy: dict[Log, None] = {}
        self.configure(
            settings.log_cleaner_threads,
            settings.log_cleaner_dedupe_buffer_size,
            settings.log_cleaner_io_max_bytes_per_second,
        )

    def configure(self, threads: int, dedupe_bytes: int, bytes_per_second: float) -> None:
        """For rounds that begin from now on, and for the rate of those that go on."""
        self.threads = threads
        self._bytes_per_second = bytes_per_second
        self._keys_max = max(1, dedupe_bytes // max(1, threads) // BYTES_PER_KEY)

    async def clean_all_dirty(self) -> None:
        """Compact until no log is dirty enough."""
        logs = self._replicas.logs
        while True:
            found = logs.next_compaction(self._clock.wall_ms(), self._keys_max, self._busy)
            if found is None:
                return
            log, compaction = found
            self._busy[log] = None
            try:
                if not await self._clean(log, compaction):
                    return  # there may be room next time
            except LogDirError as error:
                self._replicas.directory_failed(error)
            except KafkaError as error:
                if _is_void(log, compaction):
                    continue
                log.uncleanable = str(error)
                logger.warning(
                    "log is not compacted any more, until the next start path=%s error=%s",
                    log.path,
                    error,
                )
                compaction.discard()
            finally:
                del self._busy[log]

    async def _clean(self, log: Log, compaction: Compaction) -> bool:
        """False if the disk has no room for the rest."""
        steps = compaction.steps()
        began = self._clock.monotonic()
        total = 0
        while True:
            try:
                step = await self._in_thread(partial(next, steps, None))
            except OSError as error:
                if _is_void(log, compaction):
                    return True  # the log's files were removed meanwhile
                raise LogDirError(log.directory, error) from error
            if _is_void(log, compaction):
                if not log.gone and log.failed is None:
                    compaction.discard()
                return True
            if step is None:
                break
            if isinstance(step, Replacement):
                log.replace(step.bases, step.segment, self._clock.wall_ms())
            elif isinstance(step, NeedsRoom):
                log.room.look()
                if not log.room.fits(step.bytes):
                    logger.warning(
                        "compaction waits for room path=%s needed=%d free=%d",
                        log.path,
                        step.bytes,
                        log.room.free,
                    )
                    return False
            else:
                total += step
                share = self._bytes_per_second / max(1, self.threads)
                ahead_s = total / share - (self._clock.monotonic() - began)
                if ahead_s > 0:
                    await asyncio.sleep(ahead_s)
        self._replicas.logs.compacted(log, compaction)
        logger.info(
            "compacted log path=%s bytes_left=%d bytes_before=%d cleaned_up_to=%d seconds=%.1f",
            log.path,
            compaction.bytes_kept,
            compaction.bytes_read,
            compaction.cleaned_up_to,
            self._clock.monotonic() - began,
        )
        return True


def _is_void(log: Log, compaction: Compaction) -> bool:
    return log.generation != compaction.round.generation or log.failed is not None
