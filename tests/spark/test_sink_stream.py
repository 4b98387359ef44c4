"""A stream writes to a topic with `format("ottla")`: each micro-batch once, also if Spark runs it again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: scripts/setup --spark")

from ottla.client import BlockingClient
from ottla.client.transaction_admin import ONGOING, TransactionAdmin
from support.cluster import ProcessCluster, wait_until
from support.transactions import read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2000)]

PARTITIONS = 2
ROWS = 50
PATIENCE_S = 900


class Stream:
    """Lines of files to a topic, a file for each micro-batch."""

    def __init__(
        self, spark: Any, cluster: ProcessCluster, topic: str, directory: Path, **options: object
    ) -> None:
        self.spark = spark
        self.cluster = cluster
        self.topic = topic
        self.input = directory / "input"
        self.input.mkdir()
        self.checkpoint = directory / "checkpoint"
        self.options = options
        self.written: list[str] = []

    def add(self, *names: str) -> None:
        for name in names:
            rows = [f"{name} {number}" for number in range(ROWS)]
            (self.input / f"{name}.txt").write_text("".join(f"{row}\n" for row in rows))
            self.written += rows

    def run(self) -> Any:
        """Until everything that is there is written."""
        lines = self.spark.readStream.format("text").option("maxFilesPerTrigger", 1)
        writer = (
            lines.load(str(self.input))
            .repartition(2, "value")
            .selectExpr("value", "value AS key")
            .writeStream.format("ottla")
            .option("kafka.bootstrap.servers", self.cluster.bootstrap)
            .option("topic", self.topic)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
        )
        for name, value in self.options.items():
            writer = writer.option(name.replace("_", "."), value)
        query = writer.start()
        assert query.awaitTermination(PATIENCE_S), "it does not come to an end"
        return query

    def forget(self, batch: int) -> None:
        """As if Spark had died before it noted that the batch is done."""
        (self.checkpoint / "commits" / str(batch)).unlink()
        (self.checkpoint / "commits" / f".{batch}.crc").unlink(missing_ok=True)

    def output(self, *, committed: bool = True) -> list[str]:
        return sorted(
            value
            for partition in range(PARTITIONS)
            for value in read(self.cluster.bootstrap, self.topic, partition, committed=committed)
        )

    def is_exact(self) -> None:
        wanted = sorted(self.written)
        wait_until(lambda: self.output() == wanted, 20, "every row once", every=0.2)
        assert self.open_transactions() == []

    def open_transactions(self) -> list[str]:
        addresses = [("127.0.0.1", node.port) for node in self.cluster.nodes.values()]
        with BlockingClient(addresses) as blocking:
            heard = blocking.run(TransactionAdmin(blocking.client).all(states=(ONGOING,)))
        return [each.id for each in heard.answers]


@pytest.fixture
def stream(
    spark: Any, cluster: ProcessCluster, new_topic: Callable[..., str], tmp_path: Path
) -> Stream:
    return Stream(spark, cluster, new_topic(partitions=PARTITIONS), tmp_path)


def test_P51_batches_that_spark_runs_again_change_nothing(stream: Stream) -> None:
    stream.add("a", "b")
    stream.run()
    stream.is_exact()
    stream.forget(1)
    stream.add("c")
    stream.run()
    stream.is_exact()
    assert len(stream.output(committed=False)) == 4 * ROWS, "b was written twice, and aborted once"


def test_without_transactions_a_batch_that_is_run_again_is_written_again(stream: Stream) -> None:
    stream.options["kafka.enable.transactions"] = "false"
    stream.add("a")
    stream.run()
    assert stream.output() == sorted(stream.written)
    stream.forget(0)
    stream.run()
    assert stream.output() == sorted(stream.written * 2)


def test_a_query_that_comes_late_to_transactions_says_where_it_begins(stream: Stream) -> None:
    stream.options["kafka.enable.transactions"] = "false"
    stream.add("a")
    stream.run()
    del stream.options["kafka.enable.transactions"]
    stream.add("b")
    with pytest.raises(Exception, match="set the option 'firstBatch' to 1"):
        stream.run()
    stream.options["firstBatch"] = 1
    stream.run()
    stream.is_exact()


def test_a_checkpoint_older_than_the_output_is_refused(stream: Stream, tmp_path: Path) -> None:
    stream.add("a")
    stream.run()
    old = shutil.copytree(stream.checkpoint, tmp_path / "old")
    stream.add("b", "c")
    stream.run()
    shutil.rmtree(stream.checkpoint)
    old.rename(stream.checkpoint)
    with pytest.raises(Exception, match="older than its output") as error:
        stream.run()
    assert "Traceback" not in str(error.value)
    stream.is_exact()


def test_a_broker_dies_while_a_stream_writes(
    spark: Any, new_cluster: Callable[..., ProcessCluster], tmp_path: Path
) -> None:
    three = new_cluster(3, broker_session_timeout_ms="3000", broker_heartbeat_interval_ms="500")
    stream = Stream(spark, three, three.create_topic("t", partitions=PARTITIONS), tmp_path)
    stream.add("a")
    stream.run()
    for victim, name in enumerate("bcd", start=1):
        three.kill(victim)
        stream.add(name)
        stream.run()
        three.start(victim)
    stream.is_exact()
