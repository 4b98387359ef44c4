"""That Spark finds the data source at all."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: scripts/setup --spark")

pytestmark = pytest.mark.slow


def test_spark_finds_the_source_without_being_told(spark: Any) -> None:
    frame = spark.read.format("ottla").load()
    assert frame.columns == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType",
    ]  # fmt: skip


def test_headers_are_a_column_when_asked_for(spark: Any) -> None:
    frame = spark.read.format("ottla").option("INCLUDEHEADERS", "true").load()
    assert dict(frame.dtypes)["headers"] == "array<struct<key:string,value:binary>>"


def test_an_error_of_the_user_reaches_the_driver_without_a_traceback(spark: Any) -> None:
    with pytest.raises(Exception, match="option 'includeHeaders': 'maybe'") as raised:
        spark.read.format("ottla").option("includeHeaders", "maybe").load()
    assert "Traceback" not in str(raised.value).partition("JVM stacktrace")[0]
