"""Archive: topics become Parquet, a directory per topic and day, each record exactly once.

A run takes what is new and ends; run it as often as wished. `whole` joins the archive and what is not in it yet.
"""

import argparse
import json

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla.spark.command_config import client_of, cluster_options

EARLIEST = -2
SCHEMA = (
    "key BINARY, value BINARY, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, topic STRING, date DATE"
)
"""Told and not guessed: of the directory of a topic named 007 Spark would make the number 7."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--bootstrap", required=True, help="host:port of brokers")
    arguments.add_argument("--command-config", help="properties of Kafka's clients: TLS, SASL")
    arguments.add_argument("--directory", required=True, help="of the archive")
    arguments.add_argument("--topics", required=True, help="names, with commas between them")
    chosen = arguments.parse_args()
    spark = SparkSession.builder.appName("archive").getOrCreate()
    cluster = cluster_options(chosen.bootstrap, chosen.command_config)
    records = archive(spark, cluster, chosen.topics, chosen.directory)
    spark.stop()
    print(
        f"archive: {records} new records of {chosen.topics}, as Parquet in {chosen.directory}/records"
    )


def archive(spark: SparkSession, cluster: dict[str, str], topics: str, directory: str) -> int:
    """`cluster`: the options by which sources reach it. Spark's file sink notes which files belong to which batch: a batch that runs again is not there twice.
    Returns how many records were new."""
    rows = (
        spark.readStream.format("ottla")
        .options(**cluster)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topics)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
        .withColumn("date", F.to_date("timestamp"))
    )
    query = (
        rows.writeStream.format("parquet")
        .partitionBy("topic", "date")
        .option("path", f"{directory}/records")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(batch["numInputRows"] for batch in query.recentProgress)


def whole(spark: SparkSession, cluster: dict[str, str], topics: str, directory: str) -> DataFrame:
    """What is archived and what is only in the log, as one DataFrame: no gap, nothing twice."""
    archived = spark.read.schema(SCHEMA).parquet(f"{directory}/records").drop("date")
    ends = archived.groupBy("topic", "partition").agg(F.max("offset")).collect()
    archived_to = {(topic, partition): last + 1 for topic, partition, last in ends}
    wanted = topics.split(",")
    with client_of(cluster) as blocking:
        described = [blocking.run(blocking.client.topic(name)) for name in wanted]
    starts = {
        topic.name: {
            str(each.partition): archived_to.get((topic.name, each.partition), EARLIEST)
            for each in topic.partitions
        }
        for topic in described
    }
    live = (
        spark.read.format("ottla")
        .options(**cluster)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topics)
        .option("startingOffsets", json.dumps(starts))
        .option("includeHeaders", "true")
        .load()
    )
    return archived.where(F.col("topic").isin(wanted)).unionByName(live)


if __name__ == "__main__":
    main()
