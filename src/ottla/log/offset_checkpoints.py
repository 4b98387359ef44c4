"""The offset checkpoints of all log directories: what a restart believes of each log before it reads the log.

Four files in each log directory hold one offset for each log: the recovery point, the high watermark, the log start (where
the files of the log do not show it) and how far compaction has worked. They are written from time to time by a plan whose
slow part may run in a thread. Some changes must not wait for the next plan, because a crash in between would be taken for
corruption or for committed data: those are written at once. `OffsetCheckpoints` keeps what the files hold, and what a plan
under way may still write over it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TypeAlias

from ottla.log import checkpoints
from ottla.log.log import Log
from ottla.log.log_directories import DirectoryContents
from ottla.runtime.seams import Disk
from ottla.wire.types import TopicPartition

Offsets: TypeAlias = dict[TopicPartition, int]
Marks: TypeAlias = tuple[Offsets, Offsets]
"""The high watermarks of a directory, and the log starts that its files do not show."""
Place: TypeAlias = tuple[str, TopicPartition]
"""A log in a directory: its future log lies in another one."""


@dataclass(slots=True)
class CheckpointPlan:
    """What is to be written. `run` may be called in a thread."""

    disk: Disk
    marks: dict[str, Marks] = field(default_factory=dict)
    """By directory."""
    epochs: list[tuple[Log, Callable[[], None]]] = field(default_factory=list)
    renewed: set[Place] = field(default_factory=set)
    """Logs whose marks on disk may be those of a deleted log of the same name, until the plan is carried out."""
    failures: dict[str, OSError] = field(default_factory=dict)
    """By directory."""

    def run(self) -> None:
        self.disk.together([partial(self._write_epochs, *each) for each in self.epochs])
        for directory, (high_watermarks, log_starts) in self.marks.items():
            for name, offsets in (
                (checkpoints.LOG_STARTS, log_starts),
                (checkpoints.HIGH_WATERMARKS, high_watermarks),
            ):
                try:
                    checkpoints.write_offsets(self.disk, f"{directory}/{name}", offsets)
                except OSError as error:
                    self.failures[directory] = error

    def _write_epochs(self, log: Log, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            if not log.gone:  # a log that was deleted meanwhile needs no checkpoint
                self.failures[log.directory] = error


class OffsetCheckpoints:
    def __init__(
        self,
        disk: Disk,
        logs: Mapping[TopicPartition, Log],
        futures: Mapping[TopicPartition, Log],
        corrupt: Mapping[TopicPartition, str],
    ) -> None:
        """`logs`, `futures` and `corrupt` (the directories of logs that are kept out) belong to the manager, which changes
        them. A log and its future are never in one directory."""
        self._disk = disk
        self._logs = logs
        self._futures = futures
        self._corrupt = corrupt
        self._recovery_points: dict[str, Offsets] = {}
        """On disk, by directory."""
        self._cleaned: dict[str, Offsets] = {}
        """How far logs are compacted, on disk, by directory. Every log that may have gaps has an entry."""
        self._marks: dict[str, Marks] = {}
        """As they were written last, by directory."""
        self._checkpointed: dict[str, set[TopicPartition]] = {}
        """Logs with marks on disk, by directory. The marks may be those of a log that is deleted by now."""
        self._plan_under_way = False
        self._renewed: set[Place] = set()
        """Logs that took the place of deleted ones whose marks may still be on disk."""
        self._stale_marks = False
        """The plan under way may write marks that have been lowered since."""

    def found(self, directory: str, contents: DirectoryContents) -> None:
        """What the files hold at the start."""
        self._recovery_points[directory] = contents.recovery_points
        self._cleaned[directory] = contents.cleaned
        self._marks[directory] = contents.high_watermarks, contents.log_starts
        self._checkpointed[directory] = {
            *contents.recovery_points,
            *contents.high_watermarks,
            *contents.log_starts,
        }

    # From time to time

    def plan(self, directories: list[str]) -> CheckpointPlan:
        """The marks of all logs in these directories. Recovery points are written here and now: no plan may be under way
        with an old one when one has to fall."""
        plan = CheckpointPlan(self._disk, renewed=set(self._renewed))
        self._plan_under_way = True
        self._stale_marks = False
        for directory in directories:
            # A corrupt log keeps its recovery point: without it the next start would cut the log instead of
            # keeping it out.
            recovery_points = {
                key: offset
                for key, offset in self._recovery_points.get(directory, {}).items()
                if self._corrupt.get(key) == directory
            }
            high_watermarks: Offsets = {}
            log_starts: Offsets = {}
            for key, log in chain(self._logs.items(), self._futures.items()):
                if log.directory == directory:
                    if (directory, key) not in plan.renewed:
                        recovery_points[key] = log.recovery_point
                    high_watermarks[key] = log.high_watermark
                    if log.log_start > log.segments[0].base:
                        log_starts[key] = log.log_start
            marks = (high_watermarks, log_starts)
            if self._marks.get(directory) != marks:  # an idle broker does not write
                plan.marks[directory] = marks
            self._checkpointed[directory] = {*recovery_points, *high_watermarks}
            try:
                self._write_recovery_points(directory, recovery_points)
            except OSError as error:
                plan.failures[directory] = error
        for log in [log for log in self._logs.values() if log.epochs.dirty]:
            write = log.epochs_plan()
            if write is not None:
                plan.epochs.append((log, write))
        return plan

    def carried_out(self, plan: CheckpointPlan) -> None:
        self._plan_under_way = False
        for log, _ in plan.epochs:
            log.epochs_written()
        self._marks.update(plan.marks)

    def needs_another(self, plan: CheckpointPlan) -> bool:
        """Whether the marks on disk are still not right after this plan."""
        self._renewed -= plan.renewed
        return self._stale_marks or any(
            log.directory == directory
            for directory, key in plan.renewed
            for log in (self._logs.get(key), self._futures.get(key))
            if log is not None
        )

    # At once

    def forget(self, directory: str, key: TopicPartition) -> bool:
        """A new log must not begin with the marks of a deleted one of the same name. The recovery point is removed at
        once, and written again when the other marks are those of the new log: without a recovery point the others do not
        count. Whether a plan is needed for that now."""
        if key in self._cleaned.get(directory, {}):
            self._write_cleaned(directory, self._cleaned_without(directory, key))
        if key not in self._checkpointed.get(directory, ()):
            return False
        recovery_points = dict(self._recovery_points.get(directory, {}))
        if recovery_points.pop(key, None) is not None:
            self._write_recovery_points(directory, recovery_points)
        self._renewed.add((directory, key))
        self._stale_marks = True
        return not self._plan_under_way

    def recovery_point_falls(self, log: Log, offset: int) -> None:
        lowered = dict(self._recovery_points.get(log.directory, {}))
        if lowered.get(log.key, 0) > offset:
            lowered[log.key] = offset
            self._write_recovery_points(log.directory, lowered)
        if log.cleaned is not None:
            self.write_cleaned_of(log)

    def high_watermark_falls(self, log: Log, offset: int) -> None:
        high_watermarks, log_starts = self._marks.get(log.directory, ({}, {}))
        if high_watermarks.get(log.key, 0) > offset:
            lowered = {**high_watermarks, log.key: offset}
            path = f"{log.directory}/{checkpoints.HIGH_WATERMARKS}"
            checkpoints.write_offsets(self._disk, path, lowered)
            self._marks[log.directory] = lowered, log_starts
        self._stale_marks |= self._plan_under_way

    def gaps_come(self, log: Log) -> None:
        """The log may have gaps below its recovery point from now on."""
        recovery_points = self._recovery_points.get(log.directory, {})
        if recovery_points.get(log.key, 0) < log.recovery_point:
            recovery_points = {**recovery_points, log.key: log.recovery_point}
            self._write_recovery_points(log.directory, recovery_points)
        self.write_cleaned_of(log)

    def write_cleaned_of(self, log: Log) -> None:
        """How far the log is compacted, which also says that it may have gaps."""
        assert log.cleaned is not None, log
        cleaned = self._cleaned.get(log.directory, {})
        if cleaned.get(log.key) != log.cleaned:
            others = self._cleaned_without(log.directory, log.key)
            self._write_cleaned(log.directory, {**others, log.key: log.cleaned})

    def _cleaned_without(self, directory: str, key: TopicPartition) -> Offsets:
        """The entries on disk, without this log and those that are gone."""
        return {
            other: offset
            for other, offset in self._cleaned.get(directory, {}).items()
            if other != key and (other in self._logs or other in self._corrupt)
        }

    def _write_cleaned(self, directory: str, cleaned: Offsets) -> None:
        checkpoints.write_offsets(self._disk, f"{directory}/{checkpoints.CLEANED_OFFSETS}", cleaned)
        self._cleaned[directory] = cleaned

    def _write_recovery_points(self, directory: str, recovery_points: Offsets) -> None:
        if self._recovery_points.get(directory) != recovery_points:
            path = f"{directory}/{checkpoints.RECOVERY_POINTS}"
            checkpoints.write_offsets(self._disk, path, recovery_points)
            self._recovery_points[directory] = recovery_points
