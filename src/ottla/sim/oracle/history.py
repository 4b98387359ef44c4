"""What the clients of a run were answered; the checkers compare it with the logs.

Batches that were acknowledged must be in the log at the end. Batches without a known outcome may be.
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
    """The leader epoch that the client knew; the leader's epoch was at least this."""


class Read(NamedTuple):
    """A record as a consumer read it, and its leader epoch."""

    value: bytes
    epoch: int


class Refusal(NamedTuple):
    """A broker refused a batch with OUT_OF_ORDER_SEQUENCE_NUMBER."""

    batch: ProducedBatch
    by: int
    asked_at: float


class Anomaly(NamedTuple):
    """Something that a client must never see, and saw."""

    rule: str
    partition: TopicPartition
    what: str
    refusal: Refusal | None = None


@dataclass
class History:
    """What all clients of a run were answered."""

    acknowledged: list[Ack] = field(default_factory=list)
    unknown: list[ProducedBatch] = field(default_factory=list)
    """Given up without an answer, or with an error that leaves the outcome open."""
    read: dict[TopicPartition, dict[int, Read]] = field(default_factory=dict)
    anomalies: list[Anomaly] = field(default_factory=list)
    reads: int = 0
    shown: list[tuple[TopicPartition, int, int]] = field(default_factory=list)
    """For each batch that a consumer read: partition, end offset and leader epoch."""
    deleted: set[UUID] = field(default_factory=set)
    """Deleted topics; a broker that does not know yet may still answer for them."""
    begun_late: set[int] = field(default_factory=set)
    """Producer ids that a leader did not know, and of which it refused the first batch in flight (say because the ISR
    was too small) and took a later one. In Kafka, too, an unknown producer may begin with any sequence."""
    born: dict[TopicPartition, float] = field(default_factory=dict)
    """When the topic of a partition was created again: earlier batches belong to another topic."""

    def forget(self, partition: TopicPartition, topic_id: UUID, now: float) -> None:
        """Its topic was deleted."""
        self.deleted.add(topic_id)
        self.born[partition] = now
        self.read.pop(partition, None)

    def is_of_now(self, batch: ProducedBatch) -> bool:
        return batch.begun_at >= self.born.get(batch.partition, 0.0)


TABLE = "table"
"""The topic that is compacted, in those runs that have one (`clients.compacted_table`)."""
