"""Bugs of durability: only a crash between two changes, or a power loss, shows them."""

from __future__ import annotations

import os
from typing import Any

from ottla.broker.replication.throttle import ReplicationThrottle
from ottla.log.log import Appended, Log
from ottla.log.room import UNLIMITED_ROOM, DirectoryRoom, Level
from ottla.raft.election_state import ElectionState, QuorumStateFile
from ottla.replica.partition import Partition
from ottla.sim.engine.patches import Patch
from ottla.sim.mutations.base import mutation
from ottla.sim.run.profiles import CROWDED


@mutation("own", likely="die_midway")
def quorum_state_is_removed_before_it_is_replaced() -> list[Patch]:
    """A voter that dies between the two steps loses its epoch and its vote."""
    write = QuorumStateFile.write

    def remove_and_write(self: QuorumStateFile, state: ElectionState, **format: Any) -> None:
        if self.exists:
            self._disk.remove(self.path)
            self._disk.flush_dir(os.path.dirname(self.path))
        write(self, state, **format)

    return [Patch(QuorumStateFile, "write", remove_and_write)]


@mutation("own", likely="outage")
def flush_messages_is_not_waited_for() -> list[Patch]:
    """Records count as written before they are flushed, despite flush.messages=1: they are lost in an outage of all."""

    def flush_if_asked(self: Partition) -> None:
        """Left to the periodic flush."""

    return [Patch(Partition, "flush_if_asked", flush_if_asked)]


@mutation("own", likely=CROWDED)
def records_are_taken_on_a_full_disk() -> list[Patch]:
    """A log goes on to grow although its disk has no room."""

    def take_them(self: Log) -> None:
        """Nothing is refused."""

    return [Patch(Log, "refuse_growth", take_them)]


@mutation("own", likely=CROWDED)
def followers_copy_onto_a_full_disk() -> list[Patch]:
    """Only records of clients are refused where there is no room."""
    copy = Log.append_as_follower

    def copy_anyway(self: Log, records: memoryview, leader_epoch: int) -> Appended:
        room, self.room = self.room, UNLIMITED_ROOM
        try:
            return copy(self, records, leader_epoch)
        finally:
            self.room = room

    def never(self: ReplicationThrottle, partition: Partition, received: int, now: float) -> float:
        return 0.0

    return [
        Patch(Log, "append_as_follower", copy_anyway),
        Patch(ReplicationThrottle, "rest", never),
    ]


@mutation("own", likely=CROWDED)
def a_full_disk_stays_full() -> list[Patch]:
    """Room that is made is never noticed."""
    look = DirectoryRoom.look

    def look_once(self: DirectoryRoom) -> None:
        if self.level is Level.AMPLE:
            look(self)

    return [Patch(DirectoryRoom, "look", look_once)]
