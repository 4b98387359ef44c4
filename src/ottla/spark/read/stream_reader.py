"""A stream as Spark asks for it: where it stands, how far the next micro-batch goes, who reads what."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ottla.client import Unreachable
from ottla.spark.connect.cluster import Found, KafkaCluster
from ottla.spark.connect.connection import ConnectionOptions
from ottla.spark.errors import SparkSourceError, told_in_one_line
from ottla.spark.options import Options, ReadOptions
from ottla.spark.read.offsets import StreamOffset
from ottla.spark.read.reader import RangePartition, check_columns, plan_cluster, read_range
from ottla.spark.read.splits import split
from ottla.spark.read.stream_planner import StreamPlanner
from ottla.wire.errors import KafkaError

COMMIT_PAUSE_S: Final = 60.0
"""After a failure: a coordinator that does not answer would hold up every micro-batch for as long as a request may take."""


class OttlaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One lives in the driver as long as the query; copies of it, fresh from their options, read in tasks."""

    def __init__(self, schema: StructType, options: Options) -> None:
        self._schema = schema
        self._options = ReadOptions.of(options, streaming=True)
        self._connection = ConnectionOptions.of(options)
        check_columns(schema, self._options)
        self._committed: StreamOffset | None = None
        self._initial: StreamOffset | None = None
        self._commits_from_s = 0.0

    @cached_property
    def _cluster(self) -> KafkaCluster:
        return plan_cluster(self._connection, self._options)

    @cached_property
    def _planner(self) -> StreamPlanner:
        return StreamPlanner(self._cluster, self._options)

    def initialOffset(self) -> dict[str, Any]:
        with told_in_one_line():
            group = self._options.group_id or f"{self._options.group_prefix}-{secrets.token_hex(8)}"
            self._initial = self._planner.initial(group)
            return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Only one kind can be told; what it does not say is taken from the options."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        with told_in_one_line():
            self._planner.only_what_is_there_now()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        with told_in_one_line():
            begin = StreamOffset.of_json(start)
            # Spark commits a batch only when there is another one. To ask for the next means that the last is done.
            self._commit(begin)
            limited = not isinstance(limit, ReadAllAvailable)
            return self._planner.latest(begin, time.monotonic(), limited=limited).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        newest = self._planner.newest
        return None if newest is None else newest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        with told_in_one_line():
            ranges = self._planner.ranges(StreamOffset.of_json(start), StreamOffset.of_json(end))
            pieces = split(
                ranges,
                at_least=self._options.min_partitions,
                most_records=self._options.max_records_per_partition,
            )
            return [RangePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        with told_in_one_line():
            assert isinstance(partition, RangePartition)
            yield from read_range(self._schema, self._connection, self._options, partition.range)

    def commit(self, end: dict[str, Any]) -> None:
        self._commit(StreamOffset.of_json(end))

    def stop(self) -> None:
        if "_cluster" in self.__dict__:
            self._cluster.close()

    def _commit(self, done: StreamOffset) -> None:
        """Commit the progress to the group, for display. Spark's checkpoint is what counts, so a failure is only logged."""
        if not self._options.commit_progress or done == self._committed:
            return
        if time.monotonic() < self._commits_from_s:
            return
        if self._options.group_id is not None and done == self._initial:
            return  # no batch has come so far, and a group that was there before may be further
        offsets = {place: Found(mark.offset, mark.epoch) for place, mark in done.marks.items()}
        try:
            self._cluster.commit(done.group, offsets)
        except (KafkaError, OSError, Unreachable) as error:
            print(f"ottla: progress was not committed to group {done.group}: {error}", file=sys.stderr)  # fmt: skip
            self._commits_from_s = time.monotonic() + COMMIT_PAUSE_S
        else:
            self._committed = done


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stands for a reader that cannot be created: the first call of Spark raises the reason."""

    def __init__(self, refusal: SparkSourceError) -> None:
        self._refusal = refusal

    def initialOffset(self) -> dict[str, Any]:
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:
        self._refuse()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        self._refuse()

    def _refuse(self) -> NoReturn:
        with told_in_one_line():
            raise self._refusal
