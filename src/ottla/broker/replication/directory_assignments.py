"""AssignReplicasToDirs: this broker reports the log directory of each replica to the controller.

The controller knows the directory without a report only for brokers with one log directory. It needs to know it to
move exactly the affected leaders when a disk fails. Replicas whose data is gone or damaged (directory LOST) must be
reported before this broker is unfenced: nothing else keeps the controller from electing one of them.

The reports follow from the metadata and the local logs. They are computed again with every change of either, so no
state has to survive a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any
from uuid import UUID

from ottla.broker.replication.alter_partition import NodeToControllerChannel
from ottla.broker.replication.listener import ReplicaListener
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.metadata.image import TopicImage
from ottla.metadata.records import DIRECTORY_LOST
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

RETRY_S = 0.05
ASSIGNMENTS_PER_REQUEST_MAX = 2250
"""Kafka's limit."""

Places = dict[tuple[UUID, int], UUID]
"""(topic id, partition) -> directory"""


class DirectoryAssignments(ReplicaListener):
    def __init__(
        self,
        node_id: int,
        replicas: ReplicaManager,
        controller: NodeToControllerChannel,
        broker_epoch: Callable[[], int],
        timeout_s: float,
    ) -> None:
        self.losses_reported = asyncio.Event()
        """Set while the controller knows every replica on this broker that lost its data."""
        self.losses_reported.set()
        self._node_id = node_id
        self._replicas = replicas
        self._controller = controller
        self._broker_epoch = broker_epoch
        self._timeout_s = timeout_s
        self._waiting: Places = {}
        self._sender: asyncio.Task[None] | None = None
        replicas.listeners.append(self)

    async def stop(self) -> None:
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait([self._sender])

    def placement_changed(self, topic: TopicImage, number: int) -> None:
        place = self._replicas.directory_to_report(topic, number)
        if place is None:
            if self._waiting:
                self._waiting.pop((topic.id, number), None)
            return
        self._waiting[topic.id, number] = place
        if place == DIRECTORY_LOST:
            self.losses_reported.clear()
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            # One turn of the loop later, all replicas placed in this turn are collected.
            await asyncio.sleep(0)
            while self._waiting:
                under_way = dict(islice(self._waiting.items(), ASSIGNMENTS_PER_REQUEST_MAX))
                if await self._send(under_way):
                    self._forget(under_way)
                else:
                    await asyncio.sleep(RETRY_S)
            self.losses_reported.set()
        finally:
            self._sender = None

    async def _send(self, places: Places) -> bool:
        """Returns whether the controller answered."""
        try:
            answer = await self._controller.request(
                ApiKey.ASSIGN_REPLICAS_TO_DIRS, self._request(places), timeout_s=self._timeout_s
            )
        except (OSError, TimeoutError, KafkaError) as error:
            logger.info("AssignReplicasToDirs was not answered, will retry error=%s", error)
            return False
        if int(answer.error_code) != ErrorCode.NONE:
            logger.info(
                "AssignReplicasToDirs failed, will retry error=%s",
                ErrorCode(int(answer.error_code)).name,
            )
            return False
        for directory in answer.directories:
            for topic in directory.topics:
                for result in topic.partitions:
                    if int(result.error_code) != ErrorCode.NONE:
                        # The partition was deleted or moved meanwhile: there is nothing left to report.
                        logger.info(
                            "directory was not assigned topic_id=%s partition=%d error=%s",
                            topic.topic_id,
                            result.partition_index,
                            ErrorCode(int(result.error_code)).name,
                        )
        return True

    def _forget(self, reported: Places) -> None:
        for key, place in reported.items():
            if self._waiting.get(key) == place:
                del self._waiting[key]

    def _request(self, places: Places) -> Mapping[str, Any]:
        directories: dict[UUID, dict[UUID, list[Mapping[str, Any]]]] = {}
        for (topic_id, number), place in places.items():
            topics = directories.setdefault(place, {})
            topics.setdefault(topic_id, []).append({"partition_index": number})
        return {
            "broker_id": self._node_id,
            "broker_epoch": self._broker_epoch(),
            "directories": [
                {
                    "id_": place,
                    "topics": [
                        {"topic_id": topic_id, "partitions": partitions}
                        for topic_id, partitions in topics.items()
                    ],
                }
                for place, topics in directories.items()
            ],
        }
