"""Events of replication: changes of a broker's replicas, and of the requests that wait for them."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import NamedTuple

from ottla.events import Event
from ottla.wire.errors import ErrorCode
from ottla.wire.types import TopicPartition


class RoleChanged(Event):
    """The role, the leader or the leader epoch of a replica changed."""

    partition: TopicPartition
    role: str
    """leader, follower or offline."""
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    log_start: int
    high_watermark: int
    log_end: int


class LeadershipStarted(Event):
    """This broker's replica leads the partition from now on, in a new leader epoch."""

    partition: TopicPartition
    leader_epoch: int
    log_end: int
    """Where the epoch starts."""
    high_watermark: int


class TruncationCause(Enum):
    DIVERGING = "the leader's log has other records from there on"
    BEYOND_LEADERS_END = "the leader's log ends there, and no epochs could be compared"
    START_OF_FOLLOWING = "the truncation rule of another design drops it before the first fetch"


class Truncated(Event):
    """A follower truncated its log: an entry of the loss ledger."""

    partition: TopicPartition
    cause: TruncationCause
    first_offset: int
    end_offset: int
    """The log end before."""
    high_watermark: int
    """The high watermark before."""
    log_end: int
    """The log end now; below `first_offset` if the batch that holds it was removed as a whole."""
    segments_removed: int
    leader: int
    leader_epoch: int
    diverging: tuple[int, int]
    """The leader's answer: (epoch, its end there), or (-1, log end) if no epochs could be compared."""
    committed_end: int
    """What was truncated below it was committed: the high watermark before, or what an earlier process knew."""
    bytes: int
    epochs: tuple[int, ...]
    """Of the truncated records."""
    kept: str | None
    """The id under which they are kept; None if this is no loss, or there was no room."""

    @property
    def records(self) -> int:
        """How many offsets were truncated."""
        return self.end_offset - self.first_offset

    @property
    def below_high_watermark(self) -> bool:
        """Whether the truncated records include some that this replica knew to be committed."""
        return self.first_offset < self.high_watermark


class LogRestarted(Event):
    """A follower's log ended before its leader's log start: it was emptied and restarts there."""

    partition: TopicPartition
    leader_epoch: int
    end_before: int
    log_start: int


class DamagedBatchRefused(Event):
    """A follower fetched a batch that was damaged on its leader's disk, and did not append it."""

    partition: TopicPartition
    leader: int
    leader_epoch: int
    log_end: int
    problem: str


class LeaderEpochRefused(Event):
    """A request named a leader epoch that is over (FENCED) or not yet known here (UNKNOWN)."""

    partition: TopicPartition
    named_epoch: int
    leader_epoch: int
    error: ErrorCode


class FollowerBelowEpochStart(Event):
    """Followers hold everything that a new leader knows to be committed, but not all records of earlier epochs. They
    may not join the ISR yet (KAFKA-7128)."""

    partition: TopicPartition
    leader_epoch: int
    followers: tuple[int, ...]
    high_watermark: int
    epoch_start: int


class EndNotAvailable(Event):
    """A new leader refused to return the end of its partition: its high watermark is below its epoch's start."""

    partition: TopicPartition
    leader_epoch: int
    high_watermark: int
    epoch_start: int


class IsrCause(StrEnum):
    """Why a replica left the ISR, or joined it."""

    SLOW = "slow"
    """It fetches, and has not had all records for longer than replica.lag.time.max.ms."""
    SILENT = "silent"
    """It has not fetched for longer than replica.lag.time.max.ms."""
    FENCED = "fenced"
    DISK = "disk"
    """Its log directory failed, or the records in it are lost."""
    FULL = "full"
    """Its disk is so full that it copies nothing any more, and others have room."""
    RESTART = "restart"
    """Its broker registered anew."""
    SHUTDOWN = "shutdown"
    """Its broker began a controlled shutdown."""
    REASSIGNED = "reassigned"
    """It is no replica of the partition any more."""
    CAUGHT_UP = "caught_up"


class Lag(NamedTuple):
    """How far a follower is behind its leader, as the leader knows it."""

    records: int
    bytes: int
    """Estimated: within a segment, records count as equally large."""
    seconds: float | None
    """Since it had all records of the leader; None if it never had in this leader epoch."""


class IsrReason(NamedTuple):
    cause: IsrCause
    lag: Lag


class IsrProposed(Event):
    """A leader proposes a new ISR to the controller."""

    partition: TopicPartition
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    proposed: tuple[int, ...]
    cause: str


class IsrDecided(Event):
    """The controller accepted (NONE) or refused a leader's proposal."""

    partition: TopicPartition
    isr: tuple[int, ...]
    """What it was to replace."""
    proposed: tuple[int, ...]
    cause: str
    error: ErrorCode


class ProduceRefused(Event):
    """An acks=all produce was refused: the ISR is smaller than min.insync.replicas."""

    partition: TopicPartition
    leader_epoch: int
    isr: tuple[int, ...]
    min_isr: int


class ProduceNotCommitted(Event):
    """This leader did not commit the records of an acks=all produce: its leadership ended, or the ISR became
    too small."""

    partition: TopicPartition
    error: ErrorCode


class ProduceTimedOut(Event):
    """An acks=all produce was not committed within the client's timeout."""

    partitions: tuple[TopicPartition, ...]
    """The partitions that had not committed it."""


class FetchSessionEvicted(Event):
    """A fetch session was ended to make room for another."""

    session_id: int
    partitions: int
    is_follower: bool
    unused_s: float


class RecordsDeleted(Event):
    """A leader deleted the records before an offset on a client's request."""

    partition: TopicPartition
    before_offset: int
