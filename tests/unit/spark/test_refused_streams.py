"""A stream that cannot be read: the mistake is told when Spark first asks for something, never while the reader is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: scripts/setup --spark")

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ottla.spark.errors import SparkSourceError
from pyspark_ottla import DefaultSource

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "t"}


def stream_reader(given: dict[str, str], columns: StructType | None = None) -> Any:
    source = DefaultSource(given)
    schema = columns or source.schema()
    assert isinstance(schema, StructType)
    return source.streamReader(schema)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (GIVEN | {"maxOffsetPerTrigger": "3"}, "did you mean 'maxOffsetsPerTrigger'?"),
        (GIVEN | {"startingOffsets": "{"}, "option 'startingOffsets': '{' is no JSON"),
        (GIVEN | {"endingOffsets": "latest"}, "option 'endingOffsets': a stream has no end"),
        (GIVEN | {"maxOffsetsPerTrigger": "many"}, "'many' is not a whole number"),
        (GIVEN | {"kafka.auto.offset.reset": "earliest"}, "set 'startingOffsets'"),
        (GIVEN | {"kafka.security.protocol": "TLS"}, "is none of PLAINTEXT, SSL"),
        ({"subscribe": "t"}, "option 'kafka.bootstrap.servers': is missing"),
        ({"kafka.bootstrap.servers": "127.0.0.1:9092"}, "option 'subscribe': is missing"),
    ],
)
def test_each_mistake_is_told_at_the_first_question(given: dict[str, str], said: str) -> None:
    with pytest.raises(SparkSourceError) as raised:
        stream_reader(given).initialOffset()
    assert said in str(raised.value)


def test_columns_that_there_are_not_are_told_too() -> None:
    reader = stream_reader(GIVEN, StructType().add("price", "string"))
    with pytest.raises(SparkSourceError, match="price"):
        reader.initialOffset()


@pytest.mark.parametrize(
    "question",
    [
        lambda reader: reader.initialOffset(),
        lambda reader: reader.prepareForTriggerAvailableNow(),
        lambda reader: reader.latestOffset({}, ReadAllAvailable()),
        lambda reader: reader.partitions({}, {}),
        lambda reader: reader.read(InputPartition(0)),
    ],
)
def test_whatever_is_asked_first(question: Callable[[Any], object]) -> None:
    reader = stream_reader({})
    assert isinstance(reader, DataSourceStreamReader)
    assert isinstance(reader, SupportsTriggerAvailableNow), "or Spark would read without an end"
    with pytest.raises(SparkSourceError, match="is missing"):
        question(reader)
    reader.stop()
