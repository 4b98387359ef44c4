"""All logs of one broker, over one or several log directories: opening, creating, deleting, and failing.

After a clean shutdown the logs are opened as they are, otherwise they are recovered. A directory whose disk fails goes
offline with its logs, and the others go on. A single log that lost flushed data is kept out (`corrupt`) until the broker
rebuilds it from another replica. The checkpoint files are kept by `offset_checkpoints`. Logs that move to another
directory are copied to a future log there: `future_logs`.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from ottla.events import Events
from ottla.events.storage import (
    CleanShutdownRecognized,
    LogCompacted,
    LogDirectoryFailed,
    LogDirectoryRoomChanged,
    LogSetAside,
)
from ottla.log import checkpoints, cleaner
from ottla.log.checkpoints import MetaProperties
from ottla.log.committed_marks import CommittedMarks
from ottla.log.compaction import Compaction
from ottla.log.config import LogConfig
from ottla.log.errors import CorruptCheckpoint, CorruptLog, LogDirError, WrongDirectory
from ottla.log.flushing import LOGS_AT_ONCE, FlushPlan, IdentityPlan
from ottla.log.future_logs import (
    future_in,
    future_name,
    name_promoted,
    not_whole,
    resources_of_one,
    share,
    take_over,
    take_place,
)
from ottla.log.kept_records import DELETE_SUFFIX, NAME_BYTES_MAX, STRAY_SUFFIX, KeptRecords
from ottla.log.log import Log, directory_name
from ottla.log.log_directories import (
    DirectoryContents,
    lock_directory,
    read_contents,
    read_properties,
)
from ottla.log.new_directories import DirectoriesPlan
from ottla.log.offset_checkpoints import CheckpointPlan, OffsetCheckpoints
from ottla.log.progress import OpeningProgress
from ottla.log.removal import DeletedLogs, RemovalPlan
from ottla.log.resources import LogResources
from ottla.log.room import NO_WATERMARK, DirectoryRoom, Watermark
from ottla.log.segment import OpenFiles
from ottla.runtime.seams import Disk, File
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.internal_topics import CLUSTER_METADATA_TOPIC, UNLISTED_TOPICS
from ottla.wire.types import TopicPartition

logger = logging.getLogger(__name__)

OPEN_FILES_MAX = 512
"""Fits the usual limit of 1,024 descriptors of a process."""
OUTDATED = "another log of its partition counts, by the metadata"
PRODUCER_ID_EXPIRATION_MS = 24 * 60 * 60 * 1000

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PARTITION_DIRECTORY = re.compile(r"([A-Za-z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")


def _log_in(name: str) -> TopicPartition | None:
    """Whose log a directory of this name holds; the metadata's log is the quorum's."""
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None or match[1] == CLUSTER_METADATA_TOPIC:
        return None
    return TopicPartition(match[1], int(match[2]))


def _owner_of(name: str) -> TopicPartition | None:
    """The same, or whose future log it holds."""
    return _log_in(name) or future_in(name)


class Damaged(NamedTuple):
    """A log that is kept out."""

    directory: str
    error: CorruptLog


class LogManager:
    def __init__(
        self,
        disk: Disk,
        directories: list[str],
        defaults: LogConfig,
        *,
        new_id: Callable[[], UUID],
        open_files_max: int = OPEN_FILES_MAX,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        events: Events | None = None,
        kept: KeptRecords | None = None,
        watermark: Watermark = NO_WATERMARK,
    ) -> None:
        """Without `kept`, a truncation keeps nothing of what it cuts off."""
        assert directories and len(set(directories)) == len(directories), directories
        self.directories = list(directories)
        self.defaults = defaults
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.directory_ids: dict[str, UUID] = {}
        self.logs: dict[TopicPartition, Log] = {}
        self.unsettled: dict[Log, None] = {}
        """Logs in which a flush may become due by time. Idle logs are not in it."""
        self.futures: dict[TopicPartition, Log] = {}
        """Copies of logs in another directory, which they move to."""
        self.preferred: dict[TopicPartition, str] = {}
        """The directories that somebody wants for logs that are not there yet. A restart forgets them, as Kafka's does."""
        self.cordoned: frozenset[str] = frozenset()
        """Directories that get no new logs, unless all are cordoned."""
        self.corrupt: dict[TopicPartition, CorruptLog] = {}
        self.doubles: dict[TopicPartition, list[Log | Damaged]] = {}
        """Logs that lie in several directories, until the metadata says which counts. They are in none of the others."""
        self.offline_directories: dict[str, Exception] = {}
        self.on_offline: list[Callable[[str, list[TopicPartition]], None]] = []
        """Called with the directory and the logs that went with it."""
        self.rooms = {
            directory: DirectoryRoom(disk, directory, watermark, self._room_changed)
            for directory in directories
        }
        """How much room is left in each directory."""
        self.on_room: list[Callable[[DirectoryRoom], None]] = []
        """Called when a directory has become short of room, or is so no longer."""
        self.progress = OpeningProgress()
        self.previous_broker_epoch = -1
        """Of the clean shutdown before this start; -1 if it was not clean."""
        self.disk = disk
        self._new_id = new_id
        self._events = events if events is not None else Events()
        self._resources = LogResources(disk, OpenFiles(disk, open_files_max), self._events)
        self._locks: dict[str, File] = {}
        self._taken: dict[str, DirectoryContents] = {}
        self._is_open = False
        self._counts: Counter[str] = Counter()
        """Of the logs in each directory."""
        self._corrupt_in: dict[TopicPartition, str] = {}
        """The directories of those in `corrupt`."""
        self._new_directories: dict[TopicPartition, str] = {}
        """Of logs that are not created yet."""
        self._deleted = DeletedLogs()
        self._marks: dict[str, CommittedMarks] = {}
        self.kept = kept
        if kept is not None:
            kept.on_removed = lambda path, directory: self._deleted.add(path, 0, directory)
        self._checkpoints = OffsetCheckpoints(disk, self.logs, self.futures, self._corrupt_in)

    # Starting and stopping

    def take(self, cluster_id: str, node_id: int) -> None:
        """Lock the directories and read their files. Nothing is written yet. A directory that cannot be read is offline.
        WrongDirectory if one belongs to another node, or none is usable; CorruptCheckpoint if a checkpoint file is
        damaged."""
        assert not self._taken
        if self.kept is not None:
            self.kept.broker = node_id
        try:
            for directory in self.directories:
                try:
                    self._taken[directory] = self._take(directory, cluster_id, node_id)
                except OSError as error:
                    self.mark_offline(directory, error)
            if not self._taken:
                cause = self.offline_directories[self.directories[0]]
                raise WrongDirectory(
                    self.directories[0], f"no log directory is usable: {cause}"
                ) from cause
        except (WrongDirectory, CorruptCheckpoint):
            self._unlock()
            raise

    def _take(self, directory: str, cluster_id: str, node_id: int) -> DirectoryContents:
        self._locks[directory] = lock_directory(self.disk, directory)
        properties = read_properties(self.disk, directory, cluster_id, node_id)
        id = properties.directory_id
        if id is not None and any(
            contents.properties.directory_id == id for contents in self._taken.values()
        ):
            raise WrongDirectory(directory, f"directory id {id} is there twice")
        return read_contents(self.disk, directory, properties)

    def start(
        self,
        cluster_id: str,
        node_id: int,
        now_ms: int,
        config_of: Callable[[str], LogConfig] | None = None,
    ) -> None:
        """Take the directories, unless that is done, and open all logs. `config_of` gives the settings of a topic, if they
        are known already."""
        if not self._taken:
            self.take(cluster_id, node_id)
        clean_epochs = [found.clean_epoch for found in self._taken.values()]
        names = self._names_of_logs()
        for directory, found in self._taken.items():
            if directory not in names:
                continue
            try:
                self._identify(directory, found.properties)
                if found.clean_epoch is not None:
                    # The marker is durably removed before the first log is changed.
                    self.disk.remove(f"{directory}/{checkpoints.CLEAN_SHUTDOWN}")
                    self.disk.flush_dir(directory)
                self._open_logs(directory, names[directory], found, now_ms, config_of)
            except OSError as error:
                self.mark_offline(directory, error)
            except LogDirError as error:
                self.mark_offline(directory, error.cause)
        if len(self.offline_directories) == len(self.directories):
            cause = self.offline_directories[self.directories[0]]
            raise WrongDirectory(
                self.directories[0], f"no log directory is usable: {cause}"
            ) from cause
        first = clean_epochs[0]
        if not self.offline_directories and first is not None and set(clean_epochs) == {first}:
            self.previous_broker_epoch = first
            if first >= 0 and CleanShutdownRecognized in self._events:
                self._events.emit(CleanShutdownRecognized(tuple(self.directories), first))
        self._settle_futures(now_ms)
        self.look_for_room()
        self._is_open = True
        self.progress.is_complete = True

    def left_by_last_process(self, key: TopicPartition) -> list[str]:
        """The directories in which the last process left a log of that name, if it stopped cleanly: then it wrote down the
        recovery points of all of its logs."""
        return [path for path, found in self._taken.items() if key in found.recovery_points]

    def _names_of_logs(self) -> dict[str, list[str]]:
        """What lies in each directory that can be read."""
        names: dict[str, list[str]] = {}
        for directory in self._taken:
            try:
                names[directory] = self.disk.list_dir(directory)
            except OSError as error:
                self.mark_offline(directory, error)
                continue
            self.progress.total += sum(_owner_of(name) is not None for name in names[directory])
        return names

    def _identify(self, directory: str, properties: MetaProperties) -> None:
        if properties.directory_id is None:
            # Since it was taken, the node may have formatted it: a directory has one id, also as that of a voter.
            properties = read_properties(
                self.disk, directory, properties.cluster_id, properties.node_id
            )
        if properties.directory_id is None:
            properties = properties._replace(directory_id=self._new_id())
            path = f"{directory}/{checkpoints.META_PROPERTIES}"
            checkpoints.write_meta_properties(self.disk, path, properties)
        assert properties.directory_id is not None
        self.directory_ids[directory] = properties.directory_id

    def _open_logs(
        self,
        directory: str,
        names: list[str],
        found: DirectoryContents,
        now_ms: int,
        config_of: Callable[[str], LogConfig] | None,
    ) -> None:
        recovery_points = found.recovery_points
        here: dict[TopicPartition, Log] = {}
        self._checkpoints.found(directory, found)
        for name in names:
            path = f"{directory}/{name}"
            if name.endswith(DELETE_SUFFIX):
                self._deleted.add(path, now_ms, directory)
                continue
            key = _owner_of(name)
            if key is None:
                continue
            self.progress.done += 1
            if not self.disk.is_dir(path):
                continue
            if future_in(name) is not None:
                self._open_future(directory, name, key, found, now_ms, config_of)
                continue
            not_whole(self.disk, path)
            # Without a recovery point the other marks do not count: see OffsetCheckpoints.forget.
            is_marked = key in recovery_points
            high_watermark = found.high_watermarks.get(key, 0) if is_marked else 0
            try:
                log = Log.open(
                    self._resources,
                    directory,
                    key.topic,
                    key.partition,
                    self.defaults if config_of is None else config_of(key.topic),
                    recovery_point=recovery_points.get(key, 0),
                    log_start=found.log_starts.get(key, 0) if is_marked else 0,
                    clean=found.clean_epoch is not None,
                    now_ms=now_ms,
                    cleaned=found.cleaned.get(key),
                )
            except CorruptLog as error:
                promised = found.clean_epoch is not None or recovery_points.get(key, 0) > 0
                if promised or not self._discarded_if_empty(path):
                    self._found(key, Damaged(directory, error))
                continue
            log.set_high_watermark(high_watermark)
            if log.high_watermark < high_watermark:
                self._checkpoints.high_watermark_falls(log, log.high_watermark)
            here[key] = log
            self._found(key, log)
        if self.kept is not None:
            self.kept.found(directory, names)
            self.kept.settle(here)
        marks = self._marks[directory] = CommittedMarks(self.disk, directory)
        marks.start(here.values())

    def _open_future(
        self,
        directory: str,
        name: str,
        key: TopicPartition,
        found: DirectoryContents,
        now_ms: int,
        config_of: Callable[[str], LogConfig] | None,
    ) -> None:
        """Of a move that the last process did not finish. A damaged one is of no use: the log that it copies is there. Of
        two, a power loss brought one back that was deleted."""
        try:
            log = Log.open(
                resources_of_one(self.disk),
                directory,
                *key,
                self.defaults if config_of is None else config_of(key.topic),
                recovery_point=found.recovery_points.get(key, 0),
                log_start=found.log_starts.get(key, 0) if key in found.recovery_points else 0,
                clean=found.clean_epoch is not None,
                now_ms=now_ms,
                cleaned=found.cleaned.get(key),
                name=name,
            )
        except CorruptLog as error:
            logger.warning("future log is damaged, and removed path=%s cause=%s", error.path, error)
            self.disk.remove_tree(f"{directory}/{name}")
            return
        if key in self.futures:
            log.close(clean=False)
            self._deleted.add(log.mark_deleted(), now_ms, directory)
            return
        self._adopt_future(log)

    def _settle_futures(self, now_ms: int) -> None:
        """Where the current log is there, the copying goes on."""
        for key in list(self.futures):
            self._settle_future(key, now_ms)

    def _settle_future(self, key: TopicPartition, now_ms: int) -> None:
        current, future = self.logs.get(key), self.futures.get(key)
        if current is None or future is None:
            return
        if current.topic_id != future.topic_id or current.directory == future.directory:
            self.delete_future(key, now_ms)
            return
        try:
            not_whole(self.disk, future.path)
        except OSError as error:
            self.mark_offline(future.directory, error)

    def settle_doubles(
        self, key: TopicPartition, topic_id: UUID | None, directory: str | None, now_ms: int
    ) -> bool:
        """At the start: of the logs of one partition in several directories, that of this topic counts; of several, the one
        in this directory; else the longest. The others are set aside. Returns whether it is sure that none of them was to
        be used."""

        def rank(found: Log | Damaged) -> tuple[bool, bool, int]:
            is_there = found.directory == directory
            if isinstance(found, Damaged):
                return self._topic_id_in(found.directory, key) == topic_id, is_there, 0
            return found.topic_id == topic_id, is_there, found.log_end - found.log_start

        right, *others = sorted(self.doubles.pop(key), key=rank, reverse=True)
        for other in others:
            with suppress(LogDirError):
                path = self._set_aside(key, other, OUTDATED)
                logger.warning(
                    "stray log set aside, for you to remove partition=%s-%d path=%s cause=%s",
                    *key,
                    path,
                    OUTDATED,
                )
        self._found(key, right)
        self._settle_future(key, now_ms)
        is_of_topic, is_there, _ = rank(right)
        return is_there or all(rank(each)[0] != is_of_topic or not rank(each)[2] for each in others)

    def _topic_id_in(self, directory: str, key: TopicPartition) -> UUID | None:
        path = f"{directory}/{directory_name(*key)}/{checkpoints.PARTITION_METADATA}"
        with suppress(OSError, CorruptCheckpoint):
            return checkpoints.read_partition_metadata(self.disk, path)
        return None

    def _found(self, key: TopicPartition, found: Log | Damaged) -> None:
        if key in self.logs or key in self.corrupt:
            self.doubles[key] = [self._take_out(key)]
        if key in self.doubles:
            self.doubles[key].append(found)
        elif isinstance(found, Damaged):
            self._keep_out(key, found)
        else:
            self._adopt(found)

    def _keep_out(self, key: TopicPartition, found: Damaged) -> None:
        self._corrupt_in[key], self.corrupt[key] = found

    def _take_out(self, key: TopicPartition) -> Log | Damaged:
        if key in self.logs:
            return self._drop(key)
        return Damaged(self._corrupt_in.pop(key), self.corrupt.pop(key))

    def _discarded_if_empty(self, path: str) -> bool:
        """A power loss right after the creation may leave a directory without topic id and data. It is removed."""
        for name in self.disk.list_dir(path):
            if name.endswith(".log") and self.disk.file_size(f"{path}/{name}"):
                return False
        self.disk.remove_tree(path)
        return True

    def close(self, *, clean: bool, broker_epoch: int = -1) -> None:
        """Close all logs. A clean shutdown leaves the marker in each directory where everything succeeded. It needs all logs
        to have been opened: one that was not read is not known to be whole."""
        clean = clean and self._is_open and not self.doubles
        self._is_open = False
        if clean:
            self._flush_to_close()
        for log in [*self.logs.values(), *self.futures.values()]:
            log.close(clean=False)
            if log.failed is not None:
                # A flush may have failed in a thread just before: then the directory is not clean.
                self.mark_offline(log.directory, log.failed.cause)
        if clean:
            self.checkpoint()
            for directory in self._online():
                try:
                    checkpoints.write_clean_shutdown(
                        self.disk, f"{directory}/{checkpoints.CLEAN_SHUTDOWN}", broker_epoch
                    )
                except OSError as error:
                    self.mark_offline(directory, error)
        for marks in self._marks.values():
            marks.close()
        self.logs.clear()
        self.futures.clear()
        self._unlock()

    def _flush_to_close(self) -> None:
        logs = iter([*self.logs.values(), *self.futures.values()])
        while some := list(islice(logs, LOGS_AT_ONCE)):
            plan = FlushPlan(self.disk)
            for log in some:
                if log.failed is None:
                    try:
                        plan.add(log, log.closing_plan())
                    except LogDirError as error:
                        self.mark_offline(error.directory, error.cause)
            plan.run()
            self.flushed(plan)

    def _unlock(self) -> None:
        for lock in self._locks.values():
            lock.close()
        self._locks.clear()

    # Logs

    def create(
        self,
        topic: str,
        topic_id: UUID,
        partition: int,
        config: LogConfig,
        now_ms: int,
        *,
        directory: str | None = None,
        log_start: int = 0,
    ) -> Log:
        """A new log in `directory`, or in the directory with the fewest logs. A corrupt log of this partition is set aside,
        and the broker fills the new one from another replica."""
        if _TOPIC.fullmatch(topic) is None or topic in (".", "..") or partition < 0:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic}-{partition} is no partition's name"
            )
        key = TopicPartition(topic, partition)
        assert key not in self.logs, key
        if key in self.corrupt:
            self.set_aside(key)
        if directory is None:
            directory = self._emptiest()
        self._forget_marks(directory, key)
        try:
            log = Log.create(
                self._resources,
                directory,
                topic,
                partition,
                config,
                topic_id=topic_id,
                now_ms=now_ms,
                log_start=log_start,
                has_directory=self._take_directory(key, directory),
            )
            self._mark(log)
        except LogDirError as error:
            self.mark_offline(error.directory, error.cause)
            raise
        self._adopt(log)
        return log

    def directories_plan(
        self, wanted: Iterable[tuple[TopicPartition, UUID, str | None]]
    ) -> DirectoriesPlan:
        """Directories for logs that will be created next, each with its topic id and log directory (None: the manager's
        choice). `run` of the plan may be called in a thread, then `directories_made`. It leaves out logs for which more has
        to be decided."""
        plan = DirectoriesPlan(self.disk)
        online = self._online()
        for key, topic_id, directory in wanted:
            if directory is None and len(online) == 1:
                directory = online[0]
            if directory in online and key not in self.logs and key not in self.corrupt:
                try:
                    if self._checkpoints.forget(directory, key):
                        self.checkpoint()
                except OSError as error:
                    self.mark_offline(directory, error)
                    break
                plan.add(key, directory, topic_id)
        return plan

    def directories_made(self, plan: DirectoriesPlan) -> None:
        self._new_directories.update(plan.made)

    def _take_directory(self, key: TopicPartition, directory: str) -> bool:
        """Whether that of a new log is made there. One that lies elsewhere will be abandoned: the log is wanted in another
        directory since."""
        path = f"{directory}/{directory_name(*key)}"
        if self._new_directories.get(key) != path:
            return False
        del self._new_directories[key]
        return True

    def _forget_marks(self, directory: str, key: TopicPartition) -> None:
        """Those that a deleted log of this name left there, before a new one comes."""
        try:
            if self._checkpoints.forget(directory, key):
                self.checkpoint()
        except OSError as error:
            self.mark_offline(directory, error)
            raise LogDirError(directory, error) from error

    def abandon_directory(self, key: TopicPartition) -> None:
        """The log is not wanted any more."""
        path = self._new_directories.pop(key, None)
        if path is not None:
            with suppress(OSError):
                self.disk.remove_tree(path)

    def _mark(self, log: Log) -> None:
        try:
            self._marks[log.directory].add(log)
        except OSError as error:
            log.fail(error)

    def delete(self, key: TopicPartition, now_ms: int) -> None:
        """The log is deleted at once, its files after file.delete.delay.ms."""
        log = self._drop(key)
        self._marks[log.directory].remove(log)
        try:
            path = log.mark_deleted()
        except LogDirError as error:
            self.mark_offline(error.directory, error.cause)
            raise
        self._deleted.add(path, now_ms + log.config.file_delete_delay_ms, log.directory)

    def _adopt(self, log: Log) -> None:
        log.before_recovery_point_falls = self._checkpoints.recovery_point_falls
        log.before_high_watermark_falls = self._checkpoints.high_watermark_falls
        log.before_gaps = self._checkpoints.gaps_come
        log.on_unsettled = self._unsettled
        log.keeper = self.kept
        log.room = self.rooms[log.directory]
        self.logs[log.key] = log
        self._count(log, 1)
        self._unsettled(log)

    def _drop(self, key: TopicPartition) -> Log:
        log = self.logs.pop(key)
        self._count(log, -1)
        return log

    def _count(self, log: Log, change: int) -> None:
        # Where a log lies must not depend on when the cluster created its event log.
        if log.topic not in UNLISTED_TOPICS:
            self._counts[log.directory] += change

    def _unsettled(self, log: Log) -> None:
        self.unsettled[log] = None

    def _emptiest(self) -> str:
        online = self._online()
        if not online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no log directory is online")
        open_ones = [directory for directory in online if directory not in self.cordoned]
        if not open_ones:
            return online[0]  # the controller gave us the replica before it knew
        return min(open_ones, key=lambda directory: self._counts[directory])

    # Moving to another directory

    def create_future(self, current: Log, directory: str, now_ms: int) -> Log:
        """An empty log in `directory`, to be filled with what the current one holds and then `promote`d."""
        key = current.key
        assert key not in self.futures and directory != current.directory, (key, directory)
        self._forget_marks(directory, key)
        try:
            log = Log.create(
                resources_of_one(self.disk),
                directory,
                *key,
                current.config,
                topic_id=current.topic_id,
                now_ms=now_ms,
                log_start=current.log_start,
                name=future_name(key, self._new_id().hex),
            )
        except LogDirError as error:
            self.mark_offline(error.directory, error.cause)
            raise
        self.preferred.pop(key, None)
        self._adopt_future(log)
        current.generation += 1  # a round of compaction that is under way ends
        return log

    def _adopt_future(self, log: Log) -> None:
        log.before_recovery_point_falls = self._checkpoints.recovery_point_falls
        log.before_high_watermark_falls = self._checkpoints.high_watermark_falls
        log.before_gaps = self._checkpoints.gaps_come
        self.futures[log.key] = log
        self._count(log, 1)
        log.resources.files.forget_all()  # it may wait for its turn for long, with thousands of others

    def _drop_future(self, key: TopicPartition) -> Log:
        log = self.futures.pop(key)
        self._count(log, -1)
        return log

    def delete_future(self, key: TopicPartition, now_ms: int) -> None:
        """It is not wanted any more. Durably: nothing else would tell the next process so."""
        log = self._drop_future(key)
        try:
            path = log.mark_deleted()
            self.disk.flush_dir(log.directory)
        except LogDirError as error:
            self.mark_offline(error.directory, error.cause)
            return
        except OSError as error:
            self.mark_offline(log.directory, error)
            return
        self._deleted.add(path, now_ms, log.directory)

    def abandon_future(self, key: TopicPartition) -> None:
        """Its files stay: the log that it copies may be back after a restart."""
        self._drop_future(key).close(clean=False)

    def promote(self, key: TopicPartition, now_ms: int) -> Log:
        """The future log takes the place of the current one; it must hold the same. LogDirError if a disk fails: then it is
        offline, and if it is not its own, the current log goes on."""
        current, future = self.logs[key], self.futures[key]
        assert future.recovery_point >= current.recovery_point, (current, future)
        try:
            deleted = take_place(current, future)
        except LogDirError as error:
            self.mark_offline(error.directory, error.cause)
            raise
        take_over(current, future)
        current.retire()
        current.moved_to(deleted)
        self._drop(key)
        self._marks[current.directory].remove(current)
        self._deleted.add(deleted, now_ms + current.config.file_delete_delay_ms, current.directory)
        self._begin_to_use(future)
        return future

    def promote_alone(self, key: TopicPartition) -> Log:
        """At the start: the current log is gone, and the future one has its records."""
        assert key not in self.logs, key
        future = self.futures[key]
        try:
            name_promoted(future)
        except OSError as error:
            self.mark_offline(future.directory, error)
            raise LogDirError(future.directory, error) from error
        self._begin_to_use(future)
        return future

    def _begin_to_use(self, future: Log) -> None:
        self._drop_future(future.key)
        future.moved_to(f"{future.directory}/{directory_name(*future.key)}")
        share(future, self._resources)
        self._adopt(future)
        with suppress(LogDirError):  # the next append says it
            self._mark(future)
            if future.mark is not None:
                future.mark.write(future.committed_end, future.epochs.entries)
        try:
            if future.cleaned is not None:
                self._checkpoints.write_cleaned_of(future)
        except OSError as error:
            self.mark_offline(future.directory, error)
            raise LogDirError(future.directory, error) from error

    def set_aside(self, key: TopicPartition, why: str = "it is damaged") -> str:
        """Rename a log that is corrupt or not wanted here, and keep it for an operator. Returns its new path."""
        return self._set_aside(key, self._take_out(key), why)

    def _set_aside(self, key: TopicPartition, found: Log | Damaged, why: str) -> str:
        log = None if isinstance(found, Damaged) else found
        if log is not None:
            self._marks[log.directory].remove(log)
            log.close(clean=False)
        path = f"{found.directory}/{directory_name(*key)}"
        return self._rename_aside(key, found.directory, path, log, why)

    def set_future_aside(self, key: TopicPartition, why: str) -> str:
        """The same with a future log that is all there is of its partition here."""
        log = self._drop_future(key)
        log.close(clean=False)
        return self._rename_aside(key, log.directory, log.path, log, why)

    def _rename_aside(
        self, key: TopicPartition, directory: str, path: str, log: Log | None, why: str
    ) -> str:
        name = directory_name(*key)
        id = self._new_id().hex
        suffix = f".{id}{STRAY_SUFFIX}"
        target = f"{directory}/{name[: NAME_BYTES_MAX - len(suffix)]}{suffix}"
        try:
            if log is not None and self.kept is not None:
                self.kept.stray(log, id, target, why)
            self.disk.rename(path, target)
            self.disk.flush_dir(directory)
        except OSError as error:
            self.mark_offline(directory, error)
            raise LogDirError(directory, error) from error
        if LogSetAside in self._events:
            kept = id if self.kept is not None and id in self.kept.kept else None
            self._events.emit(LogSetAside(key, directory, target, kept))
        return target

    # Failing

    def found_corrupt(self, key: TopicPartition, why: str) -> None:
        """A log in use is damaged. From now on it is treated as if the start had found the damage."""
        log = self._drop(key)
        self._marks[log.directory].remove(log)
        log.close(clean=False)
        self._keep_out(key, Damaged(log.directory, CorruptLog(log.path, why)))

    def _online(self) -> list[str]:
        return [found for found in self.directories if found not in self.offline_directories]

    def mark_offline(self, directory: str, cause: Exception) -> None:
        """The disk of this directory failed. Its logs are dropped, and nothing in it is read or written again."""
        if directory in self.offline_directories:
            return
        self.offline_directories[directory] = cause
        lost = [key for key, log in self.logs.items() if log.directory == directory]
        for key in [key for key, log in self.futures.items() if log.directory == directory]:
            log = self._drop_future(key)
            if isinstance(cause, OSError) and log.failed is None:
                log.failed = LogDirError(directory, cause)
            log.close(clean=False)
        for key in lost:
            log = self._drop(key)
            if isinstance(cause, OSError) and log.failed is None:
                log.failed = LogDirError(directory, cause)
            log.close(clean=False)
        for key in [key for key, place in self._corrupt_in.items() if place == directory]:
            del self.corrupt[key], self._corrupt_in[key]
        self._forget_doubles(directory)
        self._deleted.forget(directory)
        if self.kept is not None:
            self.kept.directory_failed(directory)
        if LogDirectoryFailed in self._events:
            self._events.emit(LogDirectoryFailed(directory, str(cause), tuple(lost)))
        for callback in self.on_offline:
            callback(directory, lost)

    def _forget_doubles(self, directory: str) -> None:
        for key, found in list(self.doubles.items()):
            self.doubles[key] = [each for each in found if each.directory != directory]
            if not self.doubles[key]:
                del self.doubles[key]

    def _room_changed(self, room: DirectoryRoom) -> None:
        if LogDirectoryRoomChanged in self._events:
            self._events.emit(
                LogDirectoryRoomChanged(
                    room.directory, room.level.name.lower(), room.free, room.total
                )
            )
        for callback in list(self.on_room):
            callback(room)

    # Work in the background

    def look_for_room(self) -> None:
        """What others write to the same disks, or remove from them, shows only so."""
        for directory in self._online():
            self.rooms[directory].look()

    def flush_plan(self, logs: Iterable[Log]) -> FlushPlan:
        """Flush these. `run` of the plan may be called in a thread, then `flushed`."""
        plan = FlushPlan(self.disk)
        for log in logs:
            if log.failed is not None:
                continue
            try:
                plan.add(log, log.flush_plan())
            except LogDirError as error:
                self.mark_offline(error.directory, error.cause)
        return plan

    def identity_plan(self, logs: Iterable[Log]) -> IdentityPlan:
        """Make durable soon after the creation of these logs that they exist, and their topic ids: without these their data
        is worthless after a crash. `run` of the plan may be called in a thread, then `flushed`."""
        return IdentityPlan(self.disk, logs)

    def flushed(self, plan: FlushPlan | IdentityPlan) -> None:
        for failure in plan.carried_out():
            self.mark_offline(failure.directory, failure.cause)

    def checkpoint(self) -> None:
        """Write the marks of all logs to the checkpoint files of their directories."""
        plan = self.checkpoint_plan()
        plan.run()
        self.checkpointed(plan)

    def checkpoint_plan(self) -> CheckpointPlan:
        """The same in two parts: `run` of the plan may be called in a thread, then `checkpointed`."""
        return self._checkpoints.plan(self._online())

    def checkpointed(self, plan: CheckpointPlan) -> None:
        self._checkpoints.carried_out(plan)
        for log, _ in plan.epochs:
            successor = self.logs.get(log.key)
            if log.gone and successor is not None:
                # The thread may have been in the midst of writing the deleted log's epochs when this one was created.
                successor.epochs.dirty = True
        for directory, error in plan.failures.items():
            self.mark_offline(directory, error)
        if self._checkpoints.needs_another(plan):
            self.checkpoint()

    def next_compaction(
        self, now_ms: int, keys_max: int, busy: Collection[Log] = ()
    ) -> tuple[Log, Compaction] | None:
        """A round over the dirtiest log that does not move and has room for it; None if no log is dirty enough. Its `steps` may run in a thread. The caller gives
        each Replacement to `Log.replace`, and calls `compacted` at the end."""
        found = cleaner.dirtiest(
            (log for log in self.logs.values() if log not in busy and log.key not in self.futures),
            now_ms,
        )
        if found is None:
            return None
        log, to_clean = found
        round = cleaner.round_of(log, to_clean, now_ms)
        return log, Compaction(self.disk, self._resources.files, round, keys_max)

    def compacted(self, log: Log, compaction: Compaction) -> None:
        log.cleaned = compaction.cleaned_up_to
        try:
            self._checkpoints.write_cleaned_of(log)
        except OSError as error:
            self.mark_offline(log.directory, error)
            return
        if LogCompacted in self._events:
            self._events.emit(
                LogCompacted(
                    log.key,
                    log.directory,
                    compaction.cleaned_up_to,
                    compaction.bytes_read,
                    compaction.bytes_kept,
                )
            )

    def retention(self, now_ms: int) -> dict[TopicPartition, int]:
        """Drop old segments and silent producers. Returns how many segments of which logs."""
        dropped: dict[TopicPartition, int] = {}
        for key, log in list(self.logs.items()):
            if log.failed is not None:
                continue
            log.producers.expire(now_ms, self.producer_id_expiration_ms)
            try:
                count = log.delete_old_segments(now_ms)
            except LogDirError as error:
                self.mark_offline(error.directory, error.cause)
                continue
            if count:
                dropped[key] = count
        return dropped

    def removal_plan(self, now_ms: int) -> RemovalPlan:
        """The files of dropped segments and deleted logs whose delay is over. `run` of the plan may be called in a thread,
        then `removed`."""
        plan = RemovalPlan(self.disk)
        for log in self.logs.values():
            if log.failed is None:
                plan.files.update(dict.fromkeys(log.doomed_by(now_ms), log.directory))
        if self.kept is not None:
            self._expire_kept(self.kept, now_ms)
        plan.trees = self._deleted.take_due(now_ms)
        return plan

    def _expire_kept(self, kept: KeptRecords, now_ms: int) -> None:
        for directory in self._online():
            try:
                kept.expire(directory, now_ms)
            except OSError as error:
                self.mark_offline(directory, error)

    def removed(self, plan: RemovalPlan) -> None:
        for directory, error in plan.failures.items():
            self.mark_offline(directory, error)
