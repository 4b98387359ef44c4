"""Transactional producers of the golden scripts, which send each request when the script says so.

A producer is named by its transactional id. `older` ones are from before transaction.version 2: they add each partition
with AddPartitionsToTxn, and all their transactions have the same epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ottla.coordinators.transactions.transaction_shard import TransactionShard
from ottla.records.record import Record, build
from ottla.sim.cluster.nodes import SimCluster
from ottla.wire import produce
from ottla.wire.internal_topics import TRANSACTION_STATE_TOPIC
from ottla.wire.types import TopicPartition

INIT_VERSION, ADD_VERSION = 5, 3
OLDER = "older"


@dataclass
class TransactionalProducer:
    transactional_id: str
    is_older: bool
    id: int = -1
    epoch: int = -1
    sequence: int = 0

    @property
    def produce_version(self) -> int:
        return 11 if self.is_older else 12

    @property
    def end_version(self) -> int:
        return 4 if self.is_older else 5

    def init_fields(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        }

    def add_fields(self, partition: TopicPartition) -> dict[str, Any]:
        return {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": self.id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": [{"name": partition.topic, "partitions": [partition.partition]}],
        }

    def batch(self, value: str, partition: TopicPartition, topic_id: Any) -> bytes:
        """A whole Produce request with one record."""
        data = build(
            [Record(0, 0, None, value.encode())],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        part = produce.PartitionData(
            partition.topic, topic_id, partition.partition, memoryview(data)
        )
        request = produce.ProduceRequest(self.transactional_id, -1, 30_000, [part])
        return produce.write_request(self.produce_version, request)

    def result(self, frame: memoryview, start: int) -> produce.PartitionResult:
        return produce.read_response(self.produce_version, frame, start).results[0]

    def end_fields(self, commit: bool) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
            "committed": commit,
        }

    def ended(self, answer: Any) -> None:
        """Since transaction.version 2 the response carries the epoch of the next transaction."""
        if not self.is_older:
            self.id, self.epoch = int(answer.producer_id), int(answer.producer_epoch)
            self.sequence = 0


def transactions_text(cluster: SimCluster) -> list[str]:
    """The state of each transactional id at its coordinator."""
    texts = []
    for node in cluster.nodes.values():
        broker = None if node.node is None else node.node.broker
        if broker is None:
            continue
        for live in broker.coordination.shards(TRANSACTION_STATE_TOPIC):
            assert isinstance(live.shard, TransactionShard)
            for transactional_id, each in sorted(live.shard.transactions.items()):
                parts = " ".join(f"{t}-{n}" for t, n in sorted(each.partitions)) or "no partition"
                texts.append(
                    f"{transactional_id}: {each.state.label}, epoch {each.producer_epoch}, {parts}"
                )
    return texts
