"""From committed batches of the metadata log to the image that the node acts by (Kafka's MetadataLoader and publishers)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ottla.events import Events
from ottla.events.quorum import DecisionsLost
from ottla.metadata.image import Delta, MetadataImage
from ottla.metadata.records import MetadataRecord, decode
from ottla.raft.journal import Journal
from ottla.raft.snapshots import BOOTSTRAP
from ottla.records.record import records as records_of

APPLY_BYTES_MAX = 1 << 20
"""Metadata applied in one turn of the loop. The rest waits for the next turn, so that other work is not held up."""


def notify(listeners: Sequence[Callable[..., None]], *what: Any) -> None:
    """A listener that fails has a defect of its own: it is reported, and the quorum goes on."""
    for listener in list(listeners):
        try:
            listener(*what)
        except Exception as error:
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"{listener} of the quorum failed", "exception": error}
            )


class ImagePublisher:
    def __init__(self, journal: Journal) -> None:
        self.image = MetadataImage()
        self.on_image: list[Callable[[MetadataImage, Delta], None]] = []
        self.end_offset = 0
        """Everything below it is in the image."""
        self.epoch = 0
        """Of the last record in the image."""
        self.timestamp_ms = 0
        self._journal = journal

    def apply_committed(self) -> int:
        """Apply committed batches and publish the image, up to a limit. How many bytes they were."""
        committed = self._journal.high_watermark
        assert self.end_offset < committed
        records: list[MetadataRecord] = []
        size = 0
        for data, batch in self._journal.batches_from(self.end_offset, committed):
            if not batch.is_control:
                for record in records_of(data, batch):
                    assert record.value is not None, f"no value at {record.offset}"
                    records.append(decode(record.value))
            self.end_offset = batch.next_offset
            self.epoch = batch.leader_epoch
            self.timestamp_ms = batch.max_timestamp
            size += batch.size
            if size >= APPLY_BYTES_MAX:
                break
        assert self.end_offset <= committed, "only what is committed is applied (M6)"
        image, delta = self.image.apply(records, self.end_offset - 1, self.epoch)
        self._publish(image, delta)
        return size

    def load_snapshot(self) -> bool:
        """Begin from the newest checkpoint, if it is ahead of what was applied. Whether it was."""
        id = self._journal.snapshots.latest
        if id is None or id == BOOTSTRAP or id.end_offset <= self.end_offset:
            return False
        content = self._journal.snapshots.load(id)
        image, _ = MetadataImage().apply(content.records, id.end_offset - 1, id.epoch)
        self.end_offset = id.end_offset
        self.epoch = id.epoch
        self.timestamp_ms = content.timestamp_ms
        self._publish(image, image.delta_from(self.image))
        return True

    def _publish(self, image: MetadataImage, delta: Delta) -> None:
        self.image = image
        notify(self.on_image, image, delta)


class _Append(NamedTuple):
    first_offset: int
    end_offset: int
    done: asyncio.Future[int]


class DeferredAppends:
    """What the active controller has appended and is not in the image yet (compare Kafka's DeferredEventQueue)."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._appends: deque[_Append] = deque()

    def add(self, first_offset: int, end_offset: int) -> asyncio.Future[int]:
        """Resolves to the first offset when everything up to `end_offset` is applied."""
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._appends.append(_Append(first_offset, end_offset, done))
        return done

    def complete_up_to(self, end_offset: int) -> None:
        while self._appends and self._appends[0].end_offset <= end_offset:
            append = self._appends.popleft()
            if not append.done.done():
                append.done.set_result(append.first_offset)

    def fail_all(self, error: Exception) -> None:
        if self._appends and DecisionsLost in self._events:
            first_offset = self._appends[0].first_offset
            self._events.emit(DecisionsLost(len(self._appends), first_offset, str(error)))
        while self._appends:
            done = self._appends.popleft().done
            if not done.done():
                done.set_exception(error)
