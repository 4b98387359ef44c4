"""Nodes and their replicas as the checkers saw them last: what a change is a change from."""

from __future__ import annotations

from typing import NamedTuple

from ottla.log.log import Log
from ottla.replica.partition import Partition
from ottla.replica.roles import Role
from ottla.sim.cluster.nodes import SimNode
from ottla.sim.oracle.ledger import Copy
from ottla.wire.types import TopicPartition


class State(NamedTuple):
    """What of a partition is compared after every event."""

    log_end: int
    high_watermark: int
    leader_epoch: int
    partition_epoch: int
    role: Role
    log_start: int
    min_isr: int


class Replica:
    """One replica as it was last seen."""

    def __init__(self, copy: Copy) -> None:
        self.copy = copy
        self.partition: Partition | None = None
        """As long as it is served."""
        self.state: State | None = None
        self.committed_in = -1
        """The leader epoch in which its high watermark last moved."""
        self.recovery_point = 0
        self.log_start = 0
        self.under_min_isr = False
        self.is_wrong = False
        """Its disk holds something else than was written, as long as this log is there."""
        self.is_doubtful = False
        """Its machine lost power, or its disk failed: some of the tail may be gone."""
        self.lost_in = -1
        """The registration of its broker when that happened."""
        self.died_midway = False
        """Its process died between two changes of its disk: what it was about to cut may be gone."""
        self.dismissed_in: int | None = None
        """The partition epoch in which it was taken off the partition, until its node has shown that it kept the
        log all the same: it may have been given back in the next one, and its node may hear of both together."""

    @property
    def log(self) -> Log | None:
        return None if self.partition is None else self.partition.log


class Watched:
    """One node, over all its lives."""

    def __init__(self, machine: SimNode) -> None:
        self.machine = machine
        self.replicas: dict[TopicPartition, Replica] = {}
        self.heard: object = None
        """The node, or the broker in it once there is one, that tells what it does within events."""
        self.has_served = False
        self.served_as = -1
        """Its broker's registration when it last served."""
