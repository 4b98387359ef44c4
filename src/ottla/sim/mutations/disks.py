"""Bugs of what must be on a disk, and when: only a death between two changes shows them, or a power loss."""

from __future__ import annotations

import os
from typing import Any

from ottla.raft.election_state import ElectionState, QuorumStateFile
from ottla.replica.partition import Partition
from ottla.sim.engine.patches import Patch
from ottla.sim.mutations.base import mutation


@mutation("own", likely="die_midway")
def quorum_state_is_removed_before_it_is_replaced() -> list[Patch]:
    """A voter that dies in between has forgotten its epoch, and whom it voted for."""
    write = QuorumStateFile.write

    def remove_and_write(self: QuorumStateFile, state: ElectionState, **format: Any) -> None:
        if self.exists:
            self._disk.remove(self.path)
            self._disk.flush_dir(os.path.dirname(self.path))
        write(self, state, **format)

    return [Patch(QuorumStateFile, "write", remove_and_write)]


@mutation("own", likely="outage")
def flush_messages_is_not_waited_for() -> list[Patch]:
    """Records count before they are flushed, though flush.messages says 1: they go when the power of all goes."""

    def flush_if_asked(self: Partition) -> None:
        """The flush by time is to do it."""

    return [Patch(Partition, "flush_if_asked", flush_if_asked)]
