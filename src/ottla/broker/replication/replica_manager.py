"""All replicas of this broker: what the metadata says they are, made true on disk and in memory; and
those who wait for one of them.

Requests that wait (acks=all, long polls) are completed by the event they wait for. What changes during a
turn of the event loop is collected and told once at its end, so that a burst of appends wakes a follower
once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple, Protocol
from uuid import UUID

from ottla.config.names import TOPIC_TO_SERVER
from ottla.config.node_settings import Settings
from ottla.log.config import LogConfig
from ottla.log.errors import LogDirError
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.metadata.image import Delta, MetadataImage, PartitionImage, TopicImage
from ottla.metadata.records import (
    BROKER_RESOURCE,
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    TOPIC_RESOURCE,
)
from ottla.replica.partition import NO_LEADER, Partition, ReplicaConfig, Role, Truncation
from ottla.runtime import Clock
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.types import TopicPartition

logger = logging.getLogger(__name__)

NOWHERE_YET = (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING)
MADE_IN_A_TURN_MAX = 50
"""New replicas. Each is a directory and files; meanwhile nobody is answered, and no heartbeat sent."""


class News:
    """What happened to a partition in this turn of the loop: bits of a plain int, because an enum's take
    longer to combine than all the rest of telling them."""

    LOG_END = 1
    HIGH_WATERMARK = 2
    ROLE = 4
    ISR_SHRUNK = 8
    LOG_START = 16
    DEPOSED = 32
    """It led, and does not, or did not for a while."""
    FOLLOWER = 64
    """One of its followers asks for less than it had."""
    AWAITED = HIGH_WATERMARK | DEPOSED | ISR_SHRUNK
    """May end the wait for a commit."""


class Watcher(Protocol):
    """Somebody who wants to know of a partition's news: a fetch session."""

    def partition_changed(self, partition: Partition, news: int) -> Sleeper | None:
        """Who is to be woken when all news of the turn are told."""


class Sleeper(Protocol):
    def wake(self, now: float) -> None: ...


class AwaitedCommit(Protocol):
    """Somebody who waits for a partition's high watermark: an acks=all produce."""

    def committed(self, partition: Partition) -> None: ...
    def not_committed(self, partition: Partition, error: ErrorCode) -> None: ...


class Failure(NamedTuple):
    """Why a replica that the metadata gives us is not served, and where it lies."""

    cause: str
    directory: UUID | None


class _Until:
    def __init__(self, condition: Callable[[], bool], future: asyncio.Future[None]) -> None:
        self.condition = condition
        self.future = future

    def partition_changed(self, partition: Partition, news: int) -> None:
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
        self.failed: dict[TopicPartition, Failure] = {}
        """Replicas that the metadata gives us and that cannot be served: their log directory failed."""
        self.lost: dict[TopicPartition, str] = {}
        """Replicas whose flushed data is damaged or gone, and why. They are offline until another broker
        leads, from which they are then copied anew."""
        self.is_started = False
        """The first image was applied: a replica that comes now is a new one."""
        self.rebuilding: dict[TopicPartition, None] = {}
        """Replicas that are being copied anew, and have not been in the ISR since."""
        self.on_creation: list[Callable[[Log], None]] = []
        """A log was made that is not durable yet."""
        self.on_placement: list[Callable[[TopicImage, int], None]] = []
        """A partition of ours was decided upon, or its replica here came or went."""
        self.on_role_change: list[Callable[[Partition], None]] = []
        self.on_removal: list[Callable[[Partition], None]] = []
        self.on_expiry: list[Callable[[Partition], None]] = []
        """Retention moved its log's start."""
        self.on_proposal: list[Callable[[Partition], None]] = []
        self.on_truncation: list[Callable[[Truncation], None]] = []
        self._config = ReplicaConfig(
            node_id=settings.node_id, lag_time_max_s=settings.replica_lag_time_max_ms / 1000
        )
        self._topic_defaults = settings.topic_defaults()
        self._to_make: dict[tuple[UUID, int], None] = {}
        """Replicas that the metadata gives us and that are not here yet, in their order. While there are any, a
        turn of the loop is asked for that makes some of them."""
        self._news: dict[Partition, int] = {}
        self._watchers: dict[Partition, dict[Watcher, None]] = {}
        self._awaiting: dict[Partition, OrderedDict[AwaitedCommit, list[int]]] = {}
        """Who waits for which offsets, in the order in which they came. Of thousands that time out together each
        takes itself out, so that must not cost more the more there are."""
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
        key = TopicPartition(known.name, number)
        if key in self.failed or key in self.lost:
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
        texts = dict(self._topic_defaults)
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
        for topic in image.topics.values():
            for number in range(len(topic.partitions)):
                self._find_lost(topic, number)
                self._apply(topic, number)
        self.is_started = True
        # Never deleted: metadata that has forgotten a partition may be what is wrong.
        strays = [key for key in self.logs.logs if key not in self.partitions]
        for key in strays + [key for key in self.logs.corrupt if key not in self.lost]:
            self._set_aside(key, "no replica of it is here by the metadata")
        for key, why in self.lost.items():
            logger.error("%s-%d is offline until another broker leads it: %s", *key, why)

    def _find_lost(self, topic: TopicImage, number: int) -> None:
        """At the start: which replicas must not lead, whatever the metadata still thinks of them. In the
        ELR are only those that stopped cleanly with all that is committed, so a log must be there."""
        decision = topic.partitions[number]
        key = TopicPartition(topic.name, number)
        if self.settings.node_id not in decision.replicas:
            return
        log = self.logs.logs.get(key)
        found = log is not None and log.topic_id == topic.id
        named = self._named_directory(decision)
        if key in self.logs.corrupt:
            self.lost[key] = str(self.logs.corrupt[key])
        elif not found and self.settings.node_id in decision.elr:
            if not self._may_lie_offline(named):
                self.lost[key] = "its log is not there"
        elif found and named == DIRECTORY_LOST and len(decision.replicas) > 1:
            # The last process was copying it anew and did not finish. (One that has nobody to copy it
            # from was put back by an operator.)
            self.rebuilding[key] = None

    def apply(self, image: MetadataImage, delta: Delta) -> None:
        self.image = image
        for topic in delta.deleted_topics:
            for number in range(len(topic.partitions)):
                self._remove(TopicPartition(topic.name, number), topic.id)
        # Settings first: an ISR is judged by the minimum that was decided with it (D9).
        if delta.changed_configs:
            self._reconfigure(delta.changed_configs)
        has_a_turn = bool(self._to_make)
        for topic_id, number in delta.changed_partitions:
            changed = image.topics_by_id.get(topic_id)
            if changed is None:
                continue
            is_ours = self.settings.node_id in changed.partitions[number].replicas
            if is_ours and (topic_id, number) not in self.by_id:
                self._to_make[topic_id, number] = None
            else:
                self._apply(changed, number)
        if not has_a_turn:
            self._make_some()
        if delta.changed_brokers or delta.changed_configs:
            now = self.clock.monotonic()
            for partition in self.partitions.values():
                partition.reconsider(now)

    def _make_some(self) -> None:
        """Those of a large topic in several turns: whoever asks for one that has not had its own looks again."""
        try:
            for topic_id, number in list(islice(self._to_make, MADE_IN_A_TURN_MAX)):
                del self._to_make[topic_id, number]
                topic = self.image.topics_by_id.get(topic_id)
                if topic is not None:
                    self._apply(topic, number)
        finally:  # one that cannot be made must not keep the others from it
            if self._to_make:
                asyncio.get_running_loop().call_soon(self._make_some)

    def stop(self) -> None:
        """No replica is made any more."""
        self._to_make.clear()

    def _reconfigure(self, resources: Iterable[tuple[int, str]]) -> None:
        names = {name for kind, name in resources if kind == TOPIC_RESOURCE}
        everything = any(kind == BROKER_RESOURCE for kind, _ in resources)
        for partition in self.partitions.values():
            if everything or partition.topic in names:
                partition.log.configure(self.log_config(partition.topic))

    def _apply(self, topic: TopicImage, number: int) -> None:
        decision = topic.partitions[number]
        key = TopicPartition(topic.name, number)
        if self.settings.node_id not in decision.replicas:
            self._remove(key, topic.id)
            return
        if key not in self.failed and not self._must_wait(key, decision):
            partition = self.partitions.get(key) or self._host(topic, number)
            if partition is not None:
                try:
                    self._take_role(partition, decision)
                except LogDirError as error:
                    self.directory_failed(error)
        if key in self.rebuilding and self.settings.node_id in decision.isr:
            logger.warning("%s-%d is whole again", *key)
            del self.rebuilding[key]
        self._tell_placement(topic, number)

    def _must_wait(self, key: TopicPartition, decision: PartitionImage) -> bool:
        """A replica that lost its data never leads, and is not made anew while nobody else does: what is
        left of it may be all there is."""
        why = self.lost.get(key)
        if why is None:
            return False
        if decision.leader in (NO_LEADER, self.settings.node_id):
            return True
        logger.error("%s-%d is copied anew from broker %d: %s", *key, decision.leader, why)
        del self.lost[key]
        self.rebuilding[key] = None
        return False

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
            self.failed[key] = Failure(str(error), self._offline_directory(topic, number))
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
            self._set_aside(key, "it is of a former topic of that name")
            log = None
        config = self.log_config(topic.name)
        if log is None:
            return self._create_log(topic, number, config)
        log.configure(config)
        return log

    def _create_log(self, topic: TopicImage, number: int, config: LogConfig) -> Log:
        """Where the metadata says that it lies, if it does; else the log manager chooses."""
        named = self._named_directory(topic.partitions[number])
        if self._may_lie_offline(named):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "it may lie on a disk that is offline")
        ids = self.logs.directory_ids
        directory = next((path for path, id in ids.items() if id == named), None)
        log = self.logs.create(
            topic.name, topic.id, number, config, self.clock.wall_ms(), directory=directory
        )
        for callback in self.on_creation:
            callback(log)
        if directory is None and named not in NOWHERE_YET:
            self.rebuilding[log.key] = None  # it was on a disk that is no longer ours
        return log

    # -- where replicas lie ------------------------------------------------------------------------------

    def directory_to_tell(self, topic: TopicImage, number: int) -> UUID | None:
        """The directory that the controller should know of, where it knows another one. While a replica
        is copied anew it lies nowhere, for else it could be elected as one that holds everything."""
        key = TopicPartition(topic.name, number)
        decision = topic.partitions[number]
        if self.settings.node_id not in decision.replicas:
            return None
        partition = self.partitions.get(key)
        place: UUID | None = None
        if key in self.lost or key in self.rebuilding:
            place = DIRECTORY_LOST
        elif key in self.failed:
            place = self.failed[key].directory
        elif partition is not None:
            place = self.logs.directory_ids[partition.log.directory]
        return None if place == self._named_directory(decision) else place

    def _named_directory(self, decision: PartitionImage) -> UUID:
        return decision.directories[decision.replicas.index(self.settings.node_id)]

    def _may_lie_offline(self, named: UUID) -> bool:
        """Whether a replica whose log is not among those that were found may be on a disk that failed."""
        offline = self.logs.offline_directories
        if not offline or (self.is_started and named in NOWHERE_YET):
            return False
        return not any(
            id == named for path, id in self.logs.directory_ids.items() if path not in offline
        )

    def _offline_directory(self, topic: TopicImage, number: int) -> UUID | None:
        """Where a replica without a log is: where the metadata says, unless it says that of no disk."""
        named = self._named_directory(topic.partitions[number])
        return DIRECTORY_LOST if named in NOWHERE_YET else named

    def _tell_placement(self, topic: TopicImage, number: int) -> None:
        for callback in self.on_placement:
            callback(topic, number)

    def _remove(self, key: TopicPartition, topic_id: UUID) -> None:
        self.failed.pop(key, None)
        self.rebuilding.pop(key, None)
        if self.lost.pop(key, None) is not None and key in self.logs.corrupt:
            self._set_aside(key, "it is damaged, and its replica was removed")
        partition = self.partitions.get(key)
        if partition is None or partition.topic_id != topic_id:
            return
        del self.partitions[key]
        del self.by_id[topic_id, key.partition]
        for callback in self.on_removal:
            callback(partition)
        partition.become_offline()
        self._delete_log(key)

    def _delete_log(self, key: TopicPartition) -> None:
        try:
            self.logs.delete(key, self.clock.wall_ms())
        except LogDirError as error:
            logger.error("the log of %s-%d was not deleted: %s", *key, error)

    def _set_aside(self, key: TopicPartition, why: str) -> None:
        try:
            path = self.logs.set_aside(key)
        except LogDirError as error:
            logger.error("what is left of %s-%d was not set aside: %s", *key, error)
        else:
            logger.warning(
                "the stray log %s-%d is kept as %s, for you to remove: %s", *key, path, why
            )

    def directory_failed(self, error: LogDirError) -> None:
        self.logs.mark_offline(error.directory, error.cause)

    def _directory_offline(self, directory: str, lost: Iterable[TopicPartition]) -> None:
        """Its replicas here are gone; the controller learns it with the next heartbeat and moves the
        leaders away. The node itself lives."""
        cause = str(self.logs.offline_directories[directory])
        logger.error("log directory %s is offline: %s", directory, cause)
        for key in lost:
            self._take_offline(key, Failure(cause, self.logs.directory_ids.get(directory)))

    def replica_damaged(self, partition: Partition, why: str) -> None:
        """What was written is no longer what lies here. The controller is told, so that another broker
        leads; then it is copied anew from that one."""
        key = partition.key
        logger.error("%s-%d is offline until another broker leads it: %s", *key, why)
        self.logs.found_corrupt(key, why)
        self.lost[key] = why
        self._withdraw(key)

    def _take_offline(self, key: TopicPartition, failure: Failure) -> None:
        self.failed[key] = failure
        self._withdraw(key)

    def _withdraw(self, key: TopicPartition) -> None:
        partition = self.partitions.pop(key, None)
        if partition is None:
            return
        del self.by_id[partition.topic_id, partition.partition]
        for callback in self.on_removal:
            callback(partition)
        partition.become_offline()
        topic = self.image.topics_by_id.get(partition.topic_id)
        if topic is not None:
            self._tell_placement(topic, partition.partition)

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
        """`waiting` hears of it when the high watermark reaches `offset`, or when that can no longer be. Who waits
        for several offsets of a partition says so at once, and hears of each."""
        assert partition.log.high_watermark < offset
        queue = self._awaiting.get(partition)
        if queue is None:
            queue = self._awaiting[partition] = OrderedDict()
        offsets = queue.get(waiting)
        if offsets is None:
            queue[waiting] = [offset]
        else:
            assert waiting is next(reversed(queue)), "others have come since"
            offsets.append(offset)

    def stop_awaiting(self, partition: Partition, waiting: AwaitedCommit) -> None:
        queue = self._awaiting.get(partition)
        if queue is not None:
            queue.pop(waiting, None)
            if not queue:
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

    def retention(self) -> int:
        """Drop what has expired, and tell whoever replicates where the logs begin now. How many segments."""
        dropped = self.logs.retention(self.clock.wall_ms())
        for key in dropped:
            partition = self.partitions.get(key)
            if partition is not None:
                self.log_start_advanced(partition)
                for callback in self.on_expiry:
                    callback(partition)
        return sum(dropped.values())

    # -- the replica's Observer --------------------------------------------------------------------------

    def log_end_advanced(self, partition: Partition) -> None:
        self._tell(partition, News.LOG_END)

    def high_watermark_advanced(self, partition: Partition) -> None:
        self._tell(partition, News.HIGH_WATERMARK)

    def log_start_advanced(self, partition: Partition) -> None:
        self._tell(partition, News.LOG_START)

    def follower_went_back(self, partition: Partition) -> None:
        """Perhaps its fetch was sent long ago, on a connection that it gave up since. Then the session that it
        has now knows better, but asks again only about what has news."""
        self._tell(partition, News.FOLLOWER)

    def isr_shrunk(self, partition: Partition) -> None:
        self._tell(partition, News.ISR_SHRUNK)

    def role_changed(self, partition: Partition) -> None:
        logger.info("%r", partition)
        deposed = 0 if partition.role is Role.LEADER else News.DEPOSED
        self._tell(partition, News.ROLE | deposed)
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

    def _tell(self, partition: Partition, news: int) -> None:
        if partition not in self._watchers and partition not in self._awaiting:
            return  # whoever comes later looks for itself
        if not self._news:
            asyncio.get_running_loop().call_soon(self._tell_news)
        self._news[partition] = self._news.get(partition, 0) | news

    def _tell_news(self) -> None:
        told, self._news = self._news, {}
        woken: dict[Sleeper, None] = {}
        for partition, news in told.items():
            if news & News.AWAITED and partition in self._awaiting:
                self._complete_awaiting(partition, news)
            for watcher in list(self._watchers.get(partition, ())):
                sleeper = watcher.partition_changed(partition, news)
                if sleeper is not None:
                    woken[sleeper] = None
        if woken:
            now = self.clock.monotonic()
            for sleeper in woken:
                sleeper.wake(now)

    def _complete_awaiting(self, partition: Partition, news: int) -> None:
        queue = self._awaiting[partition]
        high_watermark = partition.log.high_watermark
        error = None
        if news & News.DEPOSED:
            # What was appended then may be gone, even if we lead again by now. In a new epoch of a leader
            # that stayed (a reassignment ends) it is still there, and is waited for.
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            high_watermark = -1
        elif news & News.ISR_SHRUNK and partition.is_under_min_isr:
            error = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        while queue:
            waiting, offsets = next(iter(queue.items()))
            is_committed = offsets[0] <= high_watermark
            if not is_committed and error is None:
                break
            del offsets[0]
            if not offsets:
                del queue[waiting]
            if is_committed:
                waiting.committed(partition)
            elif error is not None:
                waiting.not_committed(partition, error)
        if not queue:
            self._awaiting.pop(partition, None)
