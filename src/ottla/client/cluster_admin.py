"""What operators ask of each broker: its settings, its disks, its partitions' ends, the transactions that are open there.

Each answer is of one broker, which knows best. `Client` asks any broker, `GroupAdmin` and `TransactionAdmin` ask
coordinators.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from ottla.client.client import (
    CONSUMER,
    DEBUGGING_REPLICA,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    TOPIC_RESOURCE,
    Client,
)
from ottla.client.connections import check, error_of
from ottla.client.model import Config
from ottla.client.transaction_admin import OpenTransaction
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import field

Place = tuple[str, int]
"""Topic and partition."""

BROKER_RESOURCE: Final = 4
SET_ON_TOPIC: Final = 1
SET_ON_BROKER: Final = (2, 3, 4)
SET_BY_COMMAND: Final = 2
"""On one broker. The others: for all brokers by a command, and in its file."""
"""Kafka's config sources: set at run time for this broker, for all brokers, or in the broker's file."""
PARTITIONS_PER_PAGE: Final = 2000


class ReplicaOnDisk(NamedTuple):
    topic: str
    partition: int
    size_bytes: int
    lag: int
    is_future: bool
    """It is being moved into this directory."""


class LogDirFacts(NamedTuple):
    """A broker's log directory. The disk's sizes are None where the broker does not say them (before Kafka 3.3)."""

    broker: int
    path: str
    error: str | None
    total_bytes: int | None
    usable_bytes: int | None
    replicas: tuple[ReplicaOnDisk, ...]
    refuses_records: bool = False
    """Its disk is nearly full, and it takes no records until there is room. Only ottla says so."""


class EligibleReplicas(NamedTuple):
    """Replicas outside of the ISR that have all committed records, and those that had them last (KIP-966)."""

    elr: tuple[int, ...]
    last_known: tuple[int, ...]


class ClusterAdmin:
    """What a `Client` can ask about brokers."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._connections = client.connections

    async def broker_configs(self, broker: int) -> list[Config]:
        """The settings of one broker, as it answers itself."""
        found = await self._configs(BROKER_RESOURCE, [str(broker)], SET_ON_BROKER, broker)
        return found[str(broker)]

    async def topics_configs(self, topics: Sequence[str]) -> dict[str, list[Config]]:
        """The settings of many topics. A topic that was deleted meanwhile is left out."""
        return await self._configs(TOPIC_RESOURCE, topics, (SET_ON_TOPIC,), None)

    async def _configs(
        self, kind: int, names: Sequence[str], set_here: tuple[int, ...], broker: int | None
    ) -> dict[str, list[Config]]:
        resources = [
            {"resource_type": kind, "resource_name": name, "configuration_keys": None}
            for name in names
        ]
        fields = {
            "resources": resources,
            "include_synonyms": False,
            "include_documentation": False,
        }
        answer = await self._connections.ask(ApiKey.DESCRIBE_CONFIGS, fields, broker=broker)
        found = {}
        for result in answer.results:
            if int(result.error_code) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            check(result.error_code, result.error_message)
            found[result.resource_name] = [
                Config(
                    each.name,
                    each.value,
                    (source := int(field(each, "config_source", 5))) not in set_here,
                    bool(each.read_only),
                    bool(each.is_sensitive),
                    source == SET_BY_COMMAND,
                )
                for each in result.configs
            ]
        return found

    async def log_dirs(self, broker: int) -> list[LogDirFacts]:
        fields = {"topics": None}
        answer = await self._connections.ask(ApiKey.DESCRIBE_LOG_DIRS, fields, broker=broker)
        check(field(answer, "error_code", 0), f"log directories of broker {broker}")
        full = field(answer, "ottla_full_log_dirs", b"").decode().splitlines()
        return [
            _log_dir(broker, each)._replace(refuses_records=each.log_dir in full)
            for each in answer.results
        ]

    async def eligible_replicas(self, topics: Iterable[str]) -> dict[Place, EligibleReplicas]:
        """Of every partition of these topics. KafkaError UNSUPPORTED_VERSION before Kafka 3.8."""
        wanted = [{"name": name} for name in sorted(topics)]
        found: dict[Place, EligibleReplicas] = {}
        cursor: dict[str, Any] | None = None
        while wanted:
            fields = {
                "topics": wanted,
                "response_partition_limit": PARTITIONS_PER_PAGE,
                "cursor": cursor,
            }
            answer = await self._connections.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, fields)
            for topic in answer.topics:
                for each in topic.partitions:
                    found[topic.name, int(each.partition_index)] = EligibleReplicas(
                        tuple(int(id) for id in each.eligible_leader_replicas or ()),
                        tuple(int(id) for id in each.last_known_elr or ()),
                    )
            following = answer.next_cursor
            if following is None:
                break
            cursor = {
                "topic_name": following.topic_name,
                "partition_index": int(following.partition_index),
            }
            wanted = [each for each in wanted if each["name"] >= following.topic_name]
        return found

    async def offsets(
        self, broker: int, places: Iterable[Place], timestamp: int, *, committed: bool = False
    ) -> dict[Place, int]:
        """By partition that this broker leads, as `Client.offset`, but -1 if no record is as young. Partitions with
        an error are left out."""
        isolation = READ_COMMITTED if committed else READ_UNCOMMITTED
        return await self._offsets(broker, places, timestamp, CONSUMER, isolation)

    async def log_ends(self, broker: int, places: Iterable[Place]) -> dict[Place, int]:
        """Where the logs of these replicas of this broker end, whoever leads. Those that it does not have are left out."""
        return await self._offsets(broker, places, LATEST, DEBUGGING_REPLICA, READ_UNCOMMITTED)

    async def _offsets(
        self, broker: int, places: Iterable[Place], timestamp: int, replica: int, isolation: int
    ) -> dict[Place, int]:
        topics = [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": number, "current_leader_epoch": -1, "timestamp": timestamp}
                    for _, number in numbers
                ],
            }
            for topic, numbers in groupby(sorted(places), lambda place: place[0])
        ]
        fields = {
            "replica_id": replica,
            "isolation_level": isolation,
            "topics": topics,
        }
        answer = await self._connections.ask(ApiKey.LIST_OFFSETS, fields, broker=broker)
        return {
            (topic.name, int(each.partition_index)): int(each.offset)
            for topic in answer.topics
            for each in topic.partitions
            if not int(each.error_code)
        }

    async def leader_epochs(
        self, broker: int, place: Place, epoch: int, log_end: int, limit: int
    ) -> list[tuple[int, int]]:
        """The newest leader epochs in a log and where each begins, rising; from the partition's leader, in `epoch`, whose log
        ends at `log_end`. The first one that is told may begin earlier, if there are more than `limit`."""
        topic, number = place
        found: list[tuple[int, int]] = []
        end = log_end
        while len(found) < limit:
            partition = {
                "partition": number,
                "current_leader_epoch": -1,
                "leader_epoch": epoch - 1,
            }
            fields = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [partition]}]}
            answer = await self._connections.ask(
                ApiKey.OFFSET_FOR_LEADER_EPOCH, fields, broker=broker
            )
            told = answer.topics[0].partitions[0]
            check(told.error_code, f"leader epochs of {topic}-{number}")
            start = int(told.end_offset) if told.leader_epoch >= 0 else 0
            if start < end or not found:
                found.append((epoch, max(start, 0)))
            if told.leader_epoch < 0:
                break
            epoch, end = int(told.leader_epoch), start
        return found[::-1]

    async def open_transactions(
        self, broker: int, places: Iterable[Place]
    ) -> dict[Place, tuple[OpenTransaction, ...]]:
        """By partition that this broker leads and in which a transaction is open, the oldest first."""
        found = {}
        for place, producers in (await self.producers(broker, places)).items():
            opened = [each for each in producers if each.start_offset >= 0]
            if opened:
                found[place] = tuple(sorted(opened, key=lambda each: each.start_offset))
        return found

    async def producers(
        self, broker: int, places: Iterable[Place]
    ) -> dict[Place, tuple[OpenTransaction, ...]]:
        """By partition that this broker leads: the idempotent producers that it knows. `start_offset` is -1 for those
        without an open transaction."""
        topics = [
            {"name": topic, "partition_indexes": [number for _, number in numbers]}
            for topic, numbers in groupby(sorted(places), lambda place: place[0])
        ]
        answer = await self._connections.ask(
            ApiKey.DESCRIBE_PRODUCERS, {"topics": topics}, broker=broker
        )
        return {
            (topic.name, int(each.partition_index)): tuple(map(_producer, each.active_producers))
            for topic in answer.topics
            for each in topic.partitions
            if not int(each.error_code)
        }


def _producer(answer: Any) -> OpenTransaction:
    return OpenTransaction(
        int(answer.producer_id),
        int(answer.producer_epoch),
        int(answer.coordinator_epoch),
        int(answer.current_txn_start_offset),
        int(answer.last_timestamp),
    )


def _log_dir(broker: int, answer: Any) -> LogDirFacts:
    error = error_of(answer.error_code, None)
    sizes = [field(answer, name, -1) for name in ("total_bytes", "usable_bytes")]
    total, usable = (None if size < 0 else int(size) for size in sizes)
    replicas = tuple(
        ReplicaOnDisk(
            topic.name,
            int(each.partition_index),
            int(each.partition_size),
            int(each.offset_lag),
            bool(each.is_future_key),
        )
        for topic in answer.topics
        for each in topic.partitions
    )
    return LogDirFacts(
        broker, answer.log_dir, None if error is None else error.code.name, total, usable, replicas
    )


def values_of(configs: Iterable[Config]) -> Mapping[str, str | None]:
    """Without those that the broker keeps secret."""
    return {each.name: each.value for each in configs if not each.sensitive}
