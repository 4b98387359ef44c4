"""Compacted logs between us and Apache Kafka: its tools and brokers read what we compacted, and compact on; we read
what they compacted."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from ottla.records.batch import batches
from support.cluster import ProcessCluster, wait_until
from support.kafka_dump import dump_batches
from support.kafka_server import kafka_instead
from support.messages import key_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first one installs Kafka

TOPIC = "table"
SETTINGS = {
    "log.cleaner.backoff.ms": "200",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
COMPACT = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "3600000",
}
KEYS = 20
PADDING = "." * 200


def produce(cluster: ProcessCluster, first: int, count: int) -> dict[bytes, bytes | None]:
    """Numbers under twenty keys, some of them in transactions of which every other is aborted, with a
    tombstone at the end. The newest value of each key."""
    table: dict[bytes, bytes | None] = {}
    plain = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": True,
            "compression.type": "zstd" if first else "none",
            "batch.num.messages": 50,
            "log_level": 0,
        }
    )
    for number in range(first, first + count):
        key, value = b"%d" % (number % KEYS), f"{number}{PADDING}".encode()
        plain.produce(TOPIC, key=key, value=value, partition=0)
        table[key] = value
    assert plain.flush(90) == 0
    transactional = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": "t", "log_level": 0}
    )
    transactional.init_transactions(60)
    for number in range(6):
        transactional.begin_transaction()
        value = f"{first} {number}".encode()
        transactional.produce(TOPIC, key=b"in transactions", value=value, partition=0)
        if number % 2:
            transactional.abort_transaction(60)
        else:
            transactional.commit_transaction(60)
            table[b"in transactions"] = value
    plain.produce(TOPIC, key=b"0", value=None, partition=0)
    table[b"0"] = None
    table[b"last"] = random.Random(first).randbytes(400_000).hex().encode()
    for _ in range(3):  # no codec makes them small: they close the segment before
        plain.produce(TOPIC, key=b"last", value=table[b"last"], partition=0)
    assert plain.flush(90) == 0
    return table


def consume(cluster: ProcessCluster) -> tuple[int, dict[bytes, bytes | None]]:
    """How many records there are, and the table that they make."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    table: dict[bytes, bytes | None] = {}
    count = 0
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            consumer.close()
            return count, table
        count += 1
        table[key_of(message)] = message.value()
    raise AssertionError("the partition does not end")


def directories(cluster: ProcessCluster) -> list[Path]:
    return [node.data / f"{TOPIC}-0" for node in cluster.nodes.values()]


def wait_compacted(cluster: ProcessCluster, below: int) -> None:
    """Until every replica has been compacted up to its newest segment."""

    def all_clean() -> bool:
        for directory in directories(cluster):
            checkpoint = directory.parent / "cleaner-offset-checkpoint"
            newest = max(int(path.name[:20]) for path in directory.glob("*.log"))
            if f"{TOPIC} 0 {newest}" not in checkpoint.read_text().splitlines():
                return False
        return newest >= below

    wait_until(all_clean, 90, "all replicas compacted", every=0.5)


def test_we_and_kafka_compact_the_same_log_in_turns(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, overrides=SETTINGS) as cluster:
        cluster.create_topic(TOPIC, 1, config=COMPACT)
        table = produce(cluster, 0, 6000)
        wait_compacted(cluster, 6000)
        count, found = consume(cluster)
        assert found == table and count < 3000
        assert cluster.stop(1, 2, 3) == [0, 0, 0]
        for directory in directories(cluster):
            for path in sorted(directory.glob("*.log")):
                _compare_with_dump(path)

        with kafka_instead(cluster) as printed:
            cluster.wait_whole(TOPIC, 60)
            assert consume(cluster) == (count, table)
            table |= produce(cluster, 10_000, 6000)
            wait_compacted(cluster, 12_000)
            count, found = consume(cluster)
            assert found == table and count < 3000
        for text in printed.values():
            for complaint in (
                "orrupt",
                "InvalidRecord",
                "IllegalState",
                "nclean",
                "cleaner thread",
            ):
                assert complaint not in text, text

        cluster.start()
        cluster.wait_ready(60)
        cluster.wait_whole(TOPIC, 60)
        assert consume(cluster) == (count, table)
        table |= produce(cluster, 20_000, 6000)
        wait_compacted(cluster, 18_000)
        count, found = consume(cluster)
        assert found == table and count < 3000


def _compare_with_dump(path: Path) -> None:
    data = path.read_bytes()
    ours = [
        (batch.base_offset, batch.last_offset, batch.count, batch.delete_horizon_ms)
        for batch in batches(data)
    ]
    theirs = [
        (
            batch["baseOffset"],
            batch["lastOffset"],
            batch["count"],
            batch.delete_horizon_ms,
        )
        for batch in dump_batches(path, has_gaps=True)
    ]
    assert theirs == ours
