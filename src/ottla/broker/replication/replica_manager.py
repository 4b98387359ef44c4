"""All replicas of this broker: what the metadata says they are, made true on disk and in memory.

- `placement`: on which directory they lie, and which of them cannot be served
- `purgatory`: who waits for one of them
- `listener`: which parts of the broker act upon what happens to them
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from uuid import UUID

from ottla.broker.replication.change_log import RoleLog, tell_of_departures
from ottla.broker.replication.listener import ReplicaListener
from ottla.broker.replication.placement import OFFLINE_UNTIL_LED, OfflineReplica, Placement
from ottla.broker.replication.purgatory import Purgatory
from ottla.config.names import TOPIC_NOT_YET, TOPIC_TO_SERVER
from ottla.config.node_settings import Settings
from ottla.events import Events
from ottla.log.config import SETTINGS as LOG_SETTINGS
from ottla.log.config import LogConfig
from ottla.log.errors import LogDirError
from ottla.log.manager import LogManager
from ottla.log.room import DirectoryRoom, Level
from ottla.metadata.image import Delta, MetadataImage, PartitionImage, TopicImage
from ottla.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE
from ottla.replica import follower
from ottla.replica.observer import News
from ottla.replica.partition import Partition, ReplicaConfig, ReplicationRules
from ottla.replica.roles import Role
from ottla.replica.traffic import TopicTraffic, Traffic
from ottla.runtime import Clock
from ottla.runtime.threads import in_thread
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.types import TopicPartition

logger = logging.getLogger(__name__)

MADE_IN_A_TURN_MAX = 50
"""New replicas. Each is a directory and files; meanwhile nobody is answered, and no heartbeat sent."""


ROOM_LINES = {
    Level.AMPLE: (logging.WARNING, "disk has room again, records are taken"),
    Level.SCARCE: (
        logging.ERROR,
        "disk is nearly full, records are refused until space is freed there",
    ),
    Level.NONE: (
        logging.ERROR,
        "disk is nearly full, replicas copy nothing until space is freed there",
    ),
}


class ReplicaManager:
    """The registry of the replicas, and what the metadata makes of them. It is their `Observer`."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        logs: LogManager,
        events: Events,
        rules: ReplicationRules,
        unclean: Mapping[tuple[UUID, int], int],
    ) -> None:
        """`unclean`: the leader epochs that began with an unclean election. Its owner adds to it."""
        self.settings = settings
        self.clock = clock
        self.logs = logs
        self.events = events
        self._unclean = unclean
        self.image = MetadataImage()
        self.partitions: dict[TopicPartition, Partition] = {}
        """The replicas that are served."""
        self.by_id: dict[tuple[UUID, int], Partition] = {}
        self.traffic = Traffic()
        """Of all topics together."""
        self.topic_traffic: dict[str, TopicTraffic] = {}
        """Of topics with a replica here."""
        self.listeners: list[ReplicaListener] = []
        self.placement = Placement(settings.node_id, clock, logs, self.listeners)
        self.purgatory = Purgatory(clock)
        self._config = ReplicaConfig(
            node_id=settings.node_id,
            lag_time_max_s=settings.replica_lag_time_max_ms / 1000,
            rules=rules,
        )
        self._topic_defaults = settings.topic_defaults()
        self._log_configs: dict[str, LogConfig] = {}
        """By topic, as the metadata sets them now: a topic may have thousands of replicas here."""
        self._role_log = RoleLog()
        self._to_make: dict[tuple[UUID, int], None] = {}
        """Replicas that the metadata gives us and that are not here yet, in their order."""
        self._making: asyncio.Task[None] | None = None
        """Makes them, while there are many."""
        logs.on_offline.append(self._directory_offline)
        logs.on_room.append(_tell_of_room)

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
        if self.placement.is_unavailable(TopicPartition(known.name, number)):
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
        """The topic's own settings over the cluster's dynamic ones over this node's. Apache Kafka's controller may have written
        some that we do not serve."""
        found = self._log_configs.get(topic)
        if found is None:
            found = self._log_configs[topic] = self._read_log_config(topic)
        return found

    def _read_log_config(self, topic: str) -> LogConfig:
        texts = dict(self._topic_defaults)
        server = dict(self.image.config(BROKER_RESOURCE, ""))
        server.update(self.image.config(BROKER_RESOURCE, str(self.settings.node_id)))
        texts.update(
            (name, server[server_name])
            for name, server_name in TOPIC_TO_SERVER.items()
            if server_name in server
        )
        own = self.image.config(TOPIC_RESOURCE, topic)
        texts.update((name, text) for name, text in own.items() if name in LOG_SETTINGS)
        unknown = sorted(
            name
            for name, text in own.items()
            if name not in LOG_SETTINGS
            and (name not in TOPIC_NOT_YET or text != TOPIC_NOT_YET[name].default)
        )
        if unknown:
            logger.warning(
                "settings of a topic are not served here topic=%s settings=%s",
                topic,
                ",".join(unknown),
            )
        return LogConfig.from_settings(texts)

    # -- following the metadata ----------------------------------------------------------------------

    def apply_all(self, image: MetadataImage) -> None:
        """The first image after the start: everything that is ours, and nothing else, is on disk."""
        self.image = image
        self._log_configs.clear()
        self.placement.settle_doubles(image)
        self.placement.settle_futures(image)
        with self._role_log:
            for topic in image.topics.values():
                for number in range(len(topic.partitions)):
                    self.placement.find_lost(topic, number)
                    self._apply(topic, number)
        self.placement.started(self.partitions)

    def apply(self, image: MetadataImage, delta: Delta) -> None:
        tell_of_departures(self.image, image, delta, self.settings.node_id)
        with self._role_log:
            self._apply_delta(image, delta)

    def _apply_delta(self, image: MetadataImage, delta: Delta) -> None:
        self.image = image
        if delta.changed_configs or delta.deleted_topics:
            self._log_configs.clear()
        for topic in delta.deleted_topics:
            for number in range(len(topic.partitions)):
                try:
                    self._remove(TopicPartition(topic.name, number), topic.id)
                except Exception as error:
                    _report(error, topic, number)
        # Settings first: an ISR is judged by the minimum that was decided with it (D9).
        if delta.changed_configs:
            self._reconfigure(delta.changed_configs)
        changed_leaders: dict[Partition, None] = {}
        for key in delta.changed_partitions:
            topic_id, number = key
            changed = image.topics_by_id.get(topic_id)
            if changed is None:
                continue
            partition = self.by_id.get(key)
            if partition is None and self.settings.node_id in changed.partitions[number].replicas:
                self._to_make[key] = None
            else:
                self._apply_alone(changed, number)
                if partition is not None and partition.leadership is not None:
                    changed_leaders[partition] = None
        if self._making is None:
            if len(self._to_make) <= MADE_IN_A_TURN_MAX:
                self._make(list(self._to_make))
            else:
                self._making = asyncio.get_running_loop().create_task(self._make_many())
        if delta.changed_brokers or delta.changed_configs:
            now = self.clock.monotonic()
            for partition in self.partitions.values():
                # Whoever has just taken its role has done so already, by the same image.
                if partition.leadership is not None and partition not in changed_leaders:
                    partition.leadership.reconsider(now)

    async def _make_many(self) -> None:
        """Those of a large topic. Their directories are made in a thread, and a turn of the loop takes a few of them: a
        request for one that is not there yet is answered with an error that makes the client try again."""
        try:
            while self._to_make:
                some = list(islice(self._to_make, MADE_IN_A_TURN_MAX))
                plan = self.placement.directories_plan(
                    (topic, number)
                    for topic_id, number in some
                    if (topic := self._topic_of_new(topic_id, number)) is not None
                )
                if plan:
                    await in_thread(plan.run)
                    self.logs.directories_made(plan)
                with self._role_log:
                    self._make(some)
                for key in plan.made:
                    self.logs.abandon_directory(key)  # of a topic that was deleted meanwhile
                await asyncio.sleep(0)
        finally:
            self._making = None

    def _make(self, replicas: list[tuple[UUID, int]]) -> None:
        for topic_id, number in replicas:
            if (topic_id, number) in self._to_make:
                del self._to_make[topic_id, number]
                topic = self._topic_of_new(topic_id, number)
                if topic is not None:
                    self._apply_alone(topic, number)

    def _topic_of_new(self, topic_id: UUID, number: int) -> TopicImage | None:
        """Unless it was deleted since, or the replica given to another broker."""
        topic = self.image.topics_by_id.get(topic_id)
        is_ours = topic is not None and self.settings.node_id in topic.partitions[number].replicas
        return topic if is_ours else None

    async def stop(self) -> None:
        """No replica is made any more."""
        self._to_make.clear()
        if self._making is not None:
            await asyncio.wait([self._making])

    def _reconfigure(self, resources: Iterable[tuple[int, str]]) -> None:
        names = {name for kind, name in resources if kind == TOPIC_RESOURCE}
        everything = any(kind == BROKER_RESOURCE for kind, _ in resources)
        for partition in self.partitions.values():
            if everything or partition.topic in names:
                partition.log.configure(self.log_config(partition.topic))

    def _apply_alone(self, topic: TopicImage, number: int) -> None:
        """A defect in one partition must not keep the others from their roles: they would not be led by anybody."""
        try:
            self._apply(topic, number)
        except Exception as error:
            _report(error, topic, number)

    def _apply(self, topic: TopicImage, number: int) -> None:
        decision = topic.partitions[number]
        key = TopicPartition(topic.name, number)
        if self.settings.node_id not in decision.replicas:
            self._remove(key, topic.id)
            return
        if not self.placement.must_wait(key, decision):
            partition = self.partitions.get(key) or self._host(topic, number)
            if partition is not None:
                try:
                    self._take_role(partition, decision)
                except LogDirError as error:
                    self.directory_failed(error)
        self.placement.decided(key, decision)
        self._report_placement(topic, number)

    def _take_role(self, partition: Partition, decided: PartitionImage) -> None:
        if self._unclean:
            key = partition.topic_id, partition.partition
            partition.unclean_epoch = self._unclean.get(key, -1)
        node_id = self.settings.node_id
        decision = partition.rules.role(decided, node_id)
        was_in_sync = node_id in partition.isr
        if decision.leader == node_id:
            partition.become_leader(decision, self.clock.monotonic())
        elif partition.become_follower(decision):
            follower.begin_following(partition)
        elif not was_in_sync and node_id in partition.isr:
            for listener in self.listeners:
                listener.joined_isr(partition)

    def _host(self, topic: TopicImage, number: int) -> Partition | None:
        log = self.placement.open_log(topic, number, self.log_config(topic.name))
        if log is None:
            return None
        partition = Partition(
            topic.name,
            topic.id,
            number,
            log,
            self._config,
            self,
            self.eligible_broker_epoch,
            self.events,
            self._traffic_of(topic.name),
        )
        self.partitions[partition.key] = partition
        self.by_id[topic.id, number] = partition
        return partition

    def _traffic_of(self, topic: str) -> TopicTraffic:
        found = self.topic_traffic.get(topic)
        if found is None:
            found = self.topic_traffic[topic] = TopicTraffic(self.traffic)
        return found

    def _remove(self, key: TopicPartition, topic_id: UUID) -> None:
        self.placement.forget(key)
        partition = self.partitions.get(key)
        if partition is None or partition.topic_id != topic_id:
            return
        self._take_out(partition)
        if key.topic not in self.image.topics:
            self.topic_traffic.pop(key.topic, None)
        self.placement.delete_log(key)

    def _take_out(self, partition: Partition) -> None:
        del self.partitions[partition.key]
        del self.by_id[partition.topic_id, partition.partition]
        for listener in self.listeners:
            listener.replica_removed(partition)
        partition.become_offline()

    # -- failures of the storage -------------------------------------------------------------------

    def directory_failed(self, error: LogDirError) -> KafkaError:
        """The one thing to do about a LogDirError, wherever it comes up: the directory goes offline, and with it
        all its replicas. Returns the error to answer the request with."""
        self.logs.mark_offline(error.directory, error.cause)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    @contextmanager
    def directories_guarded(self) -> Iterator[None]:
        """The same where there is no request to answer."""
        try:
            yield
        except LogDirError as error:
            self.directory_failed(error)

    def _directory_offline(self, directory: str, lost: Iterable[TopicPartition]) -> None:
        """Its replicas here are gone; the controller learns it with the next heartbeat and moves the
        leaders away. The node itself lives."""
        cause = str(self.logs.offline_directories[directory])
        logger.error("log directory is offline path=%s error=%s", directory, cause)
        for key in lost:
            self.placement.offline[key] = OfflineReplica(
                cause, self.logs.directory_ids.get(directory)
            )
            self._withdraw(key)

    def replica_damaged(self, partition: Partition, why: str) -> None:
        """What was written is no longer what lies here. The controller learns of it, so that another broker
        leads; then it is copied anew from that one."""
        key = partition.key
        logger.error(OFFLINE_UNTIL_LED, *key, why)
        self.logs.found_corrupt(key, why)
        self.placement.lost[key] = why
        self._withdraw(key)

    def _withdraw(self, key: TopicPartition) -> None:
        partition = self.partitions.get(key)
        if partition is None:
            return
        self._take_out(partition)
        self.placement_changed(partition)

    def directory_to_report(self, topic: TopicImage, number: int) -> UUID | None:
        """See `Placement.directory_to_report`."""
        partition = self.partitions.get(TopicPartition(topic.name, number))
        log = None if partition is None else partition.log
        return self.placement.directory_to_report(topic, number, log)

    def placement_changed(self, partition: Partition) -> None:
        """The replica has moved to another directory, will do so, or does so no longer."""
        topic = self.image.topics_by_id.get(partition.topic_id)
        if topic is not None:
            self._report_placement(topic, partition.partition)

    def _report_placement(self, topic: TopicImage, number: int) -> None:
        for listener in self.listeners:
            listener.placement_changed(topic, number)

    # -- by the clock ------------------------------------------------------------------------------

    def review_isrs(self) -> None:
        now = self.clock.monotonic()
        for partition in list(self.partitions.values()):
            if partition.leadership is not None:
                partition.leadership.isr_changes.review(now)

    def retention(self) -> int:
        """Drop what has expired, and report where the logs begin now. Returns how many segments were dropped."""
        dropped = self.logs.retention(self.clock.wall_ms())
        for key in dropped:
            partition = self.partitions.get(key)
            if partition is not None:
                self.purgatory.changed(partition, News.LOG_START)
                for listener in self.listeners:
                    listener.records_expired(partition)
        return sum(dropped.values())

    # -- the replica's Observer --------------------------------------------------------------------

    def partition_changed(self, partition: Partition, news: int) -> None:
        self.purgatory.changed(partition, news)

    def role_changed(self, partition: Partition) -> None:
        self._role_log.add(partition)
        deposed = 0 if partition.role is Role.LEADER else News.DEPOSED
        self.purgatory.changed(partition, News.ROLE | deposed)
        for listener in self.listeners:
            listener.role_changed(partition)

    def isr_proposed(self, partition: Partition) -> None:
        for listener in self.listeners:
            listener.isr_proposed(partition)


def _tell_of_room(room: DirectoryRoom) -> None:
    level, text = ROOM_LINES[room.level]
    logger.log(level, f"{text} path=%s free=%d size=%d", room.directory, room.free, room.total)


def _report(error: Exception, topic: TopicImage, number: int) -> None:
    """To the loop, as what nobody expects: it is logged with its trace, and ends a simulation."""
    asyncio.get_running_loop().call_exception_handler(
        {"message": f"{topic.name}-{number} does not follow the metadata", "exception": error}
    )
