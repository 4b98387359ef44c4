"""The data source as Spark sees it: its name, its columns, who reads and who writes.

Spark asks each of these in a Python process of its own, before the first row is read: who reads or writes is imported when
asked for.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ottla.spark.columns import columns, event_columns
from ottla.spark.errors import SparkSourceError, told_in_one_line
from ottla.spark.options import Options


class OttlaDataSource(DataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = Options(options)

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> StructType:
        with told_in_one_line():
            if self._options.flag("events", False):
                return event_columns()
            return columns(self._options.flag("includeHeaders", False))

    def reader(self, schema: StructType) -> DataSourceReader:
        from ottla.spark.read.reader import FilteringBatchReader, OttlaBatchReader

        with told_in_one_line():
            kind = FilteringBatchReader if FilteringBatchReader.is_wanted() else OttlaBatchReader
            return kind(schema, self._options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Never raises: PySpark would report the missing reader, and not our error."""
        from ottla.spark.read.stream_reader import OttlaStreamReader, RefusedStreamReader

        try:
            with told_in_one_line():
                return OttlaStreamReader(schema, self._options)
        except SparkSourceError as refusal:
            return RefusedStreamReader(refusal)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from ottla.spark.write.writer import OttlaBatchWriter

        with told_in_one_line():
            if overwrite:
                raise SparkSourceError("a topic cannot be overwritten: write with mode('append')")
            return OttlaBatchWriter(schema, self._options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """With output mode complete every batch is written in addition to those before, as Spark's connector does."""
        from ottla.spark.write.writer import OttlaStreamWriter

        with told_in_one_line():
            return OttlaStreamWriter(schema, self._options)
