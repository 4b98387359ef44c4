"""All logs of one broker, over one or several log directories.

A directory is locked for one process and belongs to one node of one cluster (`meta.properties`). The logs
in it are opened in order after a clean stop and recovered otherwise. A directory whose disk fails goes
offline with its logs and the others live on; a single log that lost flushed data is kept out (`corrupt`)
until the broker has a peer to rebuild it from.
"""

from __future__ import annotations

import errno
import re
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from posixpath import dirname
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ottla.log import checkpoints, cleaner
from ottla.log.checkpoints import MetaProperties
from ottla.log.compaction import Compaction
from ottla.log.config import LogConfig
from ottla.log.errors import CorruptCheckpoint, CorruptLog, LogDirError, WrongDirectory
from ottla.log.log import DELETE_SUFFIX, NAME_BYTES_MAX, Log, directory_name
from ottla.log.segment import OpenFiles
from ottla.runtime.seams import Disk, File
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.internal_topics import CLUSTER_METADATA_TOPIC
from ottla.wire.types import TopicPartition

LOCK = ".lock"
"""The quorum's own log lies beside the others and belongs to it alone."""
STRAY_SUFFIX = "-stray"
OPEN_FILES_MAX = 512
"""Fits the usual limit of 1,024 descriptors; a node that may open more should say so."""
PRODUCER_ID_EXPIRATION_MS = 24 * 60 * 60 * 1000

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PARTITION_DIRECTORY = re.compile(r"([A-Za-z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")


def make_directory(disk: Disk, path: str) -> None:
    """With all directories above it, their names on disk: nothing in them survives a power loss else."""
    made = []
    while not disk.is_dir(path):
        made.append(path)
        path = dirname(path) or "."
    if made:
        disk.make_dirs(made[0])
    for each in made:
        disk.flush_dir(dirname(each) or ".")


Marks: TypeAlias = tuple[dict[TopicPartition, int], dict[TopicPartition, int]]
"""The high watermarks of a directory, and the log starts that its files do not show."""


@dataclass(slots=True)
class Checkpoint:
    """What is to be written of all logs' marks."""

    disk: Disk
    marks: dict[str, Marks] = field(default_factory=dict)
    epochs: list[tuple[Log, Callable[[], None]]] = field(default_factory=list)
    renewed: set[TopicPartition] = field(default_factory=set)
    """Logs whose marks on disk may be those of a deleted one, until this is done."""
    failures: dict[str, OSError] = field(default_factory=dict)
    """By directory."""

    def run(self) -> None:
        for log, write in self.epochs:
            try:
                write()
            except OSError as error:
                if not log.gone:  # a log deleted meanwhile needs no checkpoint
                    self.failures[log.directory] = error
        for directory, (high_watermarks, log_starts) in self.marks.items():
            for name, offsets in (
                (checkpoints.LOG_STARTS, log_starts),
                (checkpoints.HIGH_WATERMARKS, high_watermarks),
            ):
                try:
                    checkpoints.write_offsets(self.disk, f"{directory}/{name}", offsets)
                except OSError as error:
                    self.failures[directory] = error


@dataclass
class Removal:
    """Files of dropped segments and directories of deleted logs that are to go, each with its log directory."""

    disk: Disk
    files: dict[str, str] = field(default_factory=dict)
    trees: dict[str, str] = field(default_factory=dict)
    failures: dict[str, OSError] = field(default_factory=dict)
    """By log directory."""

    def __bool__(self) -> bool:
        return bool(self.files or self.trees)

    def run(self) -> None:
        for remove, paths in ((self.disk.remove, self.files), (self.disk.remove_tree, self.trees)):
            for path, directory in paths.items():
                try:
                    remove(path)
                except FileNotFoundError:
                    pass  # its log was deleted meanwhile, and has another name
                except OSError as error:
                    self.failures[directory] = error


class _Found(NamedTuple):
    """What a directory says of itself before anything in it is touched."""

    properties: MetaProperties
    clean_epoch: int | None
    """Of the clean stop before this start; None if it was none."""
    recovery_points: dict[TopicPartition, int]
    high_watermarks: dict[TopicPartition, int]
    log_starts: dict[TopicPartition, int]
    cleaned: dict[TopicPartition, int]


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
    ) -> None:
        assert directories and len(set(directories)) == len(directories), directories
        self.directories = list(directories)
        self.defaults = defaults
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.directory_ids: dict[str, UUID] = {}
        self.logs: dict[TopicPartition, Log] = {}
        self.unsettled: dict[Log, None] = {}
        """Those in which a flush may become due by itself. Of many idle logs it holds none."""
        self.corrupt: dict[TopicPartition, CorruptLog] = {}
        self.offline_directories: dict[str, Exception] = {}
        self.on_offline: list[Callable[[str, list[TopicPartition]], None]] = []
        """Called with the directory and the logs that went with it."""
        self.previous_broker_epoch = -1
        """Of the clean stop before this start; -1 if it was none."""
        self._disk = disk
        self._new_id = new_id
        self._files = OpenFiles(disk, open_files_max)
        self._locks: dict[str, File] = {}
        self._taken: dict[str, _Found] = {}
        self._is_open = False
        self._corrupt_in: dict[TopicPartition, str] = {}
        self._doomed: dict[str, tuple[int, str]] = {}
        """When the files of a deleted log go, and its directory, by path. A partition that comes back and goes
        again before then has one path: its newer files take the place of the older."""
        self._recovery_points: dict[str, dict[TopicPartition, int]] = {}
        """As they lie on disk, by directory."""
        self._cleaned: dict[str, dict[TopicPartition, int]] = {}
        """How far logs are compacted, as it lies on disk, by directory. Each log that may have gaps has its
        place there."""
        self._marks: dict[str, Marks] = {}
        """As they were written last."""
        self._checkpointed: dict[str, set[TopicPartition]] = {}
        """Whose marks lie on disk, by directory: possibly those of a log that is deleted by now."""
        self._plan_under_way = False
        self._renewed: set[TopicPartition] = set()
        """Logs that took the place of deleted ones, whose marks may lie on disk still."""
        self._stale_marks = False

    # Starting and stopping

    def take(self, cluster_id: str, node_id: int) -> None:
        """Lock the directories and read what they say of themselves; nothing is written yet. A directory
        that cannot be read is offline. WrongDirectory if one is not ours to take, or none is usable;
        CorruptCheckpoint if one of the files on which everything rests is damaged."""
        assert not self._taken
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

    def _take(self, directory: str, cluster_id: str, node_id: int) -> _Found:
        if self._disk.exists(directory) and not self._disk.is_dir(directory):
            raise NotADirectoryError(errno.ENOTDIR, "it is not a directory", directory)
        make_directory(self._disk, directory)
        try:
            self._locks[directory] = self._disk.lock(f"{directory}/{LOCK}")
        except BlockingIOError as error:
            raise WrongDirectory(directory, "another process uses it") from error
        properties = MetaProperties(cluster_id, node_id, None)
        path = f"{directory}/{checkpoints.META_PROPERTIES}"
        if self._disk.exists(path):
            properties = checkpoints.read_meta_properties(self._disk, path)
        if properties.cluster_id != cluster_id:
            raise WrongDirectory(
                directory, f"it belongs to cluster {properties.cluster_id}, this is {cluster_id}"
            )
        if properties.node_id != node_id:
            raise WrongDirectory(
                directory, f"it belongs to node {properties.node_id}, this is {node_id}"
            )
        id = properties.directory_id
        if id is not None and any(
            found.properties.directory_id == id for found in self._taken.values()
        ):
            raise WrongDirectory(directory, f"directory id {id} is there twice")
        disk = self._disk
        return _Found(
            properties,
            checkpoints.read_clean_shutdown(disk, f"{directory}/{checkpoints.CLEAN_SHUTDOWN}"),
            checkpoints.read_offsets(disk, f"{directory}/{checkpoints.RECOVERY_POINTS}"),
            checkpoints.read_offsets(disk, f"{directory}/{checkpoints.HIGH_WATERMARKS}"),
            checkpoints.read_offsets(disk, f"{directory}/{checkpoints.LOG_STARTS}"),
            checkpoints.read_cleaned(disk, f"{directory}/{checkpoints.CLEANED_OFFSETS}"),
        )

    def start(
        self,
        cluster_id: str,
        node_id: int,
        now_ms: int,
        config_of: Callable[[str], LogConfig] | None = None,
    ) -> None:
        """Take the directories, if that was not done yet, and open all logs, with the topics' settings
        where they are known already."""
        if not self._taken:
            self.take(cluster_id, node_id)
        clean_epochs = [found.clean_epoch for found in self._taken.values()]
        for directory, found in self._taken.items():
            try:
                self._identify(directory, found.properties)
                if found.clean_epoch is not None:
                    # The marker is gone for good before the first log is touched.
                    self._disk.remove(f"{directory}/{checkpoints.CLEAN_SHUTDOWN}")
                    self._disk.flush_dir(directory)
                self._open_logs(directory, found, now_ms, config_of)
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
        self._is_open = True

    def _identify(self, directory: str, properties: MetaProperties) -> None:
        if properties.directory_id is None:
            properties = properties._replace(directory_id=self._new_id())
            path = f"{directory}/{checkpoints.META_PROPERTIES}"
            checkpoints.write_meta_properties(self._disk, path, properties)
        assert properties.directory_id is not None
        self.directory_ids[directory] = properties.directory_id

    def _open_logs(
        self,
        directory: str,
        found: _Found,
        now_ms: int,
        config_of: Callable[[str], LogConfig] | None,
    ) -> None:
        recovery_points = found.recovery_points
        self._recovery_points[directory] = recovery_points
        self._cleaned[directory] = found.cleaned
        self._marks[directory] = found.high_watermarks, found.log_starts
        self._checkpointed[directory] = {
            *recovery_points,
            *found.high_watermarks,
            *found.log_starts,
        }
        for name in self._disk.list_dir(directory):
            path = f"{directory}/{name}"
            if name.endswith(DELETE_SUFFIX):
                self._doomed[path] = now_ms, directory
                continue
            match = _PARTITION_DIRECTORY.fullmatch(name)
            if match is None or match[1] == CLUSTER_METADATA_TOPIC or not self._disk.is_dir(path):
                continue
            key = TopicPartition(match[1], int(match[2]))
            if key in self.logs or key in self.corrupt:
                raise WrongDirectory(directory, f"{key} lies in two log directories")
            # A log has a recovery point before its other marks count: see _forget_marks.
            is_marked = key in recovery_points
            high_watermark = found.high_watermarks.get(key, 0) if is_marked else 0
            try:
                log = Log.open(
                    self._disk,
                    directory,
                    key.topic,
                    key.partition,
                    self.defaults if config_of is None else config_of(key.topic),
                    recovery_point=recovery_points.get(key, 0),
                    log_start=found.log_starts.get(key, 0) if is_marked else 0,
                    clean=found.clean_epoch is not None,
                    now_ms=now_ms,
                    cleaned=found.cleaned.get(key),
                    files=self._files,
                )
            except CorruptLog as error:
                promised = found.clean_epoch is not None or recovery_points.get(key, 0) > 0
                if promised or not self._discarded_if_empty(path):
                    self.corrupt[key] = error
                    self._corrupt_in[key] = directory
                continue
            log.set_high_watermark(high_watermark)
            if log.high_watermark < high_watermark:
                self._high_watermark_falls(log, log.high_watermark)
            self._adopt(log)

    def _discarded_if_empty(self, path: str) -> bool:
        """A power loss right after the creation may leave a directory without identity or data, which is
        as good as none."""
        for name in self._disk.list_dir(path):
            if name.endswith(".log") and self._disk.file_size(f"{path}/{name}"):
                return False
        self._disk.remove_tree(path)
        return True

    def close(self, *, clean: bool, broker_epoch: int = -1) -> None:
        """Close all logs; a clean stop leaves the marker in each directory where all went well. Logs that
        were not all opened cannot be closed cleanly: what was not looked at is not known to be whole."""
        clean = clean and self._is_open
        self._is_open = False
        for log in list(self.logs.values()):
            try:
                log.close(clean=clean)
            except LogDirError as error:
                self.mark_offline(error.directory, error.cause)
            if log.failed is not None:
                # Also when a flush failed in a thread just before: then nothing here is clean.
                self.mark_offline(log.directory, log.failed.cause)
        if clean:
            self.checkpoint()
            for directory in self._online():
                try:
                    checkpoints.write_clean_shutdown(
                        self._disk, f"{directory}/{checkpoints.CLEAN_SHUTDOWN}", broker_epoch
                    )
                except OSError as error:
                    self.mark_offline(directory, error)
        self.logs.clear()
        self._unlock()

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
        """A new log in `directory`, or in the one with the fewest. One that is corrupt is set aside, for
        the broker to fill the new one from a peer."""
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
        try:
            self._forget_marks(directory, key)
        except OSError as error:
            self.mark_offline(directory, error)
            raise LogDirError(directory, error) from error
        try:
            log = Log.create(
                self._disk,
                directory,
                topic,
                partition,
                config,
                topic_id=topic_id,
                now_ms=now_ms,
                log_start=log_start,
                files=self._files,
            )
        except LogDirError as error:
            self.mark_offline(error.directory, error.cause)
            raise
        self._adopt(log)
        return log

    def delete(self, key: TopicPartition, now_ms: int) -> None:
        """The log is gone at once; its files follow after file.delete.delay.ms."""
        log = self.logs.pop(key)
        try:
            path = log.mark_deleted()
        except LogDirError as error:
            self.mark_offline(error.directory, error.cause)
            raise
        self._doomed[path] = now_ms + log.config.file_delete_delay_ms, log.directory

    def _forget_marks(self, directory: str, key: TopicPartition) -> None:
        """A new log must not begin with the marks of a deleted one of the same name. Its recovery point is gone at
        once, and comes back when the other marks are its own; without one they do not count."""
        if key in self._cleaned.get(directory, {}):
            self._write_cleaned(directory, self._cleaned_without(directory, key))
        if key not in self._checkpointed.get(directory, ()):
            return
        recovery_points = dict(self._recovery_points.get(directory, {}))
        if recovery_points.pop(key, None) is not None:
            self._write_recovery_points(directory, recovery_points)
        self._renewed.add(key)
        self._stale_marks = True
        if not self._plan_under_way:
            self.checkpoint()

    def _adopt(self, log: Log) -> None:
        log.before_recovery_point_falls = self._recovery_point_falls
        log.before_high_watermark_falls = self._high_watermark_falls
        log.before_gaps = self._gaps_come
        log.on_unsettled = self._unsettled
        self.logs[log.key] = log
        self._unsettled(log)

    def _unsettled(self, log: Log) -> None:
        self.unsettled[log] = None

    def _emptiest(self) -> str:
        online = self._online()
        if not online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no log directory is online")
        if len(online) == 1:
            return online[0]
        counts = Counter(log.directory for log in self.logs.values())
        return min(online, key=lambda directory: counts[directory])

    def set_aside(self, key: TopicPartition) -> str:
        """Keep a log that is of no use here, corrupt or not, under another name for a human to look at.
        Its new path."""
        log = self.logs.pop(key, None)
        if log is None:
            directory = self._corrupt_in.pop(key)
            del self.corrupt[key]
        else:
            directory = log.directory
            log.close(clean=False)
        name = directory_name(key.topic, key.partition)
        suffix = f".{self._new_id().hex}{STRAY_SUFFIX}"
        target = f"{directory}/{name[: NAME_BYTES_MAX - len(suffix)]}{suffix}"
        try:
            self._disk.rename(f"{directory}/{name}", target)
            self._disk.flush_dir(directory)
        except OSError as error:
            self.mark_offline(directory, error)
            raise LogDirError(directory, error) from error
        return target

    # Failing

    def found_corrupt(self, key: TopicPartition, why: str) -> None:
        """A log that is in use turned out to be damaged: from now on as if the start had found it."""
        log = self.logs.pop(key)
        log.close(clean=False)
        self.corrupt[key] = CorruptLog(log.path, why)
        self._corrupt_in[key] = log.directory

    def _online(self) -> list[str]:
        return [found for found in self.directories if found not in self.offline_directories]

    def mark_offline(self, directory: str, cause: Exception) -> None:
        """Its disk failed: its logs are dropped, nothing there is touched again."""
        if directory in self.offline_directories:
            return
        self.offline_directories[directory] = cause
        lost = [key for key, log in self.logs.items() if log.directory == directory]
        for key in lost:
            log = self.logs.pop(key)
            if isinstance(cause, OSError) and log.failed is None:
                log.failed = LogDirError(directory, cause)
            log.close(clean=False)
        for key in [key for key, place in self._corrupt_in.items() if place == directory]:
            del self.corrupt[key], self._corrupt_in[key]
        self._doomed = {
            path: doomed for path, doomed in self._doomed.items() if doomed[1] != directory
        }
        for callback in self.on_offline:
            callback(directory, lost)

    # Work in the background

    def checkpoint(self) -> None:
        """Write the marks of all logs to the checkpoint files of their directories."""
        plan = self.checkpoint_plan()
        plan.run()
        self.checkpointed(plan)

    def checkpoint_plan(self) -> Checkpoint:
        """The same in two parts: `run` of the plan may be called in a thread, `checkpointed` afterwards.
        Recovery points are written here and now, since nothing may delay one that has to fall."""
        plan = Checkpoint(self._disk, renewed=set(self._renewed))
        self._plan_under_way = True
        self._stale_marks = False
        for directory in self._online():
            # A corrupt log keeps its own: a start that did not know what was flushed would cut it.
            recovery_points = {
                key: offset
                for key, offset in self._recovery_points.get(directory, {}).items()
                if self._corrupt_in.get(key) == directory
            }
            high_watermarks: dict[TopicPartition, int] = {}
            log_starts: dict[TopicPartition, int] = {}
            for key, log in self.logs.items():
                if log.directory == directory:
                    if key not in plan.renewed:
                        recovery_points[key] = log.recovery_point
                    high_watermarks[key] = log.high_watermark
                    if log.log_start > log.segments[0].base:
                        log_starts[key] = log.log_start
            marks = (high_watermarks, log_starts)
            if self._marks.get(directory) != marks:  # an idle broker leaves its disk alone
                plan.marks[directory] = marks
            self._checkpointed[directory] = {*recovery_points, *high_watermarks}
            try:
                self._write_recovery_points(directory, recovery_points)
            except OSError as error:
                plan.failures[directory] = error
        for log in [log for log in self.logs.values() if log.epochs.dirty]:
            write = log.epochs_plan()
            if write is not None:
                plan.epochs.append((log, write))
        return plan

    def checkpointed(self, plan: Checkpoint) -> None:
        self._plan_under_way = False
        for log, _ in plan.epochs:
            log.epochs_written()
        self._marks.update(plan.marks)
        for directory, error in plan.failures.items():
            self.mark_offline(directory, error)
        self._renewed -= plan.renewed
        if self._stale_marks or plan.renewed & self.logs.keys():
            self.checkpoint()

    def _write_recovery_points(
        self, directory: str, recovery_points: dict[TopicPartition, int]
    ) -> None:
        if self._recovery_points.get(directory) != recovery_points:
            path = f"{directory}/{checkpoints.RECOVERY_POINTS}"
            checkpoints.write_offsets(self._disk, path, recovery_points)
            self._recovery_points[directory] = recovery_points

    def _recovery_point_falls(self, log: Log, offset: int) -> None:
        lowered = dict(self._recovery_points.get(log.directory, {}))
        if lowered.get(log.key, 0) > offset:
            lowered[log.key] = offset
            self._write_recovery_points(log.directory, lowered)
        if log.cleaned is not None:
            self.checkpoint_cleaned(log)

    def _high_watermark_falls(self, log: Log, offset: int) -> None:
        high_watermarks, log_starts = self._marks.get(log.directory, ({}, {}))
        if high_watermarks.get(log.key, 0) > offset:
            lowered = {**high_watermarks, log.key: offset}
            path = f"{log.directory}/{checkpoints.HIGH_WATERMARKS}"
            checkpoints.write_offsets(self._disk, path, lowered)
            self._marks[log.directory] = lowered, log_starts
        # A plan that is under way may write the old one after this.
        self._stale_marks |= self._plan_under_way

    def _gaps_come(self, log: Log) -> None:
        recovery_points = self._recovery_points.get(log.directory, {})
        if recovery_points.get(log.key, 0) < log.recovery_point:
            recovery_points = {**recovery_points, log.key: log.recovery_point}
            self._write_recovery_points(log.directory, recovery_points)
        self.checkpoint_cleaned(log)

    def checkpoint_cleaned(self, log: Log) -> None:
        """Make durable how far the log is compacted, and with that that it may have gaps."""
        assert log.cleaned is not None, log
        cleaned = self._cleaned.get(log.directory, {})
        if cleaned.get(log.key) != log.cleaned:
            others = self._cleaned_without(log.directory, log.key)
            self._write_cleaned(log.directory, {**others, log.key: log.cleaned})

    def _cleaned_without(self, directory: str, key: TopicPartition) -> dict[TopicPartition, int]:
        """What is on disk, without this log and those that are gone."""
        return {
            other: offset
            for other, offset in self._cleaned.get(directory, {}).items()
            if other != key and (other in self.logs or other in self.corrupt)
        }

    def _write_cleaned(self, directory: str, cleaned: dict[TopicPartition, int]) -> None:
        checkpoints.write_offsets(self._disk, f"{directory}/{checkpoints.CLEANED_OFFSETS}", cleaned)
        self._cleaned[directory] = cleaned

    def next_compaction(
        self, now_ms: int, keys_max: int, busy: Collection[Log] = ()
    ) -> tuple[Log, Compaction] | None:
        """A round over the dirtiest log, unless none is dirty enough. Its `steps` may run in a thread, each
        Replacement goes to `Log.replace`, and at the end it is `compacted`."""
        found = cleaner.dirtiest((log for log in self.logs.values() if log not in busy), now_ms)
        if found is None:
            return None
        log, dirt = found
        round = cleaner.round_of(log, dirt, now_ms)
        return log, Compaction(self._disk, self._files, round, keys_max)

    def compacted(self, log: Log, compaction: Compaction) -> None:
        log.cleaned = compaction.cleaned_up_to
        try:
            self.checkpoint_cleaned(log)
        except OSError as error:
            self.mark_offline(log.directory, error)

    def retention(self, now_ms: int) -> dict[TopicPartition, int]:
        """Drop old segments and silent producers. How many segments of which."""
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

    def removal_plan(self, now_ms: int) -> Removal:
        """What has been dropped or deleted for long enough. `run` of the plan may be called in a thread, `removed`
        afterwards."""
        plan = Removal(self._disk)
        for log in self.logs.values():
            if log.failed is None:
                plan.files.update(dict.fromkeys(log.doomed_by(now_ms), log.directory))
        for path, (due, directory) in list(self._doomed.items()):
            if due <= now_ms:
                del self._doomed[path]
                plan.trees[path] = directory
        return plan

    def removed(self, plan: Removal) -> None:
        for directory, error in plan.failures.items():
            self.mark_offline(directory, error)
