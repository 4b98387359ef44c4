"""DescribeProducers: the producers of a partition, and where their open transactions begin."""

from __future__ import annotations

from typing import Any

from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.server.connections import Request
from ottla.broker.server.registration import serves
from ottla.security.needs import READ_TOPIC
from ottla.security.rights import Rights
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.types import is_valid_topic_name

NO_TRANSACTION = -1


class DescribeProducersHandler:
    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    @serves(ApiKey.DESCRIBE_PRODUCERS)
    def __call__(self, request: Request) -> None:
        """DescribeProducers 0: those that any replica here knows, leader or not."""
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    self._partition(request.rights, topic.name, number)
                    for number in topic.partition_indexes
                ],
            }
            for topic in request.message().topics
        ]
        request.respond({"topics": topics})

    def _partition(self, rights: Rights | None, topic: str, number: int) -> dict[str, Any]:
        try:
            if not READ_TOPIC.met(rights, topic):
                raise KafkaError(READ_TOPIC.denied)
            if not is_valid_topic_name(topic):
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"'{topic}' can be no topic's name"
                )
            partition = self._replicas.get(topic, number)
        except KafkaError as error:
            return {
                "partition_index": number,
                "error_code": error.code,
                "error_message": error.message or None,
                "active_producers": (),
            }
        return {
            "partition_index": number,
            "error_code": ErrorCode.NONE,
            "error_message": None,
            "active_producers": [
                {
                    "producer_id": producer_id,
                    "producer_epoch": producer.epoch,
                    "last_sequence": producer.last_sequence,
                    "last_timestamp": producer.last_timestamp,
                    "coordinator_epoch": producer.coordinator_epoch,
                    "current_txn_start_offset": NO_TRANSACTION
                    if producer.txn_first_offset is None
                    else producer.txn_first_offset,
                }
                for producer_id, producer in partition.log.producers.producers.items()
            ],
        }
