"""The producers and consumers of one run: how many, of which partitions; and what they have to know of losses."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from uuid import UUID

from ottla.sim.clients.connections import ClientConnections
from ottla.sim.clients.consumer import SimConsumer
from ottla.sim.clients.logins import SimUser
from ottla.sim.clients.producer import CarelessProducer, SimProducer
from ottla.sim.engine.world import SimHost
from ottla.sim.oracle.history import History
from ottla.sim.oracle.ledger import RecordedLoss
from ottla.wire.types import TopicPartition


class Workload:
    """The clients of one run."""

    def __init__(
        self,
        host: SimHost,
        bootstrap: Sequence[tuple[str, int]],
        chance: random.Random,
        user_of: Callable[[str], SimUser | None] = lambda name: None,
    ) -> None:
        """`user_of`: as whom the client of this name logs in."""
        self.history = History()
        self.producers: list[SimProducer] = []
        self.consumers: list[SimConsumer] = []
        self.careless: list[CarelessProducer] = []
        self._host = host
        self._bootstrap = bootstrap
        self._random = chance
        self._user_of = user_of
        self._produce: Callable[[TopicPartition, str], SimProducer] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def connections(self, name: str) -> ClientConnections:
        return ClientConnections(self._host, self._bootstrap, name, self._user_of(name))

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
        """Every producer gets one more batch acknowledged, and so does a new producer of each partition."""
        assert self._produce is not None
        for partition in sorted({producer.partition for producer in self.producers}):
            self._produce(partition, f"{partition.topic}-{partition.partition}-n")
        clients: list[SimProducer | CarelessProducer] = [*self.producers, *self.careless]
        for client in clients:
            client.stopping = True
        for consumer in self.consumers:
            consumer.may_rewind = False

    def forget(self, partition: TopicPartition, topic_id: UUID) -> None:
        """Its topic was deleted; another of the same name may follow."""
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
        """The cluster recorded a loss in this partition: clients may notice it."""
        for producer in self.producers:
            if producer.partition == partition:
                producer.allow_losses(loss.epoch)
        for consumer in self.consumers:
            if consumer.partition == partition:
                consumer.allow_losses(loss)
