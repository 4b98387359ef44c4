"""A producer that sends on schedule, whatever the answers: the same load for every design.

It sends one batch for each moment of its schedule (linger.ms=0), numbers them like an idempotent producer, and does not
retry. It notes when each was sent and acknowledged.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from ottla.lab.harness import LabCluster
from ottla.records.record import build
from ottla.sim.clients.connections import ClientConnections
from ottla.sim.clients.record_content import record_of
from ottla.sim.cluster.nodes import BROKER_PORT
from ottla.wire import produce
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode, InvalidFrame
from ottla.wire.types import TopicPartition

PRODUCE_VERSION = APIS[ApiKey.PRODUCE].max_version
TIMEOUT_MS = 60_000
FIND_S_MAX = 30.0


def poisson(chance: random.Random, rate: float, count: int) -> list[float]:
    """So many moments, in seconds from the beginning, at random and independent of each other."""
    moments, at = [], 0.0
    for _ in range(count):
        at += chance.expovariate(rate)
        moments.append(at)
    return moments


@dataclass
class SentRecord:
    value: str
    sent_at: float
    acknowledged_at: float | None = None

    @property
    def latency_s(self) -> float:
        assert self.acknowledged_at is not None
        return self.acknowledged_at - self.sent_at


class OpenLoopWriter:
    """Writes to one broker, over one connection."""

    def __init__(
        self,
        cluster: LabCluster,
        name: str,
        partition: TopicPartition,
        topic_id: UUID,
        broker: int,
        acks: int,
        producer_id: int,
    ) -> None:
        self.sent: list[SentRecord] = []
        self.failed = 0
        """Records that were refused or have no outcome."""
        self._cluster = cluster
        self._name = name
        self._partition = partition
        self._topic_id = topic_id
        self._host = cluster.sim.nodes[broker].host.name
        self._acks = acks
        self._producer_id = producer_id
        self._channel: Channel | None = None

    @property
    def acknowledged(self) -> list[SentRecord]:
        return [each for each in self.sent if each.acknowledged_at is not None]

    @property
    def is_answered(self) -> bool:
        return len(self.acknowledged) + self.failed == len(self.sent)

    async def run(self, schedule: Sequence[float]) -> None:
        """`schedule`: seconds from now. It ends when the last record is sent."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        if self._channel is None:
            network = self._cluster.clients.runtime.network
            self._channel = await Channel.open(network, self._host, BROKER_PORT, self._name)
        for moment in schedule:
            await asyncio.sleep(max(0.0, began + moment - loop.time()))
            self._send(self._channel)

    def _send(self, channel: Channel) -> None:
        number = len(self.sent)
        record = SentRecord(f"{self._name}:{number}", self._cluster.now)
        self.sent.append(record)
        timestamp_ms = self._cluster.clients.clock.wall_ms()
        batch = build(
            [record_of(self._partition, 0, timestamp_ms, record.value.encode())],
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=number,
        )
        topic, index = self._partition
        data = produce.PartitionData(topic, self._topic_id, index, memoryview(batch))
        request = produce.ProduceRequest(None, self._acks, TIMEOUT_MS, [data])

        def answered(frame: memoryview, start: int) -> None:
            result = produce.read_response(PRODUCE_VERSION, frame, start).results[0]
            if result.error == ErrorCode.NONE:
                record.acknowledged_at = self._cluster.now
            else:
                self.failed += 1

        def lost(error: Exception) -> None:
            self.failed += 1

        try:
            channel.call(
                ApiKey.PRODUCE,
                PRODUCE_VERSION,
                produce.write_request(PRODUCE_VERSION, request),
                answered,
                on_failure=lost,
            )
        except ConnectionError:
            self.failed += 1


def find_leader(cluster: LabCluster, partition: TopicPartition) -> tuple[UUID, int]:
    """(the topic's id, the leader) as a client finds them."""
    connections = ClientConnections(cluster.clients, cluster.sim.bootstrap, "finder")

    async def find() -> tuple[UUID, int]:
        while True:
            try:
                place, _ = await connections.leader(partition)
                return place.topic_id, place.leader
            except (OSError, TimeoutError, InvalidFrame):
                await asyncio.sleep(0.1)

    return cluster.clients.complete(find(), FIND_S_MAX)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which so many of them are."""
    assert values and 0.0 <= share <= 1.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
