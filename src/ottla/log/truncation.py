"""Truncation: dropping the end of a log, or all of it.

A follower truncates where its log diverges from its leader's. After a crash in the middle the log may be shorter, but it
must have no hole, and recovery must not report the truncated records as damage. So the order is: lower the recovery
point and the high watermark on disk, drop segments from the newest on, then shorten the last file. What is lost with it
(`CutRecords`) is put aside first, if the log has somebody who keeps it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.log import recovery
from ottla.log.kept_records import CutRecords, Keeping
from ottla.log.producer_state import ProducerStateManager
from ottla.log.segment import OffsetPosition, Segment, base_of

if TYPE_CHECKING:
    from ottla.log.log import Log

DUE_AT_ONCE_MS = 0
"""Nobody reads what was truncated: its files need no delay before they are removed."""


def truncate_to(log: Log, offset: int, loss: CutRecords | None = None) -> str | None:
    """Returns the id of what is kept of the loss."""
    log.check_writable()
    if offset >= log.log_end:
        log.epochs.truncate_from_end(offset)
        return None
    segments = log.segments
    if offset != segments[0].base and offset <= log.log_start:
        # Expired records that are still in the files belong to no epoch that the log knows. Nobody could tell whether
        # the records that come next continue them, and recovery would take the two for a damaged log.
        return truncate_fully(log, offset, loss)
    keep = bisect_right(segments, offset, key=base_of)
    segment = segments[keep - 1]
    log.generation += 1
    try:
        place = segment.boundary(offset)
        segment.check_before(place)
        log_end = place.offset
        keeping = _begin_keeping(log, loss, (segment, place), segments[keep:])
        lower_recovery_point(log, log_end)
        _lower_high_watermark(log, log_end)
        if log.snapshots.remove_above(log_end):
            log.unflushed.names = True
        if keep < len(segments):
            # Newest first: a crash in between leaves a shorter log, not one with a hole.
            for dropped in reversed(segments[keep:]):
                if keeping is not None:
                    keeping.move(dropped)
                log.deleted.add([dropped], DUE_AT_ONCE_MS)
            del segments[keep:]
            log.disk.flush_dir(log.path)
        if keeping is not None and not place.position:
            keeping.move_and_begin_again(segment)
            log.disk.flush_dir(log.path)
        segment.truncate(place)
    except OSError as error:
        log.fail(error)
    log.log_end = log_end
    log.log_start = min(log.log_start, log_end)
    log.high_watermark = min(log.high_watermark, log_end)
    log.known_committed = min(log.known_committed, log_end)
    log.unflushed.was_cut(log_end)
    log.flush_may_become_due()
    log.epochs.truncate_from_end(log_end)
    if not log.producers.truncate_to(log_end):
        log.producers = recovery.rebuild_producers(segments, log.snapshots, log_end)
    log.assert_marks_in_order()
    return _done(log, keeping)


def truncate_fully(log: Log, new_start: int, loss: CutRecords | None = None) -> str | None:
    """Returns the id of what is kept of the loss."""
    log.check_writable()
    log.generation += 1
    active = log.segments[-1]
    try:
        keeping = _begin_keeping(log, loss, None, log.segments)
        log.epochs.clear()
        # A power loss may leave no segment at all: with a recovery point of 0 that is no corruption.
        lower_recovery_point(log, 0)
        _lower_high_watermark(log, new_start)
        # Now, not with the next flush: after a crash an empty log believes this file, and would answer with an epoch
        # of the records that are dropped here.
        log.epochs_file.writer(log.epochs.entries)()
        # Newest first: what a crash leaves is the beginning of the log, and is not lost yet.
        for dropped in reversed(log.segments):
            if keeping is not None:
                keeping.move(dropped)
            log.deleted.add([dropped], DUE_AT_ONCE_MS)
        log.snapshots.remove_above(-1)
        log.disk.flush_dir(log.path)
        segment = Segment.create(
            log.disk, log.resources.files, log.path, new_start, active.created_ms
        )
    except OSError as error:
        log.fail(error)
    log.segments = [segment]
    log.unflushed.names = True
    log.log_start = log.log_end = log.high_watermark = log.known_committed = new_start
    log.unflushed.was_cut(0)  # no flush under way covers the new segment
    log.flush_may_become_due()
    log.producers = ProducerStateManager(log.key, log.resources.events)
    log.assert_marks_in_order()
    return _done(log, keeping)


def _begin_keeping(
    log: Log,
    loss: CutRecords | None,
    tail: tuple[Segment, OffsetPosition] | None,
    whole: Sequence[Segment],
) -> Keeping | None:
    if loss is None or log.keeper is None:
        return None
    return log.keeper.begin(log, loss, tail, whole)


def _done(log: Log, keeping: Keeping | None) -> str | None:
    if keeping is None:
        return None
    try:
        keeping.done()
    except OSError as error:
        log.fail(error)
    return keeping.id


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
