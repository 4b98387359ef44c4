"""What the replicas of a broker report to its other parts."""

from __future__ import annotations

from typing import Protocol

from ottla.log.log import Log
from ottla.metadata.image import TopicImage
from ottla.replica.partition import Partition


class ReplicaListener:
    """A part of the broker that acts upon what happens to its replicas. Each overrides what concerns it, and adds
    itself to `ReplicaManager.listeners`; they are called in that order. (Kafka: PartitionListener.)"""

    def role_changed(self, partition: Partition) -> None:
        """It has another role, another leader or a new leader epoch."""

    def joined_isr(self, partition: Partition) -> None:
        """Producers wait for this follower from now on."""

    def replica_removed(self, partition: Partition) -> None:
        """It is about to go offline, and will not be served again."""

    def isr_proposed(self, partition: Partition) -> None:
        """`partition.proposal` is to be sent to the controller."""

    def records_expired(self, partition: Partition) -> None:
        """Retention moved its log's start."""

    def log_created(self, log: Log) -> None:
        """A log was made that is not durable yet."""

    def placement_changed(self, topic: TopicImage, number: int) -> None:
        """A partition of ours was decided upon, or its replica here came or went."""


class Transfer(Protocol):
    """The part of a broker that moves records between its replicas and those of other brokers."""

    def stop(self) -> None: ...
