"""The columns of Spark's Kafka connector, and those of the event log."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)


def columns(with_headers: bool) -> StructType:
    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    if with_headers:
        entry = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        fields.append(StructField("headers", ArrayType(entry)))
    return StructType(fields)


def event_columns() -> StructType:
    """Of option `events`: the members that every entry of the event log has, and those of its kind by name."""
    return StructType(
        [
            StructField("at", TimestampType()),
            StructField("kind", StringType()),
            StructField("node", IntegerType()),
            StructField("partition", StringType()),
            StructField("cause", StringType()),
            StructField("about", StringType()),
            StructField("fields", MapType(StringType(), StringType())),
            StructField("id", StringType()),
            StructField("offset", LongType()),
        ]
    )
