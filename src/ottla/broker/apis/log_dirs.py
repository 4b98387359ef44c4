"""What operators ask of one broker about its disks, and where its replicas are to lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.broker.replication.directory_moves import DirectoryMoves
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.server.connections import Request
from ottla.broker.server.registration import serves
from ottla.log.room import Level
from ottla.runtime import Disk
from ottla.security.needs import ALTER_CLUSTER, DESCRIBE_CLUSTER
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.types import TopicPartition


class LogDirsHandlers:
    def __init__(self, disk: Disk, replicas: ReplicaManager, moves: DirectoryMoves) -> None:
        self._disk = disk
        self._replicas = replicas
        self._moves = moves

    @serves(ApiKey.ALTER_REPLICA_LOG_DIRS)
    def alter(self, request: Request) -> None:
        """AlterReplicaLogDirs 1-2: move replicas to other directories of this broker. A replica that is not here yet is made
        there when it comes."""
        wanted = {
            TopicPartition(topic.name, number): directory.path
            for directory in request.message().dirs
            for topic in directory.topics
            for number in topic.partitions
        }
        results: dict[str, list[Mapping[str, Any]]] = {}
        may = ALTER_CLUSTER.met(request.rights)
        for key, path in wanted.items():
            code = self._moves.alter(key, path) if may else ALTER_CLUSTER.denied
            results.setdefault(key.topic, []).append(
                {"partition_index": key.partition, "error_code": code}
            )
        request.respond(
            {
                "results": [
                    {"topic_name": name, "partitions": parts} for name, parts in results.items()
                ]
            }
        )

    @serves(ApiKey.DESCRIBE_LOG_DIRS)
    def describe(self, request: Request) -> None:
        """DescribeLogDirs 1-5: sizes and lags of the replicas here, by directory, also of those that move to it."""
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
                    "is_cordoned": directory in logs.cordoned,
                }
            )
        full = [path for path, room in logs.rooms.items() if room.level is not Level.AMPLE]
        request.respond(
            {
                "error_code": ErrorCode.NONE,
                "results": results,
                "ottla_full_log_dirs": "\n".join(full).encode(),
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
        for key, future in sorted(self._replicas.logs.futures.items()):
            if future.directory == directory and (wanted is None or key in wanted):
                current = self._replicas.logs.logs.get(key)
                topics.setdefault(key.topic, []).append(
                    {
                        "partition_index": key.partition,
                        "partition_size": future.size_bytes,
                        "offset_lag": -1 if current is None else current.log_end - future.log_end,
                        "is_future_key": True,
                    }
                )
        return [{"name": name, "partitions": parts} for name, parts in sorted(topics.items())]
