"""Batch queries over a real cluster: every row as it was written, and the options that say which."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: scripts/setup --spark")

from confluent_kafka import Producer

pytestmark = [pytest.mark.slow, pytest.mark.spark_quick, pytest.mark.timeout(900)]

PARTITIONS = 3
RECORDS = 300


@pytest.fixture(scope="module")
def topic(cluster: Any) -> str:
    """Records `key-i` → `value-i`, spread evenly, one hundred in each partition, a second between two."""
    name = str(cluster.create_topic("spark-batch", partitions=PARTITIONS))
    produce(cluster, name, range(RECORDS))
    return name


def produce(cluster: Any, topic: str, numbers: Any, **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **settings})
    for i in numbers:
        producer.produce(
            topic,
            key=f"key-{i}" if i % 10 else None,
            value=f"value-{i}" if i % 7 else None,
            partition=i % PARTITIONS,
            timestamp=1_700_000_000_000 + i * 1000,
            headers=[("a", str(i).encode()), ("b", None)] if i % 2 else None,
        )
    assert producer.flush(30) == 0


@pytest.fixture
def read(spark: Any, cluster: Any) -> Callable[..., Any]:
    def frame(**options: Any) -> Any:
        reader = spark.read.format("ottla").option("kafka.bootstrap.servers", cluster.bootstrap)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), value)
        return reader.load()

    return frame


def seconds(frame: Any) -> list[int]:
    """Which records a frame has, by the second that each was given."""
    column = "CAST(unix_seconds(timestamp) - 1700000000 AS INT) AS second"
    return sorted(row.second for row in frame.selectExpr(column).collect())


def test_every_column_of_every_row(read: Callable[..., Any], topic: str) -> None:
    rows = read(subscribe=topic, includeHeaders=True).collect()
    rows.sort(key=lambda row: row.timestamp)
    assert len(rows) == RECORDS
    for i, row in enumerate(rows):
        assert row.key == (f"key-{i}".encode() if i % 10 else None)
        assert row.value == (f"value-{i}".encode() if i % 7 else None)
        assert (row.topic, row.partition, row.offset) == (topic, i % PARTITIONS, i // PARTITIONS)
        assert row.timestamp.timestamp() == 1_700_000_000 + i
        assert row.timestampType == 0
        assert (row.headers or []) == ([("a", str(i).encode()), ("b", None)] if i % 2 else [])
        assert (row.headers is None) == (i % 2 == 0)


def test_from_some_offsets_to_others(read: Callable[..., Any], topic: str) -> None:
    frame = read(
        assign=json.dumps({topic: [0, 2]}),
        startingOffsets=json.dumps({topic: {"0": 98, "2": -2}}),
        endingOffsets=json.dumps({topic: {"0": -1, "2": 2}}),
    )
    assert seconds(frame) == [2, 5, 294, 297]


def test_from_one_time_to_another(read: Callable[..., Any], topic: str) -> None:
    frame = read(
        subscribePattern="spark-b.*",
        startingTimestamp=1_700_000_100_000,
        endingTimestamp=1_700_000_110_000,
    )
    assert seconds(frame) == list(range(100, 110))


def test_large_partitions_are_split(read: Callable[..., Any], topic: str) -> None:
    frame = read(subscribe=topic, minPartitions=8)
    assert frame.rdd.getNumPartitions() == 8
    assert seconds(frame) == list(range(RECORDS))
    assert read(subscribe=topic, maxRecordsPerPartition=50).rdd.getNumPartitions() == 6


def test_a_schema_with_fewer_columns(spark: Any, cluster: Any, topic: str) -> None:
    reader = spark.read.format("ottla").schema("offset BIGINT, value BINARY")
    reader = reader.option("kafka.bootstrap.servers", cluster.bootstrap).option("subscribe", topic)
    assert reader.load().where("value IS NULL").count() == len(range(0, RECORDS, 7))


def test_conditions_decide_what_is_fetched(read: Callable[..., Any], topic: str) -> None:
    frame = read(subscribe=topic)
    found = frame.where("partition = 1 AND offset >= 40 AND offset < 43")
    assert seconds(found) == [121, 124, 127]
    assert found.rdd.getNumPartitions() == 1, "two partitions are not read at all"
    late = frame.where("timestamp >= '2023-11-14 22:18:15' AND value IS NOT NULL")
    assert seconds(late) == [each for each in range(295, RECORDS) if each % 7]


def test_conditions_are_left_to_spark_where_it_does_not_offer_them(
    spark: Any, read: Callable[..., Any], topic: str
) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert read(subscribe=topic).where("partition = 1").count() == RECORDS // PARTITIONS
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_every_codec_and_aborted_transactions(
    read: Callable[..., Any], cluster: Any, new_topic: Callable[..., str]
) -> None:
    name = new_topic(partitions=PARTITIONS)
    for first, codec in enumerate(("gzip", "snappy", "lz4", "zstd")):
        settings = {"compression.type": codec, "linger.ms": 50}
        produce(cluster, name, range(first * 30, first * 30 + 30), **settings)
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "transactional.id": name}
    )
    producer.init_transactions(60)
    for commit, number in ((False, 500), (True, 600)):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            at = 1_700_000_000_000 + number * 1000
            producer.produce(name, value=b"t", partition=partition, timestamp=at)
        producer.flush(60)
        producer.commit_transaction(60) if commit else producer.abort_transaction(60)
    plain = list(range(120))
    committed = read(subscribe=name, kafka__isolation__level="read_committed")
    assert seconds(committed) == plain + [600] * PARTITIONS
    assert seconds(read(subscribe=name)) == plain + [500] * PARTITIONS + [600] * PARTITIONS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "spark-bach"}, "topic spark-bach does not exist; did you mean 'spark-batch'"),
        ({"subscribe": "spark-batch", "startingOffsets": "{"}, "option 'startingOffsets': '{' is no JSON"),
        ({"subscribe": "spark-batch", "endingOffsets": '{"spark-batch": {"0": 7777, "1": 1, "2": 1}}'}, "offsets 100 to 7776, are not there"),
        ({"subscribe": "spark-batch", "kafka.bootstrap.servers": "127.0.0.1:1", "fetchOffset.numRetries": "0"}, "no broker answers: 127.0.0.1:1"),
        ({"subscribe": "spark-batch", "schema": "value STRING"}, "there is no column value string"),
        ({}, "option 'subscribe': is missing"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_one_line_by_the_driver(
    spark: Any, cluster: Any, topic: str, options: dict[str, str], message: str
) -> None:
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", cluster.bootstrap)
    given = dict(options)
    if "schema" in given:
        reader = reader.schema(given.pop("schema"))
    with pytest.raises(Exception) as raised:
        reader.options(**given).load().collect()
    told = str(raised.value).partition("JVM stacktrace")[0]
    assert message in told
    assert "Traceback" not in told
