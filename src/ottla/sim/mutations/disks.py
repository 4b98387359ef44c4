"""Bugs of durability: only a crash between two changes, or a power loss, shows them."""

from __future__ import annotations

import os
from typing import Any

from ottla.raft.election_state import ElectionState, QuorumStateFile
from ottla.replica.partition import Partition
from ottla.sim.engine.patches import Patch
from ottla.sim.mutations.base import mutation


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
