"""Opens the batches of a fetch answer: what one asks for is packed, and may be a thousand times larger.

Who reads what he ordered opens all of it. A program that shows people what anybody may have written sets an `Opening`: what is
too much for it stays closed, and is named.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from ottla.client.model import FetchedRecords, TransactionMarker
from ottla.records.batch import Batch, batches, check_crc
from ottla.records.record import ControlType, Record, control_type, records
from ottla.runtime.seams import Buffer
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.fetch_messages import FetchedPartition

RECORDS_MAX: Final = 1_000_000
HEADERS_MAX: Final = 100_000
"""Of a batch and of a record: a thousand fit into a kilobyte, and each becomes an object of a hundred bytes."""
OBJECT_BYTES: Final = 64
"""What Python keeps of a part of a record beside its bytes."""


OPENED_BYTES: Final = 32 << 20
"""Of an answer and of a batch, for people."""


class Opening:
    """How much is opened, in all the answers that it is given to."""

    def __init__(self, batch_bytes: int = OPENED_BYTES, kept_bytes: int = OPENED_BYTES) -> None:
        """`batch_bytes`: a batch that unpacks to more stays closed, unless it was sent as large as that. `kept_bytes`: with the
        record that reaches this there are enough: there is always a first one."""
        self._batch_bytes = batch_bytes
        self._left = kept_bytes

    @property
    def is_over(self) -> bool:
        return self._left <= 0

    def records(self, data: Buffer, batch: Batch, offset: int) -> Iterator[Record]:
        """Those from the offset on, until there are enough. KafkaError MESSAGE_TOO_LARGE if the batch is too much."""
        if batch.count > RECORDS_MAX:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {batch.count} records")
        most = max(self._batch_bytes, batch.size)
        for each in records(data, batch, max_bytes=most, headers_max=HEADERS_MAX):
            if each.offset < offset:
                continue
            self._left -= _size(each)
            yield each
            if self.is_over:
                return


def _size(record: Record) -> int:
    size = len(record.key or b"") + len(record.value or b"") + 4 * OBJECT_BYTES
    return size + sum(len(name) + len(value or b"") + 3 * OBJECT_BYTES for name, value in record.headers)  # fmt: skip


def opened(answer: FetchedPartition, offset: int, opening: Opening | None = None) -> FetchedRecords:
    """The first batch holds the offset, and the last one may be cut."""
    data = answer.records
    assert data is None or isinstance(data, memoryview), "a response is read as one view"
    aborted = tuple(sorted(answer.aborted or (), key=lambda each: each[1]))
    to_come = deque(aborted)
    being_aborted: set[int] = set()
    found: list[Record] = []
    headers: list[Batch] = []
    closed: list[Batch] = []
    markers: list[TransactionMarker] = []
    next_offset = offset
    for batch in batches(data or b"", allow_partial=True):
        if opening is not None and opening.is_over:
            break
        headers.append(batch)
        check_crc(data or b"", batch)
        while to_come and to_come[0][1] <= batch.last_offset:
            being_aborted.add(to_come.popleft()[0])
        following = batch.next_offset
        try:
            if batch.is_control:
                being_aborted.discard(batch.producer_id)
                if batch.is_transactional:
                    markers += (_marker(batch, each) for each in records(data or b"", batch))
            elif not (batch.is_transactional and batch.producer_id in being_aborted):
                found.extend(_records(data or b"", batch, offset, opening))
                if opening is not None and opening.is_over:
                    following = found[-1].offset + 1
        except KafkaError as error:
            if opening is None or error.code is not ErrorCode.MESSAGE_TOO_LARGE:
                raise
            closed.append(batch)
        next_offset = max(next_offset, following)
    return FetchedRecords(
        found,
        next_offset,
        answer.high_watermark,
        answer.log_start_offset,
        answer.last_stable_offset,
        aborted,
        tuple(headers),
        tuple(markers),
        tuple(closed),
    )


def _records(data: Buffer, batch: Batch, offset: int, opening: Opening | None) -> Iterable[Record]:
    if opening is not None:
        return opening.records(data, batch, offset)
    return (each for each in records(data, batch) if each.offset >= offset)


def _marker(batch: Batch, record: Record) -> TransactionMarker:
    is_commit = control_type(record) == ControlType.COMMIT
    return TransactionMarker(record.offset, batch.producer_id, batch.producer_epoch, is_commit)
