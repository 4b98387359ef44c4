"""Spark's streams over Apache Kafka: the same offsets, the same losses, the same lag."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: scripts/setup --spark")

from confluent_kafka import Producer, TopicPartition

from ottla.spark.read.loss import DataLoss
from pyspark_ottla import DefaultSource
from support.cluster import ProcessCluster
from support.kafka_server import kafka_instead
from support.spark_engine import Engine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first one installs Kafka


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("kafka"), 1) as cluster:
        cluster.stop(1)
        with kafka_instead(cluster):
            yield cluster


def put(kafka: Any, topic: str, numbers: range, **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0, **settings})
    for i in numbers:
        producer.produce(topic, value=str(i), partition=i % 2)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_record_once_and_its_progress(kafka: ProcessCluster, codec: str) -> None:
    topic = kafka.create_topic(f"codec-{codec}", partitions=2)
    query = Engine(kafka.bootstrap, topic)
    put(kafka, topic, range(100), **{"compression.type": codec})
    assert query.batch() == list(range(100))
    assert query.batch() is None
    put(kafka, topic, range(100, 130))
    query.start()
    assert query.batch() == list(range(100, 130))
    assert query.batch() is None
    assert query.end is not None
    told = kafka.ottla("groups", "describe", json.loads(query.end)["group"])
    assert [row["lag"] for row in told["partitions"]] == [0, 0]


def test_transactions(kafka: ProcessCluster) -> None:
    topic = kafka.create_topic("transactions", partitions=2)
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "log_level": 0, "transactional.id": "t"}
    )
    producer.init_transactions(60)
    for first, commit in ((0, True), (10, False), (20, True)):
        producer.begin_transaction()
        for i in range(first, first + 10):
            producer.produce(topic, value=str(i), partition=i % 2)
        producer.flush(60)
        producer.commit_transaction(60) if commit else producer.abort_transaction(60)
    committed = Engine(kafka.bootstrap, topic, kafka__isolation__level="read_committed")
    assert committed.batch() == [*range(10), *range(20, 30)]
    assert Engine(kafka.bootstrap, topic).batch() == list(range(30))


def test_losses_are_told(kafka: ProcessCluster) -> None:
    topic = kafka.create_topic("losses", partitions=2)
    put(kafka, topic, range(20))
    query = Engine(kafka.bootstrap, topic)
    query.batch()
    put(kafka, topic, range(20, 60))
    (deleted,) = kafka.admin.delete_records([TopicPartition(topic, 1, 15)]).values()
    deleted.result()
    with pytest.raises(DataLoss, match="losses-1: 5 records, offsets 10 to 14, aged out"):
        query.batch()
    query.source = DefaultSource(query.options | {"failOnDataLoss": "false"})
    query.start()
    gone = {1 + 2 * offset for offset in range(10, 15)}
    assert query.batch() == [each for each in range(20, 60) if each not in gone]
    kafka.ottla("topics", "delete", topic)
    kafka.create_topic(topic, partitions=2)
    query = Engine(kafka.bootstrap, topic)
    put(kafka, topic, range(10))
    assert query.batch() == list(range(10))
