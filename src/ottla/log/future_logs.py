"""Future logs: copies of logs in another directory of the same broker, each until it takes the place of its log (KIP-113).

A future log lies in `topic-N.<32 hex>-future`, as in Kafka. It takes the place of the current log in three steps, each
durable before the next: a file in it says that it is whole, the current log gets the name of a deleted one, the future log
gets the log's name. So a crash leaves the old state (both are there, and the copying goes on) or the new one (the
current log is gone, and the one that is whole takes its place at the start). Kafka has no such file and begins with the last
step: there a crash leaves two logs, and the broker does not start until somebody has removed one.

Whoever copies appends in a thread. So a future log shares no open files, events or room with the others before it is in use.
"""

from __future__ import annotations

import re
from contextlib import suppress

from ottla.log.errors import LogDirError
from ottla.log.kept_records import NAME_BYTES_MAX
from ottla.log.leader_epochs import LeaderEpochCache
from ottla.log.log import Log, directory_name
from ottla.log.resources import LogResources
from ottla.log.segment import OpenFiles
from ottla.runtime.seams import Disk
from ottla.wire.types import TopicPartition

FUTURE_SUFFIX = "-future"
WHOLE = "ottla-whole"
"""A file in a future log: the current log may be missing, because this one has all that it had."""
OPEN_FILES_MAX = 4

_FUTURE_DIRECTORY = re.compile(
    r"([A-Za-z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})\.[0-9a-f]{32}" + FUTURE_SUFFIX
)


def future_name(key: TopicPartition, id: str) -> str:
    return f"{directory_name(*key)}.{id}{FUTURE_SUFFIX}"


def is_too_long(key: TopicPartition) -> bool:
    """Whether no file system takes the name of its future log."""
    return len(future_name(key, "0" * 32)) > NAME_BYTES_MAX


def future_in(name: str) -> TopicPartition | None:
    """Whose future log a directory of this name holds."""
    match = _FUTURE_DIRECTORY.fullmatch(name)
    return None if match is None else TopicPartition(match[1], int(match[2]))


def resources_of_one(disk: Disk) -> LogResources:
    return LogResources(disk, OpenFiles(disk, OPEN_FILES_MAX))


def is_whole(future: Log) -> bool:
    return future.disk.exists(f"{future.path}/{WHOLE}")


def not_whole(disk: Disk, path: str) -> None:
    """The file is left over: a process died while the log took its place."""
    if disk.exists(f"{path}/{WHOLE}"):
        disk.remove(f"{path}/{WHOLE}")


def take_place(current: Log, future: Log) -> str:
    """On disk. Returns where the files of the current log are now. LogDirError names the directory that failed. If that is
    the future log's, the current one is where it was."""
    disk = current.disk
    marker = f"{future.path}/{WHOLE}"
    final = f"{future.directory}/{directory_name(*future.key)}"
    deleted = current.path_when_deleted()
    try:
        disk.replace(marker, b"")
    except OSError as error:
        raise LogDirError(future.directory, error) from error
    try:
        disk.rename(current.path, deleted)
        disk.flush_dir(current.directory)
    except OSError as error:
        raise LogDirError(current.directory, error) from error
    try:
        disk.rename(future.path, final)
        disk.flush_dir(future.directory)
        disk.remove(f"{final}/{WHOLE}")
    except OSError as error:
        _put_back(current, future, deleted)
        raise LogDirError(future.directory, error) from error
    return deleted


def _put_back(current: Log, future: Log, deleted: str) -> None:
    with suppress(OSError):
        not_whole(future.disk, future.path)  # the current log goes on
    try:
        current.disk.rename(deleted, current.path)
        current.disk.flush_dir(current.directory)
    except OSError as error:
        raise LogDirError(current.directory, error) from error


def name_promoted(future: Log) -> None:
    """The last step alone: the current log is gone already."""
    final = f"{future.directory}/{directory_name(*future.key)}"
    future.disk.rename(future.path, final)
    future.disk.flush_dir(future.directory)
    not_whole(future.disk, final)
    future.moved_to(final)


def take_over(current: Log, future: Log) -> None:
    """What the current log knows beside its records. Both hold the same records."""
    assert future.log_end == current.log_end, (current, future)
    future.config = current.config
    future.log_start = current.log_start
    future.high_watermark = current.high_watermark
    future.known_committed = current.known_committed
    future.producers = current.producers
    if future.epochs.entries != current.epochs.entries:
        # An epoch without a record is known to the one that was led or followed only.
        future.epochs = LeaderEpochCache(current.epochs.entries)
        future.epochs.dirty = True
    if current.cleaned is not None:
        future.cleaned = current.cleaned
    future.assert_marks_in_order()


def share(log: Log, resources: LogResources) -> None:
    """It is in use from now on, with the resources of all logs."""
    for segment in log.segments:
        log.resources.files.forget(segment)
        segment.files = resources.files
    log.resources = resources
    log.deleted.share(resources)
    log.snapshots.events = resources.events
