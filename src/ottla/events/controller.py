"""Events of the active controller: its decisions when it makes them, and elections when they are committed.

A decision can be lost before it is committed: then `DecisionsLost` follows.
"""

from __future__ import annotations

from enum import StrEnum

from ottla.events import Event
from ottla.wire.errors import ErrorCode


class FenceCause(StrEnum):
    SESSION_OVER = "no heartbeat for too long, or none over a new connection in time"
    UNREACHABLE = "its address refuses connections"
    ASKED = "it asked to be fenced"
    SHUT_DOWN = "its controlled shutdown is complete"
    NO_DISK = "all its log directories failed"
    RESTARTED = "a new incarnation registered"


class ElectionKind(StrEnum):
    IN_SYNC = "from the ISR"
    ELIGIBLE = "from the eligible leader replicas (KIP-966)"
    LAST_KNOWN_LEADER = "the last known leader, which may lack the tail of its log"
    UNCLEAN = "another replica: committed records may be lost"


class ControllerActivated(Event):
    """This node is now the active controller. Everything committed before its epoch is in its image."""

    epoch: int


class ControllerDeactivated(Event):
    """This node is no longer the active controller."""

    epoch: int


class BrokerFenced(Event):
    """The controller decided to fence a broker: it leads nothing and is in no ISR."""

    broker: int
    broker_epoch: int
    cause: FenceCause


class BrokerUnfenced(Event):
    """The controller decided to unfence a broker that has caught up with the metadata: it may lead and be in sync."""

    broker: int
    broker_epoch: int


class IsrProposalRefused(Event):
    """The controller refused the ISR that a leader proposed (AlterPartition)."""

    topic: str | None
    """None if there is no such topic."""
    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    error: ErrorCode
    restarted: tuple[int, ...] = ()
    """Proposed members that are alive and have restarted since the leader saw them (KIP-903)."""


class LeaderElected(Event):
    """A partition's new leader is committed."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    previous_leader: int
    isr: tuple[int, ...]
    kind: ElectionKind


class PartitionWentOffline(Event):
    """A partition without a leader is committed: no replica that may lead it is alive."""

    topic: str
    partition: int
    leader_epoch: int
    previous_leader: int
