"""A partition's leader asks the transaction's coordinator before a transaction may begin in the partition (KIP-890).

Older producers add the partition at the coordinator themselves, and the leader verifies that. For producers of
transaction.version 2 the leader adds the partition with the same request.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ottla.broker.cluster.broker_channels import BrokerChannels
from ottla.broker.cluster.metadata_cache import ClusterView
from ottla.coordinators.shard import partition_of
from ottla.replica.leader import Verified
from ottla.replica.partition import Partition
from ottla.runtime import Clock
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError
from ottla.wire.internal_topics import TRANSACTION_STATE_TOPIC
from ottla.wire.types import TopicPartition

logger = logging.getLogger(__name__)

QUESTIONS_MAX = 5
"""How often the coordinator is asked, if each time the marker of the last transaction arrives meanwhile."""

TRY_AGAIN = frozenset(
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


class Beginning(NamedTuple):
    """A batch that would begin a transaction in its partition, and the verification that it needs."""

    partition: Partition
    verified: Verified


class Verdicts(NamedTuple):
    """The coordinator's answers, by the keys of the beginnings."""

    verified: dict[int, Verified]
    refused: dict[int, ErrorCode]


class Verifier:
    def __init__(
        self, clock: Clock, cluster: ClusterView, peers: BrokerChannels, timeout_s: float
    ) -> None:
        self._clock = clock
        self._cluster = cluster
        self._peers = peers
        self._timeout_s = timeout_s

    async def verify(
        self, transactional_id: str, beginnings: Mapping[int, Beginning], *, add: bool
    ) -> Verdicts:
        """The caller must append without awaiting anything else: a verdict holds only until the producer's next marker."""
        verdicts = Verdicts({}, {})
        waiting = dict(beginnings)
        producers = {
            (it.verified.producer_id, it.verified.producer_epoch) for it in waiting.values()
        }
        if len(producers) > 1:
            refused = dict.fromkeys(waiting, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            return Verdicts({}, refused)
        for _ in range(QUESTIONS_MAX):
            keys = [each.partition.key for each in waiting.values()]
            errors = await self._ask(transactional_id, *min(producers), keys, add=add)
            again = {}
            for index, each in waiting.items():
                error = errors[each.partition.key]
                if error is not ErrorCode.NONE:
                    verdicts.refused[index] = error
                elif (
                    leadership := each.partition.leadership
                ) is not None and leadership.is_verified(each.verified):
                    verdicts.verified[index] = each.verified
                elif (new := self._renewed(each)) is not None:
                    again[index] = new
            if not again:
                return verdicts
            waiting = again
        verdicts.refused.update(dict.fromkeys(waiting, ErrorCode.CONCURRENT_TRANSACTIONS))
        return verdicts

    def _renewed(self, beginning: Beginning) -> Beginning | None:
        """A marker was written, or the leader changed, while the coordinator was asked: its answer may be about the last
        transaction. None if the transaction has begun meanwhile."""
        partition, (_, _, producer_id, epoch, sequence) = beginning
        if partition.leadership is None:
            return None
        verified = partition.leadership.begin_verification_of(
            producer_id, epoch, sequence, self._clock.wall_ms()
        )
        return None if verified is None else Beginning(partition, verified)

    async def _ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        add: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """The coordinator's answer for each partition."""
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
        topic = self._cluster.image.topics.get(TRANSACTION_STATE_TOPIC)
        if topic is None:
            return -1
        return topic.partitions[partition_of(transactional_id, len(topic.partitions))].leader


def _errors(answer: Any, keys: list[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
    whole = ErrorCode(int(answer.error_code))
    if whole is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        # It is this broker that lacks a right. Its client could do nothing about that error.
        logger.error(
            "transaction not verified: the principal of this broker needs an ACL for CLUSTER_ACTION on the"
            " cluster, or must be one of super.users"
        )
        whole = ErrorCode.INVALID_TXN_STATE
    errors = dict.fromkeys(keys, whole)
    for transaction in answer.results_by_transaction:
        for topic in transaction.topic_results:
            for result in topic.results_by_partition:
                errors[TopicPartition(topic.name, result.partition_index)] = ErrorCode(
                    int(result.partition_error_code)
                )
    return errors


def client_error(error: ErrorCode, *, knows_abortable: bool, try_again: ErrorCode) -> KafkaError:
    """The coordinator's error as one that clients of the API handle. `try_again` is an error after which every such
    client retries, without asking for metadata first."""
    if error in TRY_AGAIN:
        return KafkaError(try_again, f"the transaction could not be verified: {error.name}")
    if error is ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, "a newer producer has the same id")
    if error is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        error = ErrorCode.INVALID_TXN_STATE
    return KafkaError(error, "the partition is not part of the transaction")
