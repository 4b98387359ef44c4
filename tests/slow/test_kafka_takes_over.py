"""Apache Kafka's own brokers go on where ours stopped, on the same directories, and ours where Kafka's did."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from support.cluster import ProcessCluster
from support.kafka_server import kafka_instead
from support.messages import place_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first one installs Kafka

TOPIC = "handed-over"
PARTITIONS = 3
Content = dict[int, list[tuple[int, bytes, bytes]]]
"""By partition: offset, key and value."""


def produce(cluster: ProcessCluster, writer: str, codec: str, count: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
            "log_level": 0,
        }
    )
    failed: list[object] = []
    for i in range(count):
        producer.produce(
            TOPIC,
            f"{writer} {i:04d} ".encode() * 30,
            f"{writer}-{i}".encode(),
            i % PARTITIONS,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(90) == 0 and not failed, failed


def consume(cluster: ProcessCluster, expected: int) -> Content:
    """Everything, which should be `expected` records and no more."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    content: Content = {partition: [] for partition in range(PARTITIONS)}
    deadline = time.monotonic() + 60
    ended: set[int | None] = set()
    try:
        while len(ended) < PARTITIONS and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is not None:
                ended.add(message.partition())
                continue
            partition, offset = place_of(message)
            content[partition].append((offset, message.key() or b"", message.value() or b""))
    finally:
        consumer.close()
    assert sum(map(len, content.values())) == expected
    return content


def next_offsets(content: Content) -> list[int]:
    return [records[-1][0] + 1 for records in content.values()]


def test_a_stopped_cluster_continues_under_kafka_and_then_under_us_again(tmp_path: Path) -> None:
    overrides = {"offsets.topic.num.partitions": "1"}
    with ProcessCluster(tmp_path, overrides=overrides) as cluster:
        settings = {"segment.bytes": str(1 << 20), "min.insync.replicas": "2"}
        cluster.create_topic(TOPIC, PARTITIONS, config=settings)
        cluster.create_topic("deleted", 2)
        cluster.admin.delete_topics(["deleted"])["deleted"].result(30)
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            produce(cluster, f"ottla-{codec}", codec, 600)
        cluster.kill(cluster.leader(TOPIC, 0))  # so that there are several leader epochs
        produce(cluster, "ottla-after", "none", 300)
        cluster.start(next(node.id for node in cluster.nodes.values() if not node.running))
        cluster.wait_ready()
        cluster.wait_whole(TOPIC)
        ours = consume(cluster, 3300)
        assert cluster.stop(1, 2, 3) == [0, 0, 0]

        with kafka_instead(cluster) as printed:
            cluster.wait_whole(TOPIC, 60)
            assert consume(cluster, 3300) == ours
            produce(cluster, "kafka", "zstd", 300)
            both = consume(cluster, 3600)
            assert set(cluster.admin.list_topics(timeout=10).topics) >= {TOPIC}
            assert "deleted" not in cluster.admin.list_topics(timeout=10).topics
        for text in printed.values():
            for complaint in ("orrupt", "InvalidRecord", "IllegalState", "nclean"):
                assert complaint not in text, text
        for partition, records in ours.items():
            assert both[partition][: len(records)] == records

        cluster.start()
        cluster.wait_ready(60)
        cluster.wait_whole(TOPIC, 60)
        assert consume(cluster, 3600) == both
        produce(cluster, "ottla-again", "lz4", 300)
        last = consume(cluster, 3900)
        assert next_offsets(last) == [end + 100 for end in next_offsets(both)]
