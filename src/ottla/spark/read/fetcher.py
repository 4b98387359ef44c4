"""The records of one range as they lie in the log, fetched from whoever leads the partition.

While one answer is decoded, the next fetch is under way: its offset is known as soon as the headers of the batches are
read. Memory holds one answer and what the system buffers, however large the partition is. A dead leader, an election or
a nearer follower is handled here; the caller gets an error only if nothing arrives for `kafkaConsumer.pollTimeoutMs`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final, NamedTuple
from uuid import UUID

from ottla.client.connections import check
from ottla.records.batch import Batch, batches
from ottla.spark.connect.cluster import KafkaCluster
from ottla.spark.connect.connection import BrokerConnection
from ottla.spark.errors import SparkSourceError
from ottla.spark.options import EARLIEST, LATEST, ReadOptions
from ottla.spark.read.loss import Cause, LostRange, report
from ottla.spark.read.splits import Range
from ottla.wire import fetch
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError
from ottla.wire.fetch_messages import FetchPartition, FetchRequest

_TOPIC_IDS_FROM: Final = 13
_ROOM_BYTES: Final = 64 << 10
_NO_EPOCH: Final = -1


class FetchedBatches(NamedTuple):
    """Whole batches, in a buffer that is valid until the next ones are asked for."""

    data: memoryview
    batches: list[Batch]
    aborted: list[tuple[int, int]]
    first: int
    """What was asked for: offsets before it, which a batch may hold, were read before or are deleted."""


class _Source(NamedTuple):
    """Who is fetched from."""

    broker: int
    epoch: int


class Fetcher:
    def __init__(self, cluster: KafkaCluster, wanted: Range, options: ReadOptions) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._options = options
        self._position = wanted.start
        self._last_epoch = _NO_EPOCH
        """Of the last batch fetched: the leader compares it with its own log."""
        self._bytes_per_offset = 0.0
        self._source: _Source | None = None
        self._replica = options.replica
        """Whom to ask instead of the leader: the one that was asked for, or a follower that the leader says is nearer."""
        self._waiting: BrokerConnection | None = None
        self._buffer = bytearray()

    @property
    def _what(self) -> str:
        return f"{self._wanted.topic}-{self._wanted.partition}"

    def __iter__(self) -> Iterator[FetchedBatches]:
        patience = time.monotonic() + self._options.poll_timeout_s
        while self._position < self._wanted.end:
            try:
                fetched = self._next()
            except (OSError, KafkaError, InvalidFrame) as error:
                self._forget()
                if time.monotonic() > patience or not _passes(error):
                    raise self._gave_up(error) from None
                time.sleep(self._cluster.options.retry_backoff_s)
                continue
            if fetched is not None:
                yield fetched
                patience = time.monotonic() + self._options.poll_timeout_s
            elif time.monotonic() > patience:
                raise self._gave_up(None)

    def close(self) -> None:
        """An unread answer would be taken for that of the next request."""
        if self._waiting is not None:
            self._waiting.close()
            self._waiting = None

    def _gave_up(self, error: Exception | None) -> SparkSourceError:
        why = f": {error}" if error is not None else ""
        if error is not None and not _passes(error):
            return SparkSourceError(
                f"{self._what} cannot be read from offset {self._position} on{why}"
            )
        return SparkSourceError(
            f"{self._what}: nothing could be read from offset {self._position} on for "
            f"{self._options.poll_timeout_s:g} s (kafkaConsumer.pollTimeoutMs){why}"
        )

    # -- one answer after the other

    def _next(self) -> FetchedBatches | None:
        """None: nothing yet."""
        if self._waiting is None:
            self._ask()
        connection, self._waiting = self._waiting, None
        if connection is None:
            return None  # there is nothing left to ask for
        frame, body, version = connection.receive(self._buffer)
        assert isinstance(frame.obj, bytearray)
        self._buffer = frame.obj
        answer = fetch.read_response(version, frame, body)
        check(answer.error, f"fetch of {self._what}")
        (told,) = answer.partitions
        if told.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range()
            return None
        check(told.error, f"{self._what} at offset {self._position}")
        if told.diverging is not None:
            self._cut_off(*told.diverging)
            return None
        data = told.records or b""
        assert isinstance(data, bytes | memoryview), "a response is read as one view"
        found = list(batches(data, allow_partial=True))
        if not found:
            if told.preferred_read_replica >= 0:
                self._replica = told.preferred_read_replica
            return None
        first = self._position
        self._advance(found)
        self._ask_ahead()
        return FetchedBatches(memoryview(data), found, list(told.aborted or ()), first)

    def _ask_ahead(self) -> None:
        """If that fails, what was fetched is given out all the same, and asking begins anew after it."""
        if self._position < self._wanted.end:
            try:
                self._ask()
            except (OSError, KafkaError):
                self._forget()

    def _advance(self, found: list[Batch]) -> None:
        size = found[-1].end - found[0].position
        offsets = max(1, found[-1].next_offset - self._position)
        self._bytes_per_offset = max(self._bytes_per_offset / 2, size / offsets)
        self._position = max(self._position, found[-1].next_offset)
        self._last_epoch = found[-1].leader_epoch

    def _ask(self) -> None:
        source = self._locate()
        if source is None:
            return
        connection = self._cluster.to(source.broker)
        by_id = self._wanted.topic_id is not None
        version = connection.version_for(ApiKey.FETCH, most=None if by_id else _TOPIC_IDS_FROM - 1)
        limit = self._limit()
        request = FetchRequest(
            max_wait_ms=self._options.fetch_max_wait_ms,
            min_bytes=self._options.fetch_min_bytes,
            max_bytes=limit,
            isolation_level=int(self._options.read_committed),
            rack_id=self._options.rack,
            partitions=[
                FetchPartition(
                    topic=self._wanted.topic,
                    topic_id=UUID(self._wanted.topic_id) if self._wanted.topic_id else None,
                    partition=self._wanted.partition,
                    current_leader_epoch=source.epoch,
                    fetch_offset=self._position,
                    last_fetched_epoch=self._last_epoch,
                    log_start_offset=-1,
                    max_bytes=limit,
                )
            ],
        )
        connection.send(ApiKey.FETCH, version, fetch.write_request(version, request))
        self._waiting = connection

    def _limit(self) -> int:
        """An estimate of what is left of the range, so that little is fetched beyond its end."""
        most = self._options.fetch_max_bytes
        if not self._bytes_per_offset:
            return most
        left = (self._wanted.end - self._position) * self._bytes_per_offset
        return min(most, int(left * 1.1) + _ROOM_BYTES)

    # -- who is asked

    def _locate(self) -> _Source | None:
        """None if the topic is another one by now, and that is no reason to fail."""
        if self._source is None:
            self._source = self._led_by()
        if self._source is not None and self._replica is not None:
            return self._source._replace(broker=self._replica)
        return self._source

    def _led_by(self) -> _Source | None:
        (topic,) = self._cluster.topics([self._wanted.topic]) or (None,)
        if topic is not None and topic.id is not None and self._wanted.topic_id is not None:
            before, now = self._wanted.topic_id, topic.id.hex
            if before != now:
                self._lost(Cause.RECREATED, self._wanted.end, f"its id was {before} and is {now}")
                return None
        for partition in topic.partitions if topic is not None else ():
            if partition.partition == self._wanted.partition:
                if partition.leader < 0:
                    raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{self._what} has no leader")
                return _Source(partition.leader, partition.leader_epoch)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self._what} is not there")

    def _forget(self) -> None:
        """Whatever went wrong, the next attempt begins with a look at who leads."""
        self.close()
        self._source = None
        self._replica = self._options.replica

    # -- what is not there

    def _out_of_range(self) -> None:
        if self._replica is not None:
            raise KafkaError(
                ErrorCode.REPLICA_NOT_AVAILABLE, f"a follower of {self._what} is behind"
            )
        place = (self._wanted.topic, self._wanted.partition)
        start = self._cluster.offsets({place: EARLIEST})[place]
        end = self._cluster.offsets({place: LATEST})[place]
        assert start is not None and end is not None, "a log has both ends"
        there = f"the log begins at {start.offset} and ends at {end.offset}"
        if self._position < start.offset:
            self._lost(Cause.AGED_OUT, min(start.offset, self._wanted.end), there)
        elif self._position > end.offset:
            self._lost(Cause.TRUNCATED, self._wanted.end, there)

    def _cut_off(self, epoch: int, end: int) -> None:
        """The leader's log differs from what was fetched: it ends epoch `epoch` at offset `end`."""
        self._lost(
            Cause.TRUNCATED,
            self._wanted.end,
            f"the leader's log of epoch {epoch} ends at {end}; offsets {min(end, self._position)} to "
            f"{self._position - 1} were read before",
        )

    def _lost(self, cause: Cause, end: int, detail: str) -> None:
        """Go on at `end`, if that is allowed."""
        place = (self._wanted.topic, self._wanted.partition)
        report(
            [LostRange(*place, cause, self._position, end, detail)],
            fail=self._options.fail_on_data_loss,
        )
        self._position = end


def _passes(error: Exception) -> bool:
    return not isinstance(error, KafkaError) or error.retriable
