"""DescribeLogDirs: what operators ask of one broker about its disks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.server.connections import Request
from ottla.broker.server.registration import serves
from ottla.log.room import Level
from ottla.runtime import Disk
from ottla.security.needs import DESCRIBE_CLUSTER
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.types import TopicPartition


class DescribeLogDirsHandler:
    def __init__(self, disk: Disk, replicas: ReplicaManager) -> None:
        self._disk = disk
        self._replicas = replicas

    @serves(ApiKey.DESCRIBE_LOG_DIRS)
    def __call__(self, request: Request) -> None:
        """DescribeLogDirs 1-5: sizes and lags of the replicas here, by directory. Left out: cordoned directories and
        replicas that move between directories; none is ever shown."""
        message = request.message()
        if not DESCRIBE_CLUSTER.met(request.rights):
            request.respond({"error_code": DESCRIBE_CLUSTER.denied, "results": ()})
            return
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
        full = [path for path, room in logs.rooms.items() if room.level is not Level.AMPLE]
        request.respond(
            {
                "error_code": ErrorCode.NONE,
                "results": results,
                "ottla_full_log_dirs": "\n".join(full),
            }
        )

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
