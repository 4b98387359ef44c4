"""The lag of groups in a running cluster, against what a real consumer would read next: over HTTP and with the CLI."""

from __future__ import annotations

import re
import socket
import time
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from support.cluster import ProcessCluster, wait_until
from support.messages import place_of
from support.transactions import ConfluentTransactions

SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "1",
}
COMPACT = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "2000",
    "min.cleanable.dirty.ratio": "0.01",
}
WITHIN_S = 0.1
LEVELS = ("read_uncommitted", "read_committed")
SAMPLE = re.compile(r"^([a-z_]+)\{(.*)\} (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Cluster(NamedTuple):
    cluster: ProcessCluster
    http: dict[int, int]
    """The port of each node's metrics."""


@pytest.fixture(scope="module")
def lagging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    ports = {node: free_port() for node in (1, 2, 3)}
    listeners = {
        node: {"metrics.listeners": f"HTTP://127.0.0.1:{port}"} for node, port in ports.items()
    }
    directory = tmp_path_factory.mktemp("group-lag")
    with ProcessCluster(directory, 3, SETTINGS, listeners) as running:
        yield Cluster(running, ports)


class Scrape:
    """All nodes' samples, and between which times each was taken."""

    def __init__(self, lagging: Cluster) -> None:
        self.samples: list[tuple[str, dict[str, str], float]] = []
        self.began = time.time()
        for port in lagging.http.values():
            page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read()
            self.samples += [
                (name, dict(LABEL.findall(labels)), float(value))
                for name, labels, value in SAMPLE.findall(page.decode())
            ]
        self.ended = time.time()

    def value(self, name: str, **labels: str) -> float:
        found = [
            value
            for found, given, value in self.samples
            if found == name and labels.items() <= given.items()
        ]
        assert len(found) == 1, (name, labels, found)
        return found[0]

    def assert_age(self, seconds: float, timestamp_ms: int | None, what: object) -> None:
        if timestamp_ms is None:
            assert seconds == 0, what
            return
        youngest, oldest = (at - timestamp_ms / 1000 for at in (self.began, self.ended))
        assert youngest - WITHIN_S <= seconds <= oldest + WITHIN_S, (what, seconds)


def visible(cluster: ProcessCluster, topic: str, partition: int, level: str) -> dict[int, int]:
    """What a real consumer reads from the beginning: timestamps by offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": level,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: dict[int, int] = {}
    while True:
        message = consumer.poll(30)
        assert message is not None, f"{topic} does not end"
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            consumer.close()
            return found
        found[place_of(message)[1]] = message.timestamp()[1]


def commit(cluster: ProcessCluster, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Without members, as simple consumers and Spark do."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    places = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def next_after(read: dict[int, int], offset: int) -> int | None:
    return next((read[at] for at in sorted(read) if at >= offset), None)


def send(cluster: ProcessCluster, topic: str, partition: int, ages_s: list[float]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "log_level": 0})
    for age_s in ages_s:
        stamp = int((time.time() - age_s) * 1000)
        producer.produce(topic, b"x" * 50, key=b"k", partition=partition, timestamp=stamp)
        assert producer.flush(30) == 0


def fill(cluster: ProcessCluster, topic: str) -> ConfluentTransactions:
    """Plain, committed and aborted records in every partition; at the end an open transaction."""
    transactions = ConfluentTransactions(cluster.bootstrap, f"{topic}-writer", 300_000)
    for number, (ages, ends) in enumerate(
        (
            ([3000.0, 2000.0, 1000.0], (False, True)),
            ([500.0, 4000.0], (False, False, True)),
            ([], (True, False)),
        )
    ):
        send(cluster, topic, number, ages)
        for committed in ends:
            transactions.begin()
            for _ in range(2):
                transactions.send(topic, "in a transaction", number)
            transactions.commit() if committed else transactions.abort()
    transactions.begin()
    transactions.send(topic, "not decided", 0)
    return transactions


def test_the_lag_is_the_age_of_what_a_consumer_would_read_next(lagging: Cluster) -> None:
    cluster = lagging.cluster
    topic = cluster.create_topic("measured", assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    fill(cluster, topic)
    read = {
        (number, level): visible(cluster, topic, number, level)
        for number in range(3)
        for level in LEVELS
    }
    assert len(read[0, LEVELS[0]]) > len(read[0, LEVELS[1]]) > 0
    end = max(max(offsets) for offsets in read.values()) + 2
    for offset in range(end):
        commit(cluster, f"at-{offset}", topic, dict.fromkeys(range(3), offset))
    scrape = Scrape(lagging)
    for offset in range(end):
        group = f"at-{offset}"
        ages = []
        for number in range(3):
            place = {"topic": topic, "partition": str(number)}
            for level in LEVELS:
                truth = next_after(read[number, level], offset)
                labels = {"consumergroup": group, "isolation_level": level, **place}
                seconds = scrape.value("ottla_consumergroup_lag_seconds", **labels)
                scrape.assert_age(seconds, truth, labels)
            same = scrape.value("kafka_consumergroup_group_lag_seconds", group=group, **place)
            truth = next_after(read[number, LEVELS[0]], offset)
            scrape.assert_age(same, truth, (group, place))
            ages.append(same)
            current = scrape.value(
                "kafka_consumergroup_current_offset", consumergroup=group, **place
            )
            assert current == offset
        largest = scrape.value("kafka_consumergroup_group_max_lag_seconds", group=group)
        assert largest == max(ages)
    listed = {each["id"]: each for each in cluster.ottla("groups", "list")}
    for offset in range(end):
        shown = scrape.value("kafka_consumergroup_group_max_lag_seconds", group=f"at-{offset}")
        later_s = time.time() - scrape.began
        assert shown <= listed[f"at-{offset}"]["lag_seconds"] + WITHIN_S <= shown + later_s + 1
        records = scrape.value("kafka_consumergroup_group_sum_lag", group=f"at-{offset}")
        assert listed[f"at-{offset}"]["lag"] == records


def test_a_gap_by_compaction_is_not_a_record(lagging: Cluster) -> None:
    cluster = lagging.cluster
    topic = cluster.create_topic("compacted", config=COMPACT)
    send(cluster, topic, 0, [float(5000 - 10 * number) for number in range(40)])

    def is_compacted() -> bool:
        send(cluster, topic, 0, [7.0])
        return len(visible(cluster, topic, 0, LEVELS[0])) < 30

    wait_until(is_compacted, 30, "compaction")
    commit(cluster, "old", topic, {0: 3})
    commit(cluster, "older", topic, {0: 0})

    def agree() -> bool:
        """A round of compaction may come in between."""
        before = visible(cluster, topic, 0, LEVELS[0])
        scrape = Scrape(lagging)
        if before != visible(cluster, topic, 0, LEVELS[0]):
            return False
        for group, offset in (("old", 3), ("older", 0)):
            assert offset not in before
            seconds = scrape.value("kafka_consumergroup_group_lag_seconds", group=group)
            scrape.assert_age(seconds, next_after(before, offset), group)
        return True

    wait_until(agree, 30, "a scrape between two rounds of compaction")
    (shown,) = cluster.ottla("groups", "describe", "old")["partitions"]
    assert 0 < shown["lag_seconds"] < 4900


def test_an_open_transaction_is_seen_in_the_partition_that_it_holds_back(
    lagging: Cluster,
) -> None:
    cluster = lagging.cluster
    topic = cluster.create_topic("held-back")
    send(cluster, topic, 0, [1.0])
    writer = ConfluentTransactions(cluster.bootstrap, "hanging", 300_000)
    began = time.time()
    writer.begin()
    writer.send(topic, "one")
    sent = time.time()
    place = {"topic": topic, "partition": "0"}
    scrape = Scrape(lagging)
    age = scrape.value("ottla_partition_open_transaction_age_seconds", **place)
    assert scrape.began - sent - WITHIN_S <= age <= scrape.ended - began + WITHIN_S
    assert scrape.value("kafka_cluster_partition_laststableoffsetlag", **place) == 1
    writer.commit()
    assert not [
        labels
        for name, labels, _ in Scrape(lagging).samples
        if name == "ottla_partition_open_transaction_age_seconds"
        and place.items() <= labels.items()
    ]


def test_members_and_state_are_shown_and_a_deleted_topic_is_not(lagging: Cluster) -> None:
    cluster = lagging.cluster
    topic = cluster.create_topic("doomed")
    send(cluster, topic, 0, [1.0])
    config: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "live",
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    consumer = Consumer(config)
    consumer.subscribe([topic])
    try:
        wait_until(lambda: consumer.poll(0.1), 30, "the record")
        consumer.commit(asynchronous=False)
        scrape = Scrape(lagging)
        assert scrape.value("kafka_consumergroup_members", consumergroup="live") == 1
        assert scrape.value("ottla_consumergroup_state", consumergroup="live", state="Stable") == 1
        assert scrape.value("kafka_consumergroup_group_lag_seconds", group="live") == 0
        assert scrape.value("kafka_consumergroup_lag", consumergroup="live") == 0
    finally:
        consumer.close()
    cluster.admin.delete_topics([topic])[topic].result(30)

    def is_forgotten() -> bool:
        return not [
            labels for _, labels, _ in Scrape(lagging).samples if labels.get("topic") == topic
        ]

    wait_until(is_forgotten, 20, "the offsets of a deleted topic")
