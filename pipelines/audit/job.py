"""Audit: are all replicas the same? Every copy of every record is read from the broker that has it, and compared.

Prints a line for each partition: identical up to the high watermark, or the first offset where copies differ and who has
which. Exits with 1 if any differ.
"""

import argparse
import json
import sys
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from ottla.client import BlockingClient
from ottla.client.client import EARLIEST, LATEST
from ottla.client.model import Topic
from ottla.spark.command_config import client_of, cluster_options


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--bootstrap", required=True, help="host:port of brokers")
    arguments.add_argument("--command-config", help="properties of Kafka's clients: TLS, SASL")
    arguments.add_argument("--directory", help="nothing is written")
    arguments.add_argument(
        "--topics",
        help="names, with commas between them; default: all but internal and compacted ones, whose replicas may differ",
    )
    chosen = arguments.parse_args()
    spark = SparkSession.builder.appName("audit").getOrCreate()
    cluster = cluster_options(chosen.bootstrap, chosen.command_config)
    found = audit(spark, cluster, chosen.topics.split(",") if chosen.topics else None)
    spark.stop()
    for line in map(told, found):
        print(line)
    if not found:
        print("audit: there is no topic to compare")
    sys.exit(any(row.difference is not None for row in found))


def audit(
    spark: SparkSession, cluster: dict[str, str], names: list[str] | None = None
) -> list[Row]:
    """`cluster`: the options by which sources reach it. Per partition: how many replicas and records were compared, and the first difference if there is one."""
    topics, extents = described(cluster, names)
    if not topics:
        return []
    assigned = expected(spark, topics)
    grouped = copies(spark, cluster, topics, extents).groupBy("topic", "partition", "offset")
    records = grouped.agg(
        F.count("*").alias("replicas"),
        F.count_distinct("checksum").alias("kinds"),
        F.sort_array(F.collect_list(F.struct("broker", "checksum"))).alias("copies"),
    ).join(assigned, ["topic", "partition"])
    differs = (F.col("kinds") > 1) | (F.col("replicas") != F.col("assigned"))
    compared = records.groupBy("topic", "partition").agg(
        F.count("*").alias("records"),
        F.min(F.when(differs, F.struct("offset", "copies"))).alias("difference"),
    )
    how_many = F.coalesce("records", F.lit(0)).alias("records")  # empty partitions are named too
    return (
        assigned.join(compared, ["topic", "partition"], "left")
        .select("topic", "partition", F.col("assigned").alias("replicas"), how_many, "difference")
        .orderBy("topic", "partition")
        .collect()
    )


Extents = Mapping[tuple[str, int], tuple[int, int]]
"""Of each partition, where its log begins and its high watermark: asked for once, so that all copies are compared over the
same offsets while others write."""


def described(cluster: dict[str, str], names: list[str] | None) -> tuple[list[Topic], Extents]:
    with client_of(cluster) as blocking:
        client = blocking.client
        told = blocking.run(client.metadata())
        topics = [
            topic
            for topic in told.topics
            if (topic.name in names if names is not None else _is_kept_whole(blocking, topic))
        ]
        extents = {
            (topic.name, each.partition): (
                blocking.run(client.offset(topic.name, each.partition, EARLIEST)),
                blocking.run(client.offset(topic.name, each.partition, LATEST)),
            )
            for topic in topics
            for each in topic.partitions
        }
    return topics, extents


def _is_kept_whole(blocking: BlockingClient, topic: Topic) -> bool:
    """Each replica compacts for itself, when it likes."""
    if topic.internal:
        return False
    configs = blocking.run(blocking.client.topic_configs(topic.name))
    policy = next((each.value for each in configs if each.name == "cleanup.policy"), None)
    return "compact" not in (policy or "")


def expected(spark: SparkSession, topics: list[Topic]) -> DataFrame:
    rows = [
        (topic.name, partition.partition, len(partition.replicas))
        for topic in topics
        for partition in topic.partitions
    ]
    return spark.createDataFrame(rows, "topic STRING, partition INT, assigned INT")


def copies(
    spark: SparkSession, cluster: dict[str, str], topics: list[Topic], extents: Extents
) -> DataFrame:
    """Every record of every replica, up to the high watermark at this moment: who has it, and its checksum."""
    hosted: dict[int, dict[str, list[int]]] = {}
    for topic in topics:
        for partition in topic.partitions:
            for broker in partition.replicas:
                hosted.setdefault(broker, {}).setdefault(topic.name, []).append(partition.partition)
    frames = [
        spark.read.format("ottla")
        .options(**cluster)
        .option("assign", json.dumps(partitions))
        .option("startingOffsets", _bounds(partitions, extents, 0))
        .option("endingOffsets", _bounds(partitions, extents, 1))
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


def _bounds(partitions: dict[str, list[int]], extents: Extents, side: int) -> str:
    return json.dumps(
        {
            topic: {str(number): extents[topic, number][side] for number in numbers}
            for topic, numbers in partitions.items()
        }
    )


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
