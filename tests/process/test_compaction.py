"""Compaction in a running cluster: topics of users and of coordinators stay short, and nobody who reads them or
depends on them notices, also when leaders and coordinators die."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from ottla.wire.apis import ApiKey
from support.cluster import ProcessCluster, wait_until
from support.configs import TOPIC, alter
from support.messages import key_of, place_of, value_of

SETTINGS = {
    "log.cleaner.backoff.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
COMPACT = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.01",
}
KEYS = 10


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("compaction"), 3, SETTINGS) as running:
        for key_type, topic in enumerate(("__consumer_offsets", "__transaction_state")):
            has_short_segments(running, key_type, topic)
        yield running


def has_short_segments(cluster: ProcessCluster, key_type: int, topic: str) -> None:
    """A topic of coordinators, which the first question for one creates."""

    def is_there() -> bool:
        fields = {"key_type": key_type, "coordinator_keys": ["anybody"]}
        found = cluster.ask(cluster.up[0], ApiKey.FIND_COORDINATOR, 6, fields)
        return int(found.coordinators[0].error_code) == 0

    wait_until(is_there, 30, f"{topic} exists")
    alter(cluster, TOPIC, topic, internal_segment_bytes="4000")


def producer(cluster: ProcessCluster, **config: Any) -> Producer:
    return Producer(
        {"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "log_level": 0, **config}
    )


def send(cluster: ProcessCluster, topic: str, first: int, count: int) -> None:
    """Numbers, the key of each being its last digit."""
    out = producer(cluster, **{"enable.idempotence": True, "batch.num.messages": 20})
    for number in range(first, first + count):
        out.produce(topic, key=str(number % KEYS), value=f"{number}", partition=0)
    assert out.flush(60) == 0


def read_all(cluster: ProcessCluster, topic: str) -> list[tuple[int, str, str]]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, str, str]] = []
    while True:
        message = consumer.poll(30)
        assert message is not None, f"{topic} does not end"
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            consumer.close()
            return found
        offset = place_of(message)[1]
        found.append((offset, key_of(message).decode(), value_of(message).decode()))


def log_bytes(cluster: ProcessCluster, topic: str) -> list[int]:
    """What the segments of the partition take, on each running node."""
    sizes = []
    for node in cluster.nodes.values():
        if node.running:
            size = 0
            with contextlib.suppress(FileNotFoundError):  # a segment that is just being replaced
                size = sum(p.stat().st_size for p in (node.data / f"{topic}-0").glob("*.log"))
            sizes.append(size)
    return sizes


def test_only_the_newest_value_of_each_key_is_left_on_every_replica_and_after_failover(
    cluster: ProcessCluster,
) -> None:
    topic = cluster.create_topic("table", config=COMPACT)
    send(cluster, topic, 0, 6000)
    wait_until(
        lambda: all(0 < size < 40_000 for size in log_bytes(cluster, topic)), 60, "all compacted"
    )
    found = read_all(cluster, topic)
    assert len(found) < 3000
    assert [offset for offset, *_ in found] == sorted({offset for offset, *_ in found})
    assert all(value == str(offset) for offset, _, value in found)
    newest = {str(number % KEYS): str(number) for number in range(5990, 6000)}
    assert {key: value for _, key, value in found} == newest
    dead = cluster.leader(topic)
    cluster.kill(dead)
    send(cluster, topic, 6000, 3)
    newest |= {str(number % KEYS): str(number) for number in range(6000, 6003)}
    assert {key: value for _, key, value in read_all(cluster, topic)} == newest
    cluster.start(dead)
    cluster.wait_whole(topic, 60)


def test_a_new_replica_copies_a_log_with_gaps_and_opens_it_again(cluster: ProcessCluster) -> None:
    """Its node is wiped, copies the compacted log, is killed, and starts with what it copied."""
    topic = cluster.create_topic("copied", config=COMPACT)
    send(cluster, topic, 0, 3000)
    wait_until(
        lambda: all(0 < size < 40_000 for size in log_bytes(cluster, topic)), 60, "all compacted"
    )
    leader = cluster.leader(topic)
    other = next(node for node in cluster.nodes if node != leader)
    expected = read_all(cluster, topic)
    cluster.kill(other)
    shutil.rmtree(cluster.nodes[other].data / f"{topic}-0")
    cluster.start(other)
    cluster.wait_whole(topic, 60)
    cluster.kill(other)
    cluster.start(other)
    cluster.wait_whole(topic, 60)
    cluster.kill(leader)
    wait_until(lambda: cluster.leader(topic) not in (-1, leader), 30, "another leader")
    newest = {key: value for _, key, value in expected}
    assert {key: value for _, key, value in read_all(cluster, topic)} == newest
    cluster.start(leader)
    cluster.wait_whole(topic, 60)


def test_C4_committed_offsets_survive_compaction_and_the_coordinators_death(
    cluster: ProcessCluster,
) -> None:
    topic = cluster.create_topic("read", 1)
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "readers", "log_level": 0}
    )
    for offset in range(1, 400):
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    wait_until(
        lambda: all(0 < size < 12_000 for size in log_bytes(cluster, "__consumer_offsets")),
        60,
        "the commits are compacted",
    )
    dead = cluster.leader("__consumer_offsets")
    cluster.kill(dead)
    (committed,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
    assert committed.offset == 399
    consumer.close()
    cluster.start(dead)
    cluster.wait_whole("__consumer_offsets", 60)


def test_C3_transactions_go_on_from_a_compacted_state_topic(cluster: ProcessCluster) -> None:
    topic = cluster.create_topic("bought", config=COMPACT)
    out = producer(cluster, **{"transactional.id": "till"})
    out.init_transactions(30)
    for number in range(60):
        out.begin_transaction()
        out.produce(topic, key=str(number % 3), value=str(number), partition=0)
        if number % 4 == 3:
            out.abort_transaction(30)
        else:
            out.commit_transaction(30)
    wait_until(
        lambda: all(0 < size < 12_000 for size in log_bytes(cluster, "__transaction_state")),
        60,
        "the transactions' states are compacted",
    )
    dead = cluster.leader("__transaction_state")
    cluster.kill(dead)
    again = producer(cluster, **{"transactional.id": "till"})
    again.init_transactions(30)
    again.begin_transaction()
    again.produce(topic, key="0", value="60", partition=0)
    again.commit_transaction(30)
    table = {key: value for _, key, value in read_all(cluster, topic)}
    assert table == {"0": "60", "1": "58", "2": "56"}
    cluster.start(dead)
    cluster.wait_whole("__transaction_state", 60)


def test_a_record_without_a_key_is_refused_and_named(cluster: ProcessCluster) -> None:
    topic = cluster.create_topic("keyed", config=COMPACT)
    out = producer(cluster)
    told: list[KafkaError | None] = []
    out.produce(topic, value="no key", on_delivery=lambda error, _: told.append(error))
    out.flush(30)
    assert [error and error.code() for error in told] == [KafkaError.INVALID_RECORD]


@pytest.mark.parametrize("client_id", ["anybody", "__admin_client"])
def test_clients_do_not_write_into_internal_topics(cluster: ProcessCluster, client_id: str) -> None:
    """Kafka's exception for whoever calls itself __admin_client is kept."""
    out = producer(cluster, **{"client.id": client_id})
    told: list[KafkaError | None] = []
    out.produce(
        "__consumer_offsets",
        key="\0\1",
        value="x",
        partition=0,
        on_delivery=lambda error, _: told.append(error),
    )
    with contextlib.suppress(KafkaException):
        out.flush(30)
    expected = KafkaError.TOPIC_EXCEPTION if client_id == "anybody" else None
    assert [None if error is None else error.code() for error in told] == [expected]
