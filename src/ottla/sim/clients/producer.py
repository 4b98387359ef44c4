"""Producers of a simulated cluster.

`SimProducer` is idempotent, with acks=all, and retries as real clients do: it sends the same producer id and sequence to
the leader that Metadata names, with up to five batches in flight. It records what was acknowledged and what has no known
outcome (`oracle.history`). `CarelessProducer` has acks=1 and does not retry.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterable
from uuid import UUID

from ottla.records.batch import NO_PRODUCER_ID, NO_SEQUENCE
from ottla.records.record import build
from ottla.sim.clients.connections import (
    BACKOFF_S,
    REQUEST_TIMEOUT_S,
    ClientConnections,
    PartitionLeader,
)
from ottla.sim.clients.record_content import record_of
from ottla.sim.engine.loop import START_NS
from ottla.sim.engine.world import WALL_START_MS
from ottla.sim.oracle.history import Ack, Anomaly, History, ProducedBatch, Refusal
from ottla.wire import produce
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import RETRIABLE, ErrorCode, InvalidFrame
from ottla.wire.types import TopicPartition

PRODUCE_VERSION = APIS[ApiKey.PRODUCE].max_version
ALL = -1
UNDER_WAY_MAX = 5


def _produce_call(
    place: PartitionLeader, batch: ProducedBatch, acks: int = ALL
) -> tuple[int, bytes, Callable[[memoryview, int], produce.PartitionResult]]:
    timestamp_ms = WALL_START_MS + int(batch.begun_at * 1000) - START_NS // 1_000_000
    data = build(
        [
            record_of(batch.partition, number, timestamp_ms, value)
            for number, value in enumerate(batch.values)
        ],
        producer_id=batch.producer_id,
        producer_epoch=NO_PRODUCER_ID if batch.producer_id == NO_PRODUCER_ID else 0,
        base_sequence=batch.sequence,
    )
    topic, number = batch.partition
    partition = produce.PartitionData(topic, place.topic_id, number, memoryview(data))
    request = produce.ProduceRequest(None, acks, int(REQUEST_TIMEOUT_S * 1000), [partition])

    def read(frame: memoryview, start: int) -> produce.PartitionResult:
        return produce.read_response(PRODUCE_VERSION, frame, start).results[0]

    return PRODUCE_VERSION, produce.write_request(PRODUCE_VERSION, request), read


class SimProducer:
    """One idempotent producer of one partition."""

    def __init__(
        self,
        connections: ClientConnections,
        partition: TopicPartition,
        history: History,
        name: str,
        chance: random.Random,
        *,
        pause_s: float,
        backoff_s: float,
        patience_s: float,
    ) -> None:
        self.stopping = False
        self.is_done = False
        """One more batch was acknowledged after `stopping` was set."""
        self._connections = connections
        self.partition = partition
        self._history = history
        self.name = name
        self._random = chance
        self._pause_s = pause_s
        self._backoff_s = backoff_s
        self._patience_s = patience_s
        self._producer_id: int | None = None
        self._sequence = 0
        self._value = 0
        self._last: ProducedBatch | None = None
        self._acknowledged_id = NO_PRODUCER_ID
        """Of the newest batch that was acknowledged."""
        self._loss_epoch = -1
        self._lossy: set[int] = set()
        """Producer ids that wrote before the cluster recorded a loss, or to a leader from before it: the loss may
        explain a gap in their sequences."""
        self._asked = PartitionLeader(UUID(int=0), -1, -1), 0.0
        """The leader of the last request, and its time."""

    async def run(self) -> None:
        """Until `stopping`, and then until every batch has an outcome and one more batch is acknowledged, however
        many of them are given up."""
        queue: list[ProducedBatch] = []
        while not self.is_done:
            queue = [batch for batch in queue if self._history.is_of_now(batch)]
            if self._producer_id is None and not queue:
                await self._new_identity()
                continue
            is_last = not queue and self.stopping
            if not queue:
                # At most five since the oldest without an answer: a broker remembers as many.
                count = 1 if is_last else self._random.randint(1, UNDER_WAY_MAX)
                queue = [self._next() for _ in range(count)]
                self._last = queue[0] if is_last else None
            queue = await self._send(queue)
            await asyncio.sleep(self._random.expovariate(1 / self._pause_s))

    def allow_losses(self, epoch: int) -> None:
        """The cluster recorded that leaders before this epoch lost records."""
        self._loss_epoch = epoch
        if self._producer_id is not None:
            self._lossy.add(self._producer_id)

    def forget(self) -> None:
        """The topic was deleted. A new topic of the same name does not know our sequences."""
        self._producer_id = None
        self._connections.forget(self.partition)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _next(self) -> ProducedBatch:
        assert self._producer_id is not None
        count = self._random.choice((1, 1, 1, 2, 3, 8))
        values = tuple(f"{self.name}:{self._value + i}".encode() for i in range(count))
        batch = ProducedBatch(
            self.partition, self._producer_id, self._sequence, values, self._now()
        )
        self._value += count
        self._sequence += count
        return batch

    async def _new_identity(self) -> None:
        fields = {
            "transactional_id": None,
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        try:
            answer = await self._connections.ask(ApiKey.INIT_PRODUCER_ID, fields)
            if int(answer.error_code) == ErrorCode.NONE:
                self._producer_id, self._sequence = int(answer.producer_id), 0
                return
        except (OSError, TimeoutError, InvalidFrame):
            pass
        await asyncio.sleep(BACKOFF_S)

    async def _send(self, queue: list[ProducedBatch]) -> list[ProducedBatch]:
        """Send all, wait for all, and return what has to be sent again."""
        try:
            place, channel = await self._connections.leader(self.partition)
            self._asked = place, self._now()
            if place.leader_epoch < self._loss_epoch:
                self._lossy.add(queue[0].producer_id)
            calls = [
                self._connections.call(channel, ApiKey.PRODUCE, *_produce_call(place, batch))
                for batch in queue
            ]
            results = await asyncio.gather(*calls, return_exceptions=True)
            if place.topic_id in self._history.deleted:
                raise ConnectionError("the broker does not know yet that the topic was deleted")
        except (OSError, TimeoutError, InvalidFrame) as error:
            results = [error] * len(queue)
        again: list[ProducedBatch] = []
        for batch, result in zip(queue, results, strict=True):
            if not self._history.is_of_now(batch):
                continue  # its topic was deleted: the outcome does not matter
            if isinstance(result, produce.PartitionResult):
                self._answered(batch, result, again)
            elif isinstance(result, OSError | TimeoutError | InvalidFrame):
                again.append(batch)
            else:
                assert isinstance(result, BaseException)
                raise result
        if again:
            self._connections.forget(self.partition)
            if self._now() - again[0].begun_at > self._patience_s:
                return self._give_up(again)
            await asyncio.sleep(self._backoff_s)
        return again

    def _answered(
        self, batch: ProducedBatch, result: produce.PartitionResult, again: list[ProducedBatch]
    ) -> None:
        """C1: the oldest batch without an answer is never refused for good, unless a recorded loss explains it."""
        code = ErrorCode(result.error)
        if code is ErrorCode.NONE:
            if again and batch.producer_id != self._acknowledged_id:
                self._history.begun_late.add(batch.producer_id)
            self._acknowledged_id = batch.producer_id
            epoch = self._asked[0].leader_epoch
            self._history.acknowledged.append(Ack(batch, result.base_offset, self._now(), epoch))
            self.is_done = batch is self._last
            return
        again.append(batch)
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and len(again) > 1:
            return  # a batch before it failed, too
        excused = self._lossy | self._history.begun_late
        if code not in RETRIABLE and batch.producer_id not in excused:
            place, asked_at = self._asked
            out_of_turn = code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            self._history.anomalies.append(
                Anomaly(
                    "C1",
                    self.partition,
                    f"sequence {batch.sequence} of producer {batch.producer_id} ({self.name}), the "
                    f"oldest without an answer, was refused with {code.name}",
                    Refusal(batch, place.leader, asked_at) if out_of_turn else None,
                )
            )

    def _give_up(self, batches: Iterable[ProducedBatch]) -> list[ProducedBatch]:
        """Their outcome is unknown. Their sequences cannot be continued, so a new producer id follows."""
        self._history.unknown += batches
        self._producer_id = None
        return []


class CarelessProducer:
    """acks=1, no producer id, no retries; nothing is expected of what it writes. It leaves records on leaders that no
    follower has, also while the ISR is too small for acks=all."""

    def __init__(
        self,
        connections: ClientConnections,
        partition: TopicPartition,
        name: str,
        chance: random.Random,
        *,
        pause_s: float,
        restless: bool,
    ) -> None:
        """`restless`: it asks for the leader before each record, and so finds a new leader first."""
        self.stopping = False
        self._connections = connections
        self._partition = partition
        self.name = name
        self._random = chance
        self._pause_s = pause_s
        self._restless = restless

    async def run(self) -> None:
        for number in itertools.count():
            await asyncio.sleep(self._random.expovariate(1 / self._pause_s))
            if self.stopping:
                return
            value = f"{self.name}:{number}".encode()
            now = asyncio.get_running_loop().time()
            batch = ProducedBatch(self._partition, NO_PRODUCER_ID, NO_SEQUENCE, (value,), now)
            try:
                place, channel = await self._connections.leader(self._partition)
                call = _produce_call(place, batch, acks=1)
                result = await self._connections.call(channel, ApiKey.PRODUCE, *call)
                if self._restless or result.error != ErrorCode.NONE:
                    self._connections.forget(self._partition)
            except (OSError, TimeoutError, InvalidFrame):
                self._connections.forget(self._partition)
