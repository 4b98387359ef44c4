"""The roles of a node in its quorum, the ways between them, and the times that govern them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple


class RaftRole(StrEnum):
    UNATTACHED = "Unattached"
    """Knows its epoch and no leader in it. Looks for one, and stands for election if none turns up."""
    PROSPECTIVE = "Prospective"
    """Asks whether it could win before it disturbs anybody with a new epoch (pre-vote, KIP-996)."""
    CANDIDATE = "Candidate"
    """Has begun an epoch, voted for itself and asks for the others' votes."""
    FOLLOWER = "Follower"
    """Fetches from the leader of its epoch."""
    LEADER = "Leader"
    """Was elected by a majority. Only the leader of an epoch appends in it."""
    RESIGNED = "Resigned"
    """Led this epoch and does not any more: it gave up, or restarted and may have lost its tail."""


TRANSITIONS: Mapping[RaftRole, frozenset[RaftRole]] = MappingProxyType(
    {
        RaftRole.UNATTACHED: frozenset(
            {RaftRole.UNATTACHED, RaftRole.PROSPECTIVE, RaftRole.FOLLOWER}
        ),
        RaftRole.PROSPECTIVE: frozenset(
            {RaftRole.UNATTACHED, RaftRole.CANDIDATE, RaftRole.FOLLOWER}
        ),
        RaftRole.CANDIDATE: frozenset(
            {RaftRole.UNATTACHED, RaftRole.PROSPECTIVE, RaftRole.FOLLOWER, RaftRole.LEADER}
        ),
        RaftRole.FOLLOWER: frozenset(
            {RaftRole.UNATTACHED, RaftRole.PROSPECTIVE, RaftRole.FOLLOWER}
        ),
        RaftRole.LEADER: frozenset({RaftRole.UNATTACHED, RaftRole.FOLLOWER, RaftRole.RESIGNED}),
        RaftRole.RESIGNED: frozenset({RaftRole.UNATTACHED, RaftRole.FOLLOWER}),
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
