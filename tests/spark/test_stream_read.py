"""Streams over a real cluster: every record once, across restarts and a broker's death; progress that any Kafka tool can see."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: scripts/setup --spark")

from confluent_kafka import Producer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PARTITIONS = 3


def produce(cluster: Any, topic: str, numbers: Any) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "acks": "all"}
    producer = Producer(settings)
    for i in numbers:
        producer.produce(topic, value=str(i), partition=i % PARTITIONS)
    assert producer.flush(60) == 0


class Sink:
    """Collects what each micro-batch held."""

    def __init__(self, spark: Any, bootstrap: str, directory: Path) -> None:
        self.spark, self.bootstrap, self.directory = spark, bootstrap, directory
        self.batches: dict[int, list[int]] = {}

    @property
    def numbers(self) -> list[int]:
        return sorted(number for batch in self.batches.values() for number in batch)

    def start(self, topic: str, trigger: dict[str, Any], **options: Any) -> Any:
        reader = self.spark.readStream.format("ottla")
        reader = reader.option("kafka.bootstrap.servers", self.bootstrap).option("subscribe", topic)
        for name, value in {"startingOffsets": "earliest", **options}.items():
            reader = reader.option(name.replace("__", "."), value)
        stream = reader.load().selectExpr("CAST(CAST(value AS STRING) AS INT) AS number")

        def take(frame: Any, batch: int) -> None:
            self.batches[batch] = [row.number for row in frame.collect()]

        writer = stream.writeStream.foreachBatch(take).trigger(**trigger)
        return writer.option("checkpointLocation", str(self.directory)).start()

    def run(self, topic: str, **options: Any) -> Any:
        """To the end of what is there now."""
        query = self.start(topic, {"availableNow": True}, **options)
        assert query.awaitTermination(200)
        return query


@pytest.fixture
def sink(spark: Any, cluster: Any, tmp_path: Path) -> Sink:
    return Sink(spark, cluster.bootstrap, tmp_path / "checkpoint")


def test_a_stream_reads_in_bounded_steps_and_goes_on_after_a_restart(
    sink: Sink, cluster: Any, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=PARTITIONS)
    produce(cluster, topic, range(300))
    query = sink.run(topic, maxOffsetsPerTrigger=100)
    assert [len(batch) for _, batch in sorted(sink.batches.items())] == [99, 99, 99, 3]
    assert sink.numbers == list(range(300))
    last = query.lastProgress["sources"][0]

    produce(cluster, topic, range(300, 420))
    sink.run(topic)
    assert sink.numbers == list(range(420))

    offsets = (
        json.loads(last["endOffset"]) if isinstance(last["endOffset"], str) else last["endOffset"]
    )
    group = offsets["group"]
    assert group.startswith("spark-kafka-source-")
    lags = cluster.ottla("groups", "describe", group)
    assert sum(row["lag"] for row in lags["offsets"]) == 0
