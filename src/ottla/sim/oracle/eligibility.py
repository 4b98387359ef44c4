"""Which replicas may still lead a partition without a leader, by what the oracle saw, not by what the controller keeps.

If a controller forgets the ELR or the last known leader, the partition looks as if its records were destroyed. Only a
record outside of the controller tells the two apart. (The images read here were compared with the oracle's own reading
of the records before: `metadata_replay`.)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from ottla.metadata.image import Delta, MetadataImage, PartitionImage
from ottla.metadata.records import NO_LEADER


@dataclass(frozen=True, slots=True)
class LastLeadership:
    """The newest decision that named a leader. Since it ended nothing can have been committed."""

    leader: int
    directories: tuple[UUID, ...]
    """The log directories of the leader's broker; none once its replica was taken away, for another would be empty."""
    members: Mapping[int, int]
    """ISR and ELR, each with its broker epoch: they hold everything, unless they restarted."""

    def among(self, replicas: Collection[int]) -> LastLeadership:
        """What is left of it, now that these are the replicas."""
        members = {id: epoch for id, epoch in self.members.items() if id in replicas}
        return replace(
            self,
            directories=self.directories if self.leader in replicas else (),
            members=members,
        )


class EligibleLeaders:
    def __init__(self) -> None:
        self._last: dict[tuple[UUID, int], LastLeadership] = {}

    def decided(self, _: int, __: MetadataImage, after: MetadataImage, delta: Delta) -> None:
        for topic_id, number in delta.changed_partitions:
            topic = after.topics_by_id.get(topic_id)
            partition = None if topic is None else topic.partitions[number]
            if partition is None:
                continue
            last = self._last.get((topic_id, number))
            if partition.leader == NO_LEADER:
                if last is not None:
                    self._last[topic_id, number] = last.among(partition.replicas)
            else:
                brokers = after.brokers
                self._last[topic_id, number] = LastLeadership(
                    partition.leader,
                    brokers[partition.leader].directories,
                    {id: brokers[id].epoch for id in (*partition.isr, *partition.elr)},
                )

    def last_resort(self, image: MetadataImage, topic_id: UUID, number: int) -> set[int]:
        """Replicas that may lead with losses when no replica is left that has everything: the last leader, or, if its
        disk was replaced or a cancelled move took its replica away, those that were in sync with it."""
        last = self._last.get((topic_id, number))
        if last is None:
            return set()
        is_replica = last.leader in image.topics_by_id[topic_id].partitions[number].replicas
        has_records = is_replica and self._has_its_disk(image, last)
        return {last.leader} if has_records else set(last.members)

    def _has_its_disk(self, image: MetadataImage, last: LastLeadership) -> bool:
        leader = image.brokers.get(last.leader)
        return leader is not None and bool(set(last.directories) & set(leader.directories))

    def candidates(
        self, image: MetadataImage, topic_id: UUID, number: int, partition: PartitionImage
    ) -> dict[int, str]:
        """The replicas that may lead once they are alive, and why. If there are none, records are lost."""
        last = self._last.get((topic_id, number))
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
