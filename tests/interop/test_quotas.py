"""Quotas as real clients feel them: the answer says how long, and nothing is read meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from support.cluster import NodeProcess, ProcessCluster, wait_until

NewTopic = Callable[..., str]


def set_quota(cluster: ProcessCluster, client_id: str, **rates: float | None) -> None:
    ops = [
        {"key": key, "value": value or 0.0, "remove": value is None} for key, value in rates.items()
    ]
    entity = [{"entity_type": "client-id", "entity_name": client_id}]
    fields = {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}
    (entry,) = cluster.ask(cluster.nodes[1], ApiKey.ALTER_CLIENT_QUOTAS, 1, fields).entries
    assert entry.error_code == ErrorCode.NONE, entry.error_message
    wished = {key: value for key, value in rates.items() if value is not None}
    for node in cluster.nodes.values():
        wait_for_quotas(cluster, node, client_id, wished)


def wait_for_quotas(
    cluster: ProcessCluster, node: NodeProcess, client_id: str, wished: dict[str, float]
) -> None:
    wait_until(lambda: quotas_of(cluster, node, client_id) == wished, 10, "known")


def quotas_of(cluster: ProcessCluster, node: NodeProcess, client_id: str) -> dict[str, float]:
    component = {"entity_type": "client-id", "match_type": 0, "match": client_id}
    fields = {"components": [component], "strict": True}
    answer = cluster.ask(node, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, fields)
    assert answer.error_code == ErrorCode.NONE
    return {value.key: value.value for entry in answer.entries for value in entry.values}


@pytest.fixture
def limited(cluster: ProcessCluster) -> Iterator[Callable[..., str]]:
    made: list[tuple[str, dict[str, float]]] = []

    def limit(client_id: str, **rates: float) -> str:
        set_quota(cluster, client_id, **rates)
        made.append((client_id, rates))
        return client_id

    yield limit
    for client_id, rates in made:
        set_quota(cluster, client_id, **dict.fromkeys(rates))


def test_a_producer_is_slowed_to_its_rate_and_told(
    cluster: ProcessCluster, new_topic: NewTopic, limited: Callable[..., str]
) -> None:
    topic, told = new_topic(), []
    client_id = limited("slow-producer", producer_byte_rate=100_000.0)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "client.id": client_id,
            "linger.ms": 0,
            "batch.num.messages": 1,
            "max.in.flight": 1,
            "throttle_cb": lambda event: told.append(event.throttle_time),
            "log_level": 0,
        }
    )
    began = time.monotonic()
    for _ in range(13):  # 1.3 MB: ten seconds' worth is free, three more are not
        producer.produce(topic, bytes(100_000), partition=0)
    assert producer.flush(60) == 0
    producer.poll(0)
    assert time.monotonic() - began > 2.0
    assert told and max(told) > 0.5


def test_a_consumer_is_slowed_to_its_rate_and_told(
    cluster: ProcessCluster, new_topic: NewTopic, limited: Callable[..., str]
) -> None:
    topic, told = new_topic(), []
    one_by_one = {"batch.num.messages": 1, "log_level": 0}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **one_by_one})
    for _ in range(13):
        producer.produce(topic, bytes(100_000), partition=0)
    assert producer.flush(30) == 0
    client_id = limited("slow-consumer", consumer_byte_rate=100_000.0)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "client.id": client_id,
            "group.id": "unused",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 100_000,
            "throttle_cb": lambda event: told.append(event.throttle_time),
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        began = time.monotonic()
        read = 0
        while read < 13 and time.monotonic() - began < 60:
            read += sum(message.error() is None for message in consumer.consume(1, timeout=1))
        assert read == 13 and time.monotonic() - began > 1.5
        wait_until(lambda: consumer.poll(0.1) is None and told, 10, "told of it")
        assert max(told) > 0.5
    finally:
        consumer.close()


def create(cluster: ProcessCluster, version: int, name: str) -> Any:
    topic = {"name": name, "num_partitions": 8, "replication_factor": 1}
    fields = {"topics": [topic], "timeout": 10_000, "validate_only": False}
    return cluster.ask(cluster.nodes[2], ApiKey.CREATE_TOPICS, version, fields)


def test_a_client_that_changes_too_much_is_refused_or_delayed(
    cluster: ProcessCluster, limited: Callable[..., str]
) -> None:
    """11 tokens at 1 a second: eight partitions, and eight more on credit; then it has to wait."""
    limited("test", controller_mutation_rate=1.0)
    assert create(cluster, 7, "mutation-1").topics[0].error_code == ErrorCode.NONE
    assert create(cluster, 7, "mutation-2").topics[0].error_code == ErrorCode.NONE
    refused = create(cluster, 7, "mutation-3")
    assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert refused.throttle_time.total_seconds() > 1.0
    delayed = create(cluster, 5, "mutation-3")
    assert delayed.topics[0].error_code == ErrorCode.NONE
    assert delayed.throttle_time.total_seconds() > 8.0
