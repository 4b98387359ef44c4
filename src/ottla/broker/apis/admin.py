"""What operators ask of one broker (DescribeLogDirs), what a producer needs first (InitProducerId), and
the changes that only the active controller decides, which are forwarded to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from ottla.broker.replication.alter_partition import NodeToControllerChannel
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.server.connections import Handler, Request
from ottla.runtime import Disk
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.types import TopicPartition


class ProducerIds:
    """Ids for idempotent producers, in blocks of a thousand from the controller, each handed out once."""

    def __init__(
        self,
        node_id: int,
        controller: NodeToControllerChannel,
        broker_epoch: Callable[[], int],
        timeout_s: float,
    ) -> None:
        self._node_id = node_id
        self._controller = controller
        self._broker_epoch = broker_epoch
        self._timeout_s = timeout_s
        self._next = 0
        self._end = 0
        self._refill = asyncio.Lock()

    async def take(self) -> int:
        async with self._refill:
            if self._next == self._end:
                await self._allocate()
            self._next += 1
            return self._next - 1

    def take_now(self) -> int | None:
        """None if there is none left; see `fill`."""
        if self._next == self._end:
            return None
        self._next += 1
        return self._next - 1

    async def fill(self) -> None:
        """Make sure that there is one to take."""
        async with self._refill:
            if self._next == self._end:
                await self._allocate()

    async def _allocate(self) -> None:
        answer = await self._controller.request(
            ApiKey.ALLOCATE_PRODUCER_IDS,
            {"broker_id": self._node_id, "broker_epoch": self._broker_epoch()},
            timeout_s=self._timeout_s,
        )
        if int(answer.error_code) != ErrorCode.NONE:
            raise KafkaError(ErrorCode(int(answer.error_code)))
        self._next = answer.producer_id_start
        self._end = answer.producer_id_start + answer.producer_id_len


class AdminHandlers:
    def __init__(
        self,
        disk: Disk,
        replicas: ReplicaManager,
        producer_ids: ProducerIds,
        forward: Handler,
        forwarded: tuple[ApiKey, ...],
    ) -> None:
        self._disk = disk
        self._replicas = replicas
        self._producer_ids = producer_ids
        self._forward = forward
        self._forwarded = forwarded

    def handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.DESCRIBE_LOG_DIRS: self.describe_log_dirs,
            **dict.fromkeys(self._forwarded, self._forward),
        }

    # -- InitProducerId ------------------------------------------------------------------------------

    def init_producer_id(self, request: Request) -> None:
        """InitProducerId 0-5 for producers that are idempotent only: any broker gives them an id."""
        request.run(self._init_producer_id())

    async def _init_producer_id(self) -> Mapping[str, Any]:
        try:
            producer_id = await self._producer_ids.take()
        except (OSError, TimeoutError, KafkaError):
            return {
                "error_code": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                "producer_id": -1,
                "producer_epoch": -1,
            }
        return {"error_code": ErrorCode.NONE, "producer_id": producer_id, "producer_epoch": 0}

    # -- DescribeLogDirs -----------------------------------------------------------------------------

    def describe_log_dirs(self, request: Request) -> None:
        """DescribeLogDirs 1-5: sizes and lags of the replicas here, by directory."""
        message = request.message()
        wanted = (
            None
            if message.topics is None
            else {
                TopicPartition(topic.topic, number)
                for topic in message.topics
                for number in topic.partitions
            }
        )
        logs = self._replicas.logs
        results = []
        for directory in logs.directories:
            if directory in logs.offline_directories:
                results.append({"error_code": ErrorCode.KAFKA_STORAGE_ERROR, "log_dir": directory})
                continue
            total, free = self._disk.usage(directory)
            results.append(
                {
                    "error_code": ErrorCode.NONE,
                    "log_dir": directory,
                    "topics": self._topics_in(directory, wanted),
                    "total_bytes": total,
                    "usable_bytes": free,
                    "is_cordoned": False,
                }
            )
        request.respond({"error_code": ErrorCode.NONE, "results": results})

    def _topics_in(
        self, directory: str, wanted: set[TopicPartition] | None
    ) -> list[Mapping[str, Any]]:
        topics: dict[str, list[Mapping[str, Any]]] = {}
        for key, partition in sorted(self._replicas.partitions.items()):
            log = partition.log
            if log.directory != directory:
                continue
            if wanted is None or key in wanted:
                topics.setdefault(key.topic, []).append(
                    {
                        "partition_index": key.partition,
                        "partition_size": log.size_bytes,
                        # Kafka: how far the end lies behind the high watermark.
                        "offset_lag": max(0, log.high_watermark - log.log_end),
                        "is_future_key": False,
                    }
                )
        return [{"name": name, "partitions": parts} for name, parts in topics.items()]
