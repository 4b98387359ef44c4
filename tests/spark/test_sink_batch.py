"""A batch job writes to topics with `format("ottla")`: columns, options, refusals, and all rows or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: scripts/setup --spark")

from confluent_kafka import Consumer, TopicPartition

from ottla.client.partitioner import partition_for
from support.cluster import ProcessCluster, wait_until
from support.transactions import read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2000)]


def write(frame: Any, cluster: ProcessCluster, **options: object) -> None:
    writer = frame.write.format("ottla").mode("append")
    writer = writer.option("kafka.bootstrap.servers", cluster.bootstrap)
    for name, value in options.items():
        writer = writer.option(name.replace("_", "."), value)
    writer.save()


def records(cluster: ProcessCluster, topic: str, partition: int, count: int) -> list[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found = consumer.consume(count, 20)
    consumer.close()
    return [(each.key(), each.value(), each.headers()) for each in found]


def all_values(cluster: ProcessCluster, topic: str, partitions: int) -> list[str]:
    return sorted(v for number in range(partitions) for v in read(cluster.bootstrap, topic, number))


@pytest.mark.spark_quick
def test_keys_decide_the_partition_and_values_arrive(
    spark: Any, cluster: ProcessCluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=3)
    frame = spark.range(2000).selectExpr("string(id) AS key", "concat('value ', id) AS value")
    write(frame.repartition(2), cluster, topic=topic)
    for partition in range(3):
        found = read(cluster.bootstrap, topic, partition)
        keys = [i for i in range(2000) if partition_for(str(i).encode(), 3) == partition]
        assert sorted(found) == sorted(f"value {i}" for i in keys)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_many_rows_without_keys_are_spread_and_compressed(
    spark: Any, cluster: ProcessCluster, new_topic: Callable[..., str], codec: str
) -> None:
    topic = new_topic(partitions=2)
    frame = spark.range(20_000).selectExpr("concat('row ', id) AS value").repartition(2)
    write(frame, cluster, topic=topic, kafka_compression_type=codec, kafka_batch_size=20_000)
    found = [read(cluster.bootstrap, topic, partition) for partition in range(2)]
    assert sorted(found[0] + found[1]) == sorted(f"row {i}" for i in range(20_000))
    assert all(found)


def test_topic_partition_and_headers_come_from_columns(
    spark: Any, cluster: ProcessCluster, new_topic: Callable[..., str]
) -> None:
    one, two = new_topic(partitions=2), new_topic(partitions=3)
    frame = spark.createDataFrame(
        [
            (one, 1, bytearray(b"k"), bytearray(b"a"), [("h", bytearray(b"1")), ("h", None)]),
            (two, 2, None, bytearray(b"b"), []),
            (two, 2, None, None, None),
        ],
        "topic string, partition int, key binary, value binary, headers array<struct<key: string, value: binary>>",
    )
    write(frame.coalesce(1), cluster)
    assert records(cluster, one, 1, 1) == [(b"k", b"a", [("h", b"1"), ("h", None)])]
    assert records(cluster, two, 2, 2) == [(None, b"b", None), (None, None, None)]


def test_a_row_larger_than_a_batch(
    spark: Any, cluster: ProcessCluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    frame = spark.range(3).selectExpr("repeat(string(id), 200000) AS value").coalesce(1)
    write(frame, cluster, topic=topic, kafka_batch_size=1000)
    assert sorted(read(cluster.bootstrap, topic)) == [str(i) * 200_000 for i in range(3)]


@pytest.mark.spark_quick
def test_a_job_that_fails_leaves_nothing(
    spark: Any, cluster: ProcessCluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    frame = spark.range(0, 20_000, 1, 4).selectExpr(
        "IF(id = 19999, raise_error('this row is bad'), concat('row ', id)) AS value"
    )
    with pytest.raises(Exception, match="this row is bad"):
        write(frame, cluster, topic=topic)
    # Readers are not held up: what comes afterwards is read at once.
    write(spark.range(1).selectExpr("'good' AS value"), cluster, topic=topic)
    wait_until(lambda: all_values(cluster, topic, 2) == ["good"], 10, "only the good row is there")


def test_at_least_once_without_transactions(
    spark: Any, cluster: ProcessCluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    frame = spark.range(100).selectExpr("string(id) AS value")
    write(frame, cluster, topic=topic, kafka_enable_transactions="false")
    assert sorted(read(cluster.bootstrap, topic)) == sorted(map(str, range(100)))


def test_a_topic_that_is_not_there_is_made_by_a_cluster_that_makes_topics(
    spark: Any, cluster: ProcessCluster
) -> None:
    write(spark.range(1).selectExpr("'x' AS value"), cluster, topic="made-by-spark")
    assert "x" in [v for p in range(1) for v in read(cluster.bootstrap, "made-by-spark", p)]


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (["'x' AS valu"], {"topic": "t"}, "no column 'value'"),
        (["'x' AS value"], {}, "set the option 'topic'"),
        (["1 AS value"], {"topic": "t"}, "column 'value' is int; it has to be string or binary"),
        (["'x' AS value", "'0' AS partition"], {"topic": "t"}, "column 'partition' is string"),
        (["'x' AS value", "1 AS topic"], {}, "column 'topic' is int"),
        (["'x' AS value", "map('a', 'b') AS headers"], {"topic": "t"}, "column 'headers' is map"),
        (["'x' AS value"], {"topic": "t", "kafka.acks": "1"}, "acks=all"),
        (["'x' AS value"], {"topic": "t", "kafka.compression.type": "rar"}, "'rar' is none of"),
        (["'x' AS value"], {"topic": "t", "kafka.value.serializer": "X"}, "not supported"),
        (["'x' AS value"], {"topic": "t", "kafka.transactional.id": "X"}, "not supported"),
        (["'x' AS value"], {"topic": "t", "firstBach": "1"}, "did you mean"),
        (["'x' AS value"], {"topic": " "}, "option 'topic': ' ' is no name of a topic"),
        (["'x' AS value"], {"topic": "t", "kafka.enable.transactions": "no"}, "neither true nor"),
        (["'x' AS value"], {"topic": "bad name!"}, "'bad name!' is no name of a topic"),
    ],
)
def test_what_cannot_be_written_is_refused_in_one_line(
    spark: Any, cluster: ProcessCluster, columns: list[str], options: dict[str, str], said: str
) -> None:
    writer = spark.range(1).selectExpr(*columns).write.format("ottla").mode("append")
    writer = writer.option("kafka.bootstrap.servers", cluster.bootstrap).options(**options)
    with pytest.raises(Exception, match=said) as error:
        writer.save()
    assert "Traceback" not in str(error.value)


def test_overwriting_is_refused(spark: Any, cluster: ProcessCluster) -> None:
    writer = spark.range(1).selectExpr("'x' AS value").write.format("ottla").mode("overwrite")
    with pytest.raises(Exception, match="cannot be overwritten"):
        writer.option("kafka.bootstrap.servers", cluster.bootstrap).option("topic", "t").save()


def test_a_row_without_topic_or_with_a_partition_too_high_is_refused(
    spark: Any, cluster: ProcessCluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    with pytest.raises(Exception, match="a row has no topic"):
        write(spark.sql("SELECT 'x' AS value, CAST(NULL AS string) AS topic"), cluster)
    with pytest.raises(Exception, match="partition 7 of topic"):
        write(spark.sql("SELECT 'x' AS value, 7 AS partition"), cluster, topic=topic)


def test_brokers_that_are_not_there_are_named(spark: Any) -> None:
    writer = spark.range(1).selectExpr("'x' AS value").write.format("ottla").mode("append")
    with pytest.raises(Exception, match=r"no broker answers: 127\.0\.0\.1:1 "):
        writer.option("kafka.bootstrap.servers", "127.0.0.1:1").option("topic", "t").save()
