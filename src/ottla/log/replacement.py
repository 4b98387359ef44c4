"""Compaction's part in a log: a compacted segment takes the place of those that it was made of.

Compaction leaves gaps between offsets. Where a log may have gaps is therefore durable before the first one appears:
everywhere else recovery takes a gap for corruption.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.log.segment import SEGMENT_KINDS, SWAP, Segment, base_of

if TYPE_CHECKING:
    from ottla.log.log import Log


def replace_segments(log: Log, bases: Sequence[int], new: Segment, now_ms: int) -> None:
    """A power loss may keep any of these renames and lose any other. Hence the flushes between them: first the new
    segment is sure to be found, then the old ones are sure to be gone, then the new one gets its final name."""
    log.check_writable()
    first = bisect_left(log.segments, bases[0], key=base_of)
    end = first + len(bases)
    old = log.segments[first:end]
    assert [segment.base for segment in old] == list(bases), (log, bases)
    assert end < len(log.segments) and new.next_offset <= log.recovery_point, (log, bases)
    announce_gaps(log)
    try:
        new.rename(log.disk, (".log",), SWAP)
        new.set_suffix(SWAP)
        log.disk.flush_dir(log.path)
        log.deleted.add(old, now_ms + log.config.file_delete_delay_ms)
        log.disk.flush_dir(log.path)
        new.rename(log.disk, SEGMENT_KINDS, "")
        new.set_suffix("")
        log.snapshots.remove(bases[1:])
    except OSError as error:
        log.fail(error)
    log.segments[first:end] = [new]
    log.unflushed.names = True


def announce_gaps(log: Log) -> None:
    """Make durable that this log may have gaps."""
    if log.cleaned is None:
        log.cleaned = log.log_start
    try:
        if log.before_gaps is not None:
            log.before_gaps(log)
    except OSError as error:
        log.fail(error)
