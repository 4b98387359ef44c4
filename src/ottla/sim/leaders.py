"""Who led a partition when, as the controller decided it.

A leader that was paused, or cut off, does not know that another has taken its place, and what that one wrote: a
producer that goes on is out of turn there. Nothing but the producer's own news of leaders can prevent that, for a
Produce names no epoch (in Kafka neither).
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.metadata.image import Delta, MetadataImage
from ottla.metadata.records import NO_LEADER
from ottla.sim.workload import Refusal
from ottla.wire.types import TopicPartition


class Leaders:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._terms: dict[TopicPartition, list[tuple[float, int]]] = {}
        """Each one's beginning, and whose it is. Where nobody leads nobody writes: that is no term."""

    def decided(self, _: int, __: MetadataImage, after: MetadataImage, delta: Delta) -> None:
        for topic_id, number in delta.changed_partitions:
            topic = after.topics_by_id.get(topic_id)
            if topic is None:
                continue
            leader = topic.partitions[number].leader
            terms = self._terms.setdefault(TopicPartition(topic.name, number), [])
            if leader != NO_LEADER and (not terms or terms[-1][1] != leader):
                terms.append((self._now(), leader))

    def had_successor(self, refusal: Refusal) -> bool:
        """Whether another had been elected when this broker was asked. Before that, it had all that the producer
        had been told of: whoever asks with the oldest batch without an answer was told of all before."""
        terms = self._terms.get(refusal.batch.partition, [])
        begun = [leader for since, leader in terms if since <= refusal.asked_at]
        return bool(begun) and begun[-1] != refusal.by
