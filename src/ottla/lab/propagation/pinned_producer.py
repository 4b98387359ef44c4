"""A producer that writes to one broker, whoever leads: a client whose metadata is old."""

from __future__ import annotations

import asyncio
from uuid import UUID

from ottla.records.record import Record, build
from ottla.sim.cluster.nodes import BROKER_PORT
from ottla.sim.engine.world import SimHost
from ottla.wire import produce
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.types import TopicPartition

VERSION = 12
INTERVAL_S = 0.05
PATIENCE_MS = 60_000


class PinnedProducer:
    """One record at a time, each with its own request, until it is stopped."""

    def __init__(
        self, host: SimHost, broker: str, key: TopicPartition, topic_id: UUID, acks: int
    ) -> None:
        self._host = host
        self._broker = broker
        self._key = key
        self._topic_id = topic_id
        self._acks = acks
        self.acknowledged: list[str] = []
        self._next = 0
        self._stopped = False

    def start(self) -> None:
        task = self._host.run(self._write(), name=f"producer acks={self._acks}")
        self._host.started.remove(task)

    def stop(self) -> None:
        self._stopped = True

    async def _write(self) -> None:
        channel = await Channel.open(
            self._host.runtime.network, self._broker, BROKER_PORT, f"pinned acks={self._acks}"
        )
        while not self._stopped and not channel.closed:
            self._send(channel, f"acks={self._acks} {self._next}")
            self._next += 1
            await asyncio.sleep(INTERVAL_S)

    def _send(self, channel: Channel, value: str) -> None:
        records = build([Record(0, 0, None, value.encode())])
        data = produce.PartitionData(
            self._key.topic, self._topic_id, self._key.partition, memoryview(records)
        )
        request = produce.ProduceRequest(None, self._acks, PATIENCE_MS, [data])

        def answered(frame: memoryview, body: int) -> None:
            if not produce.read_response(VERSION, frame, body).results[0].error:
                self.acknowledged.append(value)

        channel.call(
            ApiKey.PRODUCE,
            VERSION,
            produce.write_request(VERSION, request),
            answered,
            on_failure=lambda error: None,
        )
