"""Which log is compacted next, and from where to where.

The dirtiest log comes first: the one with the largest share of bytes that no round has read yet. A log is due if that share
is more than min.cleanable.dirty.ratio, or if something in it is older than max.compaction.lag.ms. A round never touches the
active segment, records that are not committed and flushed or belong to an open transaction, or records younger than
min.compaction.lag.ms.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.log.compaction import ClosedSegment, CompactionRound, RememberedProducer
from ottla.log.log import Log


class LogToClean(NamedTuple):
    """What a round over a log would do."""

    first_dirty: int
    end: int
    """Base offset of the first segment that must not be touched."""
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """Something in it has waited for max.compaction.lag.ms."""

    @property
    def ratio(self) -> float:
        return self.dirty_bytes / max(1, self.clean_bytes + self.dirty_bytes)


def log_to_clean(log: Log, now_ms: int) -> LogToClean:
    config = log.config
    first_dirty = log.log_start
    if log.cleaned is not None and log.log_start <= log.cleaned <= log.log_end:
        first_dirty = log.cleaned
    limit = min(log.last_stable_offset, log.recovery_point)
    end, clean, dirty = log.segments[0].base, 0, 0
    is_overdue = False
    for segment in log.segments[:-1]:
        if segment.next_offset > limit:
            break
        if segment.next_offset <= first_dirty:
            clean += segment.size
        else:
            if 0 < config.min_compaction_lag_ms > now_ms - segment.max_timestamp:
                break
            dirty += segment.size
            if 0 < segment.first_timestamp < now_ms - config.max_compaction_lag_ms:
                is_overdue = True
        end = segment.next_offset
    return LogToClean(first_dirty, end, clean, dirty, is_overdue)


def dirtiest(logs: Iterable[Log], now_ms: int) -> tuple[Log, LogToClean] | None:
    """The log to compact now, of those that are to be compacted at all and have room for a new segment."""
    best: tuple[Log, LogToClean] | None = None
    for log in logs:
        if not log.config.compacted or log.failed is not None or log.gone:
            continue
        if log.uncleanable is not None or len(log.segments) == 1:
            continue
        to_clean = log_to_clean(log, now_ms)
        if not to_clean.dirty_bytes:
            continue
        if not to_clean.is_overdue and to_clean.ratio <= log.config.min_cleanable_dirty_ratio:
            continue
        if not log.room.fits(min(log.size_bytes, log.config.segment_bytes)):
            continue
        if best is None or to_clean.ratio > best[1].ratio:
            best = log, to_clean
    return best


def round_of(log: Log, to_clean: LogToClean, now_ms: int) -> CompactionRound:
    return CompactionRound(
        log.path,
        log.config,
        [
            ClosedSegment.of(segment)
            for segment in log.segments[:-1]
            if segment.next_offset <= to_clean.end
        ],
        to_clean.first_dirty,
        to_clean.end,
        log.aborted_transactions(log.segments[0].base, to_clean.end),
        {
            producer_id: RememberedProducer(
                producer.epoch, [written.last_offset for written in producer.batches]
            )
            for producer_id, producer in log.producers.producers.items()
        },
        now_ms,
        log.generation,
    )
