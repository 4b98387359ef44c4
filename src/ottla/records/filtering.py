"""Removing records from a batch, for compaction.

Of each record only the offset, the key, and whether it has a value are read. Records that stay are copied as bytes. That works because a batch keeps its base offset, its last offset and its base
timestamp when records leave it: the deltas in the others stay right, and so do the sequence numbers of its
producer. Only where a delete horizon takes the place of the base timestamp are the time deltas written anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from ottla.records import compression
from ottla.records.batch import (
    CODEC_MASK,
    CRC_START,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    LENGTH_END,
    NO_TIMESTAMP,
    RECORD_BYTES_MIN,
    Batch,
    CorruptBatch,
)
from ottla.records.crc import crc32c
from ottla.records.record import CRC, Malformed, read_varint, write_varint

RecordOutline: TypeAlias = tuple[int, int, int, int, int, bytes | None, bool]
"""Where the record begins, where it ends, where its offset delta lies (all after that may be copied as it is),
its timestamp delta, its offset, its key, and whether it has a value."""


def record_outlines(data: bytes, batch: Batch) -> Iterator[RecordOutline]:
    """The records of the batch. `data` is its decompressed content. CorruptBatch if it is malformed."""
    try:
        yield from _record_outlines(data, batch)
    except (Malformed, IndexError) as error:
        why = str(error) if isinstance(error, Malformed) else "a record ends outside the batch"
        raise CorruptBatch(batch.position, why) from error


def _record_outlines(data: bytes, batch: Batch) -> Iterator[RecordOutline]:
    # Numbers of one byte are read in place: this runs once or twice for each record of a compacted topic.
    position = 0
    total = len(data)
    base = batch.base_offset
    before, last = base - 1, batch.last_offset
    for _ in range(batch.count):
        start = position
        size, position = read_varint(data, position)
        end = position + size
        if size < RECORD_BYTES_MIN - 1 or end > total:
            raise Malformed(f"record of {size} bytes where {total - position} are left")
        position += 1  # attributes
        byte = data[position]
        if byte < 0x80:
            timestamp_delta = (byte >> 1) ^ -(byte & 1)
            position += 1
        else:
            timestamp_delta, position = read_varint(data, position, 64)
        rest = position
        byte = data[position]
        if byte < 0x80:
            offset = base + ((byte >> 1) ^ -(byte & 1))
            position += 1
        else:
            delta, position = read_varint(data, position)
            offset = base + delta
        if not before < offset <= last:
            raise Malformed(f"offset {offset} follows {before}")
        before = offset
        size, position = read_varint(data, position)
        key = None
        if size >= 0:
            key = data[position : position + size]
            position += size
        size, position = read_varint(data, position)
        if position + max(size, 0) >= end:
            raise Malformed("key and value are longer than their record")
        yield start, end, rest, timestamp_delta, offset, key, size >= 0
        position = end
    if position != total:
        raise Malformed(f"{total - position} bytes after the last record")


def filtered_batch(
    batch: Batch, data: bytes, kept: Sequence[RecordOutline], delete_horizon_ms: int | None
) -> bytearray:
    """The batch with these records only, in its own codec. `delete_horizon_ms` marks it anew, if it has
    to be; a mark that it has stays."""
    assert kept
    base_timestamp = batch.base_timestamp
    attributes = batch.attributes
    if delete_horizon_ms is None:
        body = b"".join([data[outline[0] : outline[1]] for outline in kept])
    else:
        assert batch.delete_horizon_ms is None
        body = _moved(data, kept, base_timestamp - delete_horizon_ms)
        base_timestamp = delete_horizon_ms
        attributes |= DELETE_HORIZON_BIT
    max_timestamp = batch.max_timestamp
    if not batch.log_append_time:
        max_timestamp = batch.base_timestamp + max(outline[3] for outline in kept)
    payload = body if batch.codec == 0 else compression.compress(batch.codec, body)
    return _packed(batch, attributes, base_timestamp, max_timestamp, len(kept), payload)


def emptied_batch(batch: Batch) -> bytearray:
    """The batch without its records. It keeps its offsets and the sequence numbers of its producer."""
    attributes = batch.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    return _packed(batch, attributes, NO_TIMESTAMP, batch.max_timestamp, 0, b"")


def _moved(data: bytes, kept: Sequence[RecordOutline], further: int) -> bytes:
    """The records, with `further` added to each timestamp delta."""
    body = bytearray()
    for start, end, rest, timestamp_delta, *_ in kept:
        _, attributes_at = read_varint(data, start)
        head = bytearray(data[attributes_at : attributes_at + 1])
        write_varint(head, timestamp_delta + further)
        write_varint(body, len(head) + end - rest)
        body += head
        body += data[rest:end]
    return bytes(body)


def _packed(
    batch: Batch,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
    payload: bytes,
) -> bytearray:
    packed = bytearray(HEADER_BYTES)
    HEADER.pack_into(
        packed,
        0,
        batch.base_offset,
        HEADER_BYTES + len(payload) - LENGTH_END,
        batch.leader_epoch,
        batch.magic,
        0,
        attributes,
        batch.last_offset_delta,
        base_timestamp,
        max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        count,
    )
    packed += payload
    CRC.pack_into(packed, CRC_START - 4, crc32c(memoryview(packed)[CRC_START:]))
    return packed
