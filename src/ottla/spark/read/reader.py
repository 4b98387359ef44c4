"""Reading as Spark asks for it: a batch query is planned in the driver, each of its ranges is read by a task."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from ottla.records.batch import CorruptBatch, check_crc
from ottla.spark.columns import columns, event_columns
from ottla.spark.connect.cluster import KafkaCluster
from ottla.spark.connect.connection import ConnectionOptions
from ottla.spark.connect.shared import SHARED
from ottla.spark.errors import SparkSourceError, told_in_one_line
from ottla.spark.options import Options, ReadOptions
from ottla.spark.read import rows
from ottla.spark.read.fetcher import Fetcher
from ottla.spark.read.filters import Narrowing
from ottla.spark.read.native import Decoder
from ottla.spark.read.planner import Planner
from ottla.spark.read.splits import Range, split
from ottla.spark.read.visible import visible

_PUSHDOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


@dataclass
class RangePartition(InputPartition):
    """What one task reads."""

    range: Range


def check_columns(schema: StructType, options: ReadOptions) -> None:
    """A schema of the user's own may name fewer columns, which then cost nothing."""
    there_are = event_columns() if options.events else columns(options.include_headers)
    known = {field.name: field.dataType for field in there_are}
    for field in schema:
        if known.get(field.name) != field.dataType:
            there = ", ".join(f"{name} {type.simpleString()}" for name, type in known.items())
            raise SparkSourceError(
                f"there is no column {field.name} {field.dataType.simpleString()}; there are: {there}"
            )


@cache
def decoder() -> Decoder:
    """One per process: it is used again, task after task."""
    return Decoder()


def plan_cluster(connection: ConnectionOptions, options: ReadOptions) -> KafkaCluster:
    return KafkaCluster(
        connection,
        connect_retries=options.offset_retries,
        connect_pause_s=options.offset_retry_interval_s,
    )


def read_range(
    schema: StructType, connection: ConnectionOptions, options: ReadOptions, wanted: Range
) -> Iterator[Any]:
    """The rows of a range, as Arrow batches; events as tuples."""
    if options.events:
        from ottla.spark.read.event_rows import STORED, event_rows

        stored = read_range(STORED, connection, replace(options, events=False), wanted)
        yield from event_rows(schema, stored)
        return
    # Here and not above: a driver plans without them.
    from pyspark.sql.pandas.types import to_arrow_schema

    from ottla.spark.read.arrow import ArrowBuilder

    names = schema.fieldNames()
    cut = rows.Wanted(
        wanted.start, wanted.end, "key" in names, "value" in names, "headers" in names
    )
    builder = ArrowBuilder(to_arrow_schema(schema, timezone="UTC"), wanted.topic, wanted.partition)
    with SHARED.lent(connection) as cluster, closing(Fetcher(cluster, wanted, options)) as fetcher:
        try:
            for data, fetched, aborted, first in fetcher:
                cut = cut._replace(start=first)
                shown = visible(
                    data,
                    fetched,
                    start=first,
                    end=wanted.end,
                    aborted=aborted if options.read_committed else None,
                )
                for group in rows.grouped(shown):
                    if options.check_crcs:
                        for batch in group:
                            check_crc(data, batch)
                    yield builder.record_batch(decoder().decode(data, group, cut))
        except CorruptBatch as error:
            raise SparkSourceError(
                f"{wanted.topic}-{wanted.partition}: a batch between offsets {wanted.start} and {wanted.end} is "
                f"damaged: {error.why}; ottla replicas {wanted.topic} shows who else holds it"
            ) from None


class OttlaBatchReader(DataSourceReader):
    def __init__(self, schema: StructType, options: Options) -> None:
        self._schema = schema
        self._options = ReadOptions.of(options, streaming=False)
        self._connection = ConnectionOptions.of(options)
        check_columns(schema, self._options)

    def partitions(self) -> list[InputPartition]:
        with told_in_one_line():
            cluster = plan_cluster(self._connection, self._options)
            try:
                ranges = self._ranges(Planner(cluster, self._options))
            finally:
                cluster.close()
            pieces = split(
                ranges,
                at_least=self._options.min_partitions,
                most_records=self._options.max_records_per_partition,
            )
            return [RangePartition(piece) for piece in pieces]

    def _ranges(self, planner: Planner) -> list[Range]:
        return planner.batch_ranges()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        with told_in_one_line():
            if isinstance(partition, RangePartition):  # else there is nothing to read at all
                yield from read_range(
                    self._schema, self._connection, self._options, partition.range
                )


class FilteringBatchReader(OttlaBatchReader):
    """The same, for the worker in which Spark offers its conditions (`spark.sql.python.filterPushdown.enabled`). Where they are
    not offered, a reader that would take them is an error to Spark."""

    def __init__(self, schema: StructType, options: Options) -> None:
        super().__init__(schema, options)
        self._narrowing = Narrowing([])

    @staticmethod
    def is_wanted() -> bool:
        main = getattr(sys.modules["__main__"], "__spec__", None)
        return _PUSHDOWN_WORKER in sys.modules or getattr(main, "name", None) == _PUSHDOWN_WORKER

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Those that are left to Spark: of events all, whose columns are no places in the log."""
        if self._options.events:
            return iter(filters)
        return iter([each for each in filters if not self._narrowing.take(each)])

    def _ranges(self, planner: Planner) -> list[Range]:
        ranges = self._narrowing.of_places(super()._ranges(planner))
        if self._narrowing.since_ms is not None:
            ranges = planner.since(ranges, self._narrowing.since_ms)
        return ranges
