"""Transactions as a client sees them: begin and end one, list and describe them, and end those that hang."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from itertools import groupby
from typing import Final, NamedTuple, TypeVar

from ottla.client.all_brokers import BrokerAnswers, ask_all_brokers
from ottla.client.client import Client
from ottla.client.connections import check
from ottla.client.coordinators import TRANSACTION_KEY, find_coordinator
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode, KafkaError

T = TypeVar("T")

FEATURE: Final = "transaction.version"
EPOCH_PER_TRANSACTION: Final = 2
"""The transaction.version from which on a leader adds its partition to the transaction by itself, and each
transaction has an epoch of its own (KIP-890). A producer that uses it must use it from the first request to the last."""
END_BEFORE_EPOCHS: Final = 4
ADD_PARTITIONS_BY_CLIENTS: Final = 3
"""The last versions of EndTxn and AddPartitionsToTxn that are meant for a client of the older kind."""
ONGOING = "Ongoing"
UNFINISHED = (ONGOING, "PrepareCommit", "PrepareAbort")
"""In these states the coordinator will end the transaction, if its producer does not."""


class ProducerIdentity(NamedTuple):
    """A producer that may write into a transaction and end it. `version` is the transaction.version to use."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    version: int


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


class TransactionAdmin:
    """What a `Client` can do about transactions."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._connections = client.connections
        self._coordinators: dict[str, int] = {}

    # Taking part

    async def init(self, transactional_id: str, timeout_ms: int) -> ProducerIdentity:
        """Become the producer of this id. The former producer is fenced. Its open transaction is committed or aborted when
        this returns."""
        fields = {
            "transactional_id": transactional_id,
            "transaction_timeout": timeout_ms,
            "producer_id": -1,
            "producer_epoch": -1,
        }

        async def attempt(channel: Channel) -> ProducerIdentity:
            answer = await self._connections.ask_on(channel, ApiKey.INIT_PRODUCER_ID, fields)
            check(answer.error_code, f"transactional id {transactional_id}")
            version = min(channel.features.get(FEATURE, 0), EPOCH_PER_TRANSACTION)
            return ProducerIdentity(
                transactional_id, int(answer.producer_id), int(answer.producer_epoch), version
            )

        return await self._at_coordinator(transactional_id, attempt)

    async def add_partitions(
        self, identity: ProducerIdentity, partitions: Iterable[tuple[str, int]]
    ) -> None:
        """Call this before the first record goes to a partition, where the leader does not add the partition itself."""
        assert identity.version < EPOCH_PER_TRANSACTION
        topics = [
            {"name": topic, "partitions": [number for _, number in group]}
            for topic, group in groupby(sorted(partitions), lambda each: each[0])
        ]
        fields = {
            "v3_and_below_transactional_id": identity.transactional_id,
            "v3_and_below_producer_id": identity.producer_id,
            "v3_and_below_producer_epoch": identity.producer_epoch,
            "v3_and_below_topics": topics,
        }

        async def attempt(channel: Channel) -> None:
            answer = await self._connections.ask_on(
                channel, ApiKey.ADD_PARTITIONS_TO_TXN, fields, newest=ADD_PARTITIONS_BY_CLIENTS
            )
            for topic in answer.results_by_topic_v3_and_below:
                for each in topic.results_by_partition:
                    what = f"{topic.name}-{each.partition_index} in a transaction"
                    # When one is refused, the others have this error.
                    if each.partition_error_code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                        check(each.partition_error_code, what)

        await self._at_coordinator(identity.transactional_id, attempt)

    async def end(self, identity: ProducerIdentity, *, commit: bool) -> ProducerIdentity:
        """Returns when the end is decided. Everyone who knows the identity may call this, also again: a repetition changes
        nothing. The identity for the next transaction is returned."""
        fields = {
            "transactional_id": identity.transactional_id,
            "producer_id": identity.producer_id,
            "producer_epoch": identity.producer_epoch,
            "committed": commit,
        }
        bumps = identity.version >= EPOCH_PER_TRANSACTION

        async def attempt(channel: Channel) -> ProducerIdentity:
            newest = None if bumps else END_BEFORE_EPOCHS
            answer = await self._connections.ask_on(channel, ApiKey.END_TXN, fields, newest=newest)
            check(answer.error_code, f"transactional id {identity.transactional_id}")
            if not bumps:
                return identity
            return identity._replace(
                producer_id=int(answer.producer_id), producer_epoch=int(answer.producer_epoch)
            )

        return await self._at_coordinator(identity.transactional_id, attempt)

    async def _at_coordinator(
        self, transactional_id: str, attempt: Callable[[Channel], Awaitable[T]]
    ) -> T:
        """Use the coordinator that is known. After an error, look for it again."""

        async def once() -> T:
            if transactional_id not in self._coordinators:
                self._coordinators[transactional_id] = await self.coordinator(transactional_id)
            try:
                channel = await self._connections.to(self._coordinators[transactional_id])
                return await attempt(channel)
            except (KafkaError, OSError):
                self._coordinators.pop(transactional_id, None)
                raise

        return await self._connections.retrying(once)

    # Looking and ending

    async def all(
        self,
        *,
        states: tuple[str, ...] = (),
        producer_ids: tuple[int, ...] = (),
        open_for_ms: int = -1,
        pattern: str | None = None,
    ) -> BrokerAnswers[ListedTransaction]:
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

        asked = await ask_all_brokers(self._client, listed_by)
        found = {each.id: each for transactions in asked.answers for each in transactions}
        self._coordinators.update((each.id, each.coordinator) for each in found.values())
        return BrokerAnswers(sorted(found.values()), asked.silent)

    async def coordinator(self, transactional_id: str) -> int:
        return await find_coordinator(
            self._connections,
            TRANSACTION_KEY,
            transactional_id,
            f"coordinator of {transactional_id}",
        )

    async def describe(self, transactional_id: str) -> TransactionDescription:
        """KafkaError TRANSACTIONAL_ID_NOT_FOUND if there is none."""

        async def attempt(channel: Channel) -> TransactionDescription:
            broker = self._coordinators[transactional_id]
            answer = await self._connections.ask_on(
                channel, ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": [transactional_id]}
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

        return await self._at_coordinator(transactional_id, attempt)

    async def abort(self, transactional_id: str) -> None:
        """Do what a new producer of the same id would do: the present one is fenced, and its open transaction aborted."""
        await self.init(transactional_id, (await self.describe(transactional_id)).timeout_ms)

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
    ) -> BrokerAnswers[ListedTransaction]:
        """The transactions that a coordinator knows as open in this partition, and will end."""
        listed = await self.all(states=UNFINISHED, producer_ids=(producer_id,))
        found = [
            each
            for each in listed.answers
            if (topic, partition) in (await self.describe(each.id)).partitions
        ]
        return BrokerAnswers(found, listed.silent)

    async def abort_hanging(self, topic: str, partition: int, hanging: OpenTransaction) -> None:
        """Write the abort marker of a transaction that no coordinator knows any more."""
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
