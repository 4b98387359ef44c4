"""Truncation: dropping the end of a log, or all of it.

A follower truncates where its log diverges from its leader's. After a crash in the middle the log may be shorter, but it
must have no hole, and recovery must not report the truncated records as damage. So the order is: lower the recovery
point and the high watermark on disk, drop segments from the newest on, then shorten the last file.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from ottla.log import recovery
from ottla.log.producer_state import ProducerStateManager
from ottla.log.segment import Segment, base_of

if TYPE_CHECKING:
    from ottla.log.log import Log

DUE_AT_ONCE_MS = 0
"""Nobody reads what was truncated: its files need no delay before they are removed."""


def truncate_to(log: Log, offset: int) -> None:
    log.check_writable()
    if offset >= log.log_end:
        log.epochs.truncate_from_end(offset)
        return
    segments = log.segments
    if offset != segments[0].base and offset <= log.log_start:
        # Expired records that are still in the files belong to no epoch that the log knows. Nobody could tell whether
        # the records that come next continue them, and recovery would take the two for a damaged log.
        truncate_fully(log, offset)
        return
    keep = bisect_right(segments, offset, key=base_of)
    segment = segments[keep - 1]
    log.generation += 1
    try:
        place = segment.boundary(offset)
        segment.check_before(place)
        log_end = place.offset
        lower_recovery_point(log, log_end)
        _lower_high_watermark(log, log_end)
        if log.snapshots.remove_above(log_end):
            log.unflushed.names = True
        if keep < len(segments):
            # Newest first: a crash in between leaves a shorter log, not one with a hole.
            log.deleted.add(reversed(segments[keep:]), DUE_AT_ONCE_MS)
            del segments[keep:]
            log.disk.flush_dir(log.path)
        segment.truncate(place)
    except OSError as error:
        log.fail(error)
    log.log_end = log_end
    log.log_start = min(log.log_start, log_end)
    log.high_watermark = min(log.high_watermark, log_end)
    log.unflushed.was_cut(log_end)
    log.flush_may_become_due()
    log.epochs.truncate_from_end(log_end)
    if not log.producers.truncate_to(log_end):
        log.producers = recovery.rebuild_producers(segments, log.snapshots, log_end)
    log.assert_marks_in_order()


def truncate_fully(log: Log, new_start: int) -> None:
    log.check_writable()
    log.generation += 1
    log.epochs.clear()
    active = log.segments[-1]
    try:
        # A power loss may leave no segment at all: with a recovery point of 0 that is no corruption.
        lower_recovery_point(log, 0)
        _lower_high_watermark(log, new_start)
        # Now, not with the next flush: after a crash an empty log believes this file, and would answer with an epoch
        # of the records that are dropped here.
        log.epochs_file.writer(log.epochs.entries)()
        log.deleted.add(log.segments, DUE_AT_ONCE_MS)
        log.snapshots.remove_above(-1)
        log.disk.flush_dir(log.path)
        segment = Segment.create(
            log.disk, log.resources.files, log.path, new_start, active.created_ms
        )
    except OSError as error:
        log.fail(error)
    log.segments = [segment]
    log.unflushed.names = True
    log.log_start = log.log_end = log.high_watermark = new_start
    log.unflushed.was_cut(0)  # no flush under way covers the new segment
    log.flush_may_become_due()
    log.producers = ProducerStateManager(log.key, log.resources.events)
    log.assert_marks_in_order()


def lower_recovery_point(log: Log, offset: int) -> None:
    """Also on disk, before any file is shortened: a file shorter than its recovery point means corruption."""
    if offset < log.recovery_point:
        log.recovery_point = offset
        if log.cleaned is not None:
            log.cleaned = min(log.cleaned, offset)
        if log.before_recovery_point_falls is not None:
            log.before_recovery_point_falls(log, offset)


def _lower_high_watermark(log: Log, offset: int) -> None:
    """Lower the checkpointed high watermark, before the log is shortened. The one in memory is lowered by the caller, with
    the log end."""
    if offset < log.high_watermark and log.before_high_watermark_falls is not None:
        log.before_high_watermark_falls(log, offset)
