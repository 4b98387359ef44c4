"""`ottla groups` against Apache Kafka: the lag in seconds is the age of what a consumer would read next."""

from __future__ import annotations

import time
from collections.abc import Iterator

import confluent_kafka
import pytest

from support.cluster import ProcessCluster, wait_until
from support.kafka_server import kafka_instead
from support.transactions import ConfluentTransactions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first one installs Kafka

WITHIN_S = 0.1


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("kafka"), 1) as cluster:
        cluster.stop(1)
        with kafka_instead(cluster):
            yield cluster


def send(cluster: ProcessCluster, topic: str, stamp_ms: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    producer.produce(topic, b"x", timestamp=stamp_ms)
    assert producer.flush(30) == 0


def commit(cluster: ProcessCluster, group: str, topic: str, offset: int) -> bool:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0}
    )
    try:
        place = confluent_kafka.TopicPartition(topic, 0, offset)
        consumer.commit(offsets=[place], asynchronous=False)
        return True
    except confluent_kafka.KafkaException:
        return False  # the coordinator's topic is not there yet
    finally:
        consumer.close()


def test_markers_and_aborted_records_have_no_age(kafka: ProcessCluster) -> None:
    """Offsets: 0 plain, 1 aborted, 2 its marker, 3 committed, 4 its marker, 5 plain, 6 aborted, 7 its marker."""
    topic = kafka.create_topic("measured")
    writer = ConfluentTransactions(kafka.bootstrap, "writer")
    now_ms = int(time.time() * 1000)
    send(kafka, topic, now_ms - 3_000_000)
    for committed in (False, True):
        writer.begin()
        writer.send(topic, "in a transaction")
        writer.commit() if committed else writer.abort()
    send(kafka, topic, now_ms - 1_000_000)
    writer.begin()
    writer.send(topic, "in a transaction")
    writer.abort()
    for offset in range(9):
        group = f"at-{offset}"
        wait_until(lambda: commit(kafka, group, topic, offset), 60, "a commit", every=0.5)  # noqa: B023

    def lag(offset: int, *options: str) -> tuple[int, float]:
        shown = kafka.ottla("groups", "describe", f"at-{offset}", *options)["partitions"]
        return shown[0]["lag"], shown[0]["lag_seconds"]

    def assert_age(seconds: float, stamp_ms: int) -> None:
        """The command may have taken seconds; it asked for the time itself."""
        assert (now_ms - stamp_ms) / 1000 - WITHIN_S <= seconds <= time.time() - stamp_ms / 1000

    assert_age(lag(0)[1], now_ms - 3_000_000)
    assert_age(lag(5)[1], now_ms - 1_000_000)
    assert_age(lag(4)[1], now_ms - 1_000_000)
    assert_age(lag(5, "--read-committed")[1], now_ms - 1_000_000)
    assert_age(lag(4, "--read-committed")[1], now_ms - 1_000_000)
    assert 0 < lag(1)[1] < 600 and 0 < lag(1, "--read-committed")[1] < lag(1)[1] + 60
    assert 0 < lag(6)[1] < 600
    assert lag(6, "--read-committed") == (2, 0)
    assert lag(7) == (1, 0)
    assert lag(8) == (0, 0)
    listed = {each["id"]: each for each in kafka.ottla("groups", "list", "--read-committed")}
    assert (listed["at-6"]["lag"], listed["at-6"]["lag_seconds"]) == (2, 0)
    assert_age(listed["at-5"]["lag_seconds"], now_ms - 1_000_000)
