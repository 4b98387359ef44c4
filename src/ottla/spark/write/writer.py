"""Writing as Spark asks for it: tasks write, the driver commits what they wrote or gives it up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from ottla.client import BlockingClient, Unreachable
from ottla.spark.connect.secured import client_for
from ottla.spark.errors import SparkSourceError, told_in_one_line
from ottla.spark.options import Options
from ottla.spark.write.decisions import (
    Procedure,
    TaskTransaction,
    committing,
    committing_once,
    transactional_id,
    withdrawing,
    withdrawing_once,
)
from ottla.spark.write.producer import TaskProducer, existing_topic
from ottla.spark.write.sink import SinkDriver
from ottla.spark.write.write_options import WriteOptions, check_columns
from ottla.wire.errors import KafkaError

_QUERY: Final = "sql.streaming.queryId"
_RUN: Final = "spark.jobGroup.id"
"""Of a stream this is the id of its run: another one after each start."""


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """What a task tells the driver."""

    query: str
    run: str
    written: TaskTransaction | None
    """None if it had no rows, or without transactions."""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class _Writer:
    """What both writers have in common. It is sent to the tasks, so that it holds no connection."""

    def __init__(self, schema: StructType, options: Options) -> None:
        self._options = WriteOptions.of(options)
        check_columns(schema, self._options.topic)
        self._check_topic()

    def _check_topic(self) -> None:
        """Checked in the driver, so that there is one error and not one in every task."""
        topic = self._options.topic
        if topic is not None:
            with client_for(BlockingClient, self._options.connection) as blocking:
                blocking.run(existing_topic(blocking.client, topic))

    def _write_rows(self, batches: Iterator[Any], query: str, run: str) -> TaskMessage:
        context = TaskContext.get()
        assert context is not None, "a task writes"
        task, attempt = context.partitionId(), context.attemptNumber()
        id = transactional_id(query, run, task, attempt) if self._options.transactions else None
        producer = TaskProducer(self._options, id, task)
        try:
            for batch in batches:
                producer.write(batch)
            result = producer.finish()
        except BaseException:
            _try_to_abort(producer)
            raise
        finally:
            producer.close()
        if result is None or id is None:
            return TaskMessage(query, run, None)
        identity, rows, checksum, (topic, partition), first = result
        return TaskMessage(
            query, run, TaskTransaction(task, identity, rows, checksum, topic, partition, first)
        )

    def _carry_out(self, query: str, procedure: Procedure) -> None:
        # Patient: a short loss of the network must not cost what is written.
        with client_for(BlockingClient, self._options.connection, patient=True) as blocking:
            driver = SinkDriver(blocking.client, query, _now_ms)
            blocking.run(driver.carry_out(procedure))


def _try_to_abort(producer: TaskProducer) -> None:
    """Errors here are suppressed: the failure of the task is what counts. An open transaction ends by the driver or its
    timeout."""
    try:
        producer.abort()
    except (KafkaError, OSError, Unreachable, SparkSourceError):
        return


class OttlaStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Each micro-batch exactly once; at least once without transactions."""

    def write(self, iterator: Iterator[Any]) -> TaskMessage:
        with told_in_one_line():
            context = TaskContext.get()
            assert context is not None, "a task writes"
            query, run = context.getLocalProperty(_QUERY), context.getLocalProperty(_RUN)
            if query is None or run is None:
                raise SparkSourceError(
                    f"Spark does not tell the task its query ({_QUERY}: {query}, {_RUN}: {run}), without which its rows "
                    "cannot be told apart from those of another"
                )
            return self._write_rows(iterator, query, run)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with told_in_one_line():
            told = _told(messages)
            if self._options.transactions and told:
                written = [each.written for each in told if each.written is not None]
                query, run = told[0].query, told[0].run
                self._carry_out(
                    query,
                    committing(
                        query,
                        run,
                        batchId,
                        written,
                        first_batch=self._options.first_batch,
                        topic=self._options.topic,
                    ),
                )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with told_in_one_line():
            told = _told(messages)
            if self._options.transactions and told:
                query, run = told[0].query, told[0].run
                self._carry_out(query, withdrawing(query, run, batchId))


class OttlaBatchWriter(_Writer, DataSourceArrowWriter):
    """The rows of a job appear when all of it is written; without transactions, when they are written."""

    def __init__(self, schema: StructType, options: Options) -> None:
        super().__init__(schema, options)
        self._job = str(uuid4())

    def write(self, iterator: Iterator[Any]) -> TaskMessage:
        with told_in_one_line():
            return self._write_rows(iterator, self._job, "job")

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with told_in_one_line():
            written = [each.written for each in _told(messages) if each.written is not None]
            if self._options.transactions:
                self._carry_out(self._job, committing_once(self._job, "job", written))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        with told_in_one_line():
            if self._options.transactions:
                self._carry_out(self._job, withdrawing_once(self._job))


def _told(messages: list[WriterCommitMessage | None]) -> list[TaskMessage]:
    """Tasks that failed have said nothing."""
    return [each for each in messages if isinstance(each, TaskMessage)]
