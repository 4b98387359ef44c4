"""Events of replication: what happens to the replicas of a broker, and to the requests that wait for them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ottla.events import Event
from ottla.wire.errors import ErrorCode
from ottla.wire.types import TopicPartition


@dataclass(frozen=True, slots=True)
class RoleChanged(Event):
    """A replica has another role, another leader or a new leader epoch."""

    partition: TopicPartition
    role: str
    """leader, follower or offline."""
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    log_start: int
    high_watermark: int
    log_end: int


class TruncationCause(Enum):
    DIVERGING = "the leader's log has other records from there on"
    BEYOND_LEADERS_END = "the leader's log ends there, and no epoch could tell more"


@dataclass(frozen=True, slots=True)
class Truncated(Event):
    """A follower has cut records from the end of its log: an entry of the loss ledger."""

    partition: TopicPartition
    cause: TruncationCause
    first_offset: int
    end_offset: int
    """Where the log ended before."""
    high_watermark: int
    """Before the cut."""
    log_end: int
    """Where the log ends now: before `first_offset` if a batch that holds it had to go as a whole."""
    segments_removed: int
    leader: int
    leader_epoch: int
    diverging: tuple[int, int]
    """What the leader said: (epoch, its end there); -1 and its log's end where no epoch could tell."""

    @property
    def below_high_watermark(self) -> bool:
        """Whether records were cut that this replica knew to be committed."""
        return self.first_offset < self.high_watermark


@dataclass(frozen=True, slots=True)
class LogRestarted(Event):
    """A follower's log ended before its leader's log begins: it was emptied and begins anew there."""

    partition: TopicPartition
    leader_epoch: int
    end_before: int
    log_start: int


@dataclass(frozen=True, slots=True)
class DamagedBatchRefused(Event):
    """A follower fetched a batch that its leader's disk had damaged, and did not append it."""

    partition: TopicPartition
    leader: int
    leader_epoch: int
    log_end: int
    problem: str


@dataclass(frozen=True, slots=True)
class LeaderEpochRefused(Event):
    """A request named a leader epoch that is over (FENCED) or not known here yet (UNKNOWN)."""

    partition: TopicPartition
    named_epoch: int
    leader_epoch: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class FollowerBelowEpochStart(Event):
    """Followers hold all that a new leader knows to be committed, and not all of the epochs before it: they may not
    join the ISR yet (KAFKA-7128)."""

    partition: TopicPartition
    leader_epoch: int
    followers: tuple[int, ...]
    high_watermark: int
    epoch_start: int


@dataclass(frozen=True, slots=True)
class EndNotAvailable(Event):
    """A new leader did not tell the end of its partition: its high watermark has not reached its epoch's start."""

    partition: TopicPartition
    leader_epoch: int
    high_watermark: int
    epoch_start: int


@dataclass(frozen=True, slots=True)
class IsrProposed(Event):
    """A leader asks the controller for another ISR."""

    partition: TopicPartition
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    proposed: tuple[int, ...]
    cause: str


@dataclass(frozen=True, slots=True)
class IsrDecided(Event):
    """The controller answered a leader's proposal: accepted it (NONE) or refused it."""

    partition: TopicPartition
    isr: tuple[int, ...]
    """As the leader knew it when the answer came."""
    proposed: tuple[int, ...]
    cause: str
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class ProduceRefused(Event):
    """An acks=all produce was refused: the ISR is smaller than min.insync.replicas."""

    partition: TopicPartition
    leader_epoch: int
    isr: tuple[int, ...]
    min_isr: int


@dataclass(frozen=True, slots=True)
class ProduceNotCommitted(Event):
    """What an acks=all produce appended was not committed by this leader: its leadership ended, or the ISR became
    too small."""

    partition: TopicPartition
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class ProduceTimedOut(Event):
    """An acks=all produce was not committed within the time that its client allows."""

    partitions: tuple[TopicPartition, ...]
    """Those that had not committed it."""


@dataclass(frozen=True, slots=True)
class FetchSessionEvicted(Event):
    """A fetch session was ended to make room for another."""

    session_id: int
    partitions: int
    is_follower: bool
    unused_s: float


@dataclass(frozen=True, slots=True)
class RecordsDeleted(Event):
    """A leader has deleted the records before an offset because a client asked for it."""

    partition: TopicPartition
    before_offset: int
