"""Which broker led a partition when, by the controller's decisions.

A leader that was paused or cut off knows neither its successor nor what the successor wrote. A producer that goes on
sending to it gets OUT_OF_ORDER_SEQUENCE_NUMBER. A Produce request has no leader epoch, also in Kafka, so the broker
cannot tell.
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
    """Whether the controller marked it as RECOVERING: it may lack committed records."""


class LeaderHistory:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._terms: dict[TopicPartition, list[LeaderTerm]] = {}
        """Times without a leader are not listed: nothing is written then."""

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
        """Whether another leader had been elected when this broker was asked, or this one was elected again with losses.
        Otherwise the broker had everything that was acknowledged to the producer, which are all batches before this
        one."""
        terms = self._terms.get(refusal.batch.partition, [])
        begun = [term for term in terms if term.since <= refusal.asked_at]
        return bool(begun) and (begun[-1].leader != refusal.by or begun[-1].may_lack)
