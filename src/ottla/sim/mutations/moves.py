"""Bugs in moves of replicas: in the controller, in brokers that get or lose a replica, in the client that asks for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from ottla.balance import departures
from ottla.balance.model import BalancedBroker
from ottla.broker.replication.placement import Placement
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.replication.throttle import ReplicationThrottle
from ottla.client.admin import Place
from ottla.client.reassigning import Reassigner
from ottla.client.throttled_moves import FOLLOWER_RATE, LEADER_RATE, LeftOver, MoveThrottle
from ottla.config.values import LONG_MAX
from ottla.controller import elections, reassignments
from ottla.controller.draft import Draft
from ottla.controller.elections import (
    PartitionAssignment,
    PartitionTarget,
    Rules,
)
from ottla.log.manager import LogManager
from ottla.log.removal import DeletedLogs
from ottla.metadata.image import PartitionImage
from ottla.metadata.records import PartitionChangeRecord
from ottla.sim.engine.patches import Patch
from ottla.sim.mutations.base import mutation
from ottla.wire.errors import KafkaError
from ottla.wire.types import TopicPartition

# The controller


@mutation("own", likely="drain")
def a_move_ends_with_its_first_replica() -> list[Patch]:
    """A move is complete when one of the wanted replicas is in sync, not all of them."""

    def complete_reassignment(rules: Rules, after: PartitionTarget) -> None:
        target = after.assignment.target
        if after.assignment.is_reassignment and any(
            each in after.isr and rules.may_lead(each) for each in target
        ):
            after.assignment = after.assignment.settled(target)
            after.isr = tuple(each for each in after.isr if each in target)

    return [Patch(elections, "_complete_reassignment", complete_reassignment)]


@mutation("own")
def a_move_waits_for_those_that_leave() -> list[Patch]:
    """A move is complete when all replicas are in sync, also those that are to be removed: nothing moves off a dead broker."""
    original = elections._complete_reassignment

    def complete_reassignment(rules: Rules, after: PartitionTarget) -> None:
        if set(after.assignment.replicas) <= set(after.isr):
            original(rules, after)

    return [Patch(elections, "_complete_reassignment", complete_reassignment)]


@mutation("own", likely="drain")
def a_move_forgets_the_wanted_order() -> list[Patch]:
    """A complete move leaves its replicas in the order of their ids: another one than was wanted is preferred."""
    original = PartitionAssignment.settled

    def settled(self: PartitionAssignment, replicas: tuple[int, ...]) -> PartitionAssignment:
        return original(self, tuple(sorted(replicas)))

    return [Patch(PartitionAssignment, "settled", settled)]


@mutation("own", likely="reassign")
def a_second_move_makes_the_first_one_permanent() -> list[Patch]:
    """A move that replaces another one takes what that one has added for replicas from before: to cancel it does not restore
    what was."""
    original = reassignments._towards

    def towards(
        draft: Draft, partition: PartitionImage, target: tuple[int, ...]
    ) -> PartitionAssignment:
        return original(draft, replace(partition, adding=()), target)

    return [Patch(reassignments, "_towards", towards)]


@mutation("own", likely="cancel_moves")
def cancelling_keeps_what_was_added() -> list[Patch]:
    """A cancelled move ends with the old and the new replicas."""
    original = PartitionAssignment.settled

    def settled(self: PartitionAssignment, replicas: tuple[int, ...]) -> PartitionAssignment:
        return original(self, self.replicas if replicas == self.original else replicas)

    return [Patch(PartitionAssignment, "settled", settled)]


@mutation("own", likely="drain")
def new_replicas_count_as_in_sync() -> list[Patch]:
    """A replica that a move adds is in the ISR at once, before it has copied anything."""
    alter_one = reassignments._alter

    def alter(
        draft: Draft, request: reassignments.ReassignedPartition, allows: bool
    ) -> PartitionChangeRecord | None:
        record = alter_one(draft, request, allows)
        if record is None or not record.adding_replicas:
            return record
        partition = draft.image.topics[request.topic].partitions[request.index]
        alive = [each for each in record.adding_replicas if draft.image.is_alive(each)]
        return replace(record, isr=tuple(dict.fromkeys((*partition.isr, *alive))))

    return [Patch(reassignments, "_alter", alter)]


# Brokers


@mutation("own", likely="drain")
def removed_replicas_keep_their_directories() -> list[Patch]:
    """The log of a removed replica is closed, but its directory stays where it was."""

    def delete_log(self: Placement, key: TopicPartition) -> None:
        log = self._logs._drop(key)
        self._logs._marks[log.directory].remove(log)
        log.close(clean=False)

    return [Patch(Placement, "delete_log", delete_log)]


@mutation("own", likely="drain")
def removed_replicas_are_kept_open() -> list[Patch]:
    """A broker that loses a replica goes on with it, unless its topic is deleted."""
    original = ReplicaManager._remove

    def remove(self: ReplicaManager, key: TopicPartition, topic_id: UUID) -> None:
        if topic_id not in self.image.topics_by_id:
            original(self, key, topic_id)

    return [Patch(ReplicaManager, "_remove", remove)]


@mutation("own", likely="drain")
def a_replica_that_comes_back_finds_its_old_log() -> list[Patch]:
    """What is deleted is only forgotten for as long as the process lives: a replica that is removed and assigned again begins
    with the log that it had."""
    deleted: dict[tuple[int, TopicPartition], Any] = {}
    drop, create = LogManager.delete, LogManager.create

    def delete(self: LogManager, key: TopicPartition, now_ms: int) -> None:
        if self.logs[key].log_end > 0:
            deleted[id(self), key] = self._drop(key)
        else:
            drop(self, key, now_ms)

    def create_again(
        self: LogManager, topic: str, topic_id: UUID, number: int, *rest: Any, **options: Any
    ) -> Any:
        log = deleted.pop((id(self), TopicPartition(topic, number)), None)
        if log is not None and log.topic_id == topic_id:
            self._adopt(log)
            return log
        return create(self, topic, topic_id, number, *rest, **options)

    return [Patch(LogManager, "delete", delete), Patch(LogManager, "create", create_again)]


@mutation("own", likely="drain")
def deleted_logs_are_never_removed() -> list[Patch]:
    """The directory of a removed replica is renamed, and stays for ever."""

    def take_due(self: DeletedLogs, now_ms: int) -> dict[str, str]:
        return {}

    return [Patch(DeletedLogs, "take_due", take_due)]


@mutation("own", likely="balance")
def a_removed_throttle_stays_in_force() -> list[Patch]:
    """A broker whose rate is removed goes on with it until it is restarted."""
    original = ReplicationThrottle.set_rates

    def set_rates(self: ReplicationThrottle, leader: int, follower: int) -> None:
        if leader != LONG_MAX:
            original(self, leader, follower)

    return [Patch(ReplicationThrottle, "set_rates", set_rates)]


# The client


@mutation("own", likely="balance")
def throttles_are_left_behind() -> list[Patch]:
    """A command that moves replicas does not remove its throttle."""

    async def remove_left_over(
        self: Reassigner, ended: Collection[Place] = (), limited: Collection[int] = ()
    ) -> LeftOver:
        return LeftOver({}, ())

    return [Patch(Reassigner, "remove_left_over", remove_left_over)]


@mutation("own", likely="balance")
def throttled_topics_are_forgotten() -> list[Patch]:
    """Only the rates of brokers are removed, not the lists of throttled replicas."""

    async def clear(
        self: MoveThrottle,
        brokers: Iterable[int],
        topics: Iterable[str],
        names: Sequence[str] = (LEADER_RATE, FOLLOWER_RATE),
    ) -> None:
        await self.limit(brokers, None, names)

    return [Patch(MoveThrottle, "clear", clear)]


@mutation("own", likely="balance")
def a_throttle_that_was_left_over_is_not_looked_for_on_brokers() -> list[Patch]:
    """The next command removes lists of replicas that a killed one left, but no rates."""

    async def limited_brokers(self: MoveThrottle, limited: Collection[int] = ()) -> list[int]:
        return []

    return [Patch(MoveThrottle, "limited_brokers", limited_brokers)]


@mutation("own")
def leadership_is_not_given_back() -> list[Patch]:
    """When a move is over, whoever leads goes on to lead, not the preferred replica."""

    async def elect(self: Reassigner, places: Collection[Place]) -> dict[Place, KafkaError]:
        return {}

    return [Patch(Reassigner, "elect", elect)]


@mutation("own")
def a_leaving_broker_is_balanced_as_the_others() -> list[Patch]:
    """A drain plans with all brokers."""

    def leaving(brokers: Iterable[BalancedBroker], id: int) -> list[BalancedBroker]:
        return list(brokers)

    return [Patch(departures, "leaving", leaving)]
