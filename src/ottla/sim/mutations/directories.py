"""Bugs of moves between the log directories of a broker."""

from __future__ import annotations

from ottla.broker.replication.directory_moves import DirectoryMoves, _Move
from ottla.log import manager
from ottla.log.log import Log
from ottla.replica import relocation
from ottla.replica.partition import Partition
from ottla.sim.engine.patches import Patch
from ottla.sim.mutations.base import mutation

MOVES = "move_directory"


@mutation("own", likely=MOVES)
def future_logs_do_not_follow_truncations() -> list[Patch]:
    """What the current log truncates stays in the future log, which goes on behind it."""

    def agree(current: Log, future: Log) -> int:
        return future.log_end

    return [Patch(relocation, "agreement", agree)]


@mutation("own", likely=MOVES)
def a_future_log_takes_its_place_before_it_holds_all() -> list[Patch]:
    """The last records are not copied."""

    def copy_nothing(current: Log, future: Log, max_bytes: int) -> int:
        return 0

    def take_over_less(current: Log, future: Log) -> None:
        future.config = current.config
        future.advance_high_watermark(current.high_watermark)

    def log_moved(self: Partition, log: Log) -> None:
        self.log = log
        if self.leadership is not None:
            self.leadership.log = log

    return [
        Patch(relocation, "copy_rest", copy_nothing),
        Patch(manager, "take_over", take_over_less),
        Patch(Partition, "log_moved", log_moved),
    ]


@mutation("own", likely=MOVES)
def leaders_go_on_with_the_log_that_moved() -> list[Patch]:
    """A leadership keeps the log that it began with, and appends to deleted files."""

    def log_moved(self: Partition, log: Log) -> None:
        self.log = log

    return [Patch(Partition, "log_moved", log_moved)]


@mutation("own", likely=MOVES)
def the_copy_is_not_flushed() -> list[Patch]:
    """What the log had flushed before it answered is not durable in the one that takes its place."""

    def flush_nothing(current: Log, future: Log) -> None:
        """Left to the periodic flush."""

    async def no_flush(self: DirectoryMoves, move: _Move) -> None:
        move.unflushed = 0

    return [
        Patch(relocation, "flush_as", flush_nothing),
        Patch(DirectoryMoves, "_flush", no_flush),
    ]
