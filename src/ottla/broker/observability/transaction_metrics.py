"""How long transactions have been open: at their coordinator, and in the partitions that they hold back.

A consumer that reads committed transactions stops at the last stable offset, where the oldest open transaction begins. So a
producer that hangs delays all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from ottla.broker.observability.observed import ObservedBroker, ObservedNode
from ottla.broker.replication.first_unread import first_unread
from ottla.coordinators.transactions.transaction_records import PREPARED, TransactionState
from ottla.coordinators.transactions.transaction_shard import TransactionShard
from ottla.log.errors import LogDirError
from ottla.metrics.families import Family, Labels, MetricKind, Sample, gauge
from ottla.replica.partition import Partition
from ottla.wire.errors import KafkaError
from ottla.wire.internal_topics import TRANSACTION_STATE_TOPIC
from ottla.wire.types import TopicPartition

AT_ONCE = 1_000
"""Partitions or transactional ids that are looked at between two pauses."""
LATE_BUFFER_MS = 5 * 60_000
"""A transaction is late when its producer was silent for so much longer than transaction.max.timeout.ms: then nothing
will end it but an operator."""


class TransactionMetrics:
    def __init__(self, node: ObservedNode) -> None:
        self._node = node
        self._began_ms: dict[TopicPartition, int] = {}
        """Of each led partition with an open transaction: the timestamp of the first record of the oldest."""
        self._held_back: list[Partition] = []
        """Led partitions with an open transaction."""
        self._open_since_ms: list[int] = []
        """When the transactions began that are open at their coordinator here."""

    async def prepare(self) -> None:
        """With pauses: there may be very many partitions and transactional ids."""
        self._began_ms.clear()
        self._held_back, self._open_since_ms = [], []
        broker = self._node.broker
        if broker is None or not broker.is_serving:
            return
        await self._look_at_partitions(broker)
        await self._look_at_coordinators(broker)
        for partition in self._held_back[: self._node.settings.ottla_metrics_partitions_max]:
            try:
                first = await first_unread(
                    partition, partition.log.last_stable_offset, read_committed=False
                )
            except LogDirError as error:
                broker.replicas.directory_failed(error)
            except KafkaError:
                continue
            else:
                if first is not None and first.timestamp >= 0:
                    self._began_ms[partition.key] = first.timestamp

    async def _look_at_partitions(self, broker: ObservedBroker) -> None:
        for number, partition in enumerate(list(broker.replicas.partitions.values()), 1):
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
            if partition.leadership is not None and partition.log.producers.open_transactions:
                self._held_back.append(partition)

    async def _look_at_coordinators(self, broker: ObservedBroker) -> None:
        for live in broker.coordination.shards(TRANSACTION_STATE_TOPIC):
            shard = live.shard
            assert isinstance(shard, TransactionShard)
            for number, transaction in enumerate(list(shard.transactions.values()), 1):
                if number % AT_ONCE == 0:
                    await asyncio.sleep(0)
                if transaction.state is TransactionState.ONGOING or transaction.state in PREPARED:
                    self._open_since_ms.append(transaction.start_ms)

    def collect(self) -> Iterator[Family]:
        broker = self._node.broker
        if broker is None:
            return
        now_ms = self._node.runtime.clock.wall_ms()
        began = self._open_since_ms
        yield gauge(
            "ottla_open_transactions",
            "Open transactions that this broker coordinates.",
            len(began),
        )
        yield gauge(
            "ottla_open_transaction_age_seconds",
            "Age of the oldest open transaction that this broker coordinates; 0 if there is none.",
            _age_s(min(began, default=now_ms), now_ms),
        )
        yield Family(
            "ottla_partition_open_transaction_age_seconds",
            MetricKind.GAUGE,
            "Age of the oldest open transaction in a partition that this broker leads, by its first record.",
            (
                Sample(_labels(key), _age_s(since, now_ms))
                for key, since in list(self._began_ms.items())
            ),
        )
        limit_ms = self._node.settings.transaction_max_timeout_ms + LATE_BUFFER_MS
        yield gauge(
            "kafka_server_replicamanager_partitionswithlatetransactionscount",
            "Led partitions with a transaction that was open for much longer than it may be.",
            sum(_is_late(each, now_ms, limit_ms) for each in self._held_back),
        )


def _is_late(partition: Partition, now_ms: int, limit_ms: int) -> bool:
    oldest = partition.log.producers.oldest_transaction()
    return oldest is not None and oldest[1] > 0 and now_ms - oldest[1] > limit_ms


def _age_s(since_ms: int, now_ms: int) -> float:
    return max(0.0, (now_ms - since_ms) / 1000)


def _labels(key: TopicPartition) -> Labels:
    return Labels(topic=key.topic, partition=str(key.partition))
