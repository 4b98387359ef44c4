"""Streams over a real cluster: every record once, across restarts and a broker's death; progress that any Kafka tool can see."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: scripts/setup --spark")

from confluent_kafka import Producer, TopicPartition
from pyspark.errors import StreamingQueryException

from support.cluster import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = 3
TOO_LATE = "Python worker failed to connect back"


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
        for patience in range(4, -1, -1):
            query = self.start(topic, {"availableNow": True}, **options)
            try:
                assert query.awaitTermination(300)
                return query
            except StreamingQueryException as error:
                # Spark gives a Python process ten seconds to start. On a busy machine that is not enough.
                if TOO_LATE not in str(error) or not patience:
                    raise
        raise AssertionError("unreachable")


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

    group = progress(last)["group"]
    assert group.startswith("spark-kafka-source-")
    assert lag(cluster, group) == 0


def progress(source: dict[str, Any]) -> dict[str, Any]:
    offset = source["endOffset"]
    return dict(json.loads(offset) if isinstance(offset, str) else offset)


def lag(cluster: Any, group: str) -> int:
    told = cluster.ottla("groups", "describe", group)
    return sum(row["lag"] for row in told["partitions"])


def test_a_stream_reads_on_while_its_brokers_die(
    spark: Any, new_cluster: Callable[..., Any], tmp_path: Path
) -> None:
    cluster = new_cluster()
    topic = cluster.create_topic("orders", partitions=PARTITIONS)
    sink = Sink(spark, cluster.bootstrap, tmp_path / "checkpoint")
    produce(cluster, topic, range(90))
    named = {"kafka__group__id": "watched", "commitProgress": "true"}
    sink.run(topic, **named)
    assert sink.numbers == list(range(90))
    query = sink.start(topic, {"processingTime": "1 second"}, **named)
    victim = cluster.leader(topic, 0)
    cluster.kill(victim)
    produce(cluster, topic, range(90, 180))
    wait_until(lambda: len(sink.numbers) >= 180, 120, "the records after the death of a broker")
    cluster.start(victim)
    produce(cluster, topic, range(180, 240))
    wait_until(lambda: len(sink.numbers) >= 240, 120, "the records after its return")
    assert sink.numbers == list(range(240)), "each once"
    assert query.exception() is None
    wait_until(lambda: lag(cluster, "watched") == 0, 60, "the progress in its group")
    query.stop()


@pytest.fixture
def half_read(sink: Sink, cluster: Any, new_topic: Callable[..., str]) -> str:
    """A topic of which a stream has read 30 records."""
    topic = new_topic(partitions=PARTITIONS)
    produce(cluster, topic, range(30))
    sink.run(topic)
    assert sink.numbers == list(range(30))
    return topic


def failure(sink: Sink, topic: str) -> str:
    with pytest.raises(StreamingQueryException) as raised:
        sink.run(topic)
    assert TOO_LATE not in str(raised.value)
    return str(raised.value).partition("JVM stacktrace")[0]


@pytest.mark.parametrize(
    "trigger", [{"availableNow": True}, {"processingTime": "1 second"}], ids=str
)
def test_a_mistyped_option_is_told_in_one_line(sink: Sink, trigger: dict[str, Any]) -> None:
    query = sink.start("any", trigger, maxOffsetPerTrigger=3)
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(300)
    told = str(raised.value).partition("JVM stacktrace")[0]
    assert (
        "option 'maxoffsetpertrigger': is not known; did you mean 'maxOffsetsPerTrigger'?" in told
    )
    assert "Traceback" not in told


def test_records_that_aged_out_are_told(sink: Sink, cluster: Any, half_read: str) -> None:
    produce(cluster, half_read, range(30, 90))
    (deleted,) = cluster.admin.delete_records([TopicPartition(half_read, 1, 15)]).values()
    deleted.result()
    told = failure(sink, half_read)
    assert f"{half_read}-1: 5 records, offsets 10 to 14, aged out" in told
    assert "Traceback" not in told
    query = sink.run(half_read, failOnDataLoss="false")
    gone = {1 + 3 * offset for offset in range(10, 15)}
    assert sink.numbers == [each for each in range(90) if each not in gone]
    marks = progress(query.lastProgress["sources"][0])["topics"][half_read]["partitions"]
    assert marks["1"]["lost"] == 5


def test_a_topic_that_was_made_anew_is_told(sink: Sink, cluster: Any, half_read: str) -> None:
    cluster.ottla("topics", "delete", half_read)
    cluster.create_topic(half_read, partitions=PARTITIONS)
    produce(cluster, half_read, range(100, 190))
    told = failure(sink, half_read)
    assert f"{half_read}-0: records from offset 10 on are gone with their topic" in told
    sink.run(half_read, failOnDataLoss="false")
    assert sink.numbers == [*range(30), *range(100, 190)]
