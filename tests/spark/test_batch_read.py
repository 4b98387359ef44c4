"""Batch queries over a real cluster: every row as it was written, and the options that say which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: scripts/setup --spark")

from confluent_kafka import Producer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

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


def values(frame: Any) -> list[int]:
    return sorted(
        int(row.timestamp_ms) // 1000
        for row in frame.selectExpr(
            "unix_millis(timestamp) - 1700000000000 AS timestamp_ms"
        ).collect()
    )


def test_every_column_of_every_row(read: Callable[..., Any], topic: str) -> None:
    rows = read(subscribe=topic, includeHeaders=True).orderBy("timestamp").collect()
    assert len(rows) == RECORDS
    for i, row in enumerate(rows):
        assert row.key == (f"key-{i}".encode() if i % 10 else None)
        assert row.value == (f"value-{i}".encode() if i % 7 else None)
        assert (row.topic, row.partition, row.offset) == (topic, i % PARTITIONS, i // PARTITIONS)
        assert row.timestamp.timestamp() == 1_700_000_000 + i
        assert row.timestampType == 0
        assert (row.headers or []) == ([("a", str(i).encode()), ("b", None)] if i % 2 else [])
        assert (row.headers is None) == (i % 2 == 0)
