"""Events of the active controller: its decisions when it makes them, and changes of partitions and settings when they
are committed.

A decision can be lost before it is committed: then `DecisionsLost` follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from ottla.events import Event
from ottla.events.replication import IsrCause, Lag
from ottla.wire.errors import ErrorCode


class FenceCause(StrEnum):
    SESSION_OVER = "the controller got no heartbeat from it in time"
    DISCONNECTED = "its connection closed, and it did not come back in time"
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
    PREFERRED = "from the ISR, to bring leadership back to the preferred replica"


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


class IsrChange(Event):
    topic: str
    partition: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    previous_isr: tuple[int, ...]
    brokers: tuple[int, ...]
    """Those that left, or joined."""
    cause: IsrCause
    lag: Mapping[int, Lag]
    """As the leader told with its proposal; empty for a change that the controller made itself."""


class IsrShrunk(IsrChange):
    """An ISR with fewer members is committed, whoever caused it."""


class IsrExpanded(IsrChange):
    """An ISR with more members is committed."""


class ReassignmentStep(StrEnum):
    STARTED = "started"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    CHANGED = "changed"


class PartitionReassigned(Event):
    """A step of a reassignment is committed."""

    topic: str
    partition: int
    step: ReassignmentStep
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class SettingChanged(Event):
    """A setting, a client quota or an ACL that a client changed is committed."""

    resource: str
    """`topic:NAME`, `broker:ID`, `group:ID`, `client-id:NAME`, `user:NAME`; `cluster` for the default of all brokers. An
    ACL (`name` is then `acl`) may be of other types of resources."""
    name: str
    old: str | None
    new: str | None
    """None: not set, so that a default counts."""
    by: str
    """The client that asked: its id, and its host where it is known."""
