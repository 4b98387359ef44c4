"""A simple idempotent producer: retries never make a duplicate, and one batch is in flight at a time.

It is for the command line and for tests of the protocol, not for throughput (`client.pipelined`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.client.client import Client
from ottla.client.connections import BrokerConnections, check
from ottla.records.record import Record, build
from ottla.wire import produce
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
PRODUCE_BY_TOPIC_ID_FROM: Final = 13
SEQUENCE_COUNT: Final = 2**31


async def new_producer_id(
    connections: BrokerConnections, transaction_timeout_ms: int = 60_000
) -> tuple[int, int]:
    """A producer id and its epoch, for an idempotent producer without transactions."""
    fields = {
        "transactional_id": None,
        "transaction_timeout": transaction_timeout_ms,
        "producer_id": -1,
        "producer_epoch": -1,
    }

    async def attempt() -> tuple[int, int]:
        answer = await connections.ask(ApiKey.INIT_PRODUCER_ID, fields)
        check(answer.error_code, "a producer id was asked for")
        return int(answer.producer_id), int(answer.producer_epoch)

    return await connections.retrying(attempt)


class Producer:
    """Sends one batch at a time."""

    def __init__(self, client: Client, *, acks: int = ACKS_ALL, codec: int = 0) -> None:
        if acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
            raise ValueError(f"acks is 0, 1 or -1, not {acks}")
        self._client = client
        self._acks = acks
        self._codec = codec
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[tuple[str, int], int] = {}

    async def send(self, topic: str, partition: int, records: Sequence[Record]) -> int:
        """Send one batch, and return the offset of its first record (-1 with acks=0, which has no response). The offsets
        in `records` are ignored: the leader assigns them."""
        assert records, "a batch holds records"
        producer_id, epoch = await self._identity()
        sequence = self._sequences.get((topic, partition), 0) if producer_id >= 0 else -1
        batch = memoryview(
            build(
                (record._replace(offset=delta) for delta, record in enumerate(records)),
                codec=self._codec,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
        )

        async def attempt() -> int:
            try:
                return await self._send_once(topic, partition, batch)
            except (KafkaError, OSError):
                await self._client.topic(topic, fresh=True)
                raise

        offset = await self._client.connections.retrying(attempt)
        if producer_id >= 0:
            self._sequences[topic, partition] = (sequence + len(records)) % SEQUENCE_COUNT
        return offset

    async def _identity(self) -> tuple[int, int]:
        """Producer id and epoch. None (-1) without acks=all, where retries are pointless."""
        if self._acks != ACKS_ALL:
            return -1, -1
        if self._producer is None:
            self._producer = await new_producer_id(self._client.connections)
        return self._producer

    async def _send_once(self, topic: str, partition: int, batch: memoryview) -> int:
        client = self._client
        described = await client.topic(topic)
        channel = await client.connections.to(await client.leader(topic, partition))
        version = channel.version_for(ApiKey.PRODUCE)
        if described.id is None:
            version = min(version, PRODUCE_BY_TOPIC_ID_FROM - 1)
        data = produce.PartitionData(topic, described.id, partition, batch)
        timeout_ms = int(client.connections.timeout_s * 1000)
        body = produce.write_request(
            version, produce.ProduceRequest(None, self._acks, timeout_ms, [data])
        )
        if self._acks == ACKS_NONE:
            channel.call(ApiKey.PRODUCE, version, body, None)
            return -1

        def read(frame: memoryview, start: int) -> produce.PartitionResult:
            return produce.read_response(version, frame, start).results[0]

        result = await client.connections.call(channel, ApiKey.PRODUCE, version, body, read)
        if result.error != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            check(result.error, result.error_message or f"{topic}-{partition}")
        return result.base_offset
