"""What a task writes with: rows go into a buffer for each partition, full buffers to the brokers.

Encoding happens in the task's thread, sending in another, so that neither waits for the other before the memory for
what is under way is used up.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple
from zlib import crc32

from ottla.client import BackgroundClient
from ottla.client.client import Client
from ottla.client.model import Topic
from ottla.client.pipelined import PipelinedProducer, Section
from ottla.client.transaction_admin import ProducerIdentity
from ottla.records import compression
from ottla.spark.connect.secured import client_for
from ottla.spark.errors import SparkSourceError
from ottla.spark.write import encode
from ottla.spark.write.encode import STICKY, Columns, columns_of, encoder_for
from ottla.spark.write.write_options import WriteOptions
from ottla.wire.errors import ErrorCode, KafkaError

BUFFER_BYTES_MIN: Final = 16 << 10
BUFFERED_BYTES_MAX: Final = 64 << 20
"""Of all partitions together; then all are sent, full or not."""
CREATION_PATIENCE_S: Final = 5.0
LOOK_EVERY_S: Final = 0.1
CHECKSUM_MASK: Final = encode.MASK


@dataclass(slots=True)
class _Buffer:
    """Records for one partition."""

    data: Any
    position: int = 0
    rows: int = 0
    timestamp_ms: int = 0


class Result(NamedTuple):
    identity: ProducerIdentity
    rows: int
    checksum: int
    place: tuple[str, int]
    first_offset: int


class TaskProducer:
    """Not `finish`ed, it leaves nothing that a reader of committed records sees."""

    def __init__(self, options: WriteOptions, transactional_id: str | None, task: int) -> None:
        self._options = options
        self._task = task
        self._blocking = client_for(BackgroundClient, options.connection)
        self._producer: PipelinedProducer | None = None
        self._transactional_id = transactional_id
        self._buffers: dict[tuple[str, int], _Buffer] = {}
        self._buffered_bytes = 0
        self._topics: dict[str, Topic] = {}
        self._sticky: dict[str, int] = {}
        self._encoder: Any = encode
        self._rows = 0
        self._checksum = 0

    # -- rows

    def write(self, batch: Any) -> None:
        """A pyarrow.RecordBatch."""
        import numpy as np

        if batch.num_rows == 0:
            return
        columns = columns_of(batch, self._options.topic)
        self._rows += columns.rows
        self._encoder = encoder_for(batch.nbytes)
        counts = [len(self._topic(topic).partitions) for topic in columns.topics]
        chosen: Any = np.empty(columns.rows, np.int64)
        self._encoder.choose_partitions(columns, counts, chosen)
        for number, topic in enumerate(columns.topics):
            rows = np.flatnonzero(columns.topic == number)
            partitions = chosen[rows]
            if partitions.max() >= counts[number]:
                raise SparkSourceError(
                    f"a row is for partition {partitions.max()} of topic {topic}, which has only {counts[number]}"
                )
            order = np.argsort(partitions, kind="stable")
            ordered = partitions[order]
            starts = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(rows)]
            for start, end in pairwise(starts):
                self._put(columns, topic, int(ordered[start]), rows[order[start:end]])

    def _put(self, columns: Columns, topic: str, partition: int, rows: Any) -> None:
        seed = crc32(topic.encode())
        while len(rows):
            place = topic, self._sticky_partition(topic) if partition == STICKY else partition
            buffer = self._buffer(place)
            done = self._encoder.encode(
                columns, rows, buffer.rows, seed, buffer.data, buffer.position
            )
            buffer.rows += done.rows
            buffer.position = done.position
            self._checksum = (self._checksum + done.checksum) & CHECKSUM_MASK
            rows = rows[done.rows :]
            if len(rows) and not self._has_grown(buffer, columns, int(rows[0])):
                self._seal(place)
                if partition == STICKY:
                    self._sticky[topic] += 1
        if self._buffered_bytes > BUFFERED_BYTES_MAX:
            self._seal_all()

    def _sticky_partition(self, topic: str) -> int:
        """The same until a batch is full; tasks begin with different ones."""
        turn = self._sticky.setdefault(topic, self._task)
        return turn % len(self._topic(topic).partitions)

    def _buffer(self, place: tuple[str, int]) -> _Buffer:
        import numpy as np

        if place not in self._buffers:
            size = min(BUFFER_BYTES_MIN, self._options.batch_bytes)
            self._buffers[place] = _Buffer(
                np.empty(size, np.uint8), timestamp_ms=time.time_ns() // 1_000_000
            )
            self._buffered_bytes += size
        return self._buffers[place]

    def _has_grown(self, buffer: _Buffer, columns: Columns, row: int) -> bool:
        """A buffer grows to the size of a batch, or to that of a single record that is larger."""
        import numpy as np

        size = min(4 * len(buffer.data), self._options.batch_bytes)
        if buffer.rows == 0:
            size = max(size, encode.record_bytes_max(columns, row))
        if size <= len(buffer.data):
            return False
        grown: Any = np.empty(size, np.uint8)
        grown[: buffer.position] = buffer.data[: buffer.position]
        self._buffered_bytes += size - len(buffer.data)
        buffer.data = grown
        return True

    def _seal(self, place: tuple[str, int]) -> None:
        buffer = self._buffers.pop(place)
        self._buffered_bytes -= len(buffer.data)
        body: Any = memoryview(buffer.data)[: buffer.position]
        codec = self._options.codec
        if codec:
            body = compression.compress(codec, body)
        section = Section(body, buffer.rows, buffer.timestamp_ms, codec)
        producer = self._started()
        try:
            self._blocking.run(producer.send(*place, section))
        except KafkaError as error:
            raise self._explained(error) from error

    def _seal_all(self) -> None:
        for place in sorted(self._buffers):
            self._seal(place)

    # -- the cluster

    def _topic(self, name: str) -> Topic:
        if name not in self._topics:
            self._topics[name] = self._blocking.run(existing_topic(self._blocking.client, name))
        return self._topics[name]

    def _started(self) -> PipelinedProducer:
        """With the first batch: who has no rows needs no transaction."""
        if self._producer is None:
            self._producer = self._blocking.run(self._start())
        return self._producer

    async def _start(self) -> PipelinedProducer:
        producer = PipelinedProducer(
            self._blocking.client,
            self._transactional_id,
            transaction_timeout_ms=self._options.transaction_timeout_ms,
            delivery_timeout_s=self._options.delivery_timeout_s,
        )
        try:
            await producer.start()
        except KafkaError as error:
            raise self._explained(error) from error
        return producer

    def _explained(self, error: KafkaError) -> Exception:
        match error.code:
            case ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                return SparkSourceError(
                    f"the brokers do not allow transactions of {self._options.transaction_timeout_ms} ms "
                    "(transaction.max.timeout.ms): set the option 'kafka.transaction.timeout.ms' lower"
                )
            case ErrorCode.UNSUPPORTED_VERSION:
                return SparkSourceError(
                    f"the cluster knows no transactions ({error.message}): the option 'kafka.enable.transactions' set to "
                    "false writes without them, each row at least once"
                )
            case ErrorCode.MESSAGE_TOO_LARGE:
                return SparkSourceError(
                    f"a batch is larger than the topic takes (max.message.bytes): {error.message}. Unless it is a single row, "
                    f"set the option 'kafka.batch.size' lower than {self._options.batch_bytes}"
                )
        return error

    # -- the end

    def finish(self) -> Result | None:
        """Everything is acknowledged by all in-sync replicas, and the transaction is open. None if there was nothing
        to write."""
        self._seal_all()
        if self._producer is None:
            return None
        try:
            self._blocking.run(self._producer.flush())
        except KafkaError as error:
            raise self._explained(error) from error
        identity = self._producer.identity
        assert identity is not None
        place, first_offset = min(self._producer.first_offsets.items())
        return Result(identity, self._rows, self._checksum, place, first_offset)

    def abort(self) -> None:
        """The task failed: the sooner its transaction ends, the sooner readers go on."""
        if self._producer is not None and self._transactional_id is not None:
            self._blocking.run(self._producer.end(commit=False))

    def close(self) -> None:
        if self._producer is not None:
            self._blocking.run(self._producer.close())
        self._blocking.close()


async def existing_topic(client: Client, name: str) -> Topic:
    """As Kafka's producer does, it lets a cluster that makes topics when they are named make it."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + CREATION_PATIENCE_S
    while True:
        try:
            await client.metadata([name], create=True)
            return await client.topic(name)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            if loop.time() > deadline:
                raise SparkSourceError(
                    f"topic {name} does not exist, and the cluster does not make it when it is named: create it first"
                ) from error
        await asyncio.sleep(LOOK_EVERY_S)
