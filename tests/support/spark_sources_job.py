"""A Spark session that does a task a line on stdin and answers a line on stdout: FORMAT DIRECTORY [JARS].

The same programme for both sources, each in the environment of its own Spark: FORMAT is the one word that differs.
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, length, lpad, max, sum

FORMAT, DIRECTORY, JARS = (*sys.argv[1:], "")[:3]
session = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", JARS)
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.memory", "1g")
    .config("spark.local.dir", f"{DIRECTORY}/local")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.warehouse.dir", f"{DIRECTORY}/warehouse")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
queries: dict[str, Any] = {}
arrived: dict[str, list[tuple[str | None, float]]] = {}
something_arrived = threading.Condition()


def write(
    bootstrap: str, topic: str, start: int, end: int, options: dict[str, str] | None = None
) -> None:
    """The numbers from start to end, each its own key."""
    number = col("id").cast("string")
    rows = session.range(start, end, numPartitions=2).select(
        number.alias("key"), number.alias("value")
    )
    save(rows, {"kafka.bootstrap.servers": bootstrap, "topic": topic, **(options or {})})


def save(rows: DataFrame, options: dict[str, str]) -> None:
    rows.write.format(FORMAT).mode("append").options(**options).save()


def read(bootstrap: str, topic: str, options: dict[str, str] | None = None) -> list[list[Any]]:
    """Every row: partition, offset, timestamp in ms, key, value, headers."""
    rows = (
        session.read.format(FORMAT)
        .options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
        .options(**{"includeHeaders": "true", **(options or {})})
        .load()
        .orderBy("partition", "offset")
        .collect()
    )
    return [
        [
            row.partition,
            row.offset,
            int(row.timestamp.timestamp() * 1000),
            text(row.key),
            text(row.value),
            [[header.key, text(header.value)] for header in row.headers or []],
        ]
        for row in rows
    ]


def table(bootstrap: str, options: dict[str, str]) -> dict[str, Any]:
    """Columns and rows of a batch query, whatever they are, in an order and a form of which there is only one."""
    frame = (
        session.read.format(FORMAT)
        .options(**{"kafka.bootstrap.servers": bootstrap, "includeHeaders": "true", **options})
        .load()
    )
    columns = ["topic", "partition", "offset", "hex(key)", "hex(value)"]
    columns += ["unix_micros(timestamp)", "timestampType"]
    if "headers" in frame.columns:
        columns.append("transform(headers, each -> array(each.key, hex(each.value)))")
    return {
        "columns": frame.schema.simpleString(),
        "rows": sorted(list(row) for row in frame.selectExpr(*columns).collect()),
    }


def measure(bootstrap: str, topic: str) -> dict[str, float]:
    """How long it takes to read a topic to its end, and what was read."""
    began = time.monotonic()
    rows = (
        session.read.format(FORMAT)
        .options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
        .load()
        .agg(count("*"), sum(length("value")), max("offset"))
        .collect()
    )
    return {"seconds": time.monotonic() - began, "rows": rows[0][0], "bytes": rows[0][1]}


def measure_write(bootstrap: str, topic: str, rows: int, size: int) -> dict[str, float]:
    """How long it takes to write rows without keys."""
    began = time.monotonic()
    made = session.range(0, rows, numPartitions=2)
    values = made.select(lpad(col("id").cast("string"), size, "x").alias("value"))
    save(values, {"kafka.bootstrap.servers": bootstrap, "topic": topic})
    return {"seconds": time.monotonic() - began, "rows": rows, "bytes": rows * size}


def copy(bootstrap: str, source: str, target: str, everything: bool) -> None:
    """Streams one topic into another; everything: what is there now, then it ends."""
    rows = (
        session.readStream.format(FORMAT)
        .options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": source})
        .options(startingOffsets="earliest", failOnDataLoss="true")
        .load()
        .select("key", "value")
    )
    writer = (
        rows.writeStream.format(FORMAT)
        .option("kafka.bootstrap.servers", bootstrap)
        .options(topic=target, checkpointLocation=f"{DIRECTORY}/checkpoint-{target}")
    )
    if everything:
        writer.trigger(availableNow=True).start().awaitTermination()
    else:
        queries[target] = writer.trigger(processingTime="100 milliseconds").start()


def watch(bootstrap: str, topic: str, options: dict[str, str] | None = None) -> None:
    """A stream with the default trigger, as fast as Spark goes, that notes when each row is in the driver."""
    rows = (
        session.readStream.format(FORMAT)
        .options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
        .options(startingOffsets="earliest", **(options or {}))
        .load()
    )
    arrived[topic] = []

    def note(batch: DataFrame, _: int) -> None:
        values = [text(row.value) for row in batch.select("value").collect()]
        with something_arrived:
            arrived[topic] += [(value, time.monotonic()) for value in values]
            something_arrived.notify_all()

    writer = rows.writeStream.foreachBatch(note)
    queries[topic] = writer.option("checkpointLocation", f"{DIRECTORY}/watch-{topic}").start()


def arrival(topic: str, value: str) -> float:
    """When a row with that value was in the driver (time.monotonic, which all processes share)."""
    while True:
        with something_arrived:
            for seen, moment in arrived[topic]:
                if seen == value:
                    return moment
            something_arrived.wait(1)
        if (reason := queries[topic].exception()) is not None:
            raise reason


def stop(target: str) -> None:
    """Where the query had failed, its reason."""
    query = queries.pop(target)
    if (reason := query.exception()) is not None:
        raise reason
    query.processAllAvailable()
    query.stop()


def text(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).decode()


TASKS: dict[str, Callable[..., Any]] = {
    task.__name__: task
    for task in (write, read, table, measure, measure_write, copy, watch, arrival, stop)
}
Path(DIRECTORY).mkdir(parents=True, exist_ok=True)
print(json.dumps({"result": "ready"}), flush=True)
for line in sys.stdin:
    wanted = json.loads(line)
    try:
        answer = {"result": TASKS[wanted.pop("task")](**wanted)}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
    print(json.dumps(answer), flush=True)
session.stop()
