"""Who may still lead a partition that nobody leads: from what the oracle saw, not from what the controller remembers.

A controller that forgets its eligible leaders, or its last known one, leaves a partition in the very state in which
its records are destroyed. Only whoever kept count outside of it can tell the two apart. (The images that are read
here have been held against the oracle's own reading of the records before: `replay`.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from ottla.metadata.image import Delta, MetadataImage, PartitionImage
from ottla.metadata.records import NO_LEADER


@dataclass(frozen=True, slots=True)
class LastLeadership:
    """Of the newest decision that named a leader: since then nothing can have been committed."""

    leader: int
    directories: tuple[UUID, ...]
    """Of the leader's broker."""
    members: Mapping[int, int]
    """ISR and ELR, each with its broker's registration: they hold everything, unless they restarted."""


class EligibleLeaders:
    def __init__(self) -> None:
        self._claims: dict[tuple[UUID, int], LastLeadership] = {}

    def decided(self, _: int, __: MetadataImage, after: MetadataImage, delta: Delta) -> None:
        for topic_id, number in delta.changed_partitions:
            topic = after.topics_by_id.get(topic_id)
            partition = None if topic is None else topic.partitions[number]
            if partition is not None and partition.leader != NO_LEADER:
                brokers = after.brokers
                self._claims[topic_id, number] = LastLeadership(
                    partition.leader,
                    brokers[partition.leader].directories,
                    {id: brokers[id].epoch for id in (*partition.isr, *partition.elr)},
                )

    def last_resort(self, image: MetadataImage, topic_id: UUID, number: int) -> set[int]:
        """Who may lead and lack a tail when nobody is left who has everything: the last leader; those who were in
        sync with it, if its disk is another one."""
        last = self._claims.get((topic_id, number))
        if last is None:
            return set()
        return {last.leader} if self._has_its_disk(image, last) else set(last.members)

    def _has_its_disk(self, image: MetadataImage, last: LastLeadership) -> bool:
        leader = image.brokers.get(last.leader)
        return leader is not None and bool(set(last.directories) & set(leader.directories))

    def heirs(
        self, image: MetadataImage, topic_id: UUID, number: int, partition: PartitionImage
    ) -> dict[int, str]:
        """The replicas that may lead once they are alive, and why; only without one is all hope gone."""
        last = self._claims.get((topic_id, number))
        if last is None:
            return {}
        found = {
            id: "was in the ISR or ELR and has not restarted since"
            for id, epoch in last.members.items()
            if id in partition.replicas and id in image.brokers and image.brokers[id].epoch == epoch
        }
        if last.leader in partition.replicas and self._has_its_disk(image, last):
            found.setdefault(last.leader, "led it last and has its disk")
        return found
