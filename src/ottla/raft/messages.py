"""What the nodes of a quorum say to each other, without the wire around it.

Cluster id and topic are checked and added by whoever owns the connection; `leader` None is Kafka's -1.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ottla.raft.voters import QuorumEndpoint, ReplicaKey
from ottla.runtime.seams import Chunk
from ottla.wire.errors import ErrorCode


class LogPosition(NamedTuple):
    """Where a log ends. Ordered as elections order logs: by the last epoch, then by length."""

    epoch: int
    offset: int


class SnapshotId(NamedTuple):
    """A snapshot of everything below `end_offset`, the last of which was written in `epoch`."""

    end_offset: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}"


class Vote(NamedTuple):
    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey | None
    """Whom it is meant for."""
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
    """Who should lead next, best first."""
    endpoint: QuorumEndpoint | None


class EpochAnswer(NamedTuple):
    """To BeginQuorumEpoch and EndQuorumEpoch."""

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
    """What the fetcher knows (-1: nothing); a fetcher that never says has the largest number."""
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
    """There is nothing new: ask again when the log or the high watermark moves, answer at `until`."""

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


QuorumRequest: TypeAlias = Vote | BeginQuorumEpoch | EndQuorumEpoch | Fetch | FetchSnapshot
QuorumAnswer: TypeAlias = VoteAnswer | EpochAnswer | FetchAnswer | FetchSnapshotAnswer
