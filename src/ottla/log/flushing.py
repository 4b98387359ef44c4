"""Flushing a log: what is due, and plans of what to flush.

A plan is made on the event loop and is a call without arguments. The call may run in a thread. Afterwards the result is
reported to the log on the event loop. The log takes appends and truncations meanwhile; `Unflushed` keeps account of what
a plan does not cover.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.log import checkpoints
from ottla.log.segment import Segment, base_of

if TYPE_CHECKING:
    from ottla.log.log import Log


def is_settled(log: Log) -> bool:
    return log.unflushed.is_settled(log.config, _has_unflushed_closed_segments(log))


def is_due(log: Log, now_ms: int) -> bool:
    records = log.log_end - log.recovery_point
    closed = _has_unflushed_closed_segments(log)
    return log.unflushed.is_due(now_ms, log.config, records, closed)


def _has_unflushed_closed_segments(log: Log) -> bool:
    return log.segments[-1].base > log.recovery_point


def plan(log: Log) -> Callable[[], int]:
    """Everything that is not flushed. The call returns the new recovery point."""
    log.check_writable()
    disk, unflushed = log.disk, log.unflushed
    up_to = log.log_end
    segments: list[Segment] = []
    if up_to > log.recovery_point or unflushed.cut:
        # With the one that ends at the recovery point: it may have been truncated there.
        first = bisect_left(log.segments, log.recovery_point, key=base_of) - 1
        segments = log.segments[max(0, first) :]
    try:
        files = [segment.opened() for segment in segments]
        for segment in segments[:-1]:
            files += [disk.open(index.path) for index in (segment.index, segment.times)]
            if segment.aborted.is_on_disk:
                files.append(disk.open(segment.aborted.path))
        if unflushed.identity:
            files.append(disk.open(f"{log.path}/{checkpoints.PARTITION_METADATA}"))
    except OSError as error:
        log.fail(error)
    write_epochs = log.epochs_file.writer(log.epochs.entries) if log.epochs.dirty else None
    directories = [log.path] if unflushed.names or write_epochs else []
    if unflushed.identity:
        directories.append(log.directory)
    log.epochs.dirty = False
    unflushed.plan_all()

    def run() -> int:
        try:
            for file in files:
                file.flush()
            if write_epochs is not None:
                write_epochs()
            for directory in directories:
                disk.flush_dir(directory)
        except OSError as error:
            if not log.gone:  # a log that was deleted meanwhile has nothing left to flush
                log.fail(error)
        return up_to

    return run


def identity_plan(log: Log) -> Callable[[], None] | None:
    """The directory of the log and its `partition.metadata`."""
    unflushed, disk = log.unflushed, log.disk
    if not unflushed.identity or unflushed.is_planned or log.failed is not None:
        return None
    try:
        file = disk.open(f"{log.path}/{checkpoints.PARTITION_METADATA}")
    except OSError as error:
        log.fail(error)
    unflushed.plan_identity()

    def run() -> None:
        try:
            file.flush()
            for directory in (log.path, log.directory):
                disk.flush_dir(directory)
        except OSError as error:
            if not log.gone:
                log.fail(error)

    return run


def epochs_plan(log: Log) -> Callable[[], None] | None:
    """`leader-epoch-checkpoint`, without a flush."""
    if not log.epochs.dirty or log.unflushed.is_planned or log.failed is not None:
        return None
    log.epochs.dirty = False
    log.unflushed.plan_nothing_of_this()
    return log.epochs_file.writer(log.epochs.entries)
