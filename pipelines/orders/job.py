"""Orders, as a plain job: a topic of raw events becomes revenue per product and minute.

What is no order goes to a topic of dead letters. Revenue goes to a topic, exactly once, and to Parquet. A run takes what
is there and ends; the next one goes on where it ended. With --forever it does not end.
"""

import argparse
from typing import Any

import shapes
from pyspark.sql import DataFrame, SparkSession

from ottla.spark.command_config import cluster_options


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--bootstrap", required=True, help="host:port of brokers")
    arguments.add_argument("--command-config", help="properties of Kafka's clients: TLS, SASL")
    arguments.add_argument("--directory", required=True, help="for Parquet and checkpoints")
    arguments.add_argument("--source", default="orders", help="topic of raw events")
    arguments.add_argument("--revenue", default="revenue", help="topic of results")
    arguments.add_argument("--dead-letters", default="orders-dead-letters", help="topic")
    arguments.add_argument("--forever", action="store_true", help="go on until stopped")
    chosen = arguments.parse_args()
    spark = SparkSession.builder.appName("orders").getOrCreate()
    events = run(spark, chosen)
    spark.stop()
    print(
        f"orders: {events} new events of topic {chosen.source}. Revenue of every minute that can no longer change is in topic "
        f"{chosen.revenue} and as Parquet in {chosen.directory}/revenue, what is no order in topic {chosen.dead_letters}"
    )


def run(spark: SparkSession, chosen: argparse.Namespace) -> int:
    """How many events there were."""
    cluster = cluster_options(chosen.bootstrap, chosen.command_config)
    raw = (
        spark.readStream.format("ottla")
        .options(**cluster)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", chosen.source)
        .option("startingOffsets", "earliest")
        .load()
    )
    events = shapes.parsed(raw)
    revenue = shapes.revenue(shapes.orders(events))

    def start(rows: DataFrame, name: str, format: str, **options: Any) -> Any:
        writer = rows.writeStream.queryName(name).format(format).options(**options)
        writer = writer.option("checkpointLocation", f"{chosen.directory}/checkpoints/{name}")
        return (writer if chosen.forever else writer.trigger(availableNow=True)).start()

    letters = shapes.dead_letters(events)
    queries = [
        start(letters, "dead-letters", "ottla", topic=chosen.dead_letters, **cluster),
        start(shapes.as_records(revenue), "revenue", "ottla", topic=chosen.revenue, **cluster),
        start(revenue, "parquet", "parquet", path=f"{chosen.directory}/revenue"),
    ]
    try:
        if chosen.forever:
            spark.streams.awaitAnyTermination()  # with one of them gone, it is not the job any more
        else:
            for query in queries:
                query.awaitTermination()
        # Each reads for itself; one that is further ahead than the others, since a run was cut short, reads less.
        read = [[batch["numInputRows"] for batch in query.recentProgress] for query in queries]
        return max(map(sum, read))
    finally:
        for query in queries:
            query.stop()


if __name__ == "__main__":
    main()
