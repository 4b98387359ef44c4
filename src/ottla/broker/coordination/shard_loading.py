"""Reading a coordinator's log: every batch is checked before the shard replays it."""

from __future__ import annotations

from ottla.coordinators.shard import CoordinatorRecord, ProducerStamp, Shard
from ottla.log.log import Log
from ottla.records.batch import CorruptBatch, batches, check_crc
from ottla.records.record import records

LOAD_BYTES = 1 << 20
"""Read at a time while loading; other tasks run in between."""


def read_checked(log: Log, offset: int) -> tuple[memoryview, int]:
    """Some batches from `offset` on, and the offset of the next one. CorruptBatch if they are not as they were
    written: then only this replica is damaged, since followers check what they copy."""
    read = log.read(offset, max_bytes=LOAD_BYTES, end_offset=log.log_end)
    if read.range is None:
        return memoryview(b""), log.log_end
    data = memoryview(read.range.read())
    expected = offset
    for batch in batches(data):
        try:
            check_crc(data, batch)
        except CorruptBatch as error:
            why = f"in the batch at offset {batch.base_offset}, {error.why}"
            raise CorruptBatch(batch.position, why) from error
        # The CRC does not cover the offset. Only the first batch may begin before `offset`.
        first = batch.base_offset if batch.position else batch.last_offset
        if not (expected <= first and batch.last_offset < log.log_end):
            why = f"offset {batch.base_offset} does not belong where {expected} or a later one does"
            raise CorruptBatch(batch.position, why)
        expected = batch.last_offset + 1
    return data, read.next_offset


def replay_batches(shard: Shard, data: memoryview, from_offset: int, now_ms: int) -> None:
    for batch in batches(data):
        stamp = None
        if batch.is_transactional:
            stamp = ProducerStamp(batch.producer_id, batch.producer_epoch)
        for record in records(data, batch):
            if record.offset < from_offset or record.key is None:
                continue
            if not batch.is_control:
                shard.replay(
                    record.offset, CoordinatorRecord(record.key, record.value), stamp, now_ms
                )
            elif stamp is not None:
                shard.replay_marker(stamp, _is_commit(record.key))


def _is_commit(key: bytes) -> bool:
    """A marker's key is its version and its type: 0 abort, 1 commit."""
    return int.from_bytes(key[2:4], "big") == 1
