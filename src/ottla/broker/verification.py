"""A partition's leader asks a transaction's coordinator before it lets the transaction begin here (KIP-890).

Older producers have told the coordinator of the partition before: it is asked whether that is so. Those of
transaction.version 2 leave it to the leader: the partition is added with the same question.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.broker.directory import ClusterView
from ottla.broker.peers import Peers
from ottla.coordinators.shard import partition_of
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError
from ottla.wire.types import TopicPartition

TRANSACTION_TOPIC = "__transaction_state"

_TRY_AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)


class Verifier:
    def __init__(self, cluster: ClusterView, peers: Peers, timeout_s: float) -> None:
        self._cluster = cluster
        self._peers = peers
        self._timeout_s = timeout_s

    async def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        add: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """What the coordinator says of each partition."""
        keys = sorted(partitions)
        topics: dict[str, list[int]] = {}
        for topic, number in keys:
            topics.setdefault(topic, []).append(number)
        transaction = {
            "transactional_id": transactional_id,
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
            "verify_only": not add,
            "topics": [{"name": name, "partitions": numbers} for name, numbers in topics.items()],
        }
        coordinator = self._coordinator(transactional_id)
        if coordinator < 0:
            return dict.fromkeys(keys, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            answer = await self._peers.request(
                coordinator,
                ApiKey.ADD_PARTITIONS_TO_TXN,
                {"transactions": [transaction]},
                timeout_s=self._timeout_s,
            )
        except (OSError, InvalidFrame, KafkaError):
            return dict.fromkeys(keys, ErrorCode.NETWORK_EXCEPTION)
        return _errors(answer, keys)

    def _coordinator(self, transactional_id: str) -> int:
        topic = self._cluster.image.topics.get(TRANSACTION_TOPIC)
        if topic is None:
            return -1
        return topic.partitions[partition_of(transactional_id, len(topic.partitions))].leader


def _errors(answer: Any, keys: list[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
    errors = dict.fromkeys(keys, ErrorCode(int(answer.error_code)))
    for transaction in answer.results_by_transaction:
        for topic in transaction.topic_results:
            for result in topic.results_by_partition:
                errors[TopicPartition(topic.name, result.partition_index)] = ErrorCode(
                    int(result.partition_error_code)
                )
    return errors


def told_to_producers(error: ErrorCode, *, knows_abortable: bool) -> KafkaError:
    """The coordinator's word as an error that a producer acts upon."""
    if error in _TRY_AGAIN:
        # Every client tries again after this one, and without asking for metadata first.
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction could not be verified: {error.name}"
        )
    if error is ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, "a newer producer has the same id")
    if error is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        error = ErrorCode.INVALID_TXN_STATE
    return KafkaError(error, "the partition is not part of the transaction")
