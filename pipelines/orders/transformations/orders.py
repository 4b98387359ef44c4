"""Orders, as a declarative pipeline: sinks, and what flows into them; Spark does the rest.

Sinks only, no tables: a table would need a catalog that outlives the session, or the second run could not find it.
"""

import sys
from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from ottla.spark.command_config import cluster_options

sys.path.append(str(Path(__file__).resolve().parent.parent))  # Spark loads this file by its path
import shapes

spark = SparkSession.active()
CLUSTER = cluster_options(
    spark.conf.get("spark.ottla.bootstrap"), spark.conf.get("spark.ottla.command-config", None)
)


def chosen(name: str, default: str) -> str:
    return spark.conf.get(f"spark.ottla.{name}", default)


def events() -> DataFrame:
    raw = spark.readStream.format("ottla").options(**CLUSTER)
    raw = raw.option("subscribe", chosen("source", "orders"))
    raw = raw.option("kafka.isolation.level", "read_committed")
    return shapes.parsed(raw.option("startingOffsets", "earliest").load())


def revenue() -> DataFrame:
    return shapes.revenue(shapes.orders(events()))


dp.create_sink("revenue_topic", "ottla", CLUSTER | {"topic": chosen("revenue", "revenue")})
dp.create_sink("revenue_files", "parquet", {"path": chosen("files", "revenue")})
dp.create_sink(
    "dead_letters_topic",
    "ottla",
    CLUSTER | {"topic": chosen("dead-letters", "orders-dead-letters")},
)


@dp.append_flow(target="revenue_topic")
def revenue_to_topic() -> DataFrame:
    return shapes.as_records(revenue())


@dp.append_flow(target="revenue_files")
def revenue_to_files() -> DataFrame:
    return revenue()


@dp.append_flow(target="dead_letters_topic")
def dead_letters_to_topic() -> DataFrame:
    return shapes.dead_letters(events())
