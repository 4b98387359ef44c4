"""Retention: dropping the oldest segments of a log.

A segment goes when it is older than retention.ms, when the log is larger than retention.bytes without it, or when it lies
below the start of the log (DeleteRecords). Only whole segments below the high watermark go.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from ottla.events.storage import SegmentsExpired
from ottla.log.segment import Segment
from ottla.log.unflushed import NO_LIMIT

if TYPE_CHECKING:
    from ottla.log.log import Log


class ExpiredSegment(NamedTuple):
    segment: Segment
    why: str
    """`retention.ms`, `retention.bytes` or `log start`."""


def delete_old_segments(log: Log, now_ms: int) -> int:
    return _delete(log, expired_segments(log, now_ms), now_ms)


def delete_segments_below_start(log: Log, now_ms: int) -> int:
    """Only those, whatever the topic's settings say: of a log that follows another one."""
    end = min(log.log_start, log.high_watermark)
    below = takewhile(lambda segment: segment.next_offset <= end, log.segments[:-1])
    return _delete(log, [ExpiredSegment(segment, "log start") for segment in below], now_ms)


def _delete(log: Log, dropped: list[ExpiredSegment], now_ms: int) -> int:
    log.check_writable()
    if not dropped or log.unflushed.is_planned:
        return 0  # a plan may be writing the epochs: the next round finds the same segments
    if log.epochs.dirty:
        # The batches are about to go, and after a crash the epochs could not be rebuilt from them.
        try:
            log.epochs_file.writer(log.epochs.entries)()
        except OSError as error:
            log.fail(error)
    log.generation += 1
    segments = log.segments
    if len(dropped) == len(segments):
        log.begin_segment(log.log_end, now_ms)
    new_base = segments[len(dropped)].base
    log.advance_log_start(new_base)
    try:
        log.deleted.add(
            [each.segment for each in dropped], now_ms + log.config.file_delete_delay_ms
        )
        log.snapshots.remove_below(new_base)
    except OSError as error:
        log.fail(error)
    del segments[: len(dropped)]
    log.unflushed.names = True
    events = log.resources.events
    if SegmentsExpired in events:
        size = sum(each.segment.size for each in dropped)
        why = tuple(sorted({each.why for each in dropped}))
        events.emit(SegmentsExpired(log.key, log.directory, len(dropped), size, log.log_start, why))
    return len(dropped)


def expired_segments(log: Log, now_ms: int) -> list[ExpiredSegment]:
    """Oldest first."""
    config = log.config
    deletes = "delete" in config.cleanup_policy
    limit = NO_LIMIT if config.retention_bytes < 0 else config.retention_bytes
    excess = log.size_bytes - limit
    active = log.segments[-1]
    expired: list[ExpiredSegment] = []
    for segment in log.segments:
        if segment.next_offset > log.high_watermark:
            break
        if segment is active and not segment.size:
            break
        newest_ms = segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms
        if deletes and 0 <= config.retention_ms < now_ms - newest_ms:
            why = "retention.ms"
        elif deletes and excess >= segment.size:
            why = "retention.bytes"
        elif segment.next_offset <= log.log_start and segment is not active:
            why = "log start"
        else:
            break
        expired.append(ExpiredSegment(segment, why))
        excess -= segment.size
    return expired
