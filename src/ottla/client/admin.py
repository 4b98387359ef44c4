"""Administration of many resources at once, with an outcome for each: what Kafka's command-line tools need.

`Client` has methods for one topic, which fail if the topic does. Here one request names many, and each has its own error,
as in Kafka's admin client. An error has the broker's message, or none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import Enum
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from ottla.client.client import ABSENT, READ_UNCOMMITTED, Client
from ottla.client.connections import check, error_of
from ottla.client.model import Topic, metadata_of
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.internal_topics import CLUSTER_METADATA_TOPIC
from ottla.wire.messages import field

T = TypeVar("T")
Place = tuple[str, int]
"""Topic and partition."""
Resource = tuple[int, str]
"""Type and name of what has settings."""
Outcome = KafkaError | None
"""None: it was done."""

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
PARTITIONS_PER_ANSWER: Final = 2000
FULL_BELOW: Final = 0.01
"""A disk of which less is free takes hardly anything more, whatever its broker says of it."""


class DescribedPartition(NamedTuple):
    partition: int
    leader: int
    """-1: no leader."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] | None
    """Eligible leader replicas; None where the cluster does not say."""
    last_known_elr: tuple[int, ...] | None


class DescribedTopic(NamedTuple):
    name: str
    id: UUID | None
    partitions: tuple[DescribedPartition, ...]


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    source: int
    sensitive: bool
    synonyms: tuple[tuple[str, str | None, int], ...]
    """Name, value and source; what wins first."""


class FoundOffset(NamedTuple):
    offset: int
    """-1: there is none."""
    timestamp: int
    leader_epoch: int


class Edit(Enum):
    """Kafka's operations on settings that are lists."""

    APPEND = 2
    SUBTRACT = 3


class LogDirReplica(NamedTuple):
    place: Place
    size: int
    lag: int
    future: bool


class LogDir(NamedTuple):
    path: str
    error: Outcome
    replicas: tuple[LogDirReplica, ...]
    total_bytes: int | None = None
    """Of the disk. None where the broker does not say it (before Kafka 3.3)."""
    usable_bytes: int | None = None
    cordoned: bool = False
    """It gets no new replicas (since Kafka 4.3)."""
    refuses_records: bool = False
    """Its disk is nearly full, and takes nothing until there is room. Only ottla says so."""

    @property
    def is_full(self) -> bool:
        usable = self.usable_bytes
        return self.refuses_records or (
            usable is not None and usable < FULL_BELOW * (self.total_bytes or 0)
        )


class Admin:
    """What a `Client` can do about many resources."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._connections = client.connections

    @property
    def _timeout_ms(self) -> int:
        return int(self._connections.timeout_s * 1000)

    async def ask(self, key: ApiKey, fields: Mapping[str, Any], broker: int | None = None) -> Any:
        """One request, retried while its top-level error is retriable."""

        async def attempt() -> Any:
            if broker is not None and broker not in self._connections.addresses:
                await self._client.metadata([])
            answer = await self._connections.ask(key, fields, broker=broker)
            check(field(answer, "error_code", 0), field(answer, "error_message", None))
            return answer

        return await self._connections.retrying(attempt)

    # Topics

    async def list_topics(self) -> tuple[Topic, ...]:
        """All, also internal ones."""

        async def attempt() -> tuple[Topic, ...]:
            answer = await self._connections.ask(ApiKey.METADATA, {"topics": None})
            self._connections.learn((int(b.node_id), b.host, int(b.port)) for b in answer.brokers)
            return metadata_of(answer).topics

        return await self._connections.retrying(attempt)

    async def describe_topics(
        self, names: Iterable[str], per_answer: int = PARTITIONS_PER_ANSWER
    ) -> dict[str, DescribedTopic | KafkaError]:
        """With eligible leader replicas where the cluster knows of them."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        channel = await self._connections.to_any()
        if ApiKey.DESCRIBE_TOPIC_PARTITIONS not in channel.versions:
            return await self._topics_from_metadata(wanted)
        found: dict[str, DescribedTopic | KafkaError] = {}
        cursor = None
        while True:
            remaining = (
                wanted if cursor is None else [n for n in wanted if n >= cursor["topic_name"]]
            )
            fields = {
                "topics": [{"name": name} for name in remaining],
                "response_partition_limit": per_answer,
                "cursor": cursor,
            }
            answer = await self.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, fields)
            for topic in answer.topics:
                error = error_of(topic.error_code, None)
                partitions = tuple(_described(each) for each in topic.partitions)
                before = found.get(topic.name)
                if isinstance(before, DescribedTopic):
                    partitions = before.partitions + partitions
                found[topic.name] = error or DescribedTopic(topic.name, topic.topic_id, partitions)
            if answer.next_cursor is None:
                return found
            after = answer.next_cursor
            cursor = {"topic_name": after.topic_name, "partition_index": int(after.partition_index)}

    async def _topics_from_metadata(
        self, names: Sequence[str]
    ) -> dict[str, DescribedTopic | KafkaError]:
        fields = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
        answer = await self._connections.ask(ApiKey.METADATA, fields)
        return {
            topic.name: error_of(topic.error_code, None)
            or DescribedTopic(
                topic.name,
                field(topic, "topic_id", None),
                tuple(_described(each) for each in topic.partitions),
            )
            for topic in answer.topics
        }

    async def create_topic(
        self,
        name: str,
        partitions: int,
        factor: int,
        assignments: Sequence[Sequence[int]],
        configs: Mapping[str, str],
    ) -> None:
        """-1: the cluster's default. With assignments (the brokers of each partition) both must be -1."""
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": factor,
            "assignments": [
                {"partition_index": number, "broker_ids": list(brokers)}
                for number, brokers in enumerate(assignments)
            ],
            "configs": [{"name": key, "value": value} for key, value in configs.items()],
        }
        fields = {"topics": [topic], "timeout": self._timeout_ms, "validate_only": False}

        async def attempt() -> None:
            answer = await self._connections.ask(ApiKey.CREATE_TOPICS, fields)
            for each in answer.topics:
                check(each.error_code, field(each, "error_message", None))

        await self._connections.retrying(attempt)

    async def delete_topics(self, names: Iterable[str]) -> None:
        wanted = list(names)
        fields = {
            "topics": [{"name": name} for name in wanted],
            "topic_names": wanted,  # the field of older versions
            "timeout": self._timeout_ms,
        }

        async def attempt() -> None:
            answer = await self._connections.ask(ApiKey.DELETE_TOPICS, fields)
            for each in answer.responses:
                check(each.error_code, field(each, "error_message", None))

        await self._connections.retrying(attempt, final=ABSENT)

    async def create_partitions(
        self, counts: Mapping[str, tuple[int, Sequence[Sequence[int]] | None]]
    ) -> None:
        """Raise the numbers of partitions; the brokers of each new one, or None."""
        topics = [
            {
                "name": name,
                "count": count,
                "assignments": None
                if assignments is None
                else [{"broker_ids": list(brokers)} for brokers in assignments],
            }
            for name, (count, assignments) in counts.items()
        ]
        fields = {"topics": topics, "timeout": self._timeout_ms, "validate_only": False}

        async def attempt() -> None:
            answer = await self._connections.ask(ApiKey.CREATE_PARTITIONS, fields)
            for each in answer.results:
                check(each.error_code, each.error_message)

        await self._connections.retrying(attempt, final=ABSENT)

    # Settings

    async def describe_configs(
        self,
        resources: Iterable[Resource],
        *,
        synonyms: bool = False,
        keys: Sequence[str] | None = None,
    ) -> dict[Resource, list[ConfigEntry]]:
        """All settings, or only those with these names. KafkaError if one of them fails. A broker describes itself."""
        wanted = None if keys is None else list(keys)
        found: dict[Resource, list[ConfigEntry]] = {}
        for broker, group in _by_broker(resources):
            fields = {
                "resources": [
                    {"resource_type": kind, "resource_name": name, "configuration_keys": wanted}
                    for kind, name in group
                ],
                "include_synonyms": synonyms,
                "include_documentation": False,
            }
            answer = await self.ask(ApiKey.DESCRIBE_CONFIGS, fields, broker)
            for result in answer.results:
                check(result.error_code, result.error_message)
                resource = (int(result.resource_type), result.resource_name)
                found[resource] = [_config(each) for each in result.configs]
        return found

    async def alter_configs(
        self,
        changes: Mapping[Resource, Sequence[tuple[str, str | None]]],
        *,
        through_others: bool = False,
    ) -> None:
        """Set each of these; None resets it. A broker is asked itself, as Apache Kafka wants it, or any other in its place."""
        groups = [(None, list(changes))] if through_others else _by_broker(changes)
        for broker, group in groups:
            resources = [
                {
                    "resource_type": resource[0],
                    "resource_name": resource[1],
                    "configs": [
                        {
                            "name": name,
                            "config_operation": 1 if value is None else 0,
                            "value": value,
                        }
                        for name, value in changes[resource]
                    ],
                }
                for resource in group
            ]
            fields = {"resources": resources, "validate_only": False}
            answer = await self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, fields, broker)
            for result in answer.responses:
                check(result.error_code, result.error_message)

    async def edit_lists(
        self, resource: Resource, edit: Edit, members: Mapping[str, Sequence[str]]
    ) -> None:
        """Add members to settings that are lists, or take them away; what else is in them stays."""
        configs = [
            {"name": name, "config_operation": edit.value, "value": ",".join(named)}
            for name, named in members.items()
        ]
        fields = {
            "resources": [
                {"resource_type": resource[0], "resource_name": resource[1], "configs": configs}
            ],
            "validate_only": False,
        }
        answer = await self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, fields)
        for result in answer.responses:
            check(result.error_code, result.error_message)

    # Offsets

    async def list_offsets(
        self, times: Mapping[Place, int], isolation: int = READ_UNCOMMITTED
    ) -> dict[Place, FoundOffset | KafkaError]:
        """Each asked of its leader. A time is in ms, or one of Kafka's negative ones."""

        def fields(places: Sequence[Place]) -> Mapping[str, Any]:
            return {
                "replica_id": -1,
                "isolation_level": isolation,
                "topics": _by_topic(
                    places,
                    "name",
                    lambda place: {
                        "partition_index": place[1],
                        "current_leader_epoch": -1,
                        "timestamp": times[place],
                    },
                ),
            }

        def read(answer: Any) -> dict[Place, FoundOffset | KafkaError]:
            return {
                (topic.name, int(each.partition_index)): error_of(each.error_code, None)
                or FoundOffset(int(each.offset), _ms(each.timestamp), int(each.leader_epoch))
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self._by_leader(times, ApiKey.LIST_OFFSETS, fields, read)

    async def delete_records(self, offsets: Mapping[Place, int]) -> dict[Place, int | KafkaError]:
        """The new starts of the logs. -1: up to the high watermark."""

        def fields(places: Sequence[Place]) -> Mapping[str, Any]:
            topics = _by_topic(
                places,
                "name",
                lambda place: {"partition_index": place[1], "offset": offsets[place]},
            )
            return {"topics": topics, "timeout": self._timeout_ms}

        def read(answer: Any) -> dict[Place, int | KafkaError]:
            return {
                (topic.name, int(each.partition_index)): error_of(each.error_code, None)
                or int(each.low_watermark)
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self._by_leader(offsets, ApiKey.DELETE_RECORDS, fields, read)

    async def _by_leader(
        self,
        places: Iterable[Place],
        key: ApiKey,
        fields: Callable[[Sequence[Place]], Mapping[str, Any]],
        read: Callable[[Any], dict[Place, T | KafkaError]],
    ) -> dict[Place, T | KafkaError]:
        """One request for each leader. Retriable errors are retried with newer metadata until the time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._connections.timeout_s
        found: dict[Place, T | KafkaError] = {}
        left = list(dict.fromkeys(places))
        while left:
            leaders: dict[int, list[Place]] = {}
            topics = await self._topics_from_metadata(sorted({topic for topic, _ in left}))
            for place in left:
                leader = _leader(topics.get(place[0]), place[1])
                if isinstance(leader, KafkaError):
                    found[place] = leader
                else:
                    leaders.setdefault(leader, []).append(place)
            for leader, group in leaders.items():
                found |= await self._ask_leader(leader, key, fields(group), read, group)
            left = [place for place in left if _is_retriable(found[place])]
            if left and loop.time() > deadline:
                break
            if left:
                await asyncio.sleep(0.05)
        return found

    async def _ask_leader(
        self,
        leader: int,
        key: ApiKey,
        fields: Mapping[str, Any],
        read: Callable[[Any], dict[Place, T | KafkaError]],
        places: Sequence[Place],
    ) -> dict[Place, T | KafkaError]:
        try:
            if leader not in self._connections.addresses:
                await self._client.metadata([])
            return read(await self._connections.ask(key, fields, broker=leader))
        except OSError as error:
            lost = KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error))
            return dict.fromkeys(places, lost)

    # Replicas

    async def elect_leaders(
        self, election_type: int, places: Iterable[Place] | None
    ) -> dict[Place, Outcome]:
        """None: all partitions, of which those are answered for which something was done or failed."""
        wanted = (
            None
            if places is None
            else [
                {"topic": topic, "partitions": [number for _, number in group]}
                for topic, group in groupby(sorted(places), lambda place: place[0])
            ]
        )
        fields = {
            "election_type": election_type,
            "topic_partitions": wanted,
            "timeout": self._timeout_ms,
        }
        answer = await self.ask(ApiKey.ELECT_LEADERS, fields)
        return {
            (topic.topic, int(each.partition_id)): error_of(each.error_code, each.error_message)
            for topic in answer.replica_election_results
            for each in topic.partition_result
        }

    async def reassign(
        self, targets: Mapping[Place, Sequence[int] | None], *, keep_factor: bool = False
    ) -> dict[Place, Outcome]:
        """None cancels. `keep_factor`: refuse to change the number of replicas."""
        topics = _by_topic(
            targets,
            "name",
            lambda place: {"partition_index": place[1], "replicas": targets[place]},
        )
        fields = {
            "topics": topics,
            "allow_replication_factor_change": not keep_factor,
            "timeout": self._timeout_ms,
        }
        answer = await self.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, fields)
        return {
            (topic.name, int(each.partition_index)): error_of(each.error_code, each.error_message)
            for topic in answer.responses
            for each in topic.partitions
        }

    async def log_dirs(self, broker: int, places: Iterable[Place] | None = None) -> list[LogDir]:
        """With all replicas, or with those of these partitions."""
        topics = (
            None
            if places is None
            else [
                {"topic": topic, "partitions": [number for _, number in group]}
                for topic, group in groupby(sorted(places), lambda place: place[0])
            ]
        )
        answer = await self.ask(ApiKey.DESCRIBE_LOG_DIRS, {"topics": topics}, broker)
        full = field(answer, "ottla_full_log_dirs", b"").decode().splitlines()
        return [
            LogDir(
                each.log_dir,
                error_of(each.error_code, None),
                tuple(
                    LogDirReplica(
                        (topic.name, int(replica.partition_index)),
                        int(replica.partition_size),
                        int(replica.offset_lag),
                        bool(replica.is_future_key),
                    )
                    for topic in each.topics
                    for replica in topic.partitions
                ),
                _bytes(each, "total_bytes"),
                _bytes(each, "usable_bytes"),
                bool(field(each, "is_cordoned", False)),
                each.log_dir in full,
            )
            for each in answer.results
        ]

    async def move_to_log_dirs(
        self, broker: int, targets: Mapping[Place, str]
    ) -> dict[Place, Outcome]:
        """Move replicas of one broker to other log directories of it."""
        dirs = [
            {"path": path, "topics": _by_topic(places, "name", lambda place: place[1])}
            for path in dict.fromkeys(targets.values())
            if (places := [place for place, target in targets.items() if target == path])
        ]
        answer = await self.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, {"dirs": dirs}, broker)
        return {
            (topic.topic_name, int(each.partition_index)): error_of(each.error_code, None)
            for topic in answer.results
            for each in topic.partitions
        }

    # The quorum

    async def quorum(self) -> tuple[Any, dict[int, list[tuple[str, str, int]]]]:
        """What DescribeQuorum says of the metadata partition, and the listeners of each voter."""
        fields = {
            "topics": [
                {"topic_name": CLUSTER_METADATA_TOPIC, "partitions": [{"partition_index": 0}]}
            ]
        }

        async def attempt() -> tuple[Any, dict[int, list[tuple[str, str, int]]]]:
            answer = await self._connections.ask(ApiKey.DESCRIBE_QUORUM, fields)
            check(answer.error_code, field(answer, "error_message", None))
            found = answer.topics[0].partitions[0]
            check(found.error_code, field(found, "error_message", None))
            nodes = {
                int(node.node_id): [
                    (each.name, each.host, int(each.port)) for each in node.listeners
                ]
                for node in field(answer, "nodes", ())
            }
            return found, nodes

        return await self._connections.retrying(attempt)

    async def each_of(
        self, question: Callable[[T], Awaitable[None]], subjects: Iterable[T]
    ) -> dict[T, Outcome]:
        """Ask about one after the other, and keep the error of each."""
        outcomes: dict[T, Outcome] = {}
        for subject in subjects:
            try:
                await question(subject)
                outcomes[subject] = None
            except KafkaError as error:
                outcomes[subject] = error
        return outcomes


def _bytes(answer: Any, name: str) -> int | None:
    size = int(field(answer, name, -1))
    return None if size < 0 else size


def _described(answer: Any) -> DescribedPartition:
    elr = field(answer, "eligible_leader_replicas", None)
    last = field(answer, "last_known_elr", None)
    return DescribedPartition(
        int(answer.partition_index),
        int(answer.leader_id),
        tuple(int(id) for id in answer.replica_nodes),
        tuple(int(id) for id in answer.isr_nodes),
        None if elr is None else tuple(int(id) for id in elr),
        None if last is None else tuple(int(id) for id in last),
    )


def _config(answer: Any) -> ConfigEntry:
    synonyms = tuple((each.name, each.value, int(each.source)) for each in answer.synonyms or ())
    return ConfigEntry(
        answer.name,
        answer.value,
        int(field(answer, "config_source", 5)),
        bool(answer.is_sensitive),
        synonyms,
    )


def _leader(topic: DescribedTopic | KafkaError | None, partition: int) -> int | KafkaError:
    if not isinstance(topic, DescribedTopic):
        return topic or KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for each in topic.partitions:
        if each.partition == partition:
            none = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
            return each.leader if each.leader >= 0 else none
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _is_retriable(outcome: object) -> bool:
    return isinstance(outcome, KafkaError) and outcome.retriable and outcome.code is not ABSENT


def _by_broker(resources: Iterable[Resource]) -> list[tuple[int | None, list[Resource]]]:
    """Brokers and their loggers are asked themselves, everything else is asked of any broker."""
    anywhere: list[Resource] = []
    groups: list[tuple[int | None, list[Resource]]] = []
    for resource in resources:
        kind, name = resource
        if kind == BROKER_LOGGER or (kind == BROKER and name):
            groups.append((int(name), [resource]))
        else:
            anywhere.append(resource)
    return ([(None, anywhere)] if anywhere else []) + groups


def _by_topic(
    places: Iterable[Place], name: str, partition: Callable[[Place], Any]
) -> list[dict[str, Any]]:
    return [
        {name: topic, "partitions": [partition(place) for place in group]}
        for topic, group in groupby(sorted(places), lambda place: place[0])
    ]


def _ms(value: Any) -> int:
    """A timestamp as kio gives it: None is -1."""
    if value is None:
        return -1
    return int(value) if isinstance(value, int) else round(value.timestamp() * 1000)
