"""Who led a partition when, as the controller decided it.

A leader that was paused, or cut off, does not know that another has taken its place, and what that one wrote: a
producer that goes on is out of turn there. Nothing but the producer's own news of leaders can prevent that, for a
Produce names no epoch (in Kafka neither).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.metadata.image import Delta, MetadataImage
from ottla.metadata.records import NO_LEADER, RECOVERING
from ottla.sim.oracle.history import Refusal
from ottla.wire.types import TopicPartition


class LeaderTerm(NamedTuple):
    since: float
    leader: int
    may_lack: bool
    """Records that were committed, as the controller says itself."""


class LeaderHistory:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._terms: dict[TopicPartition, list[LeaderTerm]] = {}
        """Where nobody leads nobody writes: that is no term."""

    def decided(self, _: int, __: MetadataImage, after: MetadataImage, delta: Delta) -> None:
        for topic_id, number in delta.changed_partitions:
            topic = after.topics_by_id.get(topic_id)
            if topic is None:
                continue
            decided = topic.partitions[number]
            may_lack = decided.leader_recovery_state == RECOVERING
            terms = self._terms.setdefault(TopicPartition(topic.name, number), [])
            if decided.leader != NO_LEADER and (
                not terms or terms[-1].leader != decided.leader or may_lack
            ):
                terms.append(LeaderTerm(self._now(), decided.leader, may_lack))

    def had_successor(self, refusal: Refusal) -> bool:
        """Whether another had been elected when this broker was asked. Before that, it had all that the producer
        had been told of: whoever asks with the oldest batch without an answer was told of all before. Nor had it
        where it was elected anew with what it had, though another had led in between."""
        terms = self._terms.get(refusal.batch.partition, [])
        begun = [term for term in terms if term.since <= refusal.asked_at]
        return bool(begun) and (begun[-1].leader != refusal.by or begun[-1].may_lack)
