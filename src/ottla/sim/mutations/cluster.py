"""Bugs of the controller, and of a broker's life with it."""

from __future__ import annotations

from collections.abc import Sequence
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
    """A broker that is back from a crash keeps its place among the eligible leaders, as if it had stopped
    cleanly: it may lack a tail and be elected."""
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
    """AlterPartition takes a member that has restarted, and perhaps lost a tail, since the leader saw it
    catch up."""

    def may_be_in_sync(draft: Draft, member: int, epoch: int) -> bool:
        return draft.image.is_alive(member)

    return [Patch(partitions, "_may_be_in_sync", may_be_in_sync)]


@mutation("KAFKA-19522")
def elects_an_absent_last_known_leader() -> list[Patch]:
    """The last known leader is elected before it is back."""
    original = elections._leader_that_may_lack_records

    def leader_that_may_lack_records(rules: Rules, after: Any) -> int:
        return original(replace(rules, may_lead=lambda replica: True), after)

    return [Patch(elections, "_leader_that_may_lack_records", leader_that_may_lack_records)]


@mutation("own")
def unclean_election_without_leave() -> list[Patch]:
    """Anybody alive is elected when nobody who may lead is, though unclean elections are off."""

    def unclean_election_allowed(self: Draft, topic: str) -> bool:
        return True

    return [Patch(Draft, "unclean_election_allowed", unclean_election_allowed)]


@mutation("own")
def eligible_leaders_outlive_their_claim() -> list[Patch]:
    """The ELR is kept after the ISR has reached the minimum: its members miss what is committed since."""
    original = elections.change

    def change(
        topic_id: Any, index: int, partition: PartitionImage, rules: Rules, **wishes: Any
    ) -> PartitionChangeRecord | None:
        rules = replace(rules, min_isr=len(partition.replicas))
        return original(topic_id, index, partition, rules, **wishes)

    return [Patch(draft, "change", change)]


@mutation("own")
def fenced_broker_stays_in_sync() -> list[Patch]:
    """Fencing a broker leaves its partitions as they are."""

    def fence(draft: Draft, broker_ids: Sequence[int], cause: FenceCause) -> None:
        fenced = [draft.image.brokers[broker_id] for broker_id in broker_ids]
        draft.add([brokers._registration_change(each, fenced=brokers.FENCE) for each in fenced])

    return [Patch(brokers, "fence", fence)]


@mutation("own")
def serves_before_it_has_caught_up() -> list[Patch]:
    """A restarted broker takes its roles from the metadata it happens to have, not from that of its own
    registration: it leads in the past."""
    original = BrokerLifecycle._register

    async def register(self: BrokerLifecycle) -> None:
        await original(self)
        self.caught_up.set()

    return [Patch(BrokerLifecycle, "_register", register)]


@mutation("own")
def forgets_who_may_lead() -> list[Patch]:
    """With the last member of the ISR the controller forgets the eligible leaders and the last known one: nobody
    who has everything is ever elected again."""
    outside, original = elections._outside, elections.change

    def nobody_outside(partition: PartitionImage, after: Any, gone: Any) -> tuple[int, ...]:
        return outside(partition, after, gone) if after.isr else ()

    def change(*which: Any, **wishes: Any) -> PartitionChangeRecord | None:
        record = original(*which, **wishes)
        return record and replace(record, last_known_elr=())

    return [Patch(elections, "_outside", nobody_outside), Patch(draft, "change", change)]
