"""Nodes and their replicas as the checkers saw them after the last event: a check compares the new state with it."""

from __future__ import annotations

from typing import NamedTuple

from ottla.log.log import Log
from ottla.replica.partition import Partition
from ottla.replica.roles import Role
from ottla.sim.cluster.nodes import SimNode
from ottla.sim.oracle.ledger import LogCopy
from ottla.wire.types import TopicPartition


class ComparedState(NamedTuple):
    """The fields of a replica that are compared after every event; only if one differs is anything checked."""

    log_end: int
    high_watermark: int
    leader_epoch: int
    partition_epoch: int
    role: Role
    log_start: int
    min_isr: int


class ReplicaLastSeen:
    """One replica as it was last seen."""

    def __init__(self, copy: LogCopy) -> None:
        self.copy = copy
        self.partition: Partition | None = None
        """None while its broker does not serve it."""
        self.directory = ""
        """In which its log lies."""
        self.state: ComparedState | None = None
        self.committed_in = -1
        """The leader epoch in which its high watermark last moved."""
        self.recovery_point = 0
        self.log_start = 0
        self.under_min_isr = False
        self.is_wrong = False
        """Its disk holds something else than was written, as long as this log exists."""
        self.is_doubtful = False
        """Its machine lost power, or its disk failed: some of the tail may be gone."""
        self.lost_in = -1
        """The broker epoch of its node when that happened."""
        self.died_midway = False
        """Its process died between two changes of its disk: a truncation may be half done."""
        self.removed_in: int | None = None
        """The partition epoch in which it was removed from the partition, until its node shows that it kept the log.
        It may be assigned again in the next epoch, and its node may apply both decisions together."""

    @property
    def log(self) -> Log | None:
        return None if self.partition is None else self.partition.log


class NodeLastSeen:
    """One node, across all its restarts."""

    def __init__(self, machine: SimNode) -> None:
        self.machine = machine
        self.replicas: dict[TopicPartition, ReplicaLastSeen] = {}
        self.has_served = False
        self.served_as = -1
        """The broker epoch with which it last served."""
