"""Bugs of the controller, and of a broker's lifecycle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ottla.broker.cluster.lifecycle import BrokerLifecycle
from ottla.controller import brokers, draft, elections, partitions
from ottla.controller.brokers import Registration
from ottla.controller.draft import Draft
from ottla.controller.elections import Rules
from ottla.events.controller import FenceCause
from ottla.metadata.image import BrokerImage, PartitionImage
from ottla.metadata.records import PartitionChangeRecord
from ottla.sim.engine.patches import Patch
from ottla.sim.mutations.base import mutation
from ottla.sim.run.profiles import AMBUSH


@mutation("S4 (KIP-966)")
def unclean_broker_stays_eligible() -> list[Patch]:
    """A broker that restarts after an unclean shutdown stays in the ELR, as after a clean one: it may lack the tail
    of its log and be elected."""
    original = brokers._leave_previous_life

    def leave_previous_life(
        draft: Draft, request: Registration, existing: BrokerImage | None
    ) -> None:
        if existing is not None:
            request = replace(request, previous_broker_epoch=existing.epoch)
        original(draft, request, existing)

    return [Patch(brokers, "_leave_previous_life", leave_previous_life)]


@mutation("S5 (KIP-903)", likely=AMBUSH)
def broker_epochs_are_not_checked() -> list[Patch]:
    """AlterPartition accepts a member that has restarted, and perhaps lost the tail of its log, since the leader saw
    it catch up."""

    def may_be_in_sync(draft: Draft, member: int, epoch: int) -> bool:
        return draft.image.is_alive(member)

    return [Patch(partitions, "_may_be_in_sync", may_be_in_sync)]


@mutation("KAFKA-19522")
def elects_an_absent_last_known_leader() -> list[Patch]:
    """The last known leader is elected before it is alive again."""
    original = elections._leader_that_may_lack_records

    def leader_that_may_lack_records(rules: Rules, after: Any) -> int:
        return original(replace(rules, may_lead=lambda replica: True), after)

    return [Patch(elections, "_leader_that_may_lack_records", leader_that_may_lack_records)]


@mutation("own")
def unclean_election_without_leave() -> list[Patch]:
    """Any live replica is elected when no eligible one is alive, though unclean elections are off."""

    def unclean_election_allowed(self: Draft, topic: str) -> bool:
        return True

    return [Patch(Draft, "unclean_election_allowed", unclean_election_allowed)]


@mutation("own")
def eligible_leaders_outlive_their_claim() -> list[Patch]:
    """The ELR is kept after the ISR has reached the minimum: its members lack records committed since."""
    original = elections.change

    def change(
        topic_id: Any, index: int, partition: PartitionImage, rules: Rules, **options: Any
    ) -> PartitionChangeRecord | None:
        rules = replace(rules, min_isr=len(partition.replicas))
        return original(topic_id, index, partition, rules, **options)

    return [Patch(draft, "change", change)]


@mutation("own")
def fenced_broker_stays_in_sync() -> list[Patch]:
    """Fencing a broker does not change its partitions."""

    def fence(draft: Draft, causes: Mapping[int, FenceCause]) -> None:
        fenced = [draft.image.brokers[broker_id] for broker_id in causes]
        draft.add([brokers._registration_change(each, fenced=brokers.FENCE) for each in fenced])

    return [Patch(brokers, "fence", fence)]


@mutation("own")
def serves_before_it_has_caught_up() -> list[Patch]:
    """A restarted broker takes its roles from old metadata, before it has caught up with its own registration: it
    leads in an epoch that is over."""
    original = BrokerLifecycle._register

    async def register(self: BrokerLifecycle) -> None:
        await original(self)
        self.caught_up.set()

    return [Patch(BrokerLifecycle, "_register", register)]


@mutation("own")
def forgets_who_may_lead() -> list[Patch]:
    """When the last member leaves the ISR the controller drops the ELR and the last known leader: no replica that has
    all records is ever elected again."""
    outside, original = elections._outside, elections.change

    def none_outside_an_empty_isr(
        partition: PartitionImage, after: Any, gone: Any
    ) -> tuple[int, ...]:
        return outside(partition, after, gone) if after.isr else ()

    def change(*which: Any, **options: Any) -> PartitionChangeRecord | None:
        record = original(*which, **options)
        return record and replace(record, last_known_elr=())

    return [Patch(elections, "_outside", none_outside_an_empty_isr), Patch(draft, "change", change)]
