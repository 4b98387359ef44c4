"""Spark's own Kafka connector, unchanged, against our brokers: what a Spark user has today must go on working."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from support.cluster import ProcessCluster, wait_until
from support.spark_sources import SparkConnector
from support.transactions import read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first one installs Spark

PARTITIONS = 3


@pytest.fixture(scope="module")
def connector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkConnector]:
    with SparkConnector(tmp_path_factory.mktemp("connector")) as running:
        yield running


def values(cluster: ProcessCluster, topic: str) -> list[int]:
    return sorted(
        int(value)
        for partition in range(PARTITIONS)
        for value in read(cluster.bootstrap, topic, partition)
    )


def test_a_batch_is_written_and_read_back(
    connector: SparkConnector, cluster: ProcessCluster
) -> None:
    topic = cluster.create_topic("spark-batch", PARTITIONS)
    connector("write", bootstrap=cluster.bootstrap, topic=topic, start=0, end=1000)
    assert values(cluster, topic) == list(range(1000))
    rows = connector("read", bootstrap=cluster.bootstrap, topic=topic)
    assert sorted(int(value) for *_, value, _headers in rows) == list(range(1000))
    for partition in range(PARTITIONS):
        offsets = [row[1] for row in rows if row[0] == partition]
        assert offsets == list(range(len(offsets)))


def test_a_batch_is_read_between_offsets_and_from_a_time_on(
    connector: SparkConnector, cluster: ProcessCluster
) -> None:
    topic = cluster.create_topic("spark-ranges", 1)
    connector("write", bootstrap=cluster.bootstrap, topic=topic, start=0, end=100)
    rows = connector("read", bootstrap=cluster.bootstrap, topic=topic)
    between = {
        "startingOffsets": '{"spark-ranges": {"0": 10}}',
        "endingOffsets": '{"spark-ranges": {"0": 20}}',
    }
    assert (
        connector("read", bootstrap=cluster.bootstrap, topic=topic, options=between) == rows[10:20]
    )
    latest = max(row[2] for row in rows)
    since = {"startingTimestamp": str(latest)}
    first = next(row[1] for row in rows if row[2] >= latest)
    assert (
        connector("read", bootstrap=cluster.bootstrap, topic=topic, options=since) == rows[first:]
    )


def test_a_stream_goes_on_from_its_checkpoint(
    connector: SparkConnector, cluster: ProcessCluster
) -> None:
    source = cluster.create_topic("spark-source", PARTITIONS)
    target = cluster.create_topic("spark-target", PARTITIONS)
    for start in range(0, 900, 300):
        connector("write", bootstrap=cluster.bootstrap, topic=source, start=start, end=start + 300)
        connector(
            "copy", bootstrap=cluster.bootstrap, source=source, target=target, everything=True
        )
        assert values(cluster, target) == list(range(start + 300))


def wait_for_more_than(cluster: ProcessCluster, topic: str, count: int) -> None:
    wait_until(lambda: len(values(cluster, topic)) > count, 60, "the stream runs", every=1)


def test_a_stream_loses_nothing_while_brokers_are_killed(
    connector: SparkConnector, tmp_path: Path
) -> None:
    with ProcessCluster(tmp_path / "cluster") as cluster:
        source = cluster.create_topic("source", PARTITIONS)
        target = cluster.create_topic("target", PARTITIONS)
        connector(
            "copy", bootstrap=cluster.bootstrap, source=source, target=target, everything=False
        )
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        for number in range(3000):
            producer.produce(source, str(number), partition=number % PARTITIONS)
            if number % 1000 == 500:
                assert producer.flush(60) == 0
                wait_for_more_than(cluster, target, number // 2)
                victim = cluster.leader(target, number % PARTITIONS)
                cluster.kill(victim)
                cluster.start(victim)
                cluster.wait_ready()
        assert producer.flush(60) == 0
        connector("stop", target=target)
        copied = Counter(values(cluster, target))
        assert sorted(copied) == list(range(3000))
        # The connector's sink is at-least-once: a task that was retried may have written twice.
        print("doubled by the connector's at-least-once sink:", copied.total() - 3000)
