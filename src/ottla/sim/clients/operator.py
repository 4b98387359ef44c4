"""The operator of a simulated cluster: it moves partitions, changes settings and deletes while faults strike.

Each action is one request to the next broker in turn, without retries; only `recreate` retries, because a topic that is
deleted must be created again. The result shows in the metadata, where the checkers see it. `done` is called if the
response says that the action succeeded.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from ottla.client.throttled_moves import LISTS
from ottla.metadata.features import KRAFT_VERSION
from ottla.metadata.image import MetadataImage, PartitionImage
from ottla.metadata.records import TOPIC_RESOURCE
from ottla.raft.voters import QuorumEndpoint, ReplicaKey
from ottla.sim.clients.connections import ClientConnections, create_topic, delete_topic
from ottla.sim.engine.world import SimHost
from ottla.sim.oracle.history import TABLE
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, InvalidFrame
from ottla.wire.types import TopicPartition

PREFERRED, UNCLEAN = 0, 1
SET = 0
TIMEOUT_MS = 3000

Done: TypeAlias = Callable[[], None]


def _nothing() -> None:
    """The default for `done`."""


class Operator:
    def __init__(
        self,
        host: SimHost,
        connections: ClientConnections,
        on_reassign: Callable[[TopicPartition, Sequence[int] | None], None],
    ) -> None:
        """`on_reassign`: is told of each reassignment before it is asked for."""
        self._host = host
        self._connections = connections
        self._on_reassign = on_reassign
        self._under_way: set[asyncio.Task[None]] = set()

    @property
    def is_busy(self) -> bool:
        return bool(self._under_way)

    def _begin(self, action: Coroutine[Any, Any, None]) -> None:
        task = self._host.run(action)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _ask(
        self, key: ApiKey, fields: Mapping[str, Any], rows: Callable[[Any], Any], done: Done
    ) -> None:
        """If there is no answer, the action may have succeeded all the same."""
        with suppress(OSError, TimeoutError, InvalidFrame):
            answer = await self._connections.ask(key, fields)
            if all(int(row.error_code) == ErrorCode.NONE for row in rows(answer)):
                done()

    def elect(self, partition: TopicPartition, kind: int, done: Done = _nothing) -> None:
        row = {"topic": partition.topic, "partitions": [partition.partition]}
        fields = {"election_type": kind, "topic_partitions": [row], "timeout": TIMEOUT_MS}

        def rows(answer: Any) -> list[Any]:
            results = answer.replica_election_results
            return [answer, *(row for result in results for row in result.partition_result)]

        self._begin(self._ask(ApiKey.ELECT_LEADERS, fields, rows, done))

    def reassign(
        self, partition: TopicPartition, replicas: Sequence[int] | None, done: Done = _nothing
    ) -> None:
        """`replicas` None cancels the reassignment."""
        self._on_reassign(partition, replicas)
        row = {"partition_index": partition.partition, "replicas": replicas}
        topic = {"name": partition.topic, "partitions": [row]}
        fields = {"topics": [topic], "timeout": TIMEOUT_MS}

        def rows(answer: Any) -> list[Any]:
            return [answer, *(row for topic in answer.responses for row in topic.partitions)]

        self._begin(self._ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, fields, rows, done))

    def move_to_directory(
        self, partition: TopicPartition, address: tuple[str, int], path: str, done: Done = _nothing
    ) -> None:
        """On the broker at this address."""
        topics = [{"name": partition.topic, "partitions": [partition.partition]}]
        fields = {"dirs": [{"path": path, "topics": topics}]}

        async def ask() -> None:
            with suppress(OSError, TimeoutError, InvalidFrame):
                channel = await self._connections.at(address)
                answer = await channel.request(
                    ApiKey.ALTER_REPLICA_LOG_DIRS, fields, timeout_s=TIMEOUT_MS / 1000
                )
                rows = [row for topic in answer.results for row in topic.partitions]
                if all(int(row.error_code) == ErrorCode.NONE for row in rows):
                    done()

        self._begin(ask())

    def configure(self, topic: str, name: str, value: str, done: Done = _nothing) -> None:
        config = {"name": name, "config_operation": SET, "value": value}
        resource = {"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configs": [config]}
        fields = {"resources": [resource], "validate_only": False}
        key = ApiKey.INCREMENTAL_ALTER_CONFIGS
        self._begin(self._ask(key, fields, lambda answer: answer.responses, done))

    def upgrade_voters(self, done: Done = _nothing) -> None:
        update = {"feature": KRAFT_VERSION, "max_version_level": 1, "upgrade_type": 1}
        fields = {"timeout": TIMEOUT_MS, "validate_only": False, "feature_updates": [update]}
        self._begin(self._ask(ApiKey.UPDATE_FEATURES, fields, lambda answer: [answer], done))

    def add_voter(self, key: ReplicaKey, at: QuorumEndpoint, done: Done = _nothing) -> None:
        fields = {
            "cluster_id": None,
            "timeout": TIMEOUT_MS,
            "voter_id": key.id,
            "voter_directory_id": key.directory,
            "listeners": [at._asdict()],
            "ack_when_committed": True,
        }
        self._begin(self._ask(ApiKey.ADD_RAFT_VOTER, fields, lambda answer: [answer], done))

    def remove_voter(self, key: ReplicaKey, done: Done = _nothing) -> None:
        fields = {
            "cluster_id": None,
            "voter_id": key.id,
            "voter_directory_id": key.directory,
        }
        self._begin(self._ask(ApiKey.REMOVE_RAFT_VOTER, fields, lambda answer: [answer], done))

    def delete_records(self, partition: TopicPartition, offset: int, done: Done = _nothing) -> None:
        async def action() -> None:
            row = {"partition_index": partition.partition, "offset": offset}
            fields = {
                "topics": [{"name": partition.topic, "partitions": [row]}],
                "timeout": TIMEOUT_MS,
            }
            try:
                _, channel = await self._connections.leader(partition)
                request = channel.request(
                    ApiKey.DELETE_RECORDS, fields, timeout_s=TIMEOUT_MS / 1000
                )
                answer = await self._connections.answer(channel, request)
                (row,) = answer.topics[0].partitions
                if int(row.error_code) == ErrorCode.NONE and int(row.low_watermark) > 0:
                    done()
            except (OSError, TimeoutError, InvalidFrame):
                self._connections.forget(partition)

        self._begin(action())

    def recreate(
        self, image: MetadataImage, name: str, wait_s: float, done: Done = _nothing
    ) -> None:
        """Delete it, wait, and create it again with the same partitions and settings; not with the throttle of a move."""
        topic = image.topics[name]
        present = image.config(TOPIC_RESOURCE, name)
        settings = {each: value for each, value in present.items() if each not in LISTS}
        factor = len(topic.partitions[0].replicas)

        async def action() -> None:
            await delete_topic(self._connections, topic.id)
            await asyncio.sleep(wait_s)
            await create_topic(self._connections, name, len(topic.partitions), factor, settings)
            done()

        self._begin(action())


def some_partition(
    image: MetadataImage, chance: random.Random
) -> tuple[TopicPartition, PartitionImage] | None:
    found = [
        (TopicPartition(topic.name, number), partition)
        for name, topic in sorted(image.topics.items())
        if name != TABLE
        for number, partition in enumerate(topic.partitions)
    ]
    return chance.choice(found) if found else None


def other_replicas(
    partition: PartitionImage, nodes: Sequence[int], chance: random.Random
) -> list[int]:
    """As many as now, sometimes one more or one less, in random order."""
    count = len(partition.replicas) - len(partition.adding) + chance.choice((0, 0, 0, 0, 1, -1))
    return chance.sample(list(nodes), max(1, min(count, len(nodes))))
