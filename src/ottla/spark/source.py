"""The data source as Spark sees it: its name, its columns, who reads and who writes."""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from ottla.spark.columns import columns
from ottla.spark.errors import told_in_one_line
from ottla.spark.options import Options
from ottla.spark.reader import OttlaBatchReader
from ottla.spark.stream_reader import OttlaStreamReader


class OttlaDataSource(DataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = Options(options)

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> StructType:
        with told_in_one_line():
            return columns(self._options.flag("includeHeaders", False))

    def reader(self, schema: StructType) -> DataSourceReader:
        with told_in_one_line():
            return OttlaBatchReader(schema, self._options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        with told_in_one_line():
            return OttlaStreamReader(schema, self._options)
