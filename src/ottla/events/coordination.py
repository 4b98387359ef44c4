"""Events of the coordinators: shards of `__consumer_offsets` and `__transaction_state`, groups, transactions.

Events of groups and transactions are emitted when the coordinator decides. A decision whose records cannot be
written is undone; then `ShardRestarted` or `ShardUnloaded` follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ottla.events import Event
from ottla.wire.errors import ErrorCode
from ottla.wire.types import TopicPartition

# -- shards -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenWork:
    """What a shard holds that has not ended. Fields that do not concern a kind of shard stay 0."""

    rebalancing_groups: int = 0
    groups_with_offsets: int = 0
    groups_with_pending_offsets: int = 0
    """Groups with offsets of open transactions."""
    ongoing_transactions: int = 0
    prepared_transactions: int = 0
    """Decided; their markers are not written everywhere, as far as the coordinator knows."""


@dataclass(frozen=True, slots=True)
class ShardEvent(Event):
    """Something that happened to the shard of one partition, led in one epoch."""

    partition: TopicPartition
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class ShardLoaded(ShardEvent):
    """A new coordinator has replayed the log of its partition and begins to answer."""

    open_work: OpenWork


@dataclass(frozen=True, slots=True)
class ShardUnloaded(ShardEvent):
    """A coordinator is no longer the leader of its partition, or its node stops."""

    open_work: OpenWork
    lost_decisions: int
    """Decisions whose replies were not sent, since their records were not committed yet."""


@dataclass(frozen=True, slots=True)
class ShardRestarted(ShardEvent):
    """A coordinator discarded its state and loads its log again."""

    reason: str


@dataclass(frozen=True, slots=True)
class ShardApplied(ShardEvent):
    """Records of a decision were appended and replayed into the shard's state."""

    records: int
    shard: object
    """The state after it. A subscriber may read it, and must not keep it."""


@dataclass(frozen=True, slots=True)
class ReplyTimedOut(ShardEvent):
    """The time that replies may wait for the commit of their records is over."""

    refused: int
    """Clients that still waited and were told to retry; 0 if all records were committed in time."""


# -- groups -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupRebalanced(Event):
    """A group begins a rebalance towards `epoch` (of a classic group: the next generation)."""

    group_id: str
    epoch: int
    cause: str


@dataclass(frozen=True, slots=True)
class MemberExpired(Event):
    """A group lost a member that did not act in time."""

    group_id: str
    member_id: str
    cause: str


@dataclass(frozen=True, slots=True)
class MemberMissedRebalance(Event):
    """A classic group goes on without a member that did not send the request its rebalance waited for."""

    group_id: str
    member_id: str
    generation: int
    request: str


@dataclass(frozen=True, slots=True)
class StaticMemberReplaced(Event):
    """A static member came back under a new member id."""

    group_id: str
    instance_id: str
    former_member_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class OffsetsCommitted(Event):
    """A commit of offsets was accepted. With a producer id it counts when that producer's transaction commits."""

    group_id: str
    member_id: str
    offsets: tuple[tuple[TopicPartition, int], ...]
    producer_id: int = -1


@dataclass(frozen=True, slots=True)
class OffsetCommitRefused(Event):
    """A commit of offsets was refused because of who sent it: not a member, or not of this generation."""

    group_id: str
    member_id: str
    generation: int
    error: ErrorCode
    producer_id: int = -1


@dataclass(frozen=True, slots=True)
class UnstableOffset(Event):
    """A stable offset was asked for while an open transaction may change it."""

    group_id: str
    partition: TopicPartition


# -- transactions -----------------------------------------------------------------------------------------------


class AbortCause(Enum):
    TIMEOUT = "the transaction was open for longer than its timeout"
    NEW_PRODUCER = "another producer with the same transactional id began"


@dataclass(frozen=True, slots=True)
class TransactionEvent(Event):
    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class TransactionAborted(TransactionEvent):
    """The coordinator itself aborts a transaction and fences its producer, whose id and epoch are given."""

    cause: AbortCause
    partitions: int


@dataclass(frozen=True, slots=True)
class TransactionEnded(TransactionEvent):
    """Every partition of a transaction has its marker."""

    committed: bool
    partitions: int


@dataclass(frozen=True, slots=True)
class EndTransactionRepeated(TransactionEvent):
    """A producer asked once more for the end that it had asked for before."""


@dataclass(frozen=True, slots=True)
class CoordinatorFencedProducer(Event):
    """A request of a producer was refused because another one has taken over its transactional id."""

    transactional_id: str
    error: ErrorCode
