"""What librdkafka's clients see of rights: refused, allowed, and a right taken away while they run. Nobody logs in, and nobody
is a super user: resources without ACLs are open to all (`allow.everyone.if.no.acl.found`), as librdkafka's own tests want it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from ottla.config.values import STANDARD_AUTHORIZER
from support.cluster import ProcessCluster, wait_until

SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "false",
}
ME, ALICE = "User:ANONYMOUS", "User:alice"
LONG_MS = 30_000
"""How long a fetch may wait. What comes much earlier was not only the end of that."""
REFUSED = KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("rights"), 1, SETTINGS) as cluster:
        yield cluster


def grant(cluster: ProcessCluster, topic: str, principal: str, operation: AclOperation) -> None:
    acl = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        principal,
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
    for done in cluster.admin.create_acls([acl]).values():
        done.result(10)


def revoke(cluster: ProcessCluster, topic: str, principal: str, operation: AclOperation) -> None:
    wanted = AclBindingFilter(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        principal,
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
    [done] = cluster.admin.delete_acls([wanted]).values()
    assert len(done.result(10)) == 1


def produced(cluster: ProcessCluster, topic: str, value: bytes) -> KafkaError | None:
    """What the delivery report says."""
    reports: list[KafkaError | None] = []
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "topic.metadata.refresh.interval.ms": 100}
    )
    producer.produce(topic, value, on_delivery=lambda error, _: reports.append(error))
    assert producer.flush(20) == 0
    return reports[0]


def next_of(consumer: Consumer) -> tuple[int | None, bytes | None]:
    """The error and the value of what comes next."""

    def polled() -> tuple[int | None, bytes | None] | None:
        message = consumer.poll(1)
        if message is None:
            return None
        error = message.error()
        return (None, message.value()) if error is None else (error.code(), None)

    return wait_until(polled, 20, "something to poll") or (None, None)


@pytest.fixture
def topic(cluster: ProcessCluster) -> str:
    """Alice's. What others may do with it, each test says."""
    name = f"orders-{uuid4().hex[:8]}"
    cluster.create_topic(name, 1, 1)
    grant(cluster, name, ALICE, AclOperation.ALL)
    return name


@pytest.fixture
def consumer(cluster: ProcessCluster) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "readers",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": LONG_MS,
            "fetch.error.backoff.ms": 10,
        }
    )
    yield consumer
    consumer.close()


def test_a_producer_without_the_right_is_refused_and_with_it_is_served(
    cluster: ProcessCluster, topic: str
) -> None:
    error = produced(cluster, topic, b"1")
    assert error is not None and error.code() == REFUSED
    grant(cluster, topic, ME, AclOperation.WRITE)
    assert produced(cluster, topic, b"2") is None


def test_a_topic_of_somebody_else_is_not_listed(cluster: ProcessCluster, topic: str) -> None:
    assert topic not in cluster.admin.list_topics(timeout=10).topics
    grant(cluster, topic, ME, AclOperation.DESCRIBE)
    assert topic in cluster.admin.list_topics(timeout=10).topics


def test_a_consumer_that_polls_loses_its_right_at_once_and_reads_nothing_more(
    cluster: ProcessCluster, topic: str, consumer: Consumer
) -> None:
    grant(cluster, topic, ME, AclOperation.WRITE)
    grant(cluster, topic, ME, AclOperation.READ)
    assert produced(cluster, topic, b"before") is None
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert next_of(consumer) == (None, b"before")
    assert consumer.poll(0.5) is None  # its next fetch waits for records
    revoke(cluster, topic, ME, AclOperation.READ)
    began = time.monotonic()
    assert next_of(consumer)[0] == REFUSED
    took_s = time.monotonic() - began
    assert took_s < LONG_MS / 1000 / 10
    assert produced(cluster, topic, b"after") is None
    for _ in range(20):
        message = consumer.poll(0.05)
        assert message is None or message.error() is not None, message.value()
    grant(cluster, topic, ME, AclOperation.READ)
    wait_until(lambda: next_of(consumer) == (None, b"after"), 20, "it may be read again")
