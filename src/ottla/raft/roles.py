"""The parts of a quorum node that hold still: roles and the ways between them, timing, events, and what a
leader or a candidate keeps account of.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from ottla.raft.messages import QuorumRequest, SnapshotId
from ottla.raft.voters import ReplicaKey, VoterSet

CHECK_QUORUM_FACTOR = 1.5
OBSERVER_FORGOTTEN_S = 300.0
OBSERVERS_MAX = 10_000
"""Anybody may fetch and be remembered as an observer."""


class Role(StrEnum):
    UNATTACHED = "Unattached"
    """Knows its epoch and no leader in it; looks for one, and stands for election if none turns up."""
    PROSPECTIVE = "Prospective"
    """Asks whether it could win before it disturbs anybody with a new epoch."""
    CANDIDATE = "Candidate"
    """Has begun an epoch, voted for itself and asks for the others' votes."""
    FOLLOWER = "Follower"
    """Fetches from the leader of its epoch."""
    LEADER = "Leader"
    """Was elected by a majority; the only one that appends in its epoch."""
    RESIGNED = "Resigned"
    """Led this epoch and does not any more: it gave up, or restarted and may have lost its tail."""


TRANSITIONS: Mapping[Role, frozenset[Role]] = MappingProxyType(
    {
        Role.UNATTACHED: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.FOLLOWER}),
        Role.PROSPECTIVE: frozenset({Role.UNATTACHED, Role.CANDIDATE, Role.FOLLOWER}),
        Role.CANDIDATE: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.FOLLOWER, Role.LEADER}),
        Role.FOLLOWER: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.FOLLOWER}),
        Role.LEADER: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.RESIGNED}),
        Role.RESIGNED: frozenset({Role.UNATTACHED, Role.FOLLOWER}),
    }
)


class Timing(NamedTuple):
    """Seconds. Names and defaults are those of Kafka's controller.quorum.* settings."""

    election_timeout: float = 1.0
    fetch_timeout: float = 2.0
    election_backoff_max: float = 1.0
    retry_backoff: float = 0.02
    fetch_wait_ms_max: int = 500
    early_jitter_max: float = 0.02
    """Spreads the pre-votes of voters that lost their leader at the same moment."""


@dataclass(frozen=True, slots=True, eq=False)
class Send:
    """A request that waits to be sent. Given back with its answer or failure."""

    peer: int
    request: QuorumRequest


class BecameLeader(NamedTuple):
    epoch: int


class LostLeadership(NamedTuple):
    epoch: int


class LeaderChanged(NamedTuple):
    epoch: int
    leader: int | None


class HighWatermarkAdvanced(NamedTuple):
    offset: int


class Truncated(NamedTuple):
    """A tail that no majority had."""

    from_offset: int
    to_offset: int


class SnapshotInstalled(NamedTuple):
    id: SnapshotId


class BadRecords(NamedTuple):
    """The leader sent something that is not what it wrote; it was not taken."""

    why: str


class CameOfAge(NamedTuple):
    """A newborn voter has its vote."""


class TwoLeaders(NamedTuple):
    """Somebody named another leader of an epoch than we know, and was not believed. One of the two was
    forged: this node may be of no use to the quorum until the next epoch, but it lives."""

    epoch: int
    known: int
    named: int


Event: TypeAlias = (
    BecameLeader
    | LostLeadership
    | LeaderChanged
    | HighWatermarkAdvanced
    | Truncated
    | SnapshotInstalled
    | BadRecords
    | CameOfAge
    | TwoLeaders
)


@dataclass(slots=True)
class Replica:
    """What a leader knows of another replica."""

    key: ReplicaKey
    end_offset: int | None = None
    """Where its flushed log ends; None before its first fetch in this epoch."""
    last_fetch: float = -math.inf
    last_caught_up: float = -math.inf
    leader_end_then: int = 0
    acknowledged: bool = False
    """Knows that we lead."""


@dataclass(slots=True)
class Leadership:
    """What exists only while leading."""

    start_offset: int
    """Of the first record of this epoch. The high watermark moves only past it."""
    voters: dict[int, Replica]
    """Without ourselves."""
    observers: dict[ReplicaKey, Replica] = field(default_factory=dict)

    @staticmethod
    def begin(voters: VoterSet, node: int, log_end: int, now: float) -> Leadership:
        """With the benefit of the doubt: as if every voter had fetched just now."""
        others = {v.id: Replica(v.key, last_fetch=now) for v in voters.voters if v.id != node}
        return Leadership(log_end, others)

    def fetched(self, key: ReplicaKey, offset: int | None, log_end: int, now: float) -> bool:
        """A replica is there; if its log agrees with ours, all of it below `offset` is flushed. Whether it
        is a voter: one whose disk was replaced is not the voter of that id any more."""
        replica = self.voters.get(key.id)
        is_voter = replica is not None and replica.key.directory in (None, key.directory)
        if replica is None or not is_voter:
            # Taken out and put back: the first is always the one not heard from for longest.
            replica = self.observers.pop(key, None) or Replica(key)
            self._forget_observers(now)
            self.observers[key] = replica
        replica.acknowledged = True
        if offset is not None:
            if offset >= log_end:
                replica.last_caught_up = now
            elif offset >= replica.leader_end_then:
                replica.last_caught_up = max(replica.last_caught_up, replica.last_fetch)
            replica.end_offset = offset
        replica.leader_end_then = log_end
        replica.last_fetch = now
        return is_voter

    def _forget_observers(self, now: float) -> None:
        while self.observers:
            key, observer = next(iter(self.observers.items()))
            is_old = now - observer.last_fetch > OBSERVER_FORGOTTEN_S
            if not is_old and len(self.observers) < OBSERVERS_MAX:
                return
            del self.observers[key]

    def end_on_majority(self, majority: int, own_end: int | None) -> int:
        """The offset below which `majority` voters have flushed everything; `own_end` None: we are none."""
        ends = [-1 if r.end_offset is None else r.end_offset for r in self.voters.values()]
        if own_end is not None:
            ends.append(own_end)
        return sorted(ends, reverse=True)[majority - 1]

    def quorum_deadline(self, others_needed: int, fetch_timeout: float) -> float:
        """When to give up because fewer than `others_needed` voters have fetched for too long."""
        if others_needed == 0:
            return math.inf
        fetches = sorted((r.last_fetch for r in self.voters.values()), reverse=True)
        return fetches[others_needed - 1] + CHECK_QUORUM_FACTOR * fetch_timeout

    def successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters, the one with the longest log first."""
        by_progress = sorted(
            self.voters.values(), key=lambda r: -1 if r.end_offset is None else r.end_offset
        )
        return tuple(replica.key for replica in reversed(by_progress))


@dataclass(slots=True)
class Ballot:
    """What those who were asked said."""

    granted: set[int]
    rejected: set[int] = field(default_factory=set)
    unreachable: set[int] = field(default_factory=set)
    """A pre-vote ends when it cannot be won without them; for votes they are asked again meanwhile."""
    is_lost: bool = False

    @property
    def refused(self) -> set[int]:
        return self.rejected | self.unreachable
