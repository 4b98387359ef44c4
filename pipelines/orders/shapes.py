"""What an order is and what becomes of it: one place for the plain job and the declarative pipeline."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

FIELDS = {"order_id": "STRING", "product": "STRING", "cents": "BIGINT", "at": "TIMESTAMP"}
UNREADABLE = "unreadable"
"""Where Spark puts what is no JSON."""
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in FIELDS.items()) + f", {UNREADABLE} STRING"
LATENESS = "10 minutes"
"""An order that comes later than this behind the newest one is not counted any more; so long a duplicate is known."""
WINDOW = "1 minute"


def parsed(raw: DataFrame) -> DataFrame:
    """Each record with the fields of its order, or with the reason why it has none."""
    options = {"columnNameOfCorruptRecord": UNREADABLE}
    said = F.from_json(F.col("value").cast("string"), SCHEMA, options)
    fields = [f"order.{name}" for name in FIELDS]
    return raw.withColumn("order", said).select(
        "key", "value", "topic", "partition", "offset", *fields, _reason().alias("reason")
    )


def _reason() -> Column:
    order = F.col("order")
    missing = [F.when(order[name].isNull(), F.lit(f"no {name}")) for name in FIELDS]
    return F.coalesce(
        F.when(order.isNull() | order[UNREADABLE].isNotNull(), "not JSON"),
        *missing,
        F.when(order["cents"] < 0, "cents are negative"),
    )


def dead_letters(parsed: DataFrame) -> DataFrame:
    """What is no order, as it came, with headers that say why and where it stands."""
    place = F.concat_ws("-", "topic", "partition", "offset")
    return parsed.where(F.col("reason").isNotNull()).select(
        "key",
        "value",
        F.array(_header("reason", F.col("reason")), _header("place", place)).alias("headers"),
    )


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))


def orders(parsed: DataFrame) -> DataFrame:
    """Each order once, however often it was sent."""
    return (
        parsed.where(F.col("reason").isNull())
        .select(*FIELDS)
        .withWatermark("at", LATENESS)
        .dropDuplicatesWithinWatermark(["order_id"])
    )


def revenue(orders: DataFrame) -> DataFrame:
    """Per window and product, as soon as nothing can be added to the window any more."""
    return (
        orders.groupBy(F.window("at", WINDOW), "product")
        .agg(F.sum("cents").alias("cents"), F.count("*").alias("orders"))
        .select(F.col("window.start").alias("minute"), "product", "cents", "orders")
    )


def as_records(revenue: DataFrame) -> DataFrame:
    """A record for each row, keyed by its product."""
    return revenue.select(
        F.col("product").alias("key"),
        F.to_json(F.struct("minute", "product", "cents", "orders")).alias("value"),
    )
