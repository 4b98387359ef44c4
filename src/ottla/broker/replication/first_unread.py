"""Finds the first record that a consumer would still read in a partition that this broker leads.

The event loop never waits here: what is not in memory is brought by a thread, and batches are opened in a thread.

A broker that coordinates a group asks the leaders of other partitions with ListOffsets. Kafka uses negative timestamps there
for special questions, -1 to -6 so far. Far below them begin ours, one for each offset.
"""

from __future__ import annotations

import asyncio
from functools import partial

from ottla.log.errors import InMemory, NotInMemory
from ottla.log.log import Log, ReadResult
from ottla.log.unread import FirstRecord, data_batches, record_at_head, record_inside
from ottla.records.batch import Batch
from ottla.replica.leader import Leadership
from ottla.replica.partition import Partition
from ottla.runtime import FileRange
from ottla.runtime.threads import in_thread
from ottla.wire.errors import ErrorCode, KafkaError

STEP_BYTES = 64 * 1024
"""Looked through in one turn of the event loop, or the first batch if that is larger."""
LOOKED_THROUGH_MAX = 256 * 1024 * 1024
"""A search ends here. Only an aborted transaction, or a log that compaction emptied, is that long without data."""

SMALL_BYTES, SMALL_UNPACKED_BYTES = 4 * 1024, 32 * 1024
"""To open such a batch takes less time than to ask a thread for it."""
_QUESTION = -(1 << 62)


def question_about(offset: int) -> int:
    """The timestamp by which ListOffsets asks for the first unread record at `offset` or later."""
    return _QUESTION - offset


def offset_in(timestamp: int) -> int | None:
    """The offset that `question_about` made the timestamp of. None: it is another question."""
    return _QUESTION - timestamp if timestamp <= _QUESTION else None


async def first_unread(
    partition: Partition, offset: int, *, read_committed: bool
) -> FirstRecord | None:
    """The first record at `offset` or later that such a consumer would get now; None if there is none. KafkaError if
    this broker does not lead the partition, or cannot tell; LogDirError if the disk cannot be read."""
    leadership = partition.leading()
    log = partition.log
    try:
        return await _search(partition, leadership, log, offset, read_committed=read_committed)
    except OSError as error:
        log.fail(error)


async def _search(
    partition: Partition, leadership: Leadership, log: Log, offset: int, *, read_committed: bool
) -> FirstRecord | None:
    end = partition.latest_offset(read_committed)
    at = max(offset, log.log_start)
    looked_through = 0
    while at < end:
        source, next_offset = await _read(partition, leadership, at, end)
        if source is None:
            return None
        aborted = log.aborted_transactions(at, next_offset) if read_committed else ()
        for found in data_batches(source, at, aborted):
            record = record_at_head(found, at)
            if record is None:
                record = await _opened(source, found.batch, at)
            if record is not None:
                return record
        looked_through += source.size
        if looked_through > LOOKED_THROUGH_MAX:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"no data within {looked_through} bytes from {offset}"
            )
        await asyncio.sleep(0)
        _check_still(partition, leadership)
        at = max(next_offset, log.log_start)
    return None


async def first_unread_by_level(
    partition: Partition, offset: int
) -> tuple[FirstRecord | None, FirstRecord | None]:
    """As `first_unread`, for consumers that read everything, and for those that read committed transactions only. Mostly it
    is the same record."""
    first = await first_unread(partition, offset, read_committed=False)
    if first is None:
        return None, None
    log = partition.log
    is_decided = first.offset < partition.latest_offset(read_committed=True)
    if is_decided and not log.aborted_transactions(first.offset, first.offset + 1):
        return first, first
    return first, await first_unread(partition, first.offset, read_committed=True)


async def _opened(source: FileRange, batch: Batch, offset: int) -> FirstRecord | None:
    """A small batch at once, any other in a thread."""
    if batch.size <= SMALL_BYTES:
        try:
            return record_inside(source, batch, offset, SMALL_UNPACKED_BYTES)
        except KafkaError as error:
            if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
                raise
    return await in_thread(partial(record_inside, source, batch, offset))


def _check_still(partition: Partition, leadership: Leadership) -> None:
    """After every pause: the log may be deleted or truncated by now, and must not be read."""
    if partition.leadership is not leadership:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def _read(partition: Partition, leadership: Leadership, offset: int, end: int) -> ReadResult:
    in_memory = InMemory()
    while True:
        try:
            return partition.log.read(
                offset, max_bytes=STEP_BYTES, end_offset=end, in_memory=in_memory
            )
        except NotInMemory as missing:
            cold = missing.range
            await in_thread(partial(cold.file.bring, cold.position, cold.size))
            in_memory = missing.then
            _check_still(partition, leadership)
