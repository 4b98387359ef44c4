"""Audit: are all replicas the same? Every copy of every record is read from the broker that has it, and compared.

Prints a line for each partition: identical up to the high watermark, or the first offset where copies differ and who has
which. Exits with 1 if any differ.
"""

import argparse
import json
import sys

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from ottla.client import BlockingClient
from ottla.client.model import Topic
from ottla.config import split_address


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--bootstrap", required=True, help="host:port of brokers")
    arguments.add_argument("--directory", help="nothing is written")
    arguments.add_argument("--topics", help="names, with commas between them; default: all")
    chosen = arguments.parse_args()
    spark = SparkSession.builder.appName("audit").getOrCreate()
    found = audit(spark, chosen.bootstrap, chosen.topics.split(",") if chosen.topics else None)
    spark.stop()
    for line in map(told, found):
        print(line)
    sys.exit(any(row.difference is not None for row in found))


def audit(spark: SparkSession, bootstrap: str, names: list[str] | None = None) -> list[Row]:
    """Per partition: how many replicas and records were compared, and the first difference if there is one."""
    topics = described(bootstrap, names)
    grouped = copies(spark, bootstrap, topics).groupBy("topic", "partition", "offset")
    records = grouped.agg(
        F.count("*").alias("replicas"),
        F.count_distinct("checksum").alias("kinds"),
        F.sort_array(F.collect_list(F.struct("broker", "checksum"))).alias("copies"),
    ).join(expected(spark, topics), ["topic", "partition"])
    differs = (F.col("kinds") > 1) | (F.col("replicas") != F.col("assigned"))
    return (
        records.groupBy("topic", "partition")
        .agg(
            F.first("assigned").alias("replicas"),
            F.count("*").alias("records"),
            F.min(F.when(differs, F.struct("offset", "copies"))).alias("difference"),
        )
        .orderBy("topic", "partition")
        .collect()
    )


def described(bootstrap: str, names: list[str] | None) -> list[Topic]:
    with BlockingClient([split_address(part) for part in bootstrap.split(",")]) as blocking:
        told = blocking.run(blocking.client.metadata())
    return [topic for topic in told.topics if names is None or topic.name in names]


def expected(spark: SparkSession, topics: list[Topic]) -> DataFrame:
    rows = [
        (topic.name, partition.partition, len(partition.replicas))
        for topic in topics
        for partition in topic.partitions
    ]
    return spark.createDataFrame(rows, "topic STRING, partition INT, assigned INT")


def copies(spark: SparkSession, bootstrap: str, topics: list[Topic]) -> DataFrame:
    """Every record of every replica, up to the high watermark at this moment: who has it, and its checksum."""
    hosted: dict[int, dict[str, list[int]]] = {}
    for topic in topics:
        for partition in topic.partitions:
            for broker in partition.replicas:
                hosted.setdefault(broker, {}).setdefault(topic.name, []).append(partition.partition)
    frames = [
        spark.read.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("assign", json.dumps(partitions))
        .option("readReplica", str(broker))
        .option("includeHeaders", "true")
        .load()
        .select("topic", "partition", "offset", checksum(), F.lit(broker).alias("broker"))
        for broker, partitions in sorted(hosted.items())
    ]
    every = frames[0]
    for frame in frames[1:]:
        every = every.unionAll(frame)
    return every


def checksum() -> Column:
    """Over all that a record has; what is absent is not the same as what is empty."""
    fields = ("key", "value", "headers", "timestamp", "timestampType")
    return F.xxhash64(*fields, *(F.col(field).isNull() for field in fields)).alias("checksum")


def told(row: Row) -> str:
    what = f"{row.topic}-{row.partition}: {row.records} records on {row.replicas} replicas"
    if row.difference is None:
        return f"{what}, identical up to the high watermark"
    shown = ", ".join(f"broker {each.broker}: {each.checksum:x}" for each in row.difference.copies)
    return f"{what}, DIFFERENT from offset {row.difference.offset} on ({shown})"


if __name__ == "__main__":
    main()
