"""confluent-kafka (librdkafka): the client most of the world's non-Java programs use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
    ResourceType,
)

from support.clients import CODECS, FIRST_MS, Confluent, Row, rows
from support.cluster import ProcessCluster, wait_until

CLIENT = Confluent()
NewTopic = Callable[..., str]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_P17_rows_come_back_as_they_were_sent(
    cluster: ProcessCluster, new_topic: NewTopic, acks: str, codec: str
) -> None:
    topic, sent = new_topic(), rows(500, null_headers=True)
    offsets = CLIENT.produce(cluster.bootstrap, topic, sent, acks=acks, codec=codec)
    assert offsets in (None, list(range(500)))
    assert CLIENT.consume(cluster.bootstrap, topic, 500) == sent


@pytest.mark.parametrize("codec", CODECS)
def test_large_batches_pass(cluster: ProcessCluster, new_topic: NewTopic, codec: str) -> None:
    topic, sent = new_topic(), rows(40, 200_000)
    config = {"batch.size": 1_000_000, "linger.ms": 50}
    CLIENT.produce(cluster.bootstrap, topic, sent, codec=codec, config=config)
    assert CLIENT.consume(cluster.bootstrap, topic, 40) == sent


def test_P21_an_idempotent_producer_keeps_the_order_of_many_batches(
    cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    topic, sent = new_topic(), rows(10_000)
    offsets = CLIENT.produce(
        cluster.bootstrap, topic, sent, idempotent=True, config={"batch.num.messages": 50}
    )
    assert offsets == list(range(10_000))
    assert CLIENT.consume(cluster.bootstrap, topic, 10_000) == sent


def test_a_record_over_the_topics_limit_is_refused_and_others_pass(
    cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    topic = new_topic(config={"max.message.bytes": "10000"})
    outcomes = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for size in (100, 20_000, 100):
        producer.produce(
            topic, bytes(size), on_delivery=lambda e, _: outcomes.append(e and e.code())
        )
        assert producer.flush(30) == 0
    assert outcomes == [None, KafkaError.MSG_SIZE_TOO_LARGE, None]


def test_log_append_time_replaces_the_clients_timestamps(
    cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    topic = new_topic(config={"message.timestamp.type": "LogAppendTime"})
    CLIENT.produce(cluster.bootstrap, topic, [Row(b"k", b"v", (), 1000)])
    (row,) = CLIENT.consume(cluster.bootstrap, topic, 1)
    assert row.timestamp_ms > FIRST_MS


def test_offsets_are_found_by_time_and_at_both_ends(
    cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    topic, sent = new_topic(), rows(100)
    CLIENT.produce(cluster.bootstrap, topic, sent, config={"batch.num.messages": 10})
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused"})
    try:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), 10) == (0, 100)
        for timestamp, offset in (
            (0, 0),
            (FIRST_MS + 37, 37),
            (FIRST_MS + 99, 99),
            (FIRST_MS + 100, -1),
        ):
            (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp)], 10)
            assert found.offset == offset, timestamp
    finally:
        consumer.close()
    partition = TopicPartition(topic, 0)
    newest = cluster.admin.list_offsets({partition: OffsetSpec.max_timestamp()})[partition].result(
        10
    )
    assert newest.offset == 99


def test_a_consumer_waits_for_what_comes_later(
    cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    topic = new_topic()
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert consumer.poll(0.5) is None
        CLIENT.produce(cluster.bootstrap, topic, [Row(None, b"late")])
        message = consumer.poll(10)
        assert message is not None
        assert message.error() is None
        assert message.value() == b"late"
    finally:
        consumer.close()


def test_unknown_topics_and_offsets_are_errors_of_their_own(
    cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    topic = new_topic()
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "unused",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
        }
    )

    def error_code() -> int | None:
        message = consumer.poll(0.2)
        error = message.error() if message is not None else None
        return error.code() if error is not None else None

    try:
        consumer.assign([TopicPartition(topic, 0, 1000)])
        assert wait_until(error_code, 15, "an error") == KafkaError._AUTO_OFFSET_RESET
        unknown = consumer.list_topics("no-such-topic", 10).topics["no-such-topic"]
        assert unknown.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    finally:
        consumer.close()


def test_topics_are_grown_configured_and_deleted(
    cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    topic, admin = new_topic(), cluster.admin
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(10)
    wait_until(lambda: len(cluster.partitions(topic)) == 4, 10, "four partitions")

    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("retention.ms", "12345", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    admin.incremental_alter_configs([change])[change].result(10)

    def retention() -> Any:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        return admin.describe_configs([resource])[resource].result(10)["retention.ms"].value

    wait_until(lambda: retention() == "12345", 10, "the setting changed")
    admin.delete_topics([topic])[topic].result(10)
    wait_until(lambda: not cluster.partitions(topic), 10, "the topic gone")


def test_creating_a_topic_twice_or_with_too_many_replicas_is_refused(
    cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    for name, replicas, code in (
        (new_topic(), 3, KafkaError.TOPIC_ALREADY_EXISTS),
        ("too-many", 4, KafkaError.INVALID_REPLICATION_FACTOR),
        ("bad name", 3, KafkaError.TOPIC_EXCEPTION),
    ):
        with pytest.raises(KafkaException) as refused:
            cluster.create_topic(name, replicas=replicas)
        assert refused.value.args[0].code() == code


def test_the_metadata_of_all_topics_is_told(cluster: ProcessCluster, new_topic: NewTopic) -> None:
    topic = new_topic()
    told = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0}).list_topics(
        timeout=20
    )
    assert topic in told.topics and set(told.brokers) == set(cluster.nodes)
