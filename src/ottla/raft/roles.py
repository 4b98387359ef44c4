"""The roles of a node in its quorum, the transitions between them (drawn in docs/STATES.md), and the timeouts."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class RaftRole(StrEnum):
    UNATTACHED = "Unattached"
    """Knows its epoch and no leader of it. Looks for one, and stands for election if it finds none."""
    PROSPECTIVE = "Prospective"
    """Asks for pre-votes, that is, whether it would win an election (KIP-996)."""
    CANDIDATE = "Candidate"
    """Has begun an epoch, has voted for itself, and asks the other voters for their votes."""
    FOLLOWER = "Follower"
    """Fetches from the leader of its epoch."""
    LEADER = "Leader"
    """Was elected by a majority. Only the leader of an epoch appends in it."""
    RESIGNED = "Resigned"
    """Led this epoch and does not any more, because it gave up, or because it restarted and may have lost its tail."""


TRANSITIONS: Mapping[tuple[RaftRole, RaftRole], str] = {
    (RaftRole.UNATTACHED, RaftRole.UNATTACHED): "it votes, or learns of a higher epoch",
    (RaftRole.UNATTACHED, RaftRole.PROSPECTIVE): "it has waited long enough for a leader",
    (RaftRole.UNATTACHED, RaftRole.FOLLOWER): "it learns who leads",
    (RaftRole.PROSPECTIVE, RaftRole.UNATTACHED): "it lost, voted, or learns of a higher epoch",
    (RaftRole.PROSPECTIVE, RaftRole.CANDIDATE): "a majority granted its pre-vote",
    (RaftRole.PROSPECTIVE, RaftRole.FOLLOWER): "it learns who leads, or lost and had a leader",
    (RaftRole.CANDIDATE, RaftRole.UNATTACHED): "it learns of a higher epoch without a leader",
    (RaftRole.CANDIDATE, RaftRole.PROSPECTIVE): "the election had no winner in time",
    (RaftRole.CANDIDATE, RaftRole.FOLLOWER): "another voter was elected",
    (RaftRole.CANDIDATE, RaftRole.LEADER): "a majority voted for it",
    (RaftRole.FOLLOWER, RaftRole.UNATTACHED): "it learns of a higher epoch without a leader",
    (RaftRole.FOLLOWER, RaftRole.PROSPECTIVE): "its leader is gone or does not answer in time",
    (RaftRole.FOLLOWER, RaftRole.FOLLOWER): "it learns of a later leader, or its leader is back",
    (RaftRole.LEADER, RaftRole.UNATTACHED): "it learns of a higher epoch without a leader",
    (RaftRole.LEADER, RaftRole.FOLLOWER): "it learns of the leader of a higher epoch",
    (
        RaftRole.LEADER,
        RaftRole.RESIGNED,
    ): "it stops, is removed, or no majority has fetched for too long",
    (RaftRole.RESIGNED, RaftRole.UNATTACHED): "it begins a new epoch, or learns of one",
    (RaftRole.RESIGNED, RaftRole.FOLLOWER): "it learns of the leader of a higher epoch",
}


class Timing(NamedTuple):
    """Seconds. Names and defaults are those of Kafka's controller.quorum.* settings."""

    election_timeout: float = 1.0
    fetch_timeout: float = 2.0
    election_backoff_max: float = 1.0
    retry_backoff: float = 0.02
    fetch_wait_ms_max: int = 500
    early_jitter_max: float = 0.02
    """Spreads the pre-votes of voters that lost their leader at the same moment."""
    change_timeout: float = 2.0
    """How long a leader tries to add or remove a voter."""
