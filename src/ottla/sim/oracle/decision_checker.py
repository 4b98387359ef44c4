"""Decisions of the controller: who may lead (D12), who may join the ISR (D10), epochs that rise (M8).

The quorum checker calls this for each committed batch of metadata records, with the images before and after it.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from ottla.metadata.image import Delta, MetadataImage, PartitionImage, TopicImage
from ottla.metadata.records import NO_LEADER, RECOVERING
from ottla.sim.oracle.evidence import Evidence, decision
from ottla.sim.oracle.isr_checker import IsrChecker
from ottla.wire.types import TopicPartition


class DecisionChecker:
    def __init__(self, evidence: Evidence, isr: IsrChecker) -> None:
        self.on_deletion: list[Callable[[TopicPartition, UUID], None]] = []
        """A partition was deleted with its topic: what clients were answered about it no longer counts."""
        self._evidence = evidence
        self._isr = isr

    def check_decisions(
        self, node: int, before: MetadataImage, after: MetadataImage, delta: Delta
    ) -> None:
        """Called for each committed batch; `node` is the node whose log it was read from."""
        for deleted in delta.deleted_topics:
            self._forget_topic(deleted)
        for topic_id, number in delta.changed_partitions:
            topic = after.topics_by_id.get(topic_id)
            if topic is None:
                continue
            key = TopicPartition(topic.name, number)
            now = topic.partitions[number]
            self._evidence.note(key, "controller", decision(now))
            former = before.topics_by_id.get(topic_id)
            if former is not None and number < len(former.partitions):
                self._note_removals(key, former.partitions[number], now)
                self._check_decision(node, key, former.partitions[number], now, after)
            self._isr.check_all_leaders(key)

    def _forget_topic(self, topic: TopicImage) -> None:
        """The topic was deleted. Another topic of the same name shares nothing with it."""
        for number in range(len(topic.partitions)):
            key = TopicPartition(topic.name, number)
            for seen in self._evidence.nodes.values():
                seen.replicas.pop(key, None)
            self._evidence.ledgers.pop(key, None)
            self._evidence.given_up.discard(key)
            self._evidence.note(key, "controller", "the topic of this name was deleted")
            for callback in self.on_deletion:
                callback(key, topic.id)

    def _note_removals(self, key: TopicPartition, was: PartitionImage, now: PartitionImage) -> None:
        """A replica that is removed from a partition may be deleted, flushed or not."""
        for id in was.replicas:
            replica = self._evidence.nodes[id].replicas.get(key)
            if id not in now.replicas and replica is not None:
                replica.removed_in = now.partition_epoch

    def _check_decision(
        self,
        node: int,
        key: TopicPartition,
        was: PartitionImage,
        now: PartitionImage,
        image: MetadataImage,
    ) -> None:
        """M8: epochs rise. D12: a new leader was eligible and is alive. D10: a new member of the ISR is registered
        and not shutting down."""
        if now.leader_epoch < was.leader_epoch or now.partition_epoch <= was.partition_epoch:
            raise self._evidence.violation(
                "M8", node, key, f"leader or partition epoch did not rise: {_change(was, now)}"
            )
        if now.leader != NO_LEADER and now.leader_recovery_state == RECOVERING:
            self._evidence.ledger(key).recovered_in = now.leader_epoch
        is_cancelled = bool(was.adding) and set(was.adding).isdisjoint(now.replicas)
        if now.leader not in (was.leader, NO_LEADER):
            eligible = (*was.isr, *was.elr)
            if now.replicas != was.replicas and not is_cancelled:
                eligible += (
                    now.isr
                )  # a replica may join and lead at once: it is checked as a new member
            topic_id = image.topics[key.topic].id
            last_resort = self._evidence.eligible_leaders.last_resort(
                image, topic_id, key.partition
            )
            recovers = now.leader_recovery_state == RECOVERING and (
                now.leader in last_resort or self._evidence.allows_unclean(key)
            )
            if now.leader not in (*eligible, *last_resort):
                self._evidence.ledger(key).unclean_in = now.leader_epoch
            if now.leader not in eligible and not recovers:
                raise self._evidence.violation(
                    "D12",
                    node,
                    key,
                    f"the new leader was not in the ISR or ELR: {_change(was, now)}",
                )
            if not self._evidence.quorum.replay.is_alive(now.leader):
                raise self._evidence.violation(
                    "D12", node, key, f"the new leader is fenced or not registered: {decision(now)}"
                )
        for member in now.isr:
            broker = image.brokers.get(member)
            if member not in was.isr and (broker is None or broker.in_controlled_shutdown):
                what = f"broker {member} joined the ISR during its controlled shutdown: {decision(now)}"
                raise self._evidence.violation("D10", node, key, what)
            # Who cancels a move elects uncleanly, where that is allowed and none of the original replicas is in sync.
            elected = now.leader_epoch > was.leader_epoch and (
                now.replicas == was.replicas or is_cancelled
            )
            if member not in was.isr and not elected:
                self._isr.check_joined(member, key, now)


def _change(was: PartitionImage, now: PartitionImage) -> str:
    return f"from {decision(was)} to {decision(now)}"
