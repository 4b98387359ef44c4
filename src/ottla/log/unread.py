"""The first record that a consumer would still read: its age is the lag in seconds.

Offsets have gaps: compaction leaves some, and the markers of transactions take one each. So the record at a committed
offset may be none of those that a consumer gets. The answer is found in the headers of batches. Only the batch with the
answer is opened, and often not even that one: an uncompressed record begins with what is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.log.transaction_index import AbortedTransaction
from ottla.log.unpacking import BYTES_MAX
from ottla.records.batch import HEADER_BYTES, Batch, CorruptBatch, read_batch
from ottla.records.filtering import record_outlines
from ottla.records.record import Malformed, read_varint, unpacked
from ottla.runtime.seams import FileRange

CHUNK_BYTES = 4096
"""Read at a time while headers are searched."""
RECORD_HEAD_BYTES = 21
"""The longest beginning of a record: its size, attributes, timestamp delta and offset delta."""


class FirstRecord(NamedTuple):
    timestamp: int
    """Milliseconds since 1970; -1 where the client gave none."""
    offset: int


class DataBatch(NamedTuple):
    """A batch whose records a consumer gets. `head` is its header and some of what follows."""

    batch: Batch
    head: bytes


def data_batches(
    source: FileRange, offset: int, aborted: Sequence[AbortedTransaction]
) -> Iterator[DataBatch]:
    """The batches in the range with data at `offset` or later: no markers, none of an aborted transaction, none that
    compaction emptied. Positions count from the start of the range."""
    position = chunk_at = 0
    chunk = b""
    while position < source.size:
        if position - chunk_at + HEADER_BYTES + RECORD_HEAD_BYTES > len(chunk):
            chunk = _read(source, position, CHUNK_BYTES)
            chunk_at = position
        at = position - chunk_at
        batch = Batch(position, *read_batch(chunk, at)[1:])
        if batch.end > source.size:
            raise CorruptBatch(position, f"{batch.size} bytes long, not all are there")
        if (
            batch.last_offset >= offset
            and batch.count
            and not batch.is_control
            and not _is_aborted(batch, aborted)
        ):
            yield DataBatch(batch, chunk[at : at + batch.size])
        position = batch.end


def record_at_head(found: DataBatch, offset: int) -> FirstRecord | None:
    """The first record at `offset` or later, if the head of its batch says it. None: the batch has to be opened."""
    batch, head = found
    has_no_gap = batch.count == batch.last_offset_delta + 1
    if batch.log_append_time and has_no_gap:
        return FirstRecord(batch.max_timestamp, max(offset, batch.base_offset))
    if batch.codec:
        return None
    try:
        _, position = read_varint(head, HEADER_BYTES)
        timestamp_delta, position = read_varint(head, position + 1, 64)
        offset_delta, _ = read_varint(head, position)
    except (Malformed, IndexError) as error:
        raise CorruptBatch(batch.position, "its first record is malformed") from error
    first = batch.base_offset + offset_delta
    return FirstRecord(_timestamp(batch, timestamp_delta), first) if first >= offset else None


def record_inside(
    source: FileRange, batch: Batch, offset: int, max_bytes: int = BYTES_MAX
) -> FirstRecord | None:
    """The first record at `offset` or later, found by opening the batch. None: compaction has removed all of those.
    KafkaError MESSAGE_TOO_LARGE if it unpacks to more than `max_bytes`. A large batch takes milliseconds: call this in a
    thread."""
    content = _read(source, batch.position, batch.size)
    inside = Batch(0, *batch[1:])
    data = unpacked(content, inside, max_bytes=max_bytes)
    for _, _, _, timestamp_delta, found, _, _ in record_outlines(data, inside):
        if found >= offset:
            return FirstRecord(_timestamp(batch, timestamp_delta), found)
    return None


def _timestamp(batch: Batch, delta: int) -> int:
    return batch.max_timestamp if batch.log_append_time else batch.base_timestamp + delta


def _is_aborted(batch: Batch, aborted: Sequence[AbortedTransaction]) -> bool:
    return batch.is_transactional and any(
        each.producer_id == batch.producer_id
        and each.first_offset <= batch.base_offset <= each.last_offset
        for each in aborted
    )


def _read(source: FileRange, position: int, size: int) -> bytes:
    size = min(size, source.size - position)
    if source.in_memory is not None:
        return source.in_memory[position : position + size]
    return source.file.read_at(source.position + position, size)
