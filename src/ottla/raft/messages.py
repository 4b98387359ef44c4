"""The messages between the nodes of a quorum, without their encoding.

The owner of the connection checks and adds cluster id and topic. `leader` None is Kafka's -1.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ottla.raft.voters import QuorumEndpoint, ReplicaKey, Voter
from ottla.runtime.seams import Chunk
from ottla.wire.errors import ErrorCode


class LogPosition(NamedTuple):
    """Where a log ends. The order is that of elections: by the last epoch, then by length."""

    epoch: int
    offset: int


class SnapshotId(NamedTuple):
    """A snapshot of everything below `end_offset`; the last of these records was written in `epoch`."""

    end_offset: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}"


class Vote(NamedTuple):
    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey | None
    """The voter that the request is meant for."""
    last_position: LogPosition
    pre_vote: bool


class VoteAnswer(NamedTuple):
    error: ErrorCode
    epoch: int
    leader: int | None
    granted: bool
    endpoint: QuorumEndpoint | None = None


class BeginQuorumEpoch(NamedTuple):
    epoch: int
    leader: int
    voter: ReplicaKey | None
    endpoint: QuorumEndpoint | None


class EndQuorumEpoch(NamedTuple):
    epoch: int
    leader: int
    preferred: tuple[ReplicaKey, ...]
    """The preferred successors, best first."""
    endpoint: QuorumEndpoint | None


class EpochAnswer(NamedTuple):
    """The answer to BeginQuorumEpoch and EndQuorumEpoch."""

    error: ErrorCode
    epoch: int
    leader: int | None
    endpoint: QuorumEndpoint | None = None


class Fetch(NamedTuple):
    replica: ReplicaKey
    epoch: int
    offset: int
    last_epoch: int
    high_watermark: int
    """The fetcher's high watermark (-1: unknown); the largest number for a fetcher that never sends it."""
    wait_ms_max: int
    bytes_max: int


class FetchAnswer(NamedTuple):
    error: ErrorCode
    epoch: int
    leader: int | None
    high_watermark: int = -1
    log_start: int = -1
    diverging: LogPosition | None = None
    snapshot_id: SnapshotId | None = None
    records: Chunk | None = None
    endpoint: QuorumEndpoint | None = None


class Park(NamedTuple):
    """Nothing new: call again when the log or the high watermark moves, and send `answer` at `until`."""

    until: float
    answer: FetchAnswer


class FetchSnapshot(NamedTuple):
    replica: ReplicaKey
    epoch: int
    snapshot_id: SnapshotId
    position: int
    bytes_max: int


class FetchSnapshotAnswer(NamedTuple):
    error: ErrorCode
    epoch: int
    leader: int | None
    snapshot_id: SnapshotId | None = None
    size: int = 0
    position: int = 0
    data: bytes | memoryview = b""
    endpoint: QuorumEndpoint | None = None


class AddVoter(NamedTuple):
    voter: Voter
    timeout_s: float
    ack_when_committed: bool = True
    """Otherwise it is answered when the new voters are in the leader's log."""


class RemoveVoter(NamedTuple):
    key: ReplicaKey


class VoterChangeAnswer(NamedTuple):
    """The answer to AddVoter and RemoveVoter."""

    error: ErrorCode
    message: str | None = None


class UpdateVoter(NamedTuple):
    """A voter says where it listens, and which kraft.version it supports. Its answer is an EpochAnswer."""

    epoch: int
    voter: Voter


class AskVersions(NamedTuple):
    """To a controller that shall be a voter: which kraft.version does it support (ApiVersions)?"""


class VersionsAnswer(NamedTuple):
    kraft_versions: tuple[int, int] | None
    """The lowest and the highest; None if it knows none."""


QuorumRequest: TypeAlias = (
    Vote
    | BeginQuorumEpoch
    | EndQuorumEpoch
    | Fetch
    | FetchSnapshot
    | AddVoter
    | RemoveVoter
    | UpdateVoter
    | AskVersions
)
QuorumAnswer: TypeAlias = (
    VoteAnswer
    | EpochAnswer
    | FetchAnswer
    | FetchSnapshotAnswer
    | VoterChangeAnswer
    | VersionsAnswer
)
