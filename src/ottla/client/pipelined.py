"""An idempotent or transactional producer with several batches in flight: for throughput.

Each partition is a lane. Its batches are sent in order, and up to five are unanswered: a leader remembers that many, to
tell a repetition from a new batch. After a retriable error the lane waits until all its requests are answered. Then it
begins again with the first batch that is not acknowledged. The sequence numbers stay the same, so nothing is written
twice and nothing is left out.

The caller encodes the records (`Section`). Here they get the header of their batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ottla.client.client import Client
from ottla.client.connections import RETRY_PAUSE_S, Unreachable, error_of
from ottla.client.producer import (
    ACKS_ALL,
    PRODUCE_BY_TOPIC_ID_FROM,
    SEQUENCE_COUNT,
    new_producer_id,
)
from ottla.client.transaction_admin import EPOCH_PER_TRANSACTION, ProducerIdentity, TransactionAdmin
from ottla.records.batch import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    TRANSACTIONAL_BIT,
)
from ottla.records.crc import crc32c
from ottla.records.record import CRC
from ottla.runtime.seams import Buffer
from ottla.wire import produce
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError

UNANSWERED_MAX: Final = 5
"""Batches of a partition: a leader remembers the last five of a producer."""
REQUEST_BYTES_MAX: Final = 4 << 20
UNACKNOWLEDGED_BYTES_MAX: Final = 16 << 20
"""`send` waits while there is more, so that memory stays bounded."""
PRODUCE_BEFORE_IMPLICIT_ADD: Final = 11

Place = tuple[str, int]
"""Topic and partition."""


class Section(NamedTuple):
    """The records of a batch, as they follow its header; compressed, if `codec` says so."""

    body: Buffer
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not used
    timestamp_ms: int
    codec: int = 0


@dataclass(slots=True, eq=False)
class _Waiting:
    """A batch that is not acknowledged."""

    data: memoryview
    deadline: float


@dataclass(slots=True)
class _Lane:
    place: Place
    next_sequence: int = 0
    waiting: deque[_Waiting] = field(default_factory=deque)
    """In order. The first `unanswered` of them are in flight, unless the lane is rewinding."""
    unanswered: int = 0
    is_rewinding: bool = False
    is_added: bool = False
    first_offset: int = -1
    """Of the acknowledged records."""
    last_error: Exception | None = None

    @property
    def is_ready(self) -> bool:
        return (
            not self.is_rewinding
            and self.unanswered < min(UNANSWERED_MAX, len(self.waiting))
            and self.is_added
        )


class PipelinedProducer:
    """Without a transactional id it is only idempotent. `delivery_timeout_s` is how long a batch may take from `send` to
    its acknowledgement. After that everything fails, and batches in flight may or may not be in the log."""

    def __init__(
        self,
        client: Client,
        transactional_id: str | None = None,
        *,
        transaction_timeout_ms: int = 60_000,
        delivery_timeout_s: float = 120.0,
    ) -> None:
        self.transactions = TransactionAdmin(client)
        self.identity: ProducerIdentity | None = None
        self._client = client
        self._transactional_id = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._delivery_timeout_s = delivery_timeout_s
        self._lanes: dict[Place, _Lane] = {}
        self._bytes = 0
        self._failure: Exception | None = None
        self._gives_up = False
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._dispatcher: asyncio.Task[None] | None = None
        self._has_changed = False

    # Start and end

    async def start(self) -> ProducerIdentity:
        """Get a producer id. With a transactional id, the former producer is fenced."""
        if self._transactional_id is not None:
            self.identity = await self.transactions.init(
                self._transactional_id, self._transaction_timeout_ms
            )
        else:
            id, epoch = await new_producer_id(
                self._client.connections, self._transaction_timeout_ms
            )
            self.identity = ProducerIdentity("", id, epoch, 0)
        return self.identity

    async def close(self) -> None:
        """Batches in flight may or may not be written."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Writing

    async def send(self, topic: str, partition: int, section: Section) -> None:
        """Returns when there is room for more, not when the records are written: `flush` waits for that. KafkaError if
        anything sent so far failed for good."""
        self._raise_failure()
        lane = self._lanes.setdefault((topic, partition), _Lane((topic, partition)))
        batch = self._batch(section, lane.next_sequence)
        lane.next_sequence = (lane.next_sequence + section.count) % SEQUENCE_COUNT
        deadline = asyncio.get_running_loop().time() + self._delivery_timeout_s
        lane.waiting.append(_Waiting(batch, deadline))
        self._bytes += len(batch)
        self._wake()
        await self._until_bytes(UNACKNOWLEDGED_BYTES_MAX)

    async def flush(self) -> None:
        """Wait until everything is acknowledged by all in-sync replicas."""
        await self._until_bytes(0)

    @property
    def first_offsets(self) -> dict[Place, int]:
        """Of the partitions that were written to, the offset of the first acknowledged record."""
        return {
            place: lane.first_offset
            for place, lane in self._lanes.items()
            if lane.first_offset >= 0
        }

    async def end(self, *, commit: bool) -> None:
        """End the transaction; the next one may begin. A commit must follow a `flush`. An abort gives up what is not
        acknowledged, and this producer can then no longer be used."""
        assert self.identity is not None
        assert not commit or self._bytes == 0, "a commit follows a flush"
        if self._bytes > 0:
            await self._give_up()
        has_begun = any(lane.is_added for lane in self._lanes.values())
        if self.identity.version >= EPOCH_PER_TRANSACTION or has_begun:
            self.identity = await self.transactions.end(self.identity, commit=commit)
        if self.identity.version >= EPOCH_PER_TRANSACTION:
            self._lanes.clear()  # the new epoch's sequences begin at 0
        for lane in self._lanes.values():
            lane.is_added = False
            lane.first_offset = -1

    async def _give_up(self) -> None:
        """Send nothing more, and wait for all answers. A request that reaches a coordinator or leader after the end would
        begin a new transaction, if an epoch is not for one transaction only."""
        self._gives_up = True
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        given_up = f"{self._bytes} bytes were given up when their transaction was aborted"
        await self._fail(KafkaError(ErrorCode.INVALID_TXN_STATE, given_up))

    def _batch(self, section: Section, sequence: int) -> memoryview:
        assert self.identity is not None, "started"
        data = bytearray(HEADER_BYTES + len(section.body))
        HEADER.pack_into(
            data,
            0,
            0,
            len(data) - LENGTH_END,
            -1,
            MAGIC,
            0,
            section.codec | (TRANSACTIONAL_BIT if self._transactional_id is not None else 0),
            section.count - 1,
            section.timestamp_ms,
            section.timestamp_ms,
            self.identity.producer_id,
            self.identity.producer_epoch,
            sequence,
            section.count,
        )
        data[HEADER_BYTES:] = section.body
        CRC.pack_into(data, CRC_START - 4, crc32c(memoryview(data)[CRC_START:]))
        return memoryview(data)

    async def _until_bytes(self, bytes_max: int) -> None:
        """Wait until at most so many bytes are unacknowledged. A batch that is overdue fails here at the latest."""
        async with self._changed:
            while self._failure is None and self._bytes > bytes_max:
                oldest = min(
                    (lane for lane in self._lanes.values() if lane.waiting),
                    key=lambda lane: lane.waiting[0].deadline,
                )
                try:
                    async with asyncio.timeout_at(oldest.waiting[0].deadline):
                        await self._changed.wait()
                except TimeoutError:
                    self._failure = self._failure or oldest.last_error or self._overdue(oldest)
        self._raise_failure()

    def _overdue(self, lane: _Lane) -> KafkaError:
        topic, number = lane.place
        text = (
            f"a batch for {topic}-{number} is not acknowledged after {self._delivery_timeout_s} s"
        )
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    # Dispatching

    def _wake(self) -> None:
        """Start the dispatcher, if it does not run."""
        self._has_changed = True
        is_over = self._failure is not None or self._gives_up
        if not is_over and (self._dispatcher is None or self._dispatcher.done()):
            self._dispatcher = self._spawn(self._dispatch())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        async def guarded() -> None:
            """Nothing awaits this task, so its errors must reach those who wait for the batches."""
            try:
                await work
            except Exception as error:
                await self._fail(error)

        task = asyncio.get_running_loop().create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # it may be cancelled before it begins
        return task

    async def _dispatch(self) -> None:
        while self._has_changed and not self._gives_up:
            self._has_changed = False
            await self._add_new_lanes()
            for leader, lanes in await self._requests():
                # Answers may have come since the lanes were chosen, and failures among them.
                ready = [lane for lane in lanes if lane.is_ready]
                if ready and not self._gives_up:
                    await self._send(leader, ready)
                self._has_changed = True  # there may be more for the same lanes

    async def _add_new_lanes(self) -> None:
        """Add them to the transaction, where the leaders do not do it."""
        assert self.identity is not None
        new = [lane for lane in self._lanes.values() if not lane.is_added and lane.waiting]
        if not new:
            return
        if self._transactional_id is not None and self.identity.version < EPOCH_PER_TRANSACTION:
            await self.transactions.add_partitions(self.identity, [lane.place for lane in new])
        for lane in new:
            lane.is_added = True

    async def _requests(self) -> list[tuple[int, list[_Lane]]]:
        """For each leader, the lanes whose next batches go there in one request."""
        found: dict[int, list[_Lane]] = {}
        sizes: dict[int, int] = {}
        for lane in list(self._lanes.values()):
            if not lane.is_ready:
                continue
            try:
                leader = await self._client.leader(*lane.place)
            except KafkaError as error:
                if not error.retriable:
                    raise
                await self._begin_again(lane, error)
                continue
            size = len(lane.waiting[lane.unanswered].data)
            together = found.setdefault(leader, [])
            if not together or sizes[leader] + size <= REQUEST_BYTES_MAX:
                together.append(lane)
                sizes[leader] = sizes.get(leader, 0) + size
        return list(found.items())

    async def _send(self, leader: int, lanes: list[_Lane]) -> None:
        """The request is sent when this returns. A task handles its answer."""
        batches = {lane.place: lane.waiting[lane.unanswered] for lane in lanes}
        for lane in lanes:
            lane.unanswered += 1
        try:
            channel = await self._client.connections.to(leader)
            topics = {place[0]: await self._client.topic(place[0]) for place in batches}
        except OSError as error:
            await self._answered(lanes, batches, error)
            return
        assert self.identity is not None
        version = channel.version_for(ApiKey.PRODUCE)
        if any(topic.id is None for topic in topics.values()):
            version = min(version, PRODUCE_BY_TOPIC_ID_FROM - 1)
        if self._transactional_id is not None and self.identity.version < EPOCH_PER_TRANSACTION:
            version = min(version, PRODUCE_BEFORE_IMPLICIT_ADD)
        timeout_ms = int(self._client.connections.timeout_s * 1000)
        request = produce.ProduceRequest(
            self._transactional_id,
            ACKS_ALL,
            timeout_ms,
            [
                produce.PartitionData(place[0], topics[place[0]].id, place[1], batches[place].data)
                for place in sorted(batches)
            ],
        )
        body = produce.write_request(version, request)

        def read(frame: memoryview, start: int) -> list[produce.PartitionResult]:
            return produce.read_response(version, frame, start).results

        names = {topic.id: topic.name for topic in topics.values()}

        async def answer() -> None:
            outcome: dict[Place, produce.PartitionResult] | Exception
            try:
                results = await calling
                outcome = {
                    (each.topic or names[each.topic_id], each.partition): each for each in results
                }
            except (OSError, InvalidFrame) as error:
                outcome = error
            await self._answered(lanes, batches, outcome)

        # Started here and not in `answer`, so that requests are sent in the order of their sequence numbers.
        calling = asyncio.ensure_future(
            self._client.connections.call(channel, ApiKey.PRODUCE, version, body, read)
        )
        self._spawn(answer())
        await asyncio.sleep(0)

    # Answers

    async def _answered(
        self,
        lanes: list[_Lane],
        batches: dict[Place, _Waiting],
        outcome: dict[Place, produce.PartitionResult] | Exception,
    ) -> None:
        for lane in lanes:
            lane.unanswered -= 1
            batch = batches[lane.place]
            if isinstance(outcome, Exception):
                await self._failed(lane, batch, outcome)
            elif lane.place not in outcome:
                error = KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR, f"the response has no result for {lane.place}"
                )
                await self._failed(lane, batch, error)
            else:
                result = outcome[lane.place]
                topic, number = lane.place
                refused = error_of(result.error, result.error_message or f"{topic}-{number}")
                if refused is None or refused.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    self._acknowledged(lane, batch, result.base_offset)
                else:
                    await self._failed(lane, batch, refused)
            if lane.is_rewinding and lane.unanswered == 0:
                self._spawn(self._rewind(lane))
        async with self._changed:
            self._changed.notify_all()
        self._wake()

    def _acknowledged(self, lane: _Lane, batch: _Waiting, base_offset: int) -> None:
        lane.waiting.remove(batch)
        lane.last_error = None
        self._bytes -= len(batch.data)
        if base_offset >= 0 and (lane.first_offset < 0 or base_offset < lane.first_offset):
            lane.first_offset = base_offset

    async def _failed(self, lane: _Lane, batch: _Waiting, error: Exception) -> None:
        is_first = lane.waiting[0] is batch
        passes = not isinstance(error, KafkaError) or (
            error.retriable
            or (error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not is_first)
        )
        overdue = asyncio.get_running_loop().time() > batch.deadline
        if not passes or overdue:
            # The first error says more than those that follow from it.
            await self._fail(lane.last_error if is_first and overdue and lane.last_error else error)
            return
        if is_first or lane.last_error is None:
            lane.last_error = error
        lane.is_rewinding = True

    async def _begin_again(self, lane: _Lane, error: Exception) -> None:
        """Nothing could be sent: there is no leader."""
        await self._failed(lane, lane.waiting[lane.unanswered], error)
        if lane.is_rewinding and lane.unanswered == 0:
            self._spawn(self._rewind(lane))

    async def _rewind(self, lane: _Lane) -> None:
        """Nothing of this lane is in flight: after a pause, begin again with the present leader."""
        topic, _ = lane.place
        loop = asyncio.get_running_loop()
        while lane.is_rewinding and not self._gives_up:
            await asyncio.sleep(RETRY_PAUSE_S)
            try:
                await self._client.topic(topic, fresh=True)
                lane.is_rewinding = False
            except KafkaError as error:
                await self._fail(error)
                return
            except (OSError, Unreachable) as error:
                if loop.time() > lane.waiting[0].deadline:
                    await self._fail(error)
                    return
        self._wake()

    async def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
        async with self._changed:
            self._changed.notify_all()
