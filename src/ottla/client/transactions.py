"""Transactions, asked and told: which there are, what is open, and how to end what nobody else will."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from ottla.client.client import Client
from ottla.client.connections import check
from ottla.client.everybody import Heard, ask_everybody
from ottla.wire.apis import ApiKey

TRANSACTION_KEY = 1
ONGOING = "Ongoing"
UNFINISHED = (ONGOING, "PrepareCommit", "PrepareAbort")
"""In these its coordinator will end a transaction, if nobody else does."""


class ListedTransaction(NamedTuple):
    id: str
    state: str
    producer_id: int
    coordinator: int


class TransactionDescription(NamedTuple):
    id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started: datetime | None
    partitions: tuple[tuple[str, int], ...]
    coordinator: int


class OpenTransaction(NamedTuple):
    """What a partition's leader knows of a producer whose transaction is open there."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


class Transactions:
    """What a `Client` can do about transactions."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._connections = client.connections

    async def all(
        self,
        *,
        states: tuple[str, ...] = (),
        producer_ids: tuple[int, ...] = (),
        open_for_ms: int = -1,
        pattern: str | None = None,
    ) -> Heard[ListedTransaction]:
        """Each broker lists those that it coordinates."""
        fields = {
            "state_filters": states,
            "producer_id_filters": producer_ids,
            "duration_filter": open_for_ms,
            "transactional_id_pattern": pattern,
        }

        async def listed_by(broker: int) -> list[ListedTransaction]:
            answer = await self._connections.ask(ApiKey.LIST_TRANSACTIONS, fields, broker=broker)
            check(answer.error_code, f"transactions of broker {broker}")
            return [
                ListedTransaction(
                    each.transactional_id, each.transaction_state, each.producer_id, broker
                )
                for each in answer.transaction_states
            ]

        heard = await ask_everybody(self._client, listed_by)
        found = {each.id: each for transactions in heard.answers for each in transactions}
        return Heard(sorted(found.values()), heard.silent)

    async def coordinator(self, transactional_id: str) -> int:
        async def attempt() -> int:
            fields = {
                "key": transactional_id,
                "key_type": TRANSACTION_KEY,
                "coordinator_keys": [transactional_id],
            }
            answer = await self._connections.ask(ApiKey.FIND_COORDINATOR, fields)
            found = answer.coordinators[0] if hasattr(answer, "coordinators") else answer
            check(found.error_code, f"coordinator of {transactional_id}")
            self._connections.addresses[int(found.node_id)] = (found.host, int(found.port))
            return int(found.node_id)

        return await self._connections.retrying(attempt)

    async def describe(self, transactional_id: str) -> TransactionDescription:
        """KafkaError TRANSACTIONAL_ID_NOT_FOUND if there is none."""

        async def attempt() -> TransactionDescription:
            broker = await self.coordinator(transactional_id)
            answer = await self._connections.ask(
                ApiKey.DESCRIBE_TRANSACTIONS,
                {"transactional_ids": [transactional_id]},
                broker=broker,
            )
            (found,) = answer.transaction_states
            check(found.error_code, f"transactional id {transactional_id}")
            return TransactionDescription(
                transactional_id,
                found.transaction_state,
                found.producer_id,
                found.producer_epoch,
                round(found.transaction_timeout.total_seconds() * 1000),
                found.transaction_start_time,
                tuple(
                    (topic.topic, number) for topic in found.topics for number in topic.partitions
                ),
                broker,
            )

        return await self._connections.retrying(attempt)

    async def abort(self, transactional_id: str) -> None:
        """As a new producer of the same id would: the present one is fenced, what it has open aborted."""
        described = await self.describe(transactional_id)
        fields = {
            "transactional_id": transactional_id,
            "transaction_timeout": described.timeout_ms,
            "producer_id": -1,
            "producer_epoch": -1,
        }

        async def attempt() -> None:
            broker = await self.coordinator(transactional_id)
            answer = await self._connections.ask(ApiKey.INIT_PRODUCER_ID, fields, broker=broker)
            check(answer.error_code, f"transactional id {transactional_id}")

        await self._connections.retrying(attempt)

    async def open_in(self, topic: str, partition: int) -> list[OpenTransaction]:
        """The oldest first."""

        async def attempt() -> list[OpenTransaction]:
            broker = await self._client.leader(topic, partition)
            answer = await self._connections.ask(
                ApiKey.DESCRIBE_PRODUCERS,
                {"topics": [{"name": topic, "partition_indexes": [partition]}]},
                broker=broker,
            )
            found = answer.topics[0].partitions[0]
            check(found.error_code, f"producers of {topic}-{partition}")
            return sorted(
                (
                    OpenTransaction(
                        each.producer_id,
                        each.producer_epoch,
                        each.coordinator_epoch,
                        each.current_txn_start_offset,
                        each.last_timestamp,
                    )
                    for each in found.active_producers
                    if each.current_txn_start_offset >= 0
                ),
                key=lambda each: each.start_offset,
            )

        return await self._connections.retrying(attempt)

    async def cared_for(
        self, topic: str, partition: int, producer_id: int
    ) -> Heard[ListedTransaction]:
        """Those whose coordinator knows that they are open in this partition, and will end them."""
        listed = await self.all(states=UNFINISHED, producer_ids=(producer_id,))
        found = [
            each
            for each in listed.answers
            if (topic, partition) in (await self.describe(each.id)).partitions
        ]
        return Heard(found, listed.silent)

    async def abort_hanging(self, topic: str, partition: int, hanging: OpenTransaction) -> None:
        """Write the abort that no coordinator will: for a transaction that none knows any more."""
        marker = {
            "producer_id": hanging.producer_id,
            "producer_epoch": hanging.producer_epoch,
            "transaction_result": False,
            "topics": [{"name": topic, "partition_indexes": [partition]}],
            "coordinator_epoch": max(hanging.coordinator_epoch, 0),
            "transaction_version": 0,
        }

        async def attempt() -> None:
            broker = await self._client.leader(topic, partition)
            answer = await self._connections.ask(
                ApiKey.WRITE_TXN_MARKERS, {"markers": [marker]}, broker=broker
            )
            result = answer.markers[0].topics[0].partitions[0]
            check(result.error_code, f"marker for {topic}-{partition}")

        await self._connections.retrying(attempt)
