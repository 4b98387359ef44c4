"""The same topics of one cluster, read by Spark's own connector and by `format("ottla")`: every row and column the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: scripts/setup --spark")

from confluent_kafka import Producer, TopicPartition

from ottla.records.batch import batches
from support.cluster import ProcessCluster, wait_until
from support.spark_sources import OttlaSource, SparkConnector, SparkSource

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first one installs Spark

PARTITIONS = 3
EPOCH_MS = 1_700_000_000_000
CODECS = ("gzip", "snappy", "lz4", "zstd")
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.01",
}
KEYS, NUMBERS = 20, 400


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    settings = {"log.cleaner.backoff.ms": "200"}
    with ProcessCluster(tmp_path_factory.mktemp("rows"), overrides=settings) as running:
        write_all(running)
        yield running


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SparkSource, SparkSource]]:
    directory: Path = tmp_path_factory.mktemp("sources")
    with SparkConnector(directory / "theirs") as theirs, OttlaSource(directory / "ours") as ours:
        yield theirs, ours


def producer(cluster: ProcessCluster, **settings: Any) -> Producer:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **given})


def write_all(cluster: ProcessCluster) -> None:
    write_plain(cluster, cluster.create_topic("rows-plain", PARTITIONS))
    for codec in CODECS:
        topic = cluster.create_topic(f"rows-{codec}", PARTITIONS)
        write_plain(cluster, topic, compression_type=codec, linger_ms=50)
    stamped = {"message.timestamp.type": "LogAppendTime"}
    write_plain(cluster, cluster.create_topic("rows-stamped", PARTITIONS, config=stamped))
    write_transactions(cluster, cluster.create_topic("rows-transactions", 2))
    write_compacted(cluster, cluster.create_topic("rows-compacted", 1, config=COMPACTED))
    write_plain(cluster, cluster.create_topic("rows-cut", PARTITIONS))
    cut = [TopicPartition("rows-cut", 0, 7), TopicPartition("rows-cut", 1, 100)]
    for done in cluster.admin.delete_records(cut).values():
        done.result(30)
    cluster.create_topic("rows-none", PARTITIONS)


def write_plain(cluster: ProcessCluster, topic: str, **settings: Any) -> None:
    """Nulls, empty values, tombstones, headers of many kinds; some records are older than the one before."""
    writer = producer(cluster, **settings)
    headers: tuple[list[tuple[str, str | bytes | None]] | None, ...] = (
        None,
        [("a", b"1"), ("b", None), ("a", b"")],
        [("Größe 尺寸", "größer".encode())],
        [("", b"\x00\xff")],
    )
    for i in range(300):
        writer.produce(
            topic,
            key=None if i % 10 == 0 else b"" if i % 10 == 1 else b"key-%d" % i,
            value=None if i % 7 == 0 else b"" if i % 7 == 1 else bytes([i % 256]) * (i * 5),
            partition=i % PARTITIONS,
            timestamp=EPOCH_MS + i * 1000 - (i % 4) * 2500,
            headers=headers[i % len(headers)],
        )
    assert writer.flush(60) == 0


def write_transactions(cluster: ProcessCluster, topic: str) -> None:
    """Committed, aborted, plain records between them; at the end of partition 1 one that is open."""
    plain = producer(cluster)
    transactional = producer(cluster, transactional_id="rows")
    transactional.init_transactions(60)
    for number in range(12):
        transactional.begin_transaction()
        for i in range(number + 1):
            transactional.produce(topic, b"in %d: %d" % (number, i), partition=i % 2)
        assert transactional.flush(60) == 0
        plain.produce(topic, b"beside %d" % number, partition=number % 2)
        assert plain.flush(60) == 0
        if number % 3:
            transactional.commit_transaction(60)
        else:
            transactional.abort_transaction(60)
    open_one = producer(cluster, transactional_id="open", transaction_timeout_ms=900_000)
    open_one.init_transactions(60)
    open_one.begin_transaction()
    open_one.produce(topic, b"open", partition=1)
    assert open_one.flush(60) == 0
    plain.produce(topic, b"behind it", partition=1)
    assert plain.flush(60) == 0
    _KEPT.append(open_one)


_KEPT: list[Producer] = []
"""A producer that is gone might end its transaction."""


def write_compacted(cluster: ProcessCluster, topic: str) -> None:
    """Until only the newest of each key is left of what came first; offsets have gaps then."""
    writer = producer(cluster, batch_num_messages=30)
    for number in range(NUMBERS):
        value = None if number == NUMBERS - 1 else b"%d" % number
        writer.produce(topic, key=b"%d" % (number % KEYS), value=value)
    assert writer.flush(60) == 0
    for _ in range(3):  # closes the segment before
        writer.produce(topic, key=b"last", value=bytes(600_000))
        assert writer.flush(60) == 0
    leader = cluster.leader(topic)

    def compacted() -> bool:
        found = batches(cluster.log_bytes(leader, topic, 0), allow_partial=True)
        return sum(each.count for each in found) < 2 * KEYS

    wait_until(compacted, 60, "the leader has compacted", every=0.5)


def at(topic: str, **offsets: int) -> str:
    return json.dumps({topic: {name.removeprefix("p"): each for name, each in offsets.items()}})


COMMITTED = {"kafka.isolation.level": "read_committed"}
QUERIES: dict[str, dict[str, str]] = {
    "every kind of row": {"subscribe": "rows-plain"},
    "no headers asked for": {"subscribe": "rows-plain", "includeHeaders": "false"},
    **{codec: {"subscribe": f"rows-{codec}"} for codec in CODECS},
    "the time of the append": {"subscribe": "rows-stamped"},
    "transactions, read_uncommitted": {"subscribe": "rows-transactions"},
    "transactions, read_committed": {"subscribe": "rows-transactions", **COMMITTED},
    "committed, from within": {
        "subscribe": "rows-transactions",
        "startingOffsets": at("rows-transactions", p0=5, p1=9),
        "endingOffsets": at("rows-transactions", p0=31, p1=-1),
        **COMMITTED,
    },
    "compacted": {"subscribe": "rows-compacted"},
    "compacted, from and to a gap": {
        "subscribe": "rows-compacted",
        "startingOffsets": at("rows-compacted", p0=100),
        "endingOffsets": at("rows-compacted", p0=NUMBERS - 3),
    },
    "records deleted": {"subscribe": "rows-cut"},
    "an empty topic": {"subscribe": "rows-none"},
    "several topics": {"subscribe": "rows-plain,rows-zstd,rows-none"},
    "a pattern": {"subscribePattern": "rows-(plain|cut|s.*)"},
    "assigned": {"assign": '{"rows-plain": [0, 2], "rows-lz4": [1]}'},
    "offsets of each partition": {
        "subscribe": "rows-plain",
        "startingOffsets": at("rows-plain", p0=98, p1=-2, p2=17),
        "endingOffsets": at("rows-plain", p0=-1, p1=3, p2=18),
    },
    "from one time to another": {
        "subscribe": "rows-plain",
        "startingTimestamp": str(EPOCH_MS + 100_000),
        "endingTimestamp": str(EPOCH_MS + 200_500),
    },
    "times of each partition": {
        "subscribe": "rows-plain",
        "startingOffsetsByTimestamp": at("rows-plain", p0=EPOCH_MS, p1=EPOCH_MS + 40_000, p2=EPOCH_MS + 9),
        "endingOffsetsByTimestamp": at("rows-plain", p0=EPOCH_MS + 1, p1=EPOCH_MS + 90_000, p2=EPOCH_MS * 2),
    },
    "a time after the last, as latest": {
        "subscribe": "rows-plain",
        "startingTimestamp": str(EPOCH_MS + 295_500),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "a time in a compressed batch": {
        "subscribe": "rows-gzip",
        "startingTimestamp": str(EPOCH_MS + 123_456),
    },
    "many tasks": {"subscribe": "rows-plain,rows-compacted", "minPartitions": "17"},
    "small tasks": {"subscribe": "rows-plain", "maxRecordsPerPartition": "9"},
}  # fmt: skip
EMPTY = {"an empty topic"}

REFUSED: dict[str, dict[str, str]] = {
    "a batch from latest": {"subscribe": "rows-plain", "startingOffsets": "latest"},
    "a batch to earliest": {"subscribe": "rows-plain", "endingOffsets": "earliest"},
    "two ways to subscribe": {"subscribe": "rows-plain", "assign": '{"rows-plain": [0]}'},
    "a partition left out": {"subscribe": "rows-plain", "startingOffsets": at("rows-plain", p0=1)},
    "no JSON": {"subscribe": "rows-plain", "startingOffsets": "{"},
    "a time after the last": {"subscribe": "rows-plain", "startingTimestamp": str(EPOCH_MS * 2)},
    "a group of its own to commit": {"subscribe": "rows-plain", "kafka.enable.auto.commit": "true"},
    "an offset that is not there": {
        "subscribe": "rows-plain",
        "startingOffsets": at("rows-plain", p0=-2, p1=-2, p2=-2),
        "endingOffsets": at("rows-plain", p0=7777, p1=1, p2=1),
        "kafkaConsumer.pollTimeoutMs": "3000",
    },
}


@pytest.mark.parametrize("query", QUERIES)
def test_both_read_the_same_rows(
    cluster: ProcessCluster, sources: tuple[SparkSource, SparkSource], query: str
) -> None:
    theirs, ours = (
        each("table", bootstrap=cluster.bootstrap, options=QUERIES[query]) for each in sources
    )
    assert ours["columns"] == theirs["columns"]
    assert ours["rows"] == theirs["rows"]
    assert bool(theirs["rows"]) == (query not in EMPTY), "else it shows nothing"


@pytest.mark.parametrize("query", REFUSED)
def test_both_refuse_the_same(
    cluster: ProcessCluster, sources: tuple[SparkSource, SparkSource], query: str
) -> None:
    for each in sources:
        with pytest.raises(RuntimeError):
            each("table", bootstrap=cluster.bootstrap, options=REFUSED[query])
