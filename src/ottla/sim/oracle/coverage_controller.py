"""Rare decisions of the controller, marked as they are committed."""

from __future__ import annotations

from ottla.metadata.image import Delta, MetadataImage, PartitionImage
from ottla.metadata.records import NO_LEADER, RECOVERING
from ottla.sim.oracle.coverage import mark


class DecisionCoverage:
    def __init__(self) -> None:
        self._fenced: set[tuple[int, int]] = set()
        self._deleted: set[str] = set()

    def decided(self, node: int, before: MetadataImage, after: MetadataImage, delta: Delta) -> None:
        if any(name in self._deleted and name not in before.topics for name in after.topics):
            mark("topic made anew")
        self._deleted.update(topic.name for topic in delta.deleted_topics)
        for id in delta.changed_brokers:
            was, now = before.brokers.get(id), after.brokers.get(id)
            if was is None or now is None or was.epoch != now.epoch or was.fenced == now.fenced:
                continue
            if now.fenced:
                self._fenced.add((id, now.epoch))
            elif (id, now.epoch) in self._fenced:
                mark("fenced and back")
        for topic_id, number in delta.changed_partitions:
            topic, former = after.topics_by_id.get(topic_id), before.topics_by_id.get(topic_id)
            if topic is not None and former is not None and number < len(former.partitions):
                _mark_change(former.partitions[number], topic.partitions[number])


def _mark_change(was: PartitionImage, now: PartitionImage) -> None:
    if now.leader == NO_LEADER != was.leader:
        mark("no leader")
    elif now.leader != was.leader:
        _mark_election(was, now)
    if set(now.elr) - set(was.elr):
        mark("in the ELR")
    if (was.adding or was.removing) and not (now.adding or now.removing):
        original = [replica for replica in was.replicas if replica not in was.adding]
        mark("reassignment cancelled" if list(now.replicas) == original else "reassigned")


def _mark_election(was: PartitionImage, now: PartitionImage) -> None:
    if now.leader in was.isr:
        if now.isr == was.isr:
            mark("leader moved in sync")
    elif now.leader in was.elr:
        mark("leader from the ELR")
    elif now.leader_recovery_state == RECOVERING:
        mark("last known leader" if now.leader in was.last_known_elr else "unclean election")
