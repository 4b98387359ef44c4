"""The records inside a batch: reading them out, and building a batch of them.

Reading checks everything: a batch with a good CRC may still be forged, so every size and count is compared with the bytes
that are there, and the decompressed size is limited. Building writes the bytes that Kafka's own clients would write, where
the codec leaves no choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from ottla.records import compression
from ottla.records.batch import (
    CONTROL_BIT,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_END,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    RECORD_BYTES_MIN,
    TRANSACTIONAL_BIT,
    UNPACKED_BYTES_MAX,
    Batch,
    CorruptBatch,
)
from ottla.records.crc import crc32c
from ottla.runtime.seams import Buffer
from ottla.wire.errors import ErrorCode, KafkaError

HEADER_ENTRY_BYTES_MIN = 2
"""A record header: the length of its key and of its value."""

_CONTROL_KEY = Struct(">hh")
CRC = Struct(">I")


class Record(NamedTuple):
    offset: int
    timestamp: int
    """Milliseconds since 1970; -1 where the client gave none."""
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class ControlType(IntEnum):
    """What a control record says; the second half of its key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class Malformed(Exception):
    """A size or count inside a batch contradicts the bytes around it."""


def unpacked(buf: Buffer, batch: Batch, *, max_bytes: int = UNPACKED_BYTES_MAX) -> bytes:
    """The records of the batch as they lie one after another. CorruptBatch if they are not all there;
    KafkaError MESSAGE_TOO_LARGE if they are more than `max_bytes`."""
    packed = memoryview(buf)[batch.position + HEADER_BYTES : batch.end]
    if len(packed) != batch.size - HEADER_BYTES:
        raise CorruptBatch(batch.position, f"{batch.size} bytes long, not all are there")
    try:
        data = compression.decompress(batch.codec, packed, max_bytes=max_bytes)
    except KafkaError as error:
        if error.code == ErrorCode.CORRUPT_MESSAGE:
            raise CorruptBatch(batch.position, error.message) from error
        raise
    if batch.count < 0 or batch.count * RECORD_BYTES_MIN > len(data):
        raise CorruptBatch(batch.position, f"{batch.count} records cannot lie in {len(data)} bytes")
    return data


def records(
    buf: Buffer,
    batch: Batch,
    *,
    max_bytes: int = UNPACKED_BYTES_MAX,
    headers_max: int = UNPACKED_BYTES_MAX,
) -> Iterator[Record]:
    """The records of the batch in order. CorruptBatch on anything malformed; KafkaError
    MESSAGE_TOO_LARGE if it unpacks to more than `max_bytes`, or a record has more than `headers_max`."""
    data = unpacked(buf, batch, max_bytes=max_bytes)
    position = 0
    offset_before = batch.base_offset - 1
    try:
        for _ in range(batch.count):
            record, position = _read_record(data, position, batch, headers_max)
            if not offset_before < record.offset <= batch.last_offset:
                raise Malformed(f"offset {record.offset} follows {offset_before}")
            offset_before = record.offset
            yield record
        if position != len(data):
            raise Malformed(f"{len(data) - position} bytes after the last record")
    except (Malformed, IndexError) as error:
        why = str(error) if isinstance(error, Malformed) else "a record ends outside the batch"
        raise CorruptBatch(batch.position, why) from error


def check_records(buf: Buffer, batch: Batch, *, max_bytes: int = UNPACKED_BYTES_MAX) -> None:
    """Open the whole batch only to see that it can be opened: KafkaError INVALID_RECORD if a reader would
    fail on its layout, MESSAGE_TOO_LARGE if it unpacks to more than `max_bytes`."""
    try:
        for _ in records(buf, batch, max_bytes=max_bytes):
            continue
    except KafkaError as error:
        if error.code != ErrorCode.CORRUPT_MESSAGE:
            raise
        raise KafkaError(ErrorCode.INVALID_RECORD, error.message) from error


def build(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    codec: int = 0,
    level: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: int = 0,
) -> bytearray:
    """One batch of at least one record. Offsets rise from `base_offset` on and may have gaps, as in a
    compacted log. `timestamp_type` 1 (LogAppendTime) gives every record the largest timestamp."""
    records = list(records)
    if not records:
        raise ValueError("a batch holds at least one record")
    base_timestamp = records[0].timestamp
    body = bytearray()
    offset_before = base_offset - 1
    for record in records:
        assert record.offset > offset_before, "offsets rise"
        offset_before = record.offset
        _write_record(body, record, base_timestamp, base_offset)
    attributes = (
        codec
        | (LOG_APPEND_TIME_BIT if timestamp_type else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
    )
    payload = body if codec == 0 else compression.compress(codec, body, level)
    batch = bytearray(HEADER_BYTES)
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        HEADER_BYTES + len(payload) - LENGTH_END,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        records[-1].offset - base_offset,
        base_timestamp,
        max(record.timestamp for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    batch += payload
    CRC.pack_into(batch, CRC_START - 4, crc32c(memoryview(batch)[CRC_START:]))
    return batch


def control_batch(
    entries: Sequence[tuple[ControlType, bytes]],
    *,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    transactional: bool = False,
) -> bytearray:
    """A batch that brokers write for each other: transaction markers, changes in the quorum. Clients skip
    it. Each entry is a type with its value, already encoded."""
    return build(
        (
            Record(base_offset + i, timestamp, _CONTROL_KEY.pack(0, kind), value)
            for i, (kind, value) in enumerate(entries)
        ),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=transactional,
        control=True,
    )


def control_type(record: Record) -> int:
    """The type of a record from a control batch: a `ControlType`, or a number from a newer Kafka, to be
    skipped."""
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"control record {record.offset} has key {record.key!r}"
        )
    version, kind = _CONTROL_KEY.unpack_from(record.key)
    if version < 0:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"control record {record.offset} has version {version}"
        )
    return int(kind)


def read_varint(data: bytes, position: int, bits: int = 32) -> tuple[int, int]:
    """A zigzag number of at most `bits` bits, and where it ends. IndexError past the end of `data`."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value = byte & 0x7F
    shift = 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise Malformed(f"a number of more than {bits} bits")
    if value >> bits:
        raise Malformed(f"a number of more than {bits} bits")
    return (value >> 1) ^ -(value & 1), position


def _read_sized(data: bytes, position: int, end: int, what: str) -> tuple[bytes | None, int]:
    size, position = read_varint(data, position)
    if size == -1:
        return None, position
    if not 0 <= size <= end - position:
        raise Malformed(f"{what} of {size} bytes where {end - position} are left")
    return data[position : position + size], position + size


def _read_record(data: bytes, position: int, batch: Batch, headers_max: int) -> tuple[Record, int]:
    size, position = read_varint(data, position)
    if not RECORD_BYTES_MIN - 1 <= size <= len(data) - position:
        raise Malformed(f"record of {size} bytes where {len(data) - position} are left")
    end = position + size
    timestamp_delta, position = read_varint(data, position + 1, 64)  # after unused attributes
    offset_delta, position = read_varint(data, position)
    key, position = _read_sized(data, position, end, "key")
    value, position = _read_sized(data, position, end, "value")
    headers, position = _read_headers(data, position, end, headers_max)
    if position != end:
        raise Malformed(f"record ends {end - position} bytes before its size says")
    timestamp = (
        batch.max_timestamp if batch.log_append_time else batch.base_timestamp + timestamp_delta
    )
    return Record(batch.base_offset + offset_delta, timestamp, key, value, headers), position


def _read_headers(
    data: bytes, position: int, end: int, most: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = read_varint(data, position)
    if count == 0:
        return (), position
    if not 0 < count <= (end - position) // HEADER_ENTRY_BYTES_MIN:
        raise Malformed(f"{count} headers in {end - position} bytes")
    if count > most:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE, f"a record of {count} headers, {most} is the limit"
        )
    headers = []
    for _ in range(count):
        key, position = _read_sized(data, position, end, "header key")
        if key is None:
            raise Malformed("a header without a key")
        value, position = _read_sized(data, position, end, "header value")
        # librdkafka writes header keys unchecked; as in Java, bytes that are no UTF-8 are replaced
        # rather than making the whole batch unreadable.
        headers.append((key.decode("utf-8", "replace"), value))
    return tuple(headers), position


def write_varint(out: bytearray, value: int) -> None:
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def _write_sized(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)  # zigzag -1
        return
    write_varint(out, len(data))
    out += data


def _write_record(out: bytearray, record: Record, base_timestamp: int, base_offset: int) -> None:
    body = bytearray(1)  # attributes, none of which has a meaning yet
    write_varint(body, record.timestamp - base_timestamp)
    write_varint(body, record.offset - base_offset)
    _write_sized(body, record.key)
    _write_sized(body, record.value)
    write_varint(body, len(record.headers))
    for key, value in record.headers:
        _write_sized(body, key.encode())
        _write_sized(body, value)
    write_varint(out, len(body))
    out += body
