"""The client: a method for each request that a cluster serves to administrators, producers and consumers.

It works with any Kafka. Each request uses the newest version that both sides know. Nothing here depends on answers that
only ottla's brokers give.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Container, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from ottla.client.connections import Address, BrokerConnections, check, error_of
from ottla.client.model import (
    BrokerInfo,
    ClusterDescription,
    Config,
    FetchedRecords,
    Metadata,
    NewTopicAnswer,
    QuorumInfo,
    QuorumReplica,
    Reassignment,
    ReplicaInfo,
    ReplicaOffsets,
    Topic,
    metadata_of,
)
from ottla.client.opening import Opening, opened
from ottla.runtime.seams import Network
from ottla.wire import fetch as fetch_codec
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.fetch_messages import FetchedPartition, FetchPartition, FetchRequest, FetchResponse
from ottla.wire.internal_topics import CLUSTER_METADATA_TOPIC
from ottla.wire.messages import field

EARLIEST: Final = -2
LATEST: Final = -1

ABSENT: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
"""Retriable while a topic is being created. Administration reports it at once."""

CONSUMER: Final = -1
DEBUGGING_REPLICA: Final = -2
"""With this replica id any replica answers, not only the leader. It is for describing followers."""

TOPIC_RESOURCE: Final = 2
SET, DELETE = 0, 1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
PREFERRED, UNCLEAN = 0, 1
FETCH_BY_TOPIC_ID_FROM: Final = 13


class Client:
    """`async with Client(network, [("127.0.0.1", 9092)]) as client: …`

    KafkaError: the cluster refuses. Unreachable: no broker answers. TimeoutError: the answer did not come within
    `timeout_s`. Retriable errors are retried until then.
    """

    def __init__(
        self,
        network: Network,
        bootstrap: Sequence[Address],
        *,
        client_id: str = "ottla",
        timeout_s: float = 30.0,
        patient: bool = False,
    ) -> None:
        """`patient`: retry also when no broker answers."""
        self.connections = BrokerConnections(
            network, bootstrap, client_id, timeout_s, patient=patient
        )
        self._topics: dict[str, Topic] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.connections.close()

    @property
    def _timeout_ms(self) -> int:
        return int(self.connections.timeout_s * 1000)

    # The cluster

    async def metadata(
        self, topics: Iterable[str] | None = None, *, created: bool = False, create: bool = False
    ) -> Metadata:
        """Brokers and topics: all topics, or those named. KafkaError if a named one does not exist. If they were `created`
        just now, wait until the broker knows them. With `create`, a cluster that creates topics automatically creates
        them, which may take longer than the answer."""
        wanted = None if topics is None else [{"name": name} for name in topics]
        fields = {"topics": wanted, "allow_auto_topic_creation": create}

        async def attempt() -> Metadata:
            answer = await self.connections.ask(ApiKey.METADATA, fields)
            self.connections.learn((int(b.node_id), b.host, int(b.port)) for b in answer.brokers)
            for topic in answer.topics:
                check(topic.error_code, f"topic {topic.name}")
            return metadata_of(answer)

        final = ErrorCode.NONE if created else ABSENT
        found = await self.connections.retrying(attempt, final=final)
        self._topics.update({topic.name: topic for topic in found.topics})
        return found

    async def topic(self, name: str, *, fresh: bool = False) -> Topic:
        """From memory if it is known, unless `fresh`."""
        if fresh or name not in self._topics:
            await self.metadata([name])
        return self._topics[name]

    async def topic_as_known_at(self, address: Address, name: str) -> Topic:
        """As the broker at this address describes it. KafkaError if it does not know the topic; OSError if it does not answer."""
        channel = await self.connections.at(address)
        fields = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        answer = await channel.request(ApiKey.METADATA, fields)
        (topic,) = answer.topics
        check(topic.error_code, f"topic {name}")
        return metadata_of(answer).topics[0]

    async def describe_cluster(self) -> ClusterDescription:
        fields = {"include_fenced_brokers": True, "endpoint_type": 1}

        async def attempt() -> ClusterDescription:
            answer = await self.connections.ask(ApiKey.DESCRIBE_CLUSTER, fields)
            check(answer.error_code, answer.error_message)
            brokers = tuple(
                BrokerInfo(
                    int(each.broker_id),
                    each.host,
                    int(each.port),
                    each.rack,
                    bool(field(each, "is_fenced", False)),
                )
                for each in answer.brokers
            )
            return ClusterDescription(answer.cluster_id, int(answer.controller_id), brokers)

        return await self.connections.retrying(attempt)

    async def describe_quorum(self) -> QuorumInfo:
        fields = {
            "topics": [
                {"topic_name": CLUSTER_METADATA_TOPIC, "partitions": [{"partition_index": 0}]}
            ]
        }

        async def attempt() -> QuorumInfo:
            answer = await self.connections.ask(ApiKey.DESCRIBE_QUORUM, fields)
            check(answer.error_code, field(answer, "error_message", None))
            (topic,) = answer.topics
            (found,) = topic.partitions
            check(found.error_code, field(found, "error_message", None))
            return QuorumInfo(
                int(found.leader_id),
                int(found.leader_epoch),
                int(found.high_watermark),
                _quorum_replicas(found.current_voters, field(answer, "nodes", ())),
                _quorum_replicas(found.observers),
            )

        return await self.connections.retrying(attempt)

    # Topics

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        factor: int = -1,
        configs: Mapping[str, str] | None = None,
        *,
        validate_only: bool = False,
    ) -> NewTopicAnswer:
        """-1: the cluster's default."""
        wanted = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": factor,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
        }
        fields = {"topics": [wanted], "timeout": self._timeout_ms, "validate_only": validate_only}

        async def attempt() -> NewTopicAnswer:
            answer = await self.connections.ask(ApiKey.CREATE_TOPICS, fields)
            (topic,) = answer.topics
            check(topic.error_code, field(topic, "error_message", None) or f"topic {name}")
            told = field(topic, "configs", None) or ()
            return NewTopicAnswer(
                field(topic, "replication_factor", None), {each.name: each.value for each in told}
            )

        found = await self.connections.retrying(attempt)
        if not validate_only:
            await self.metadata([name], created=True)
        return found

    async def delete_topic(self, name: str) -> None:
        fields = {
            "topics": [{"name": name}],
            "topic_names": [name],  # the field of older versions
            "timeout": self._timeout_ms,
        }

        async def attempt() -> None:
            answer = await self.connections.ask(ApiKey.DELETE_TOPICS, fields)
            for topic in answer.responses:
                check(topic.error_code, field(topic, "error_message", None) or f"topic {name}")

        await self.connections.retrying(attempt, final=ABSENT)
        self._topics.pop(name, None)

    async def create_partitions(self, name: str, count: int) -> None:
        """Raise the number of partitions to `count`."""
        fields = {
            "topics": [{"name": name, "count": count, "assignments": None}],
            "timeout": self._timeout_ms,
            "validate_only": False,
        }

        async def attempt() -> None:
            answer = await self.connections.ask(ApiKey.CREATE_PARTITIONS, fields)
            for topic in answer.results:
                check(topic.error_code, topic.error_message or f"topic {name}")

        await self.connections.retrying(attempt, final=ABSENT)

    async def elect_leaders(
        self, wanted: Mapping[str, Iterable[int]] | None, *, unclean: bool = False
    ) -> dict[tuple[str, int], str | None]:
        """Elect the preferred replicas or, if `unclean`, any live replica where there is no leader. `wanted`: partitions by
        topic; None for all. For each partition where an election was needed: None, or why it failed."""
        rows = (
            None
            if wanted is None
            else [{"topic": name, "partitions": list(each)} for name, each in wanted.items()]
        )
        fields = {
            "election_type": UNCLEAN if unclean else PREFERRED,
            "topic_partitions": rows,
            "timeout": self._timeout_ms,
        }

        async def attempt() -> dict[tuple[str, int], str | None]:
            answer = await self.connections.ask(ApiKey.ELECT_LEADERS, fields)
            check(field(answer, "error_code", 0), "leader election")
            outcome: dict[tuple[str, int], str | None] = {}
            for topic in answer.replica_election_results:
                for each in topic.partition_result:
                    code = ErrorCode(each.error_code)
                    if code is ErrorCode.NOT_CONTROLLER:
                        raise KafkaError(code)
                    if code is not ErrorCode.ELECTION_NOT_NEEDED:
                        why = each.error_message or code.name
                        place = (str(topic.topic), int(each.partition_id))
                        outcome[place] = None if code is ErrorCode.NONE else why
            return outcome

        outcome = await self.connections.retrying(attempt)
        for name in [*self._topics] if wanted is None else wanted:
            self._topics.pop(name, None)
        return outcome

    async def reassign(self, name: str, partition: int, replicas: Sequence[int] | None) -> None:
        """Move the partition to these brokers, the preferred one first. None cancels a reassignment. Returns when it is
        decided, not when it is done."""
        wanted = {
            "partition_index": partition,
            "replicas": None if replicas is None else list(replicas),
        }
        fields = {
            "topics": [{"name": name, "partitions": [wanted]}],
            "allow_replication_factor_change": True,
            "timeout": self._timeout_ms,
        }

        async def attempt() -> None:
            answer = await self.connections.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, fields)
            check(answer.error_code, answer.error_message)
            for topic in answer.responses:
                for each in topic.partitions:
                    check(each.error_code, each.error_message or f"{name}-{partition}")

        await self.connections.retrying(attempt, final=ABSENT)
        self._topics.pop(name, None)

    async def reassignments(self) -> list[Reassignment]:
        """All that are in progress."""

        async def attempt() -> list[Reassignment]:
            fields = {"topics": None, "timeout": self._timeout_ms}
            answer = await self.connections.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, fields)
            check(answer.error_code, answer.error_message)
            return sorted(
                Reassignment(
                    topic.name,
                    int(each.partition_index),
                    tuple(int(id) for id in each.replicas),
                    tuple(int(id) for id in each.adding_replicas),
                    tuple(int(id) for id in each.removing_replicas),
                )
                for topic in answer.topics
                for each in topic.partitions
            )

        return await self.connections.retrying(attempt)

    async def topic_configs(self, name: str) -> list[Config]:
        resource = {
            "resource_type": TOPIC_RESOURCE,
            "resource_name": name,
            "configuration_keys": None,
        }
        fields = {
            "resources": [resource],
            "include_synonyms": False,
            "include_documentation": False,
        }

        async def attempt() -> list[Config]:
            answer = await self.connections.ask(ApiKey.DESCRIBE_CONFIGS, fields)
            (result,) = answer.results
            check(result.error_code, result.error_message or f"topic {name}")
            return [
                Config(
                    each.name,
                    each.value,
                    int(field(each, "config_source", 5)) != 1,  # 1: set on this topic
                    bool(each.read_only),
                    bool(each.is_sensitive),
                )
                for each in result.configs
            ]

        return await self.connections.retrying(attempt, final=ABSENT)

    async def alter_topic_configs(
        self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Set each of these. None resets it to its default."""
        resource = {
            "resource_type": TOPIC_RESOURCE,
            "resource_name": name,
            "configs": [
                {"name": key, "config_operation": DELETE if value is None else SET, "value": value}
                for key, value in changes.items()
            ],
        }
        fields = {"resources": [resource], "validate_only": validate_only}

        async def attempt() -> None:
            answer = await self.connections.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, fields)
            for result in answer.responses:
                check(result.error_code, result.error_message or f"topic {name}")

        await self.connections.retrying(attempt, final=ABSENT)

    # Offsets and replicas

    async def offset(
        self, topic: str, partition: int, timestamp: int, *, committed: bool = False
    ) -> int:
        """The offset of the first record at or after a time (ms), or EARLIEST, or LATEST; the end if there is none. If only
        `committed` records are read, the log ends where the first open transaction begins."""
        isolation = READ_COMMITTED if committed else READ_UNCOMMITTED

        async def attempt() -> int:
            leader = await self.leader(topic, partition)
            asked = (leader, topic, partition)
            try:
                found = await self._ask_offset(*asked, timestamp, CONSUMER, isolation)
            except (KafkaError, OSError):
                self._topics.pop(topic, None)
                raise
            if found < 0:
                return await self._ask_offset(*asked, LATEST, CONSUMER, isolation)
            return found

        return await self.connections.retrying(attempt)

    async def replicas(self, topic: str, *, unasked: Container[int] = ()) -> list[ReplicaInfo]:
        """Every replica of every partition, each described by its broker. Brokers that are known not to answer may be left
        `unasked`: each would cost the whole timeout."""
        described = (await self.metadata([topic])).topics[0]
        partitions = sorted(described.partitions, key=lambda each: each.partition)
        offsets_of: dict[int, dict[int, ReplicaOffsets]] = {}
        for broker in sorted({broker for each in partitions for broker in each.replicas}):
            held = [each.partition for each in partitions if broker in each.replicas]
            if broker in unasked:
                offsets_of[broker] = {}
            else:
                offsets_of[broker] = await self.replica_offsets(described, broker, held)
        result: list[ReplicaInfo] = []
        for partition in partitions:
            number, leader = partition.partition, partition.leader
            of_leader = offsets_of.get(leader, {}).get(number)
            for broker in partition.replicas:
                in_sync = broker in partition.isr
                replica = ReplicaInfo(
                    number, broker, broker == leader, in_sync, None, None, None, None
                )
                found = offsets_of[broker].get(number)
                if found is not None:
                    replica = replica._replace(
                        log_start=found.log_start,
                        log_end=found.log_end,
                        high_watermark=found.high_watermark,
                        last_epoch=found.last_epoch,
                    )
                    if of_leader is not None:
                        replica = replica._replace(lag=max(0, of_leader.log_end - found.log_end))
                result.append(replica)
        return result

    async def replica_offsets(
        self, topic: Topic, broker: int, partitions: Sequence[int]
    ) -> dict[int, ReplicaOffsets]:
        """The offsets of the replicas that this broker describes, whoever leads. Empty if it is down."""
        try:
            starts, ends = [
                await self._ask_offsets(
                    broker, topic.name, partitions, timestamp, DEBUGGING_REPLICA
                )
                for timestamp in (EARLIEST, LATEST)
            ]
        except (KafkaError, OSError, TimeoutError):
            return {}
        known = {
            number: int(ends[number].offset)
            for number in partitions
            if not int(starts[number].error_code) and not int(ends[number].error_code)
        }
        fetched: dict[int, FetchedPartition] = {}
        with contextlib.suppress(KafkaError, OSError, TimeoutError):
            # From the end on there are no records to send; the answer names the high watermark all the same.
            fetched = await self._fetch(broker, topic, known, max_bytes=1) if known else {}
        high_watermarks = {
            number: answer.high_watermark for number, answer in fetched.items() if not answer.error
        }
        return {
            number: ReplicaOffsets(
                int(starts[number].offset),
                end,
                high_watermarks.get(number),
                int(field(ends[number], "leader_epoch", -1)),
            )
            for number, end in known.items()
        }

    async def _ask_offset(
        self,
        broker: int,
        topic: str,
        partition: int,
        timestamp: int,
        replica: int,
        isolation: int = READ_UNCOMMITTED,
    ) -> int:
        answer = await self._ask_offsets(broker, topic, [partition], timestamp, replica, isolation)
        check(answer[partition].error_code, f"{topic}-{partition} on broker {broker}")
        return int(answer[partition].offset)

    async def _ask_offsets(
        self,
        broker: int,
        topic: str,
        partitions: Sequence[int],
        timestamp: int,
        replica: int,
        isolation: int = READ_UNCOMMITTED,
    ) -> dict[int, Any]:
        """By partition, each with its own error."""
        asked = [
            {"partition_index": number, "current_leader_epoch": -1, "timestamp": timestamp}
            for number in partitions
        ]
        fields = {
            "replica_id": replica,
            "isolation_level": isolation,
            "topics": [{"name": topic, "partitions": asked}],
        }
        answer = await self.connections.ask(ApiKey.LIST_OFFSETS, fields, broker=broker)
        return {int(found.partition_index): found for found in answer.topics[0].partitions}

    async def leader(self, topic: str, partition: int) -> int:
        """The leader according to the known metadata. KafkaError if the partition does not exist, or has no leader now."""
        described = await self.topic(topic)
        for each in described.partitions:
            if each.partition == partition:
                if each.leader < 0:
                    self._topics.pop(topic, None)
                    raise KafkaError(
                        ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader"
                    )
                return each.leader
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic} has no partition {partition}, only {len(described.partitions)}",
        )

    # Records

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = 1 << 20,
        max_wait_ms: int = 500,
        committed: bool = False,
        opening: Opening | None = None,
    ) -> FetchedRecords:
        """Records from `offset` on; none if there is nothing new within `max_wait_ms`. `committed` leaves out records of
        transactions that are open or aborted, `opening` what is too much for it."""

        async def attempt() -> FetchedRecords:
            leader = await self.leader(topic, partition)
            described = await self.topic(topic)
            try:
                isolation = READ_COMMITTED if committed else READ_UNCOMMITTED
                asked = {partition: offset}
                fetched = await self._fetch(
                    leader, described, asked, max_bytes, max_wait_ms, isolation
                )
                answer = fetched[partition]
                check(answer.error, f"{topic}-{partition} at offset {offset}")
            except (KafkaError, OSError):
                self._topics.pop(topic, None)
                raise
            return await _opened(answer, offset, opening)

        return await self.connections.retrying(attempt)

    async def fetch_many(
        self,
        topic: str,
        offsets: Mapping[int, int],
        *,
        max_bytes: int = 1 << 20,
        partition_max_bytes: int | None = None,
        max_wait_ms: int = 0,
        committed: bool = False,
        opening: Opening | None = None,
    ) -> dict[int, FetchedRecords | KafkaError]:
        """As `fetch`, of several partitions, with one request to each leader, which is asked once. Partitions whose leader
        does not answer, or is not known, are left out.

        `max_bytes` is for the whole answer of a leader, which fills it in the order of `offsets`: later partitions may have
        nothing in it although they have records. The first one that has a batch gives it, however large. So it is with an
        `opening`, which is for all of them."""
        described = await self.topic(topic)
        isolation = READ_COMMITTED if committed else READ_UNCOMMITTED
        leaders = {each.partition: each.leader for each in described.partitions}
        by_leader: dict[int, dict[int, int]] = {}
        for partition, offset in offsets.items():
            if (leader := leaders.get(partition, -1)) >= 0:
                by_leader.setdefault(leader, {})[partition] = offset

        async def ask(leader: int, asked: dict[int, int]) -> dict[int, FetchedPartition]:
            try:
                return await self._fetch(
                    leader, described, asked, max_bytes, max_wait_ms, isolation, partition_max_bytes
                )
            except (KafkaError, OSError):
                return {}

        answers = await asyncio.gather(*(ask(*each) for each in by_leader.items()))
        found: dict[int, FetchedRecords | KafkaError] = {}
        for answer in answers:
            for partition, told in answer.items():
                error = error_of(told.error, f"{topic}-{partition}")
                found[partition] = error or await _opened(told, offsets[partition], opening)
        if len(found) < len(offsets) or any(isinstance(e, KafkaError) for e in found.values()):
            self._topics.pop(topic, None)
        return found

    async def offset_at(self, broker: int, topic: str, partition: int, timestamp: int) -> int:
        """As `offset`, of this replica, whoever leads; -1 if it has no record so young. It is asked once."""
        return await self._ask_offset(broker, topic, partition, timestamp, DEBUGGING_REPLICA)

    async def fetch_from(
        self, broker: int, topic: str, partition: int, offset: int, *, max_bytes: int = 1 << 20
    ) -> FetchedRecords:
        """What this replica has from `offset` on, whoever leads; up to the high watermark that it knows. It is asked once."""
        described = await self.topic(topic)
        answer = (await self._fetch(broker, described, {partition: offset}, max_bytes))[partition]
        check(answer.error, f"{topic}-{partition} at offset {offset} on broker {broker}")
        return opened(answer, offset)

    async def _fetch(
        self,
        broker: int,
        topic: Topic,
        offsets: Mapping[int, int],
        max_bytes: int,
        max_wait_ms: int = 0,
        isolation_level: int = READ_UNCOMMITTED,
        partition_max_bytes: int | None = None,
    ) -> dict[int, FetchedPartition]:
        """From an offset of each partition on, at most `max_bytes` in all, but at least one whole batch if there is one."""
        channel = await self.connections.to(broker)
        version = channel.version_for(ApiKey.FETCH)
        if topic.id is None:
            version = min(version, FETCH_BY_TOPIC_ID_FROM - 1)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max(max_bytes, 1),
            isolation_level=isolation_level,
            partitions=[
                FetchPartition(
                    topic=topic.name,
                    topic_id=topic.id,
                    partition=partition,
                    current_leader_epoch=-1,
                    fetch_offset=offset,
                    last_fetched_epoch=-1,
                    log_start_offset=-1,
                    max_bytes=max_bytes if partition_max_bytes is None else partition_max_bytes,
                )
                for partition, offset in offsets.items()
            ],
        )

        def read(frame: memoryview, start: int) -> FetchResponse:
            return fetch_codec.read_response(version, memoryview(bytes(frame)), start)

        body = fetch_codec.write_request(version, request)
        answer = await self.connections.call(channel, ApiKey.FETCH, version, body, read)
        check(answer.error, f"fetch from broker {broker}")
        return {each.partition: each for each in answer.partitions}


def _quorum_replicas(answer: Iterable[Any], nodes: Iterable[Any] = ()) -> tuple[QuorumReplica, ...]:
    listeners = {
        int(node.node_id): tuple((at.name, at.host, int(at.port)) for at in node.listeners)
        for node in nodes
    }
    return tuple(
        QuorumReplica(
            int(each.replica_id),
            int(each.log_end_offset),
            int(field(each, "last_fetch_timestamp", -1)),
            int(field(each, "last_caught_up_timestamp", -1)),
            field(each, "replica_directory_id", None) or None,
            listeners.get(int(each.replica_id), ()),
        )
        for each in answer
    )


async def _opened(answer: FetchedPartition, offset: int, opening: Opening | None) -> FetchedRecords:
    """Who limits it has others to serve meanwhile: to unpack megabytes takes a while."""
    if opening is None:
        return opened(answer, offset)
    return await asyncio.to_thread(opened, answer, offset, opening)
