"""On which log directory each replica of this broker lies, and which of them cannot be served.

A replica that the metadata gives to this broker is in one of four states: served, offline (its log directory failed),
lost (its flushed data is damaged or gone) or rebuilding (it is copied anew, and has not been in the ISR since).
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID

from ottla.broker.replication.listener import ReplicaListener
from ottla.log.config import LogConfig
from ottla.log.errors import LogDirError
from ottla.log.future_logs import is_whole
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.new_directories import DirectoriesPlan
from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage
from ottla.metadata.records import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED
from ottla.replica.partition import NO_LEADER
from ottla.runtime import Clock
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.types import TopicPartition

logger = logging.getLogger(__name__)

OFFLINE_UNTIL_LED = "replica is offline until another broker leads it partition=%s-%d cause=%s"
NOWHERE_YET = (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING)


class OfflineReplica(NamedTuple):
    """Why a replica that the metadata gives us is not served, and where it lies."""

    cause: str
    directory: UUID | None


class Placement:
    def __init__(
        self, node_id: int, clock: Clock, logs: LogManager, listeners: list[ReplicaListener]
    ) -> None:
        self._node_id = node_id
        self._clock = clock
        self._logs = logs
        self._listeners = listeners
        self.offline: dict[TopicPartition, OfflineReplica] = {}
        """Replicas that cannot be served: their log directory failed, or they have no log."""
        self.lost: dict[TopicPartition, str] = {}
        """Replicas whose flushed data is damaged or gone, and why. They are not served until another broker
        leads, from which they are then copied anew."""
        self.rebuilding: dict[TopicPartition, None] = {}
        """Replicas that are being copied anew, and have not been in the ISR since."""
        self.promised: dict[TopicPartition, UUID] = {}
        """Replicas whose future log holds nearly all: the directory that they move to. The controller learns of it before
        the move is done, as in Kafka."""
        self.is_started = False
        """The first image was applied: a replica that comes now is a new one."""

    # -- which replicas can be served --------------------------------------------------------------

    def is_unavailable(self, key: TopicPartition) -> bool:
        return key in self.offline or key in self.lost

    def find_lost(self, topic: TopicImage, number: int) -> None:
        """At the start: which replicas must not lead, whatever the metadata still thinks of them. In the
        ELR are only those that stopped cleanly with all that is committed, so a log must be there if the last process
        left one. It did not if it stopped before it heard of the topic: then nothing was committed, either."""
        decision = topic.partitions[number]
        key = TopicPartition(topic.name, number)
        if self._node_id not in decision.replicas:
            return
        log = self._logs.logs.get(key)
        found = log is not None and log.topic_id == topic.id
        named = self._named_directory(decision)
        if key in self._logs.corrupt:
            self.lost[key] = str(self._logs.corrupt[key])
        elif not found and self._node_id in decision.elr:
            # One of a former topic of that name is a log that the last process left.
            known = [] if log is None else [log.directory]
            was_there = [path for path in self._logs.left_by_last_process(key) if path not in known]
            if was_there and not self._may_lie_offline(decision):
                self.lost[key] = f"its log is not there, and was in {was_there[0]}"
        elif found and named == DIRECTORY_LOST and self._others_with_all(decision):
            # The last process was copying it anew and did not finish. (One that has nobody to copy it
            # from was put back by an operator, or its disk is back.)
            self.rebuilding[key] = None

    def settle_doubles(self, image: MetadataImage) -> None:
        """At the start: logs that lie in several directories. While a disk was away its topic may have been made anew, or
        the disk failed in the midst of a move. Kafka sets aside what is of a former topic, and does not start with two logs
        of one."""
        for key in list(self._logs.doubles):
            topic = image.topics.get(key.topic)
            if topic is None or key.partition >= len(topic.partitions):
                self._logs.settle_doubles(key, None, None, self._clock.wall_ms())
                continue
            decision = topic.partitions[key.partition]
            is_ours = self._node_id in decision.replicas
            directory = self._directory_with(self._named_directory(decision)) if is_ours else None
            is_sure = self._logs.settle_doubles(key, topic.id, directory, self._clock.wall_ms())
            if is_ours and not is_sure and len(decision.replicas) > 1:
                self.rebuilding[key] = None

    def settle_futures(self, image: MetadataImage) -> None:
        """At the start: future logs whose current log is not there. One that the metadata names takes its place, as in
        Kafka. If it was whole, the last process died in between; otherwise what it lacks is copied from the leader
        before it may lead. All others are set aside, or left where they are if the current log may be on a disk that is
        offline. Such a one may have been whole once: when its disk failed, the current log went on. Nor does a named one take
        its place then that is not whole, if nobody else in the ISR has the rest."""
        for key, future in list(self._logs.futures.items()):
            topic = image.topics.get(key.topic)
            is_ours = (
                topic is not None
                and topic.id == future.topic_id
                and key.partition < len(topic.partitions)
                and self._node_id in topic.partitions[key.partition].replicas
            )
            if topic is None or not is_ours:
                if key in self._logs.logs:
                    self._logs.delete_future(key, self._clock.wall_ms())  # it holds nothing more
                else:
                    self._set_future_aside(key, "no replica of it is here by the metadata")
                continue
            decision = topic.partitions[key.partition]
            named = self._named_directory(decision)
            is_named = self._logs.directory_ids[future.directory] == named
            if key in self._logs.logs:
                if is_named:
                    self.promised[key] = named
            elif key in self._logs.corrupt:
                self._logs.delete_future(key, self._clock.wall_ms())
            elif is_named and self._may_hold_more(decision) and not is_whole(future):
                self._logs.abandon_future(key)
                self._wait_for_disk(key)
            elif is_named:
                self._promote(key, is_sure=is_whole(future) or len(decision.replicas) == 1)
            elif self._may_lie_offline(decision):
                self._logs.abandon_future(key)
            else:
                self._set_future_aside(key, "the log that it was copied from is gone")

    def _others_with_all(self, decision: PartitionImage) -> set[int]:
        """Other brokers that may hold all that is committed: this replica may be copied anew from them."""
        holders = {*decision.isr, *decision.elr, *decision.last_known_elr}
        return holders - {self._node_id}

    def _may_hold_more(self, decision: PartitionImage) -> bool:
        """Whether a disk that is offline may hold what no other broker does."""
        return bool(self._logs.offline_directories) and not self._others_with_all(decision)

    def _wait_for_disk(self, key: TopicPartition) -> None:
        cause = "its log may lie on a disk that is offline, and its future log does not hold all"
        logger.error("replica has no log partition=%s-%d error=%s", *key, cause)
        self.offline[key] = OfflineReplica(cause, DIRECTORY_LOST)

    def _promote(self, key: TopicPartition, *, is_sure: bool) -> None:
        try:
            log = self._logs.promote_alone(key)
        except LogDirError as error:
            logger.error("future log was not promoted partition=%s-%d error=%s", *key, error)
            return
        logger.warning(
            "future log takes the place of the log partition=%s-%d path=%s", *key, log.path
        )
        if not is_sure:
            self.rebuilding[key] = None

    def _set_future_aside(self, key: TopicPartition, why: str) -> None:
        with suppress(LogDirError):
            path = self._logs.set_future_aside(key, why)
            logger.warning(
                "stray log set aside, for you to remove partition=%s-%d path=%s cause=%s",
                *key,
                path,
                why,
            )

    def started(self, served: Container[TopicPartition]) -> None:
        """The first image was applied. Logs that it does not give us are never deleted: metadata that has
        forgotten a partition may be what is wrong."""
        self.is_started = True
        strays = [key for key in self._logs.logs if key not in served]
        for key in strays + [key for key in self._logs.corrupt if key not in self.lost]:
            self.set_aside(key, "no replica of it is here by the metadata")
        for key, why in self.lost.items():
            logger.error(OFFLINE_UNTIL_LED, *key, why)

    def must_wait(self, key: TopicPartition, decision: PartitionImage) -> bool:
        """A replica that lost its data never leads, and is not made anew while nobody else does: what is
        left of it may be all there is."""
        if key in self.offline:
            return True
        why = self.lost.get(key)
        if why is None:
            return False
        if decision.leader in (NO_LEADER, self._node_id):
            return True
        logger.error(
            "rebuilding replica partition=%s-%d from_broker=%d cause=%s", *key, decision.leader, why
        )
        del self.lost[key]
        self.rebuilding[key] = None
        return False

    def decided(self, key: TopicPartition, decision: PartitionImage) -> None:
        """A replica that is in the ISR holds everything committed again."""
        if key in self.rebuilding and self._node_id in decision.isr:
            logger.warning(
                "replica is rebuilt and in sync partition=%s-%d isr=%s",
                *key,
                ",".join(map(str, decision.isr)),
            )
            del self.rebuilding[key]

    def forget(self, key: TopicPartition) -> None:
        """No replica of it is here by the metadata."""
        self.offline.pop(key, None)
        self.rebuilding.pop(key, None)
        self.promised.pop(key, None)
        if self.lost.pop(key, None) is not None and key in self._logs.corrupt:
            self.set_aside(key, "it is damaged, and its replica was removed")

    # -- logs --------------------------------------------------------------------------------------

    def open_log(self, topic: TopicImage, number: int, config: LogConfig) -> Log | None:
        """The log of a replica that is to be served; None, and it is offline, if there is none and can be none."""
        key = TopicPartition(topic.name, number)
        try:
            log = self._logs.logs.get(key)
            if log is not None and log.topic_id != topic.id:
                # A topic of the same name, deleted while we were down and made anew.
                self.set_aside(key, "it is of a former topic of that name")
                log = None
            if log is None:
                return self._create_log(topic, number, config)
            log.configure(config)
            return log
        except (LogDirError, KafkaError) as error:
            logger.error("replica has no log partition=%s-%d error=%s", *key, error)
            named = self._named_directory(topic.partitions[number])
            # Where the metadata says that it lies, unless it says that of no disk, or of one where it is not.
            is_there = named not in NOWHERE_YET and not self._is_online(named)
            directory = named if is_there else DIRECTORY_LOST
            self.offline[key] = OfflineReplica(str(error), directory)
            return None

    def directories_plan(self, replicas: Iterable[tuple[TopicImage, int]]) -> DirectoriesPlan:
        """For the logs of new replicas: see `LogManager.directories_plan`. Not for those that cannot be served."""
        wanted = []
        for topic, number in replicas:
            key = TopicPartition(topic.name, number)
            decision = topic.partitions[number]
            if not self.is_unavailable(key) and not self._may_lie_offline(decision):
                named = self._directory_with(self._named_directory(decision))
                directory = self._logs.preferred.get(key) or named
                wanted.append((key, topic.id, directory))
        return self._logs.directories_plan(wanted)

    def _directory_with(self, id: UUID) -> str | None:
        return next((path for path, each in self._logs.directory_ids.items() if each == id), None)

    def _create_log(self, topic: TopicImage, number: int, config: LogConfig) -> Log:
        """Where an operator wants it, or where the metadata says that it lies, if it does; else the log manager chooses."""
        decision = topic.partitions[number]
        named = self._named_directory(decision)
        if self._may_lie_offline(decision):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "it may lie on a disk that is offline")
        directory = self._directory_with(named)
        preferred = self._logs.preferred.pop(TopicPartition(topic.name, number), None)
        if preferred in self._logs.offline_directories:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"it was to lie in {preferred}, which is offline"
            )
        log = self._logs.create(
            topic.name,
            topic.id,
            number,
            config,
            self._clock.wall_ms(),
            directory=preferred or directory,
        )
        for listener in self._listeners:
            listener.log_created(log)
        if directory is None and named not in NOWHERE_YET:
            self.rebuilding[log.key] = None  # it was on a disk that is no longer ours
        return log

    def delete_log(self, key: TopicPartition) -> None:
        try:
            self._logs.delete(key, self._clock.wall_ms())
        except LogDirError as error:
            logger.error("log was not deleted partition=%s-%d error=%s", *key, error)

    def set_aside(self, key: TopicPartition, why: str) -> None:
        try:
            path = self._logs.set_aside(key, why)
        except LogDirError as error:
            logger.error("stray log was not set aside partition=%s-%d error=%s", *key, error)
        else:
            logger.warning(
                "stray log set aside, for you to remove partition=%s-%d path=%s cause=%s",
                *key,
                path,
                why,
            )

    # -- directories -------------------------------------------------------------------------------

    def directory_to_report(self, topic: TopicImage, number: int, log: Log | None) -> UUID | None:
        """The directory that the controller should know of, where it knows another one. While a replica
        is copied anew it lies nowhere, for else it could be elected as one that holds everything. `log` is that
        of the replica if it is served."""
        key = TopicPartition(topic.name, number)
        decision = topic.partitions[number]
        if self._node_id not in decision.replicas:
            return None
        place: UUID | None = None
        if key in self.lost or key in self.rebuilding:
            place = DIRECTORY_LOST
        elif key in self.offline:
            place = self.offline[key].directory
        elif log is not None:
            place = self.promised.get(key) or self._logs.directory_ids[log.directory]
        return None if place == self._named_directory(decision) else place

    def _named_directory(self, decision: PartitionImage) -> UUID:
        return decision.directories[decision.replicas.index(self._node_id)]

    def _may_lie_offline(self, decision: PartitionImage) -> bool:
        """Whether a replica whose log is not among those that were found may be on a disk that failed."""
        named = self._named_directory(decision)
        if not self._logs.offline_directories or (self.is_started and named in NOWHERE_YET):
            return False
        # At the start also where the metadata names another disk: a move to there may have been given up since.
        is_sought = not self.is_started and self._may_hold_more(decision)
        return is_sought or not self._is_online(named)

    def _is_online(self, id: UUID) -> bool:
        path = self._directory_with(id)
        return path is not None and path not in self._logs.offline_directories
