"""Flushing logs: what is due, and plans of what to flush.

A plan is made on the event loop. It is carried out in a thread, and afterwards its result is reported on the event loop. The
logs take appends and truncations meanwhile; `Unflushed` keeps account of what a plan does not cover. Plans are for many logs
at a time, because a file system carries out many flushes nearly as fast as one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla.log import checkpoints
from ottla.log.errors import LogDirError
from ottla.log.segment import Segment, base_of
from ottla.runtime.seams import Disk

if TYPE_CHECKING:
    from ottla.log.log import Log

LOGS_AT_ONCE = 64
"""In one plan of complete flushes: it keeps their files open."""


def is_settled(log: Log) -> bool:
    return log.unflushed.is_settled(log.config, _has_unflushed_closed_segments(log))


def is_due(log: Log, now_ms: int) -> bool:
    records = log.log_end - log.recovery_point
    closed = _has_unflushed_closed_segments(log)
    return log.unflushed.is_due(now_ms, log.config, records, closed)


def _has_unflushed_closed_segments(log: Log) -> bool:
    return log.segments[-1].base > log.recovery_point


def plan(log: Log, also: Sequence[str] = ()) -> Callable[[], int]:
    """Everything that is not flushed, and `also` these files. The call returns the new recovery point."""
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
        files += [disk.open(path) for path in also]
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


def closing_plan(log: Log) -> Callable[[], int]:
    """Write what a restart would have to rebuild, and plan to flush that with everything else. A log in which nothing
    happened since it was opened, or made, has nothing to write: a large broker has thousands of them."""
    if log.is_as_closed:
        return plan(log)
    try:
        log.snapshots.take(log.producers, log.log_end)
        log.segments[-1].write_indexes()
    except OSError as error:
        log.fail(error)
    log.unflushed.names = True
    return plan(log, [*log.segments[-1].index_paths, log.snapshots.path(log.log_end)])


class FlushPlan:
    """Flushes of several logs. `run` may be called in a thread, then `carried_out`."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._plans: dict[Log, Callable[[], int]] = {}
        self._ends: dict[Log, int] = {}

    def add(self, log: Log, plan: Callable[[], int]) -> None:
        self._plans[log] = plan

    def __bool__(self) -> bool:
        return bool(self._plans)

    def run(self) -> None:
        self._disk.together([partial(self._flush, *each) for each in self._plans.items()])

    def _flush(self, log: Log, plan: Callable[[], int]) -> None:
        try:
            self._ends[log] = plan()
        except LogDirError:
            assert log.failed is not None, log  # which says it to whoever carried this out

    def carried_out(self) -> list[LogDirError]:
        """Returns what failed."""
        for log, end in self._ends.items():
            log.flushed(end)
        return [log.failed for log in self._plans if log.failed is not None]


class IdentityPlan:
    """Makes durable that these logs exist, and their topic ids: their directories and `partition.metadata`. `run` may be
    called in a thread, then `carried_out`."""

    def __init__(self, disk: Disk, logs: Iterable[Log]) -> None:
        """Without logs whose identity is durable, or part of a flush that is under way."""
        self._disk = disk
        self._logs = [
            log
            for log in logs
            if log.unflushed.identity and not log.unflushed.is_planned and log.failed is None
        ]
        self._failures: dict[str, LogDirError] = {}
        """By log directory."""
        for log in self._logs:
            log.unflushed.plan_identity()

    def __bool__(self) -> bool:
        return bool(self._logs)

    def run(self) -> None:
        self._disk.together([partial(self._flush, log) for log in self._logs])
        # Once for all of them, and last: a log that is found has its topic id.
        for directory in dict.fromkeys(log.directory for log in self._logs):
            try:
                self._disk.flush_dir(directory)
            except OSError as error:
                self._failures[directory] = LogDirError(directory, error)

    def _flush(self, log: Log) -> None:
        try:
            file = self._disk.open(f"{log.path}/{checkpoints.PARTITION_METADATA}")
            try:
                file.flush()
            finally:
                file.close()
            self._disk.flush_dir(log.path)
        except OSError as error:
            if not log.gone:  # a log that was deleted meanwhile needs no identity
                self._failures[log.directory] = LogDirError(log.directory, error)

    def carried_out(self) -> list[LogDirError]:
        """Returns what failed."""
        for log in self._logs:
            log.unflushed.carried_out()
        return list(self._failures.values())


def epochs_plan(log: Log) -> Callable[[], None] | None:
    """`leader-epoch-checkpoint`, without a flush."""
    if not log.epochs.dirty or log.unflushed.is_planned or log.failed is not None:
        return None
    log.epochs.dirty = False
    log.unflushed.plan_nothing_of_this()
    return log.epochs_file.writer(log.epochs.entries)
