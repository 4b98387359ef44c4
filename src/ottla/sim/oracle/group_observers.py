"""Ears at the coordinators: rare states of groups and transactions are marked (see `coverage`), and what only a
coordinator itself can tell is checked."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from ottla.broker.coordination.shard_host import LiveShard
from ottla.coordinators.groups import offsets
from ottla.coordinators.groups.classic_group import ClassicGroup
from ottla.coordinators.groups.classic_group import State as GroupState
from ottla.coordinators.groups.classic_protocol import ClassicProtocol
from ottla.coordinators.groups.consumer_group import ConsumerGroup
from ottla.coordinators.groups.consumer_protocol import ConsumerProtocol
from ottla.coordinators.groups.context import Topics
from ottla.coordinators.groups.group_shard import Group, GroupShard
from ottla.coordinators.groups.offsets import Offsets, Place
from ottla.coordinators.shard import Effects, Token
from ottla.coordinators.transactions import transaction_shard
from ottla.coordinators.transactions.transaction_records import State, Transaction
from ottla.coordinators.transactions.transaction_shard import (
    Command,
    EndTransaction,
    TransactionShard,
)
from ottla.sim.engine.patches import Patch, patched
from ottla.sim.oracle.coverage import mark
from ottla.sim.oracle.group_oracle import GroupOracle
from ottla.wire.errors import ErrorCode, KafkaError

FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


def coordinators() -> list[Patch]:
    return [*_shards(), *_transactions(), *_groups()]


def _shards() -> list[Patch]:
    drop, begin_again = LiveShard.drop, LiveShard._begin_again
    lose_patience = LiveShard._lose_patience

    def dropped(self: LiveShard) -> None:
        if isinstance(self.shard, GroupShard) and any(map(_rebalances, self.shard.groups.values())):
            mark("rebalance lost its coordinator")
        if self._unsent:
            mark("replies lost their coordinator")
        drop(self)

    def began_again(self: LiveShard) -> None:
        mark("shard began again")
        begin_again(self)

    def lost_patience(self: LiveShard) -> None:
        mark("reply not committed in time")
        lose_patience(self)

    return [
        Patch(LiveShard, "drop", dropped),
        Patch(LiveShard, "_begin_again", began_again),
        Patch(LiveShard, "_lose_patience", lost_patience),
    ]


def _rebalances(group: Group) -> bool:
    if isinstance(group, ClassicGroup):
        return group.state in (GroupState.PREPARING, GroupState.COMPLETING)
    return not all(map(group.is_reconciled, group.members.values()))


def _transactions() -> list[Patch]:
    loaded, handle = TransactionShard.loaded, TransactionShard._handle
    fence_and_abort = TransactionShard._fence_and_abort
    abort_overdue, repeats_end = TransactionShard._abort_overdue, transaction_shard._repeats_end

    def was_loaded(self: TransactionShard, now: float) -> Effects:
        states = [each.state for each in self.transactions.values()]
        if State.ONGOING in states:
            mark("open transaction got another coordinator")
        effects = loaded(self, now)
        if effects.actions:
            mark("decided transaction got another coordinator")
        return effects

    def handled(
        self: TransactionShard, command: Command, token: Token, now: float, now_ms: int
    ) -> Effects:
        effects = handle(self, command, token, now, now_ms)
        if any(fields["error"] in FENCED for _, fields in effects.replies):
            mark("producer fenced by its coordinator")
        return effects

    def aborted(
        self: TransactionShard, transactional_id: str, known: Transaction, now_ms: int
    ) -> Effects:
        mark("transaction aborted by its coordinator")
        return fence_and_abort(self, transactional_id, known, now_ms)

    def overdue(self: TransactionShard, now_ms: int) -> Iterable[Effects]:
        for effects in abort_overdue(self, now_ms):
            mark("transaction timed out")
            yield effects

    def end_repeats(command: EndTransaction, known: Transaction) -> bool:
        repeats = repeats_end(command, known)
        if repeats:
            mark("end of a transaction repeated")
        return repeats

    return [
        Patch(TransactionShard, "loaded", was_loaded),
        Patch(TransactionShard, "_handle", handled),
        Patch(TransactionShard, "_fence_and_abort", aborted),
        Patch(TransactionShard, "_abort_overdue", overdue),
        Patch(transaction_shard, "_repeats_end", end_repeats),
    ]


def _groups() -> list[Patch]:
    loaded, check_commit = GroupShard.loaded, GroupShard._check_commit
    fetched, session_expired = offsets._fetched, ClassicProtocol._session_expired
    expired, replace_static = ConsumerProtocol.expired, ClassicProtocol._replace_static
    take_over = ConsumerProtocol.take_over

    def was_loaded(self: GroupShard, now: float) -> Effects:
        if self.offsets.groups():
            mark("offsets loaded anew")
        if any(self.offsets.has_pending(group) for group in self.groups):
            mark("offsets of an open transaction loaded anew")
        return loaded(self, now)

    def commit_checked(self: GroupShard, *arguments: Any) -> None:
        try:
            check_commit(self, *arguments)
        except KafkaError:
            mark("commit of a former member refused")
            raise

    def was_fetched(
        known: Offsets, topics: Topics, group_id: str, place: Place, stable: bool
    ) -> dict[str, Any]:
        answer = fetched(known, topics, group_id, place, stable)
        if answer["error_code"] is ErrorCode.UNSTABLE_OFFSET_COMMIT:
            mark("offset unstable")
        return answer

    def fell_silent(self: ClassicProtocol, group: ClassicGroup, member: Any) -> None:
        if not member.has_satisfied_heartbeat:
            mark("member fell silent")
        session_expired(self, group, member)

    def consumer_fell_silent(
        self: ConsumerProtocol, group_id: str, member_id: str, epoch: int | None, why: str
    ) -> None:
        mark("member fell silent")
        expired(self, group_id, member_id, epoch, why)

    def came_back(self: ClassicProtocol, *arguments: Any) -> None:
        mark("static member came back")
        replace_static(self, *arguments)

    def took_over(self: ConsumerProtocol, *arguments: Any) -> Any:
        former = take_over(self, *arguments)
        mark("static member came back")
        return former

    return [
        Patch(GroupShard, "loaded", was_loaded),
        Patch(GroupShard, "_check_commit", commit_checked),
        Patch(offsets, "_fetched", was_fetched),
        Patch(ClassicProtocol, "_session_expired", fell_silent),
        Patch(ConsumerProtocol, "expired", consumer_fell_silent),
        Patch(ClassicProtocol, "_replace_static", came_back),
        Patch(ConsumerProtocol, "take_over", took_over),
    ]


def watched(oracle: GroupOracle) -> AbstractContextManager[None]:
    """C4, as the coordinator sees it: whatever a member owns, or has still to give up, is no other's. And what it
    counts, so that the oracle knows what a loss may make it count once more."""
    apply = LiveShard.apply

    def applied(self: LiveShard, effects: Effects) -> None:
        apply(self, effects)
        if effects.records and isinstance(self.shard, GroupShard):
            for id, group in self.shard.groups.items():
                if isinstance(group, ConsumerGroup):
                    oracle.decided_generation(id, group.epoch)
                    _check_owners(oracle, group)
                else:
                    oracle.decided_generation(id, group.generation)
        elif effects.records and isinstance(self.shard, TransactionShard):
            for each in self.shard.transactions.values():
                oracle.decided_epoch(each.producer_id, each.producer_epoch)

    return patched([Patch(LiveShard, "apply", applied)])


def _check_owners(oracle: GroupOracle, group: ConsumerGroup) -> None:
    owners: dict[tuple[Any, int], str] = {}
    for member in group.members.values():
        for part in (member.assigned, member.revoking):
            for topic, numbers in part.items():
                for number in sorted(numbers):
                    other = owners.setdefault((topic, number), member.id)
                    if other != member.id:
                        oracle.fail(
                            "C4",
                            f"group {group.id}, epoch {group.epoch}",
                            f"partition {number} is given to {member.id}, epoch {member.epoch}, "
                            f"and {other} has not given it up",
                            [group.id],
                        )
