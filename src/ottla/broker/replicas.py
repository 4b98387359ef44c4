"""All replicas of this broker: what the metadata says they are, made true on disk and in memory; and
those who wait for one of them.

Requests that wait (acks=all, long polls) are completed by the event they wait for. What changes during a
turn of the event loop is collected and told once at its end, so that a burst of appends wakes a follower
once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from enum import IntFlag
from typing import Protocol
from uuid import UUID

from ottla.config.names import TOPIC_TO_SERVER
from ottla.config.settings import Settings
from ottla.log.config import LogConfig
from ottla.log.errors import LogDirError
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.metadata.image import Delta, MetadataImage, PartitionImage, TopicImage
from ottla.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE
from ottla.replica.partition import Partition, ReplicaConfig, Truncation
from ottla.runtime import Clock
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.types import TopicPartition

logger = logging.getLogger(__name__)


class News(IntFlag):
    """What happened to a partition in this turn of the loop."""

    LOG_END = 1
    HIGH_WATERMARK = 2
    ROLE = 4
    ISR_SHRUNK = 8
    LOG_START = 16


class Watcher(Protocol):
    """Somebody who wants to know of a partition's news: a fetch session."""

    def partition_changed(self, partition: Partition, news: News) -> None: ...


class AwaitedCommit(Protocol):
    """Somebody who waits for a partition's high watermark: an acks=all produce."""

    def committed(self, partition: Partition) -> None: ...
    def not_committed(self, partition: Partition, error: ErrorCode) -> None: ...


class _Until:
    def __init__(self, condition: Callable[[], bool], future: asyncio.Future[None]) -> None:
        self.condition = condition
        self.future = future

    def partition_changed(self, partition: Partition, news: News) -> None:
        if not self.future.done() and self.condition():
            self.future.set_result(None)


class ReplicaManager:
    def __init__(self, settings: Settings, clock: Clock, logs: LogManager) -> None:
        self.settings = settings
        self.clock = clock
        self.logs = logs
        self.image = MetadataImage()
        self.partitions: dict[TopicPartition, Partition] = {}
        self.by_id: dict[tuple[UUID, int], Partition] = {}
        self.failed: dict[TopicPartition, str] = {}
        """Replicas that the metadata gives us and that cannot be served: their log directory failed."""
        self.on_role_change: list[Callable[[Partition], None]] = []
        self.on_removal: list[Callable[[Partition], None]] = []
        self.on_proposal: list[Callable[[Partition], None]] = []
        self.on_truncation: list[Callable[[Truncation], None]] = []
        self.on_directory_failure: list[Callable[[str], None]] = []
        self._config = ReplicaConfig(
            node_id=settings.node_id, lag_time_max_s=settings.replica_lag_time_max_ms / 1000
        )
        self._news: dict[Partition, News] = {}
        self._watchers: dict[Partition, dict[Watcher, None]] = {}
        self._awaiting: dict[Partition, deque[tuple[int, AwaitedCommit]]] = {}
        logs.on_offline.append(self._directory_offline)

    # -- look-up -----------------------------------------------------------------------------------

    def find(self, topic: str | None, topic_id: UUID | None, number: int) -> Partition | ErrorCode:
        """The replica here, or why there is none."""
        if topic_id is not None:
            partition = self.by_id.get((topic_id, number))
            if partition is not None:
                return partition
            known = self.image.topics_by_id.get(topic_id)
            if known is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
        else:
            assert topic is not None
            partition = self.partitions.get(TopicPartition(topic, number))
            if partition is not None:
                return partition
            known = self.image.topics.get(topic)
        if known is None or not 0 <= number < len(known.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if TopicPartition(known.name, number) in self.failed:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def get(self, topic: str, number: int) -> Partition:
        found = self.find(topic, None, number)
        if isinstance(found, ErrorCode):
            raise KafkaError(found)
        return found

    def eligible_broker_epoch(self, broker_id: int) -> int | None:
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.fenced or broker.in_controlled_shutdown:
            return None
        return broker.epoch

    def log_config(self, topic: str) -> LogConfig:
        """The topic's own settings over the cluster's dynamic ones over this node's."""
        texts = dict(self.settings.topic_defaults())
        server = dict(self.image.config(BROKER_RESOURCE, ""))
        server.update(self.image.config(BROKER_RESOURCE, str(self.settings.node_id)))
        texts.update(
            (name, server[server_name])
            for name, server_name in TOPIC_TO_SERVER.items()
            if server_name in server
        )
        texts.update(self.image.config(TOPIC_RESOURCE, topic))
        return LogConfig.from_settings(texts)

    # -- following the metadata ----------------------------------------------------------------------

    def apply_all(self, image: MetadataImage) -> None:
        """The first image after the start: everything that is ours, and nothing else, is on disk."""
        self.image = image
        for key, corruption in sorted(self.logs.corrupt.items()):
            # It lost flushed data. It is set aside and copied anew from the leader; while it is the last
            # in-sync replica nobody else may lead, so it stays offline and says so.
            logger.error("%s-%d is rebuilt from its leader: %s", *key, corruption)
        for topic in image.topics.values():
            for number in range(len(topic.partitions)):
                self._apply(topic, number)
        for key in [key for key in self.logs.logs if key not in self.partitions]:
            logger.info("removing the stray log %s-%d: no replica of it is here", *key)
            self.logs.delete(key, self.clock.wall_ms())

    def apply(self, image: MetadataImage, delta: Delta) -> None:
        self.image = image
        for topic in delta.deleted_topics:
            for number in range(len(topic.partitions)):
                self._remove(TopicPartition(topic.name, number), topic.id)
        for topic_id, number in delta.changed_partitions:
            changed = image.topics_by_id.get(topic_id)
            if changed is not None:
                self._apply(changed, number)
        if delta.changed_configs:
            self._reconfigure(delta.changed_configs)
        if delta.changed_brokers:
            now = self.clock.monotonic()
            for partition in self.partitions.values():
                partition.brokers_changed(now)

    def _reconfigure(self, resources: Iterable[tuple[int, str]]) -> None:
        names = {name for kind, name in resources if kind == TOPIC_RESOURCE}
        everything = any(kind == BROKER_RESOURCE for kind, _ in resources)
        for partition in self.partitions.values():
            if everything or partition.topic in names:
                partition.log.config = self.log_config(partition.topic)

    def _apply(self, topic: TopicImage, number: int) -> None:
        decision = topic.partitions[number]
        key = TopicPartition(topic.name, number)
        if self.settings.node_id not in decision.replicas:
            self._remove(key, topic.id)
            return
        if key in self.failed:
            return
        partition = self.partitions.get(key) or self._host(topic, number)
        if partition is None:
            return
        try:
            self._take_role(partition, decision)
        except LogDirError as error:
            self.directory_failed(error)

    def _take_role(self, partition: Partition, decision: PartitionImage) -> None:
        if decision.leader == self.settings.node_id:
            partition.become_leader(decision, self.clock.monotonic())
        else:
            partition.become_follower(decision)

    def _host(self, topic: TopicImage, number: int) -> Partition | None:
        key = TopicPartition(topic.name, number)
        try:
            log = self._open_log(topic, number)
        except (LogDirError, KafkaError) as error:
            logger.error("no log for %s-%d: %s", topic.name, number, error)
            self.failed[key] = str(error)
            return None
        partition = Partition(
            topic.name, topic.id, number, log, self._config, self, self.eligible_broker_epoch
        )
        self.partitions[key] = partition
        self.by_id[topic.id, number] = partition
        return partition

    def _open_log(self, topic: TopicImage, number: int) -> Log:
        key = TopicPartition(topic.name, number)
        log = self.logs.logs.get(key)
        if log is not None and log.topic_id != topic.id:
            # A topic of the same name, deleted while we were down and made anew.
            logger.info("replacing the log of a former topic %s-%d", *key)
            self.logs.delete(key, self.clock.wall_ms())
            log = None
        config = self.log_config(topic.name)
        if log is None:
            return self.logs.create(topic.name, topic.id, number, config, self.clock.wall_ms())
        log.config = config
        return log

    def _remove(self, key: TopicPartition, topic_id: UUID) -> None:
        partition = self.partitions.get(key)
        if partition is None or partition.topic_id != topic_id:
            return
        del self.partitions[key]
        del self.by_id[topic_id, key.partition]
        for callback in self.on_removal:
            callback(partition)
        partition.become_offline()
        try:
            self.logs.delete(key, self.clock.wall_ms())
        except LogDirError as error:
            logger.error("the log of %s-%d was not deleted: %s", *key, error)

    def directory_failed(self, error: LogDirError) -> None:
        self.logs.mark_offline(error.directory, error.cause)

    def _directory_offline(self, directory: str, lost: Iterable[TopicPartition]) -> None:
        """Its replicas here are gone; the controller learns it with the next heartbeat and moves the
        leaders away. The node itself lives."""
        cause = str(self.logs.offline_directories[directory])
        logger.error("log directory %s is offline: %s", directory, cause)
        for key in lost:
            self.failed[key] = cause
            partition = self.partitions.pop(key, None)
            if partition is not None:
                del self.by_id[partition.topic_id, partition.partition]
                for callback in self.on_removal:
                    callback(partition)
                partition.become_offline()
        for on_failure in self.on_directory_failure:
            on_failure(directory)

    def shrink_isrs(self) -> None:
        now = self.clock.monotonic()
        for partition in list(self.partitions.values()):
            partition.shrink_isr(now)

    # -- those who wait --------------------------------------------------------------------------------

    def watch(self, partition: Partition, watcher: Watcher) -> None:
        self._watchers.setdefault(partition, {})[watcher] = None

    def unwatch(self, partition: Partition, watcher: Watcher) -> None:
        watchers = self._watchers.get(partition)
        if watchers is not None:
            watchers.pop(watcher, None)
            if not watchers:
                del self._watchers[partition]

    def await_commit(self, partition: Partition, offset: int, waiting: AwaitedCommit) -> None:
        """`waiting` hears of it when the high watermark reaches `offset`, or when that can no longer be."""
        assert partition.log.high_watermark < offset
        self._awaiting.setdefault(partition, deque()).append((offset, waiting))

    def stop_awaiting(self, partition: Partition, waiting: AwaitedCommit) -> None:
        queue = self._awaiting.get(partition)
        if queue is not None:
            kept = deque(entry for entry in queue if entry[1] is not waiting)
            if kept:
                self._awaiting[partition] = kept
            else:
                del self._awaiting[partition]

    async def until(self, partition: Partition, condition: Callable[[], bool]) -> None:
        """Wait for news of the partition that make the condition true. Limits are the caller's."""
        if condition():
            return
        waiting = _Until(condition, asyncio.get_running_loop().create_future())
        self.watch(partition, waiting)
        try:
            await waiting.future
        finally:
            self.unwatch(partition, waiting)

    # -- the replica's Observer --------------------------------------------------------------------------

    def log_end_advanced(self, partition: Partition) -> None:
        self._tell(partition, News.LOG_END)

    def high_watermark_advanced(self, partition: Partition) -> None:
        self._tell(partition, News.HIGH_WATERMARK)

    def log_start_advanced(self, partition: Partition) -> None:
        self._tell(partition, News.LOG_START)

    def isr_shrunk(self, partition: Partition) -> None:
        self._tell(partition, News.ISR_SHRUNK)

    def role_changed(self, partition: Partition) -> None:
        logger.info("%r", partition)
        self._tell(partition, News.ROLE)
        for callback in self.on_role_change:
            callback(partition)

    def isr_proposed(self, partition: Partition) -> None:
        for callback in self.on_proposal:
            callback(partition)

    def truncated(self, truncation: Truncation) -> None:
        logger.warning(
            "%s-%d: truncated offsets %d to %d, diverging from the leader of epoch %d at %s%s",
            *truncation.partition,
            truncation.first_offset,
            truncation.end_offset - 1,
            truncation.leader_epoch,
            truncation.diverging,
            f"; {truncation.high_watermark - truncation.first_offset} of them were committed"
            if truncation.below_high_watermark
            else "",
        )
        for callback in self.on_truncation:
            callback(truncation)

    def _tell(self, partition: Partition, news: News) -> None:
        if not self._news:
            asyncio.get_running_loop().call_soon(self._tell_news)
        self._news[partition] = self._news.get(partition, News(0)) | news

    def _tell_news(self) -> None:
        told, self._news = self._news, {}
        for partition, news in told.items():
            if partition in self._awaiting:
                self._complete_awaiting(partition, news)
            watchers = self._watchers.get(partition)
            if watchers is not None:
                for watcher in list(watchers):
                    watcher.partition_changed(partition, news)

    def _complete_awaiting(self, partition: Partition, news: News) -> None:
        queue = self._awaiting[partition]
        high_watermark = partition.log.high_watermark
        error = None
        if news & News.ROLE:
            # What was appended in an earlier epoch may be gone, even if we lead again by now.
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            high_watermark = -1
        elif news & News.ISR_SHRUNK and partition.is_under_min_isr:
            error = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        while queue:
            offset, waiting = queue[0]
            if offset <= high_watermark:
                queue.popleft()
                waiting.committed(partition)
            elif error is not None:
                queue.popleft()
                waiting.not_committed(partition, error)
            else:
                break
        if not queue:
            self._awaiting.pop(partition, None)
