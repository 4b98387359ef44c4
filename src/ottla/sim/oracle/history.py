"""What the clients of a run were told: the history that the checkers hold against the logs.

What was acknowledged, what was refused for good and what nobody knows are kept apart: only the first must be there at
the end, only the second must not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from ottla.wire.types import TopicPartition


class ProducedBatch(NamedTuple):
    """A batch as its producer knows it."""

    partition: TopicPartition
    producer_id: int
    sequence: int
    values: tuple[bytes, ...]
    begun_at: float


class Ack(NamedTuple):
    batch: ProducedBatch
    base_offset: int
    at: float
    epoch: int
    """Of the leader that was asked, as its client knew it: it is no older."""


class Read(NamedTuple):
    """A record as a consumer saw it, and the epoch of its leader."""

    value: bytes
    epoch: int


class Refusal(NamedTuple):
    """A broker took a batch for one that is out of turn."""

    batch: ProducedBatch
    by: int
    asked_at: float


class Anomaly(NamedTuple):
    """Something that a client saw and must never see."""

    rule: str
    partition: TopicPartition
    what: str
    refusal: Refusal | None = None


@dataclass
class History:
    """What the clients know."""

    acknowledged: list[Ack] = field(default_factory=list)
    unknown: list[ProducedBatch] = field(default_factory=list)
    """Given up without an answer, or with one that leaves it open."""
    refused: list[ProducedBatch] = field(default_factory=list)
    """The broker said that it was not, and will not be, written."""
    read: dict[TopicPartition, dict[int, Read]] = field(default_factory=dict)
    anomalies: list[Anomaly] = field(default_factory=list)
    reads: int = 0
    shown: list[tuple[TopicPartition, int, int]] = field(default_factory=list)
    """How far consumers were shown a partition, and the epoch there, one entry a batch."""
    deleted: set[UUID] = field(default_factory=set)
    """Topics; a broker that has not heard of it may still answer."""
    begun_late: set[int] = field(default_factory=set)
    """Producer ids of which a leader knew nothing when it refused the first batch under way and took one after it,
    say because the ISR had just grown. In Kafka, too, an unknown producer may begin with any sequence."""
    born: dict[TopicPartition, float] = field(default_factory=dict)
    """When a partition's topic was made anew: what came before was another."""

    def forget(self, partition: TopicPartition, topic_id: UUID, now: float) -> None:
        """Its topic was deleted."""
        self.deleted.add(topic_id)
        self.born[partition] = now
        self.read.pop(partition, None)

    def is_of_now(self, batch: ProducedBatch) -> bool:
        return batch.begun_at >= self.born.get(batch.partition, 0.0)


TABLE = "table"
"""The topic that is compacted, in those runs that have one (`clients.compacted_table`)."""
