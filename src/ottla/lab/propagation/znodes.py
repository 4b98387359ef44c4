"""The znodes of a cluster: their paths, which are Kafka's, and what they hold."""

from __future__ import annotations

import json
from typing import Any, NamedTuple
from uuid import UUID

from ottla.config import ListenerAddress
from ottla.metadata.image import TopicImage
from ottla.metadata.records import (
    DIRECTORY_UNASSIGNED,
    NO_LEADER,
    Endpoint,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from ottla.wire.types import TopicPartition

ROOT = "/brokers"
BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
STATE_QUEUES = "/brokers/state"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"

FIRST_EPOCH = 0


def broker_path(broker: int) -> str:
    return f"{BROKER_IDS}/{broker}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(key: TopicPartition) -> str:
    return f"{TOPICS}/{key.topic}/partitions/{key.partition}"


def leader_path(key: TopicPartition) -> str:
    """v1: the ephemeral znode of the leader."""
    return f"{partition_path(key)}/leader"


def isr_path(key: TopicPartition) -> str:
    """v1: which replicas may lead."""
    return f"{partition_path(key)}/isr"


def state_path(key: TopicPartition) -> str:
    """v2 and v3: what the controller decided."""
    return f"{partition_path(key)}/state"


def queue_path(broker: int) -> str:
    """v2: the queue of state changes for a broker."""
    return f"{STATE_QUEUES}/{broker}"


def encoded(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


class RegisteredBroker(NamedTuple):
    """What a broker's ephemeral znode says. Its epoch is the zxid that created the znode, as in Kafka since KIP-380."""

    id: int
    epoch: int
    endpoints: tuple[tuple[str, str, int], ...]
    """(listener, host, port)"""

    def record(self) -> MetadataRecord:
        return RegisterBrokerRecord(
            broker_id=self.id,
            incarnation_id=UUID(int=self.epoch),
            broker_epoch=self.epoch,
            end_points=tuple(Endpoint(name=n, host=h, port=p) for n, h, p in self.endpoints),
            features=(),
            rack=None,
            fenced=False,
        )


def broker_data(endpoints: list[ListenerAddress]) -> bytes:
    return encoded([(at.name, at.host, at.port) for at in endpoints])


def registered_broker(id: int, czxid: int, data: bytes) -> RegisteredBroker:
    return RegisteredBroker(id, czxid, tuple((n, h, p) for n, h, p in json.loads(data)))


class TopicAssignment(NamedTuple):
    """What a topic's znode says: its id, and the replicas of each partition, the preferred leader first."""

    topic: str
    id: UUID
    replicas: tuple[tuple[int, ...], ...]

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.topic, number) for number in range(len(self.replicas))]

    def data(self) -> bytes:
        return encoded([self.id.hex, self.replicas])


def assignment(topic: str, data: bytes) -> TopicAssignment:
    id, replicas = json.loads(data)
    return TopicAssignment(topic, UUID(hex=id), tuple(map(tuple, replicas)))


class PartitionDecision(NamedTuple):
    """Who leads a partition, and which replicas are in sync."""

    key: TopicPartition
    topic_id: UUID
    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    version: int
    """Of the znode that holds the ISR: the product's partition epoch."""

    def state(self, controller_epoch: int) -> bytes:
        """The content of the partition's state znode."""
        return encoded([self.leader, self.leader_epoch, self.isr, controller_epoch])

    def with_state(self, data: bytes, version: int) -> PartitionDecision:
        leader, epoch, isr, _ = json.loads(data)
        return self._replace(leader=leader, leader_epoch=epoch, isr=tuple(isr), version=version)

    def record(self, broker: int, directory: UUID) -> PartitionRecord:
        """As the metadata of that broker, which keeps its replica in that directory. No other's matters to it."""
        return PartitionRecord(
            partition_id=self.key.partition,
            topic_id=self.topic_id,
            replicas=self.replicas,
            isr=self.isr,
            leader=self.leader,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.version,
            directories=tuple(
                directory if id == broker else DIRECTORY_UNASSIGNED for id in self.replicas
            ),
        )

    def to_json(self) -> list[Any]:
        key, topic_id, *rest = self
        return [*key, topic_id.hex, *rest]


def decision_of(content: list[Any]) -> PartitionDecision:
    topic, number, topic_id, replicas, leader, epoch, isr, version = content
    return PartitionDecision(
        TopicPartition(topic, number),
        UUID(hex=topic_id),
        tuple(replicas),
        leader,
        epoch,
        tuple(isr),
        version,
    )


def undecided(topic: TopicAssignment) -> list[PartitionDecision]:
    """The partitions of a topic before anybody leads them."""
    return [
        PartitionDecision(key, topic.id, replicas, NO_LEADER, -1, replicas, -1)
        for key, replicas in zip(topic.partitions, topic.replicas, strict=True)
    ]


def decision_in(topic: TopicImage, number: int) -> PartitionDecision:
    """What an image says about a partition."""
    part = topic.partitions[number]
    return PartitionDecision(
        TopicPartition(topic.name, number),
        topic.id,
        part.replicas,
        part.leader,
        part.leader_epoch,
        part.isr,
        part.partition_epoch,
    )
