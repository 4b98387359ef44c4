"""A record batch (format v2) as a view over the bytes it arrived in.

Brokers move batches, not records: only this 61-byte header is read, and only base offset and leader
epoch are changed, neither of which the CRC covers. `records.record` reads the records inside a batch.

What a batch from a client is checked for
-----------------------------------------
`validate_from_client` costs one CRC32C over the batch and a fixed number of steps, however many records
there are. The header must be consistent with itself (size, count against last offset delta, attributes,
producer fields), the count must be possible for the bytes that are there, and the first record of an
uncompressed batch must be laid out as its header claims, which shows most
wrong encoders. Later records and compressed contents are *not* walked: the CRC already says that the
bytes are those that the client's encoder wrote. A forged inner layout under a
good CRC is found when the batch is opened: `records.record` checks every inner size and count, and limits the
decompressed size. `records.record.check_records` makes the same check without a reader.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any, NamedTuple

from ottla.records.crc import crc32c
from ottla.runtime.seams import Buffer
from ottla.wire.errors import ErrorCode, KafkaError

MAGIC = 2
HEADER_BYTES = 61
LENGTH_END = 12
"""The length field counts what follows it; base offset and the field itself are these 12 bytes."""
CRC_START = 21
"""The CRC covers everything from the attributes to the end of the batch."""
RECORD_BYTES_MIN = 7
"""Length, attributes, timestamp delta, offset delta, key length, value length, header count."""
UNPACKED_BYTES_MAX = 1 << 30
"""No batch may unpack to more than this, whatever its codec; bounds its record count too."""

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
CLIENT_ATTRIBUTES = CODEC_MASK | LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT
CODEC_MAX = 4

HEADER = Struct(">qiibIhiqqqhii")
BASE_OFFSET = Struct(">q")
_PLACE_IN_LOG = Struct(">qii")  # base offset, length, leader epoch
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")

assert HEADER.size == HEADER_BYTES


class CorruptBatch(KafkaError):
    """These bytes are not a record batch, or not the one that was written (CORRUPT_MESSAGE)."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, f"batch at byte {position}: {why}")
        self.position = position
        self.why = why


class Batch(NamedTuple):
    """The header of one batch, and where the batch lies."""

    position: int
    size: int
    """All bytes of the batch, base offset and length field included."""
    base_offset: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which no header needs

    @property
    def end(self) -> int:
        """Where the next batch begins."""
        return self.position + self.size

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the tombstones, or the marker of an emptied transaction, in it may go: compaction writes it
        in place of the base timestamp (KIP-534)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """Sequence numbers wrap from 2^31-1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


_make: Any = tuple.__new__  # the NamedTuple's own constructor takes three times as long


def read_batch(buf: Buffer, position: int) -> Batch:
    """The batch whose header begins at `position`. Only the header needs to be in `buf`."""
    if len(buf) - position < HEADER_BYTES:
        raise CorruptBatch(
            position, f"{len(buf) - position} bytes left, a header takes {HEADER_BYTES}"
        )
    base_offset, length, leader_epoch, magic, *rest = HEADER.unpack_from(buf, position)
    if magic != MAGIC:
        raise CorruptBatch(position, f"magic {magic}, only {MAGIC} is known")
    size = length + LENGTH_END
    if size < HEADER_BYTES:
        raise CorruptBatch(position, f"length {length} is smaller than a header")
    batch: Batch = _make(Batch, (position, size, base_offset, leader_epoch, magic, *rest))
    return batch


def batches(
    buf: Buffer, position: int = 0, end: int | None = None, *, allow_partial: bool = False
) -> Iterator[Batch]:
    """The whole batches in `buf[position:end]`, in order. A partial one at the end is corrupt, unless
    `allow_partial`, as in a fetch response that was cut at its byte limit."""
    end = len(buf) if end is None else end
    while position < end:
        if allow_partial and end - position < HEADER_BYTES:
            return
        batch = read_batch(buf, position)
        batch_end = position + batch.size
        if batch_end > end:
            if allow_partial:
                return
            raise CorruptBatch(position, f"{batch.size} bytes long, {end - position} are there")
        yield batch
        position = batch_end


def computed_crc(buf: Buffer, batch: Batch) -> int:
    return int(crc32c(memoryview(buf)[batch.position + CRC_START : batch.position + batch.size]))


def check_crc(buf: Buffer, batch: Batch) -> None:
    """CorruptBatch unless all bytes under the CRC are those that were written."""
    end = batch.position + batch.size
    if len(buf) < end:
        raise CorruptBatch(
            batch.position,
            f"{batch.size} bytes long, {len(buf) - batch.position} are there",
        )
    computed = crc32c(memoryview(buf)[batch.position + CRC_START : end])
    if computed != batch.crc:
        raise CorruptBatch(
            batch.position, f"CRC is {computed:#010x}, the header says {batch.crc:#010x}"
        )


def validate_from_client(
    buf: Buffer,
    *,
    max_bytes: int,
    now_ms: int = 0,
    timestamp_before_max_ms: int | None = None,
    timestamp_after_max_ms: int | None = None,
) -> Batch:
    """The one batch that is all of `buf`, fit to be appended, or KafkaError with the code for the client.

    `max_bytes` is max.message.bytes. The two timestamp limits are how far before and after `now_ms` a
    CreateTime may lie; None leaves that side unchecked.
    """
    batch = _the_only_batch(buf)
    if batch.size > max_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {batch.size} bytes, max.message.bytes is {max_bytes}",
        )
    check_crc(buf, batch)
    if not 0 <= batch.attributes <= CODEC_MAX:
        _check_attributes(batch)
    _check_counts(batch)
    if batch.producer_id != NO_PRODUCER_ID or batch.attributes & TRANSACTIONAL_BIT:
        _check_producer(batch)
    if batch.attributes & CODEC_MASK == 0:
        _check_first_record(buf, batch)
    _check_timestamps(batch, now_ms, timestamp_before_max_ms, timestamp_after_max_ms)
    return batch


def assign(buf: Buffer, batch: Batch, base_offset: int, leader_epoch: int) -> Batch:
    """Give the batch its place in the log, in `buf` and in the returned header."""
    length = batch.size - LENGTH_END
    _PLACE_IN_LOG.pack_into(buf, batch.position, base_offset, length, leader_epoch)
    assigned: Batch = _make(
        Batch, (batch.position, batch.size, base_offset, leader_epoch, *batch[4:])
    )
    return assigned


def set_max_timestamp(buf: Buffer, batch: Batch, ts_ms: int) -> Batch:
    """Stamp the whole batch with the time of its append (LogAppendTime). These fields are under the CRC,
    so it is computed anew."""
    attributes = batch.attributes | LOG_APPEND_TIME_BIT
    _ATTRIBUTES.pack_into(buf, batch.position + CRC_START, attributes)
    _MAX_TIMESTAMP.pack_into(buf, batch.position + 35, ts_ms)
    crc = computed_crc(buf, batch)
    _CRC.pack_into(buf, batch.position + 17, crc)
    return batch._replace(attributes=attributes, max_timestamp=ts_ms, crc=crc)


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, why)


def _the_only_batch(buf: Buffer) -> Batch:
    """Older formats, or not exactly one whole batch, are INVALID_RECORD; an unknown magic or a header that
    contradicts itself is CORRUPT_MESSAGE, as Kafka answers (neither field is under the CRC)."""
    if len(buf) < HEADER_BYTES:
        raise _invalid(f"{len(buf)} bytes hold no record batch")
    if buf[16] < MAGIC:
        raise _invalid(f"record format {buf[16]} is not taken, only v{MAGIC} batches are")
    batch = read_batch(buf, 0)
    if batch.size != len(buf):
        raise _invalid(
            f"{len(buf)} bytes of records, but the first batch has {batch.size}: "
            "exactly one batch per partition is taken"
        )
    return batch


def _check_attributes(batch: Batch) -> None:
    attributes = batch.attributes
    if attributes & CODEC_MASK > CODEC_MAX:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"no codec {batch.codec}")
    if attributes & CONTROL_BIT:
        raise _invalid("clients may not write control batches")
    if attributes & ~CLIENT_ATTRIBUTES:
        raise _invalid(f"attributes {attributes:#x} are not a client's to set")


def _check_counts(batch: Batch) -> None:
    if batch.base_offset != 0:
        raise _invalid(f"base offset is {batch.base_offset}, a client's is 0")
    if batch.count < 1 or batch.count != batch.last_offset_delta + 1:
        raise _invalid(f"{batch.count} records, last offset delta {batch.last_offset_delta}")
    packed = batch.attributes & CODEC_MASK
    room = UNPACKED_BYTES_MAX if packed else batch.size - HEADER_BYTES
    if batch.count * RECORD_BYTES_MIN > room or batch.size == HEADER_BYTES:
        raise _invalid(f"{batch.count} records cannot lie in {batch.size - HEADER_BYTES} bytes")


def _check_producer(batch: Batch) -> None:
    if batch.producer_id > NO_PRODUCER_ID:
        if batch.base_sequence < 0:
            raise _invalid(f"producer {batch.producer_id} sent sequence {batch.base_sequence}")
        if batch.producer_epoch < 0:
            raise _invalid(f"producer {batch.producer_id} sent epoch {batch.producer_epoch}")
    elif batch.producer_id != NO_PRODUCER_ID:
        raise _invalid(f"producer id {batch.producer_id}")
    elif batch.attributes & TRANSACTIONAL_BIT:
        raise _invalid("a transactional batch without a producer id")


def _check_timestamps(
    batch: Batch, now_ms: int, before_max_ms: int | None, after_max_ms: int | None
) -> None:
    if batch.attributes & LOG_APPEND_TIME_BIT:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "clients may not set LogAppendTime")
    for timestamp in (batch.base_timestamp, batch.max_timestamp):
        if timestamp == NO_TIMESTAMP:
            continue
        if (before_max_ms is not None and now_ms - timestamp > before_max_ms) or (
            after_max_ms is not None and timestamp - now_ms > after_max_ms
        ):
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {timestamp} is too far from the broker's time {now_ms}",
            )


def _check_first_record(buf: Buffer, batch: Batch) -> None:
    """The first record must end inside the batch (exactly at its end if it is the only one) and have
    offset delta 0. Its own size and count fields are left to whoever opens it."""
    position = batch.position + HEADER_BYTES
    end = batch.position + batch.size
    length = shift = 0
    while True:
        if position >= end or shift > 28:
            raise _invalid("the first record has no valid length")
        byte = buf[position]
        position += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    length = (length >> 1) ^ -(length & 1)
    rest = end - position - length
    others = batch.count - 1
    if length < RECORD_BYTES_MIN - 1 or rest < others * RECORD_BYTES_MIN or (rest and not others):
        raise _invalid(f"the first of {batch.count} records claims {length} bytes")
    position += 1  # attributes
    while buf[position] >= 0x80:  # timestamp delta; ends inside the record or the batch
        position += 1
        if position >= end - 1:
            raise _invalid("the first record's timestamp delta does not end")
    if buf[position + 1] != 0:
        raise _invalid("the first record's offset delta is not 0")
