"""The event log on Spark: its entries as rows, in a batch and in a stream, and the incidents in it."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: scripts/setup --spark")

from confluent_kafka import Producer

from ottla.event_log.entry import EventEntry, Told
from ottla.spark.columns import event_columns
from ottla.wire.types import TopicPartition
from support.cluster import ProcessCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)
JOB = Path(__file__).resolve().parents[2] / "pipelines" / "incidents" / "job.py"


def entry(
    number: int, seconds: float, kind: str, partition: str | None = None, **fields: Any
) -> EventEntry:
    cause, node, about = fields.pop("cause", None), fields.pop("node", 1), fields.pop("about", "")
    place = None
    if partition is not None:
        topic, _, index = partition.rpartition("-")
        place, about = TopicPartition(topic, int(index)), f"partition:{partition}"
    at_ms = round((BEGAN.timestamp() + seconds) * 1000)
    return EventEntry(at_ms, node, f"1-a-{number}", Told(kind, about, cause, fields, place))


def outage() -> list[EventEntry]:
    """Broker 2 dies and returns after ten minutes; orders-1 is offline meanwhile, and loses 40 records. Beside it, a client
    above its quota. An hour later a planned restart of broker 3."""
    refused = "its address refuses connections"
    lost = {"first_offset": 60, "end_offset": 110, "records": 50, "high_watermark": 100}
    return [
        entry(90, -9, "unfenced", broker=2, about="broker:2"),
        entry(0, 0, "fenced", broker=2, cause=refused, about="broker:2"),
        entry(1, 0, "isr_shrink", "orders-0", brokers=[2], isr=[1, 3], cause="fenced"),
        entry(2, 0, "election", "orders-0", leader=1, previous_leader=2, how="clean", leader_epoch=4),
        entry(3, 0.25, "leader_start", "orders-0", leader=1, leader_epoch=4, log_end=9),
        entry(4, 0, "offline", "orders-1", previous_leader=2),
        entry(5, 5, "quota_exceeded", client_id="importer", quota="producer_byte_rate", about="client:importer"),
        entry(6, 30, "election", "orders-1", leader=3, previous_leader=-1, how="unclean"),
        entry(7, 600, "unfenced", broker=2, about="broker:2"),
        entry(8, 601, "truncation", "orders-1", node=2, leader=3, below_high_watermark=True, **lost),
        entry(9, 602, "isr_expand", "orders-0", brokers=[2], isr=[1, 3, 2], cause="caught_up"),
        entry(10, 4000, "node_stop", node=3, about="broker:3"),
        entry(11, 4001, "fenced", broker=3, cause="its controlled shutdown is complete", about="broker:3"),
        entry(12, 4001, "isr_shrink", "orders-0", brokers=[3], isr=[1, 2], cause="shutdown"),
        entry(13, 4010, "unfenced", broker=3, about="broker:3"),
    ]  # fmt: skip


def write(cluster: ProcessCluster, topic: str, entries: Iterable[EventEntry]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for each in entries:
        key, value = each.encode()
        producer.produce(topic, value, key, partition=0, timestamp=each.at_ms)
    assert producer.flush(30) == 0


def options(cluster: ProcessCluster, topic: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "subscribe": topic,
        "events": "true",
        "startingOffsets": "earliest",
    }


@pytest.mark.spark_quick
def test_entries_are_rows_in_a_batch_and_in_a_stream(
    spark: Any, cluster: ProcessCluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic()
    entries = outage()
    write(cluster, topic, [*entries, entries[0]])  # the last one is a repeat
    table = spark.read.format("ottla").options(**options(cluster, topic)).load()
    assert table.schema == event_columns()
    rows = table.orderBy("offset").collect()
    assert [row.id for row in rows] == [each.id for each in entries]
    first, shrunk = rows[1], rows[2]
    assert (first.kind, first.node, first.partition, first.about) == ("fenced", 1, None, "broker:2")
    assert first.at.astimezone(UTC) == BEGAN and first.fields == {"broker": "2"}
    assert (shrunk.partition, shrunk.cause) == ("orders-0", "fenced")
    assert json.loads(shrunk.fields["isr"]) == [1, 3]
    assert table.where("partition = 'orders-1'").count() == 3, "a condition on a column of events"

    def count(batch: Any, _: int) -> None:
        seen.extend(row.id for row in batch.select("id").collect())

    seen: list[str] = []
    stream = spark.readStream.format("ottla").options(**options(cluster, topic)).load()
    query = (
        stream.writeStream.foreachBatch(count)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    assert seen == [each.id for each in entries]


def job() -> ModuleType:
    found = importlib.util.spec_from_file_location("incidents_job", JOB)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_events_that_belong_together_are_one_incident(
    spark: Any, cluster: ProcessCluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    write(cluster, topic, outage())
    pipeline = job()
    reached = options(cluster, topic)
    rows = pipeline.incidents(pipeline.events(spark, reached)).collect()
    broker, quota = rows
    assert broker.start.astimezone(UTC) == BEGAN and broker.seconds == 602
    assert broker.cause == "broker 2 was fenced: its address refuses connections"
    assert broker.brokers == [2] and broker.partitions == ["orders-0", "orders-1"]
    assert broker.unavailable == {"orders-0": 0.25, "orders-1": 30.0}
    assert broker.records_lost == 40
    assert broker.events["isr_shrink"] == 1 and broker.events["truncation"] == 1
    assert quota.cause == "client importer was above its quota" and quota.seconds == 0
    text = pipeline.report(rows)
    assert "2 incidents in the event log." in text
    assert "## 1. 2026-03-01 12:00:00 UTC, 602.0 s" in text
    assert "- Without a leader: orders-1 30.000 s, orders-0 0.250 s." in text
    assert "- Records lost: 40." in text
    assert "| broker 2 was fenced: its address refuses connections |" in text


def test_a_long_calm_parts_incidents_of_the_same_partition(
    spark: Any, cluster: ProcessCluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    flaps = [
        each
        for number in range(3)
        for each in (
            entry(
                2 * number, 200 * number, "isr_shrink", "a-0", brokers=[2], isr=[1], cause="slow"
            ),
            entry(2 * number + 1, 200 * number + 150, "isr_expand", "a-0", brokers=[2], isr=[1, 2]),
        )
    ]
    write(cluster, topic, flaps)
    pipeline = job()
    logged = pipeline.events(spark, options(cluster, topic))
    apart = pipeline.incidents(logged, gap_s=40).collect()
    assert [row.seconds for row in apart] == [150.0] * 3, "out of sync for longer than the gap"
    assert [row.seconds for row in pipeline.incidents(logged, gap_s=60).collect()] == [550.0]
    assert pipeline.report([]) == "# Incidents\n\nNo incident is in the event log.\n"
