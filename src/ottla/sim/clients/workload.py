"""Clients of a simulated cluster, on hosts of their own, and the history of what they were told.

Producers are idempotent with acks=all and retry as real clients do: to the new leader that Metadata names,
with the same producer id and sequence, up to five batches under way. Every value occurs once. What was
acknowledged, what was refused for good and what nobody knows are kept apart: only the first must be there at
the end, only the second must not.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import zlib
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from ottla.records.batch import NO_PRODUCER_ID, NO_SEQUENCE, CorruptBatch, batches, check_crc
from ottla.records.record import Record, build
from ottla.records.record import records as records_of
from ottla.sim.clients.connections import (
    BACKOFF_S,
    NEW_SESSION,
    REQUEST_TIMEOUT_S,
    SESSIONLESS,
    ClientConnections,
    PartitionLeader,
)
from ottla.sim.engine.loop import START_NS
from ottla.sim.engine.world import WALL_START_MS, SimHost
from ottla.sim.oracle.coverage import mark
from ottla.sim.oracle.history import TABLE, Ack, Anomaly, History, ProducedBatch, Read, Refusal
from ottla.sim.oracle.ledger import RecordedLoss
from ottla.wire import produce
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import RETRIABLE, ErrorCode, InvalidFrame
from ottla.wire.types import TopicPartition

PRODUCE_VERSION = APIS[ApiKey.PRODUCE].max_version
LATEST, EARLIEST = -1, -2
ALL = -1
UNDER_WAY_MAX = 5
NAME = "name"
REWIND_AFTER = 4
"""So many times nothing new, and a consumer reads again what it has read: it must be the same."""
NEARBY_EVERY = 5
"""One of so many fetches goes to a follower."""


def key_of(partition: TopicPartition, value: bytes) -> bytes | None:
    """In the table one of about a hundred: most newest values lie in closed segments. None elsewhere."""
    return value[-2:] if partition.topic == TABLE else None


def is_tombstone(partition: TopicPartition, value: bytes) -> bool:
    """In the table one of six deletes its key: its record has a header for its name, and no value."""
    return partition.topic == TABLE and zlib.crc32(value) % 6 == 0


def record_of(partition: TopicPartition, number: int, timestamp_ms: int, value: bytes) -> Record:
    key = key_of(partition, value)
    if is_tombstone(partition, value):
        return Record(number, timestamp_ms, key, None, ((NAME, value),))
    return Record(number, timestamp_ms, key, value)


def name_of(record: Record) -> bytes:
    """The value that a record was made of."""
    return record.value or dict(record.headers).get(NAME) or b""


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
        """It was told to stop, and got one more batch acknowledged since."""
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
        """Identities that wrote before the cluster lost records, or to a leader from before that: a gap in their
        sequences may come from it."""
        self._asked = PartitionLeader(UUID(int=0), -1, -1), 0.0
        """Where something was sent last, and when."""

    async def run(self) -> None:
        """Until told to stop, and then until everything begun has an outcome, and one more batch is acknowledged,
        however often it is given up."""
        queue: list[ProducedBatch] = []
        while not self.is_done:
            queue = [batch for batch in queue if self._history.is_of_now(batch)]
            if self._producer_id is None and not queue:
                await self._new_identity()
                continue
            is_last = not queue and self.stopping
            if not queue:
                # Never more than five since the oldest without an answer: so many a broker remembers.
                count = 1 if is_last else self._random.randint(1, UNDER_WAY_MAX)
                queue = [self._next() for _ in range(count)]
                self._last = queue[0] if is_last else None
            queue = await self._send(queue)
            await asyncio.sleep(self._random.expovariate(1 / self._pause_s))

    def allow_losses(self, epoch: int) -> None:
        """Records of former leaders were lost, and the loss is on record."""
        self._loss_epoch = epoch
        if self._producer_id is not None:
            self._lossy.add(self._producer_id)

    def forget(self) -> None:
        """The topic was deleted: its next life knows nothing of our sequences."""
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
        """One round: send all, wait for all; what has to be sent again."""
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
                raise ConnectionError("whoever answered has not heard that the topic is gone")
        except (OSError, TimeoutError, InvalidFrame) as error:
            results = [error] * len(queue)
        again: list[ProducedBatch] = []
        for batch, result in zip(queue, results, strict=True):
            if not self._history.is_of_now(batch):
                continue  # nobody will ask what became of it
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
            return  # one before it did not get there either
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
        """Nobody knows whether they are there. Sequences cannot go on after them: a new identity."""
        self._history.unknown += batches
        self._producer_id = None
        return []


class CarelessProducer:
    """acks=1, nothing tried twice, no answer believed: what it writes may be there or not. It leaves
    records on leaders that nobody else has, also where the ISR is too small for anybody careful."""

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
        """`restless`: it looks for the leader before each record, and so is the first to find a new one."""
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


class SimConsumer:
    """Reads one partition from its beginning, from whoever leads it."""

    def __init__(
        self, connections: ClientConnections, partition: TopicPartition, history: History, name: str
    ) -> None:
        self.stopping = False
        self.may_rewind = True
        self.disks_are_wrong = False
        """Whether some replica's disk does not give back what was written to it."""
        self.position = 0
        self._connections = connections
        self.partition = partition
        self._history = history
        self.name = name
        self._epoch = -1
        """Of the last record read: the leader tells from it whether our position is still its history."""
        self._known_end = 0
        self._losses: list[RecordedLoss] = []
        """Records were lost, and we may notice, until a leader that begins without them has served us."""
        self._had_losses = False
        """A follower that has not cut them yet may show them for a moment longer."""
        self._served: set[tuple[UUID, int]] = set()
        """(topic, broker): who has answered a Fetch, which names its topic by id."""
        self._rounds = 0
        self._idle_rounds = 0

    def forget(self) -> None:
        """The topic was deleted: the next one of that name begins anew."""
        self.position, self._epoch, self._known_end = 0, -1, 0
        self._losses, self._had_losses = [], False
        self._connections.forget(self.partition)

    def allow_losses(self, loss: RecordedLoss) -> None:
        self._losses.append(loss)
        self._had_losses = True

    def _reconcile(self, epoch: int) -> None:
        """What we know from before the losses up to this leader's epoch says nothing any more."""
        met = [loss for loss in self._losses if loss.epoch <= epoch]
        if not met:
            return
        self._losses = [loss for loss in self._losses if loss.epoch > epoch]
        self._known_end = 0
        read = self._history.read.get(self.partition, {})
        for offset, (_, read_in) in list(read.items()):
            if any(offset >= loss.first and read_in < loss.epoch for loss in met):
                del read[offset]

    async def run(self) -> None:
        while not self.stopping:
            try:
                await self._poll()
            except (OSError, TimeoutError, InvalidFrame):
                self._connections.forget(self.partition)
                await asyncio.sleep(BACKOFF_S)

    async def _poll(self) -> None:
        place, channel = await self._connections.leader(self.partition)
        self._rounds += 1
        if self._rounds % 3 == 0:
            await self._ask_end(place, channel)
        if self._rounds % NEARBY_EVERY == 0 and not self._had_losses:
            await self._read_nearby(place)
        # Now and then a session that is never used again, as clients leave behind.
        session_epoch = NEW_SESSION if self._rounds % 7 == 0 else SESSIONLESS
        answer, data = await self._connections.fetch(
            place, channel, self.partition, self.position, self._epoch, session_epoch
        )
        if place.topic_id in self._history.deleted:
            self._connections.forget(self.partition)
            return
        code = ErrorCode(answer.error)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and await self._may_have_expired(place, channel):
            return
        if code is not ErrorCode.NONE:
            if code not in RETRIABLE and not self._losses:
                self._report("D4", f"a fetch at {self.position} was refused with {code.name}")
            self._connections.forget(self.partition)
            await asyncio.sleep(BACKOFF_S)
            return
        self._served.add((place.topic_id, place.leader))
        if answer.diverging is not None:
            if not self._losses:
                self._report(
                    "D3",
                    f"read up to {self.position}/{self._epoch}, the leader's log "
                    f"parts from that at {answer.diverging}",
                )
            self.position, self._epoch = min(self.position, answer.diverging[1]), -1
            return
        self._reconcile(place.leader_epoch)
        self._idle_rounds = 0 if data else self._idle_rounds + 1
        if self._idle_rounds == REWIND_AFTER and self.may_rewind:
            self.position, self._epoch = self.position // 2, -1
            return
        try:
            self._take(data)
        except CorruptBatch as error:
            await self._saw_damage(error)

    async def _saw_damage(self, error: CorruptBatch) -> None:
        if not self.disks_are_wrong:
            self._report("D3", f"after {self.position}: {error}")
        mark("damage seen by a consumer")
        self._connections.forget(self.partition)
        await asyncio.sleep(BACKOFF_S)

    async def _read_nearby(self, place: PartitionLeader) -> None:
        """From a follower (KIP-392). It may know less than the leader, and what it refuses says nothing; what it
        shows is committed."""
        channel = await self._connections.follower(self.partition, place.leader)
        if channel is None:
            return
        answer, data = await self._connections.fetch(
            place, channel, self.partition, self.position, self._epoch
        )
        refused = answer.error != ErrorCode.NONE or answer.diverging is not None
        if not data or refused or place.topic_id in self._history.deleted or self._had_losses:
            return
        mark("read from a follower")
        try:
            self._take(data)
        except CorruptBatch as error:
            await self._saw_damage(error)

    def _take(self, data: bytes) -> None:
        """CorruptBatch where a batch is not what its producer sent: nothing of it is taken."""
        read = self._history.read.setdefault(self.partition, {})
        for batch in batches(data):
            check_crc(data, batch)
            epoch = batch.leader_epoch
            self._history.shown.append((self.partition, batch.next_offset, epoch))
            if batch.last_offset < self.position:
                self._report("poll", f"{batch.base_offset} comes again after {self.position}")
            if batch.base_offset > self.position:
                self._report("poll", f"skips from {self.position} to {batch.base_offset}")
            for record in records_of(data, batch):
                if record.offset < self.position:
                    continue
                self._history.reads += 1
                value = record.value or b""
                before = read.get(record.offset)
                if before is not None and before.value != value and not self._losses:
                    self._report("D3", f"offset {record.offset} was {before.value!r}, is {value!r}")
                read[record.offset] = Read(value, epoch)
            self.position = batch.next_offset
            self._epoch = epoch

    async def _may_have_expired(self, place: PartitionLeader, channel: Channel) -> bool:
        """What we would read next is no longer there: go on with what is. If whoever refused the fetch does
        not say where its log begins (it leads no more, say), nothing is known: whoever leads is asked all
        of it again."""
        start = await self._offset(place, channel, EARLIEST)
        if start is None:
            self._connections.forget(self.partition)
            await asyncio.sleep(BACKOFF_S)
            return True
        if start <= self.position:
            return False
        self.position, self._epoch = start, -1
        return True

    async def _ask_end(self, place: PartitionLeader, channel: Channel) -> None:
        """Within one client, whose requests carry the newest epoch it knows, the end never goes back."""
        end = await self._offset(place, channel, LATEST)
        if self.partition in self._history.born and (
            (place.topic_id, place.leader) not in self._served
        ):
            return  # ListOffsets knows names only: that may be the end of the former topic of that name
        if end is not None:
            if end < self._known_end and not self._losses:
                self._report("D4", f"the end was {self._known_end} and is {end}")
            self._known_end = end

    async def _offset(self, place: PartitionLeader, channel: Channel, which: int) -> int | None:
        asked = {
            "partition_index": self.partition.partition,
            "current_leader_epoch": place.leader_epoch,
            "timestamp": which,
        }
        fields = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": self.partition.topic, "partitions": [asked]}],
        }
        answer = await self._connections.answer(
            channel,
            channel.request(ApiKey.LIST_OFFSETS, fields, version=9, timeout_s=REQUEST_TIMEOUT_S),
        )
        found = answer.topics[0].partitions[0]
        if place.topic_id in self._history.deleted or int(found.error_code) != ErrorCode.NONE:
            return None
        return int(found.offset)

    def _report(self, rule: str, what: str) -> None:
        self._history.anomalies.append(Anomaly(rule, self.partition, f"{self.name}: {what}"))


class Workload:
    """The clients of one run."""

    def __init__(
        self,
        host: SimHost,
        bootstrap: Sequence[tuple[str, int]],
        chance: random.Random,
    ) -> None:
        self.history = History()
        self.producers: list[SimProducer] = []
        self.consumers: list[SimConsumer] = []
        self.careless: list[CarelessProducer] = []
        self._host = host
        self._bootstrap = bootstrap
        self._random = chance
        self._produce: Callable[[TopicPartition, str], SimProducer] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def connections(self, name: str) -> ClientConnections:
        return ClientConnections(self._host, self._bootstrap, name)

    def begin(
        self,
        partitions: Sequence[TopicPartition],
        *,
        producers: int,
        consumers: int,
        careless: int,
        restless: bool,
        pause_s: float,
        backoff_s: float,
        patience_s: float,
    ) -> None:
        """So many producers, and consumers, of each partition."""

        def produce(partition: TopicPartition, name: str) -> SimProducer:
            producer = SimProducer(
                self.connections(name),
                partition,
                self.history,
                name,
                random.Random(self._random.getrandbits(64)),
                pause_s=pause_s,
                backoff_s=backoff_s,
                patience_s=patience_s,
            )
            self.producers.append(producer)
            self._tasks.append(self._host.run(producer.run(), name=name))
            return producer

        self._produce = produce
        for partition in partitions:
            for number in range(producers):
                produce(partition, f"{partition.topic}-{partition.partition}-p{number}")
            for number in range(consumers):
                name = f"{partition.topic}-{partition.partition}-c{number}"
                consumer = SimConsumer(self.connections(name), partition, self.history, name)
                self.consumers.append(consumer)
                self._tasks.append(self._host.run(consumer.run(), name=name))
            for number in range(careless):
                name = f"{partition.topic}-{partition.partition}-a{number}"
                chance = random.Random(self._random.getrandbits(64))
                bold = CarelessProducer(
                    self.connections(name),
                    partition,
                    name,
                    chance,
                    pause_s=pause_s,
                    restless=restless,
                )
                self.careless.append(bold)
                self._tasks.append(self._host.run(bold.run(), name=name))

    def stop_producing(self) -> None:
        """All have their last word, and so has somebody new for each partition."""
        assert self._produce is not None
        for partition in sorted({producer.partition for producer in self.producers}):
            self._produce(partition, f"{partition.topic}-{partition.partition}-n")
        clients: list[SimProducer | CarelessProducer] = [*self.producers, *self.careless]
        for client in clients:
            client.stopping = True
        for consumer in self.consumers:
            consumer.may_rewind = False

    def forget(self, partition: TopicPartition, topic_id: UUID) -> None:
        """Its topic was deleted, and perhaps there is another of that name soon."""
        self.history.forget(partition, topic_id, self._host.clock.monotonic())
        for producer in self.producers:
            if producer.partition == partition:
                producer.forget()
        for consumer in self.consumers:
            if consumer.partition == partition:
                consumer.forget()

    def expect_wrong_disks(self) -> None:
        for consumer in self.consumers:
            consumer.disks_are_wrong = True

    def allow_losses(self, partition: TopicPartition, loss: RecordedLoss) -> None:
        """Records of it were lost and the loss is on record: clients may notice."""
        for producer in self.producers:
            if producer.partition == partition:
                producer.allow_losses(loss.epoch)
        for consumer in self.consumers:
            if consumer.partition == partition:
                consumer.allow_losses(loss)
