"""From a timestamp to an offset (ListOffsets).

Clients choose timestamps, so they need not rise with offsets. The time index leads to the batches that may hold the
answer, and only those are decompressed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ottla.log.segment import Segment
from ottla.log.unpacking import records_within_limits
from ottla.records.batch import Batch
from ottla.records.record import Record
from ottla.wire.errors import ErrorCode, KafkaError

TimestampAndOffset = tuple[int, int]


def first_at_or_after(
    segments: Sequence[Segment], log_start: int, ts_ms: int, end_offset: int
) -> TimestampAndOffset | None:
    """The first record as new as `ts_ms`, if it lies below `end_offset`."""
    for segment in segments:
        if segment.next_offset <= log_start or segment.max_timestamp < ts_ms:
            continue
        for batch in segment.headers(segment.position_for_time(ts_ms)):
            if batch.base_offset >= end_offset:
                return None
            if batch.max_timestamp < ts_ms or batch.last_offset < log_start:
                continue
            found = _first_record(segment, batch, log_start, ts_ms)
            if found is not None:
                return found if found[1] < end_offset else None
    return None


def first_with_max_timestamp(
    segments: Sequence[Segment], log_start: int, end_offset: int
) -> TimestampAndOffset | None:
    """The first of the newest records in batches that end below `end_offset`."""
    best: TimestampAndOffset | None = None
    at: Segment | None = None
    for segment in segments:
        if segment.base >= end_offset:
            break
        if segment.next_offset <= log_start:
            continue
        if segment.base < log_start:
            found = _max_timestamp_from(segment, log_start, end_offset)
        else:
            found = segment.max_timestamp_before(end_offset)
        if found is not None and (best is None or found[0] > best[0]):
            best, at = found, segment
    if best is None or at is None:
        return None
    batch = next(at.headers(at.boundary(best[1]).position))
    return _first_record(at, batch, log_start, best[0])


def _max_timestamp_from(
    segment: Segment, log_start: int, end_offset: int
) -> TimestampAndOffset | None:
    """As Segment.max_timestamp_before, for a segment in which the log starts: its indexes still contain what lies below
    the log start."""
    best: TimestampAndOffset | None = None
    for batch in segment.headers(segment.boundary(log_start).position):
        if batch.last_offset >= end_offset:
            break
        largest = batch.max_timestamp
        if batch.base_offset < log_start and not batch.log_append_time:
            times = [record.timestamp for record in _readable(segment, batch, log_start)]
            largest = max(times, default=largest)
        if batch.count and largest >= 0 and (best is None or largest > best[0]):
            best = largest, batch.last_offset
    return best


def _first_record(
    segment: Segment, batch: Batch, log_start: int, ts_ms: int
) -> TimestampAndOffset | None:
    if not batch.count:
        return None  # compaction emptied it
    if batch.log_append_time:
        return batch.max_timestamp, max(batch.base_offset, log_start)
    try:
        for record in _readable(segment, batch, log_start):
            if record.timestamp >= ts_ms:
                return record.timestamp, record.offset
    except KafkaError as error:
        if error.code != ErrorCode.MESSAGE_TOO_LARGE:
            raise
        return batch.max_timestamp, max(
            batch.base_offset, log_start
        )  # the record is there or later
    return None


def _readable(segment: Segment, batch: Batch, log_start: int) -> Iterator[Record]:
    content = segment.opened().read_at(batch.position, batch.size)
    for record in records_within_limits(content, Batch(0, *batch[1:])):
        if record.offset >= log_start:
            yield record
