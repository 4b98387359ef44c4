"""Bugs of groups and transactions, in their coordinators and in the partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import Any
from uuid import UUID

from ottla.broker.coordination.live_shard import LiveShard
from ottla.broker.coordination.markers import MarkerSender, PendingCompleteTransaction
from ottla.broker.coordination.pending_replies import DeferredReplies
from ottla.broker.coordination.shard_host import Coordination
from ottla.broker.coordination.shard_loading import LOAD_BYTES, replay_batches
from ottla.coordinators.groups import consumer_protocol
from ottla.coordinators.groups.classic_group import ClassicGroup
from ottla.coordinators.groups.consumer_group import ConsumerGroup, ConsumerMember, reconcile
from ottla.coordinators.groups.group_records import OffsetCommitKey, OffsetCommitValue
from ottla.coordinators.groups.group_shard import GroupShard
from ottla.coordinators.groups.offset_metadata_manager import OffsetMetadataManager
from ottla.coordinators.groups.offsets import GroupOffsets
from ottla.coordinators.shard import Effects, ProducerStamp, Token
from ottla.coordinators.transactions.transaction_records import (
    TransactionMetadata,
    TransactionState,
)
from ottla.coordinators.transactions.transaction_shard import EndTransaction, TransactionShard
from ottla.events.coordination import AbortCause
from ottla.log.log import Log
from ottla.log.transaction_index import AbortedTransaction
from ottla.replica.partition import Partition
from ottla.sim.engine.patches import Patch
from ottla.sim.mutations.base import mutation
from ottla.sim.run.profiles import GROUPS
from ottla.wire.types import TopicPartition

# Coordinators of both kinds


@mutation("own", likely=GROUPS)
def coordinator_answers_at_append() -> list[Patch]:
    """A coordinator answers before its records are committed: a failover loses acknowledged decisions."""
    original = DeferredReplies.complete_up_to

    def complete(self: DeferredReplies, high_watermark: float) -> None:
        original(self, inf)

    return [Patch(DeferredReplies, "complete_up_to", complete)]


@mutation("KAFKA-20634", likely=GROUPS)
def coordinator_loads_up_to_its_high_watermark() -> list[Patch]:
    """A new coordinator does not load records above its high watermark, though its predecessor has acknowledged
    them."""

    async def load(self: LiveShard) -> None:
        log = self.partition.log
        offset, end = log.log_start, log.high_watermark
        while offset < end and self.is_current:
            read = log.read(offset, max_bytes=LOAD_BYTES, end_offset=end)
            if read.range is None:
                break
            data = memoryview(read.range.read())
            replay_batches(self.shard, data, offset, self._clock.wall_ms())
            offset = read.next_offset
            await asyncio.sleep(0)
        if self.is_current:
            self._begin()

    return [Patch(LiveShard, "_load", load)]


@mutation("own", likely=GROUPS)
def coordinator_does_not_resign() -> list[Patch]:
    """A broker that no longer leads a coordinator's partition continues to serve its groups and transactions from
    memory."""
    original = Coordination.role_changed

    def role_changed(self: Coordination, partition: Partition) -> None:
        if partition not in self._live:
            original(self, partition)

    send_committed = LiveShard._send_committed

    def send(self: LiveShard) -> None:
        if self.is_current:
            send_committed(self)
        else:
            self._deferred.complete_up_to(inf)

    return [
        Patch(Coordination, "role_changed", role_changed),
        Patch(LiveShard, "_send_committed", send),
    ]


# Transactions


@mutation("own", likely=GROUPS)
def decisions_are_forgotten_in_a_failover() -> list[Patch]:
    """A new coordinator does not send the markers that its predecessor may not have sent."""
    original = TransactionShard.loaded

    def loaded(self: TransactionShard, now: float) -> Effects:
        original(self, now)
        return Effects()

    return [Patch(TransactionShard, "loaded", loaded)]


@mutation("own", likely=GROUPS)
def markers_are_sent_once() -> list[Patch]:
    """A marker that a partition did not accept at once counts as written."""
    original = MarkerSender._later

    def later(
        self: MarkerSender, pending: PendingCompleteTransaction, keys: Iterable[TopicPartition]
    ) -> None:
        pending.missing.difference_update(keys)
        original(self, pending, ())

    return [Patch(MarkerSender, "_later", later)]


@mutation("own", likely=GROUPS)
def heirs_get_the_same_epoch() -> list[Patch]:
    """InitProducerId does not raise the epoch: the previous producer with that id is not fenced."""
    original = TransactionShard._bumped

    def bumped(
        self: TransactionShard, known: TransactionMetadata, expected_epoch: int | None
    ) -> TransactionMetadata:
        if known.producer_epoch >= 0:
            return known
        return original(self, known, expected_epoch)

    return [Patch(TransactionShard, "_bumped", bumped)]


@mutation("S6 (KIP-890)", likely=GROUPS)
def ends_are_not_held_against_the_epoch() -> list[Patch]:
    """EndTxn ends any open transaction of that id, also a newer producer's, or the next one."""
    original = TransactionShard._end

    def end(self: TransactionShard, command: EndTransaction, token: Token, now_ms: int) -> Effects:
        known = self.transactions.get(command.transactional_id)
        if known is not None and known.state is TransactionState.ONGOING:
            command = replace(
                command, producer_id=known.producer_id, producer_epoch=known.producer_epoch
            )
        return original(self, command, token, now_ms)

    return [Patch(TransactionShard, "_end", end)]


@mutation("own", likely=GROUPS)
def timeouts_do_not_fence() -> list[Patch]:
    """A transaction that is aborted by its timeout does not raise the producer's epoch: the producer continues, and
    half of its work is committed."""
    original = TransactionShard._fence_and_abort

    def fence_and_abort(
        self: TransactionShard,
        transactional_id: str,
        known: TransactionMetadata,
        now_ms: int,
        cause: AbortCause,
    ) -> Effects:
        version, self._server_version = self._server_version, lambda: 0
        try:
            lowered = replace(known, producer_epoch=known.producer_epoch - 1)
            return original(self, transactional_id, lowered, now_ms, cause)
        finally:
            self._server_version = version

    return [Patch(TransactionShard, "_fence_and_abort", fence_and_abort)]


@mutation("own", likely=GROUPS)
def last_stable_offset_is_the_high_watermark() -> list[Patch]:
    """read_committed consumers get records of open transactions."""

    def last_stable_offset(self: Log) -> int:
        return self.high_watermark

    return [Patch(Log, "last_stable_offset", property(last_stable_offset))]


@mutation("own", likely=GROUPS)
def aborted_transactions_are_left_out() -> list[Patch]:
    """The answer to a fetch leaves out the first aborted transaction in its range."""
    original = Log.aborted_transactions

    def aborted_transactions(self: Log, start: int, end: int) -> list[AbortedTransaction]:
        return original(self, start, end)[1:]

    return [Patch(Log, "aborted_transactions", aborted_transactions)]


# Groups


@mutation("own", likely=GROUPS)
def generations_are_not_checked() -> list[Patch]:
    """A former member of a group may commit offsets."""

    def classic(self: ClassicGroup, *who: Any) -> None:
        return None

    def consumer(self: ConsumerGroup, *who: Any) -> None:
        return None

    return [
        Patch(ClassicGroup, "check_commit", classic),
        Patch(ConsumerGroup, "check_commit", consumer),
    ]


@mutation("KIP-447", likely=GROUPS)
def offsets_of_open_transactions_are_shown() -> list[Patch]:
    """A request for stable offsets gets the last committed one, though an open transaction may change it: two members
    process the same records."""
    original = OffsetMetadataManager._fetch_one

    def fetch_one(
        self: OffsetMetadataManager, group_id: str, partition: TopicPartition, stable: bool
    ) -> dict[str, Any]:
        return original(self, group_id, partition, False)

    return [Patch(OffsetMetadataManager, "_fetch_one", fetch_one)]


@mutation("own", likely=GROUPS)
def offsets_of_a_transaction_count_at_once() -> list[Patch]:
    """The offsets of a transaction are visible before its marker, and also if it is aborted."""
    original = GroupOffsets.replay

    def replay(
        self: GroupOffsets,
        offset: int,
        key: OffsetCommitKey,
        value: OffsetCommitValue | None,
        producer: ProducerStamp | None,
    ) -> None:
        original(self, offset, key, value, None)

    return [Patch(GroupOffsets, "replay", replay)]


@mutation("own", likely=GROUPS)
def aborted_offsets_are_kept() -> list[Patch]:
    """The offsets of a transaction take effect even if it is aborted."""
    original = GroupShard.replay_marker

    def replay_marker(self: GroupShard, producer: ProducerStamp, committed: bool) -> None:
        original(self, producer, True)

    return [Patch(GroupShard, "replay_marker", replay_marker)]


@mutation("KIP-447", likely=GROUPS)
def transactions_commit_for_any_generation() -> list[Patch]:
    """A member whose partitions were reassigned commits offsets in its transaction: the new owner processes the same
    records again."""
    classic_check, consumer_check = ClassicGroup.check_commit, ConsumerGroup.check_commit

    def classic(
        self: ClassicGroup,
        member_id: str,
        instance_id: str | None,
        generation: int,
        transactional: bool,
    ) -> None:
        if not transactional:
            classic_check(self, member_id, instance_id, generation, transactional)

    def consumer(self: ConsumerGroup, member_id: str, epoch: int, version: int | None) -> None:
        if version is not None:
            consumer_check(self, member_id, epoch, version)

    return [
        Patch(ClassicGroup, "check_commit", classic),
        Patch(ConsumerGroup, "check_commit", consumer),
    ]


@mutation("own", likely=GROUPS)
def partitions_are_given_before_they_are_given_up() -> list[Patch]:
    """KIP-848: a member gets its new partitions while their previous owners still have them."""

    def reconciled(
        owners: Mapping[tuple[UUID, int], str], member: ConsumerMember, *rest: Any
    ) -> ConsumerMember:
        return reconcile({}, member, *rest)

    return [Patch(consumer_protocol, "reconcile", reconciled)]


@mutation("own", likely=GROUPS)
def groups_do_not_hear_of_markers() -> list[Patch]:
    """A transaction marker reaches the log of its group's offsets, but not the group coordinator."""

    def marker_appended(
        self: Coordination, partition: Partition, producer: ProducerStamp, committed: bool
    ) -> None:
        return None

    return [Patch(Coordination, "marker_appended", marker_appended)]
