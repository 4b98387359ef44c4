"""Which shards this broker runs, and which broker coordinates a key.

A shard is loaded when this broker becomes leader of its partition, and dropped when it no longer is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ottla.broker.cluster.metadata_cache import ClusterView
from ottla.broker.coordination.live_shard import InternalTopic, LiveShard
from ottla.broker.replication.alter_partition import NodeToControllerChannel
from ottla.broker.replication.listener import ReplicaListener
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.coordinators.shard import ProducerStamp, partition_of
from ottla.events import Events
from ottla.replica.partition import Partition
from ottla.replica.roles import Role
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

CREATE_TIMEOUT_S = 5.0


class Coordination(ReplicaListener):
    """The shards of all internal topics on this broker, and where those of others are."""

    def __init__(
        self,
        replicas: ReplicaManager,
        cluster: ClusterView,
        controller: NodeToControllerChannel,
        topics: list[InternalTopic],
        in_doubt: Callable[[], bool],
        events: Events,
    ) -> None:
        self._replicas = replicas
        self._in_doubt = in_doubt
        self._events = events
        self._cluster = cluster
        self._controller = controller
        self._topics = {topic.name: topic for topic in topics}
        self._live: dict[Partition, LiveShard] = {}
        self._creating: dict[str, asyncio.Task[None]] = {}
        replicas.listeners.append(self)

    def role_changed(self, partition: Partition) -> None:
        topic = self._topics.get(partition.topic)
        if topic is None:
            return
        self.replica_removed(partition)
        if partition.role is Role.LEADER:
            self._live[partition] = LiveShard(
                topic, partition, self._replicas, self._in_doubt, self._events
            )

    def replica_removed(self, partition: Partition) -> None:
        live = self._live.pop(partition, None)
        if live is not None:
            live.drop()

    def stop(self) -> None:
        for partition in list(self._live):
            self.replica_removed(partition)

    def marker_appended(
        self, partition: Partition, producer: ProducerStamp, committed: bool
    ) -> None:
        """A transaction that may have written into this partition has ended. A shard that is still loading reads the
        marker from the log."""
        live = self._live.get(partition)
        if live is not None and live.is_loaded:
            live.shard.replay_marker(producer, committed)

    def serves(self, topic: str) -> bool:
        return topic in self._topics

    def shard(self, topic: str, key: str) -> LiveShard:
        """The shard here that coordinates `key`; KafkaError NOT_COORDINATOR if another broker does."""
        image = self._cluster.image.topics.get(topic)
        if image is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        found = self._replicas.find(topic, None, partition_of(key, len(image.partitions)))
        live = self._live.get(found) if isinstance(found, Partition) else None
        if live is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return live

    def shards(self, topic: str) -> list[LiveShard]:
        """All shards of a topic on this broker, for requests about all groups or transactions (ListGroups)."""
        return [live for live in self._live.values() if live.topic.name == topic]

    async def coordinator_of(self, topic: str, key: str) -> int:
        """The broker that coordinates `key`; the internal topic is created when it is first needed."""
        await self._ensure(topic)
        image = self._cluster.image.topics.get(topic)
        if image is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        leader = image.partitions[partition_of(key, len(image.partitions))].leader
        if leader < 0:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return leader

    async def _ensure(self, name: str) -> None:
        if name in self._cluster.image.topics:
            return
        task = self._creating.get(name)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._create(self._topics[name]))
            self._creating[name] = task
            task.add_done_callback(lambda _: self._creating.pop(name, None))
        await asyncio.shield(task)

    async def _create(self, topic: InternalTopic) -> None:
        brokers = sum(not broker.fenced for broker in self._cluster.image.brokers.values())
        request = {
            "name": topic.name,
            "num_partitions": topic.partitions,
            "replication_factor": topic.replication_factor,
            "configs": [{"name": name, "value": value} for name, value in topic.configs.items()],
        }
        try:
            answer = await self._controller.request(
                ApiKey.CREATE_TOPICS,
                {
                    "topics": [request],
                    "timeout": int(CREATE_TIMEOUT_S * 1000),
                    "validate_only": False,
                },
                timeout_s=CREATE_TIMEOUT_S,
            )
            error = ErrorCode(int(answer.topics[0].error_code))
            if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                logger.warning(
                    "could not create internal topic topic=%s replicas=%d brokers=%d error=%s",
                    topic.name,
                    topic.replication_factor,
                    brokers,
                    error.name,
                )
                return
            await asyncio.wait_for(
                self._cluster.wait_for(lambda image: topic.name in image.topics), CREATE_TIMEOUT_S
            )
        except (OSError, TimeoutError, KafkaError) as error:
            logger.warning("internal topic is not created yet topic=%s error=%s", topic.name, error)
