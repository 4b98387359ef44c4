"""Bugs of the metadata image: all nodes agree on it, and all are wrong."""

from __future__ import annotations

from dataclasses import replace

from ottla.metadata.image import PartitionImage, _Edit
from ottla.metadata.records import BrokerRegistrationChangeRecord, PartitionChangeRecord
from ottla.sim.engine.patches import Patch
from ottla.sim.mutations.base import mutation


@mutation("own")
def image_keeps_the_last_known_leader() -> list[Patch]:
    """A change that clears the last known leader leaves the old one in the image."""
    original = PartitionImage.changed_by

    def changed_by(self: PartitionImage, change: PartitionChangeRecord) -> PartitionImage:
        return original(self, replace(change, last_known_elr=change.last_known_elr or None))

    return [Patch(PartitionImage, "changed_by", changed_by)]


@mutation("own")
def image_misses_that_a_broker_leaves() -> list[Patch]:
    """A broker in controlled shutdown still counts as one that may lead."""
    original = _Edit._broker_changed

    def broker_changed(self: _Edit, record: BrokerRegistrationChangeRecord) -> None:
        original(self, replace(record, in_controlled_shutdown=0))

    return [Patch(_Edit, "_broker_changed", broker_changed)]


@mutation("own")
def image_misses_that_a_leader_may_lack_records() -> list[Patch]:
    """A leader that was elected with possibly missing records does not count as recovering."""
    original = PartitionImage.changed_by

    def changed_by(self: PartitionImage, change: PartitionChangeRecord) -> PartitionImage:
        return original(self, replace(change, leader_recovery_state=-1))

    return [Patch(PartitionImage, "changed_by", changed_by)]
