"""Checkpoints of the metadata: when one is due, and writing it in a thread.

What is in a checkpoint no longer needs the log before it, which is then deleted as the retention settings say.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any

from ottla.broker.cluster.image_publisher import ImagePublisher
from ottla.config import Settings
from ottla.events.quorum import SnapshotWritten
from ottla.raft.journal import Journal
from ottla.raft.messages import SnapshotId
from ottla.raft.snapshots import build_snapshot
from ottla.runtime.seams import Runtime
from ottla.runtime.threads import in_thread

logger = logging.getLogger(__name__)


class Snapshotter:
    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        journal: Journal,
        published: ImagePublisher,
        step: Callable[[Callable[[], None]], Any],
    ) -> None:
        """`step` runs what may fail with the disk, and takes the node out of its quorum if it does."""
        self.writing: asyncio.Future[None] | None = None
        self._node_id = settings.node_id
        self._settings = settings
        self._runtime = runtime
        self._journal = journal
        self._published = published
        self._step = step
        self._bytes_max = settings.metadata_log_max_record_bytes_between_snapshots
        interval_ms = settings.metadata_log_max_snapshot_interval_ms
        self._interval_s = interval_ms / 1000 if interval_ms else math.inf
        self._bytes = 0
        self._since = 0.0

    def restart(self) -> None:
        """The image is that of a checkpoint: count the time and the bytes from here."""
        self._bytes = 0
        self._since = self._runtime.clock.monotonic()

    def applied(self, size: int) -> None:
        self._bytes += size

    def _is_due(self) -> bool:
        """After so many bytes of metadata, or so long a time with any."""
        now = self._runtime.clock.monotonic()
        return self._bytes >= self._bytes_max or (
            self._bytes > 0 and now - self._since >= self._interval_s
        )

    def write_if_due(self) -> None:
        published = self._published
        if not self._is_due() or self.writing is not None or published.image.pending is not None:
            return
        id = SnapshotId(published.end_offset, published.epoch)
        if id in self._journal.snapshots.ids:
            return
        kraft_version, voters = self._journal.electorate_at(id.end_offset)
        image, timestamp_ms = published.image, published.timestamp_ms
        disk, path = self._runtime.disk, self._journal.snapshots.path(id)

        def write() -> None:
            data = build_snapshot(
                image.records(),
                epoch=id.epoch,
                timestamp_ms=timestamp_ms,
                kraft_version=kraft_version,
                voters=voters,
            )
            disk.replace(path, data, durable=True)

        self.restart()
        self.writing = in_thread(write)
        self.writing.add_done_callback(lambda work: self._written(work, id))

    def _written(self, work: asyncio.Future[None], id: SnapshotId) -> None:
        self.writing = None
        if work.cancelled():
            return

        def take() -> None:
            work.result()
            now_ms = self._runtime.clock.wall_ms()
            self._journal.snapshot_taken(id, now_ms)
            self._journal.clean(
                self._settings.metadata_max_retention_bytes,
                self._settings.metadata_max_retention_ms,
                now_ms,
            )
            self._runtime.events.emit(SnapshotWritten(id.end_offset, id.epoch))
            logger.info("wrote metadata checkpoint node=%d id=%s", self._node_id, id)

        self._step(take)
