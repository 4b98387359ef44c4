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
    """Unfinished work in a shard. Fields that do not apply to the kind of shard are 0."""

    rebalancing_groups: int = 0
    groups_with_offsets: int = 0
    groups_with_pending_offsets: int = 0
    """Groups with offsets of open transactions."""
    ongoing_transactions: int = 0
    prepared_transactions: int = 0
    """Decided, but not known to have a marker in every partition."""


class ShardEvent(Event):
    """Something that happened to the shard of one partition, led in one epoch."""

    partition: TopicPartition
    leader_epoch: int


class ShardLoaded(ShardEvent):
    """A new coordinator has replayed the log of its partition and starts to answer."""

    open_work: OpenWork


class ShardUnloaded(ShardEvent):
    """A coordinator is no longer the leader of its partition, or its node stops."""

    open_work: OpenWork
    lost_decisions: int
    """Decisions whose replies were not sent, because their records were not committed yet."""


class ShardRestarted(ShardEvent):
    """A coordinator discarded its state and loads its log again."""

    reason: str


class ShardApplied(ShardEvent):
    """Records of a decision were appended and replayed into the shard's state."""

    records: int
    shard: object
    """The state after the records. A subscriber may read it, and must not keep it."""


class ReplyTimedOut(ShardEvent):
    """Replies have waited for the commit of their records for longer than allowed."""

    refused: int
    """Clients that still waited and got a retriable error; 0 if all records were committed in time."""


# -- groups -----------------------------------------------------------------------------------------------------


class GroupRebalanced(Event):
    """A group starts a rebalance towards `epoch` (of a classic group: the next generation)."""

    group_id: str
    epoch: int
    cause: str
    members: int
    """Of the group as it is now; a classic group waits for them to join again."""


class MemberExpired(Event):
    """A group removed a member whose timeout expired."""

    group_id: str
    member_id: str
    cause: str


class MemberMissedRebalance(Event):
    """A classic group continues without a member that did not send the request its rebalance waited for."""

    group_id: str
    member_id: str
    generation: int
    request: str


class StaticMemberReplaced(Event):
    """A static member rejoined under a new member id."""

    group_id: str
    instance_id: str
    former_member_id: str
    member_id: str


class OffsetsCommitted(Event):
    """An offset commit was accepted. With a producer id it takes effect when that producer's transaction commits."""

    group_id: str
    member_id: str
    offsets: tuple[tuple[TopicPartition, int], ...]
    producer_id: int = -1


class OffsetCommitRefused(Event):
    """An offset commit was refused because of its sender: not a member, or of another generation."""

    group_id: str
    member_id: str
    generation: int
    error: ErrorCode
    producer_id: int = -1


class UnstableOffset(Event):
    """A stable offset was requested while an open transaction may change it."""

    group_id: str
    partition: TopicPartition


# -- transactions -----------------------------------------------------------------------------------------------


class AbortCause(Enum):
    TIMEOUT = "the transaction was open for longer than its timeout"
    NEW_PRODUCER = "another producer with the same transactional id started"


class TransactionEvent(Event):
    transactional_id: str
    producer_id: int
    producer_epoch: int


class TransactionAborted(TransactionEvent):
    """The coordinator itself aborts a transaction and fences its producer, whose id and epoch are given."""

    cause: AbortCause
    partitions: int


class TransactionEnded(TransactionEvent):
    """Every partition of a transaction has its marker."""

    committed: bool
    partitions: int


class EndTransactionRepeated(TransactionEvent):
    """A producer repeated its request to end a transaction."""


class CoordinatorFencedProducer(Event):
    """A producer's request was refused because another producer has taken over its transactional id."""

    transactional_id: str
    error: ErrorCode
