"""Log directories: to make one, to lock it for one process, and to read whose it is and what its checkpoints say.

A directory belongs to one node of one cluster (`meta.properties`). Nothing in it is changed before that is known.
"""

from __future__ import annotations

import errno
from posixpath import dirname
from typing import NamedTuple

from ottla.log import checkpoints
from ottla.log.checkpoints import MetaProperties
from ottla.log.errors import WrongDirectory
from ottla.runtime.seams import Disk, File
from ottla.wire.types import TopicPartition

LOCK = ".lock"


class DirectoryContents(NamedTuple):
    """What the files of a log directory say, before any log in it is opened."""

    properties: MetaProperties
    clean_epoch: int | None
    """The broker epoch of the clean shutdown before this start; None if it was not clean."""
    recovery_points: dict[TopicPartition, int]
    high_watermarks: dict[TopicPartition, int]
    log_starts: dict[TopicPartition, int]
    cleaned: dict[TopicPartition, int]


def make_directory(disk: Disk, path: str) -> None:
    """With all directories above it. Their names are flushed: otherwise nothing in them survives a power loss."""
    made = []
    while not disk.is_dir(path):
        made.append(path)
        path = dirname(path) or "."
    if made:
        disk.make_dirs(made[0])
    for each in made:
        disk.flush_dir(dirname(each) or ".")


def lock_directory(disk: Disk, directory: str) -> File:
    """Made if it is not there. WrongDirectory if another process has it."""
    if disk.exists(directory) and not disk.is_dir(directory):
        raise NotADirectoryError(errno.ENOTDIR, "it is not a directory", directory)
    make_directory(disk, directory)
    try:
        return disk.lock(f"{directory}/{LOCK}")
    except BlockingIOError as error:
        raise WrongDirectory(directory, "another process uses it") from error


def read_properties(disk: Disk, directory: str, cluster_id: str, node_id: int) -> MetaProperties:
    """WrongDirectory if it belongs to another cluster or node. A new directory has no id yet."""
    path = f"{directory}/{checkpoints.META_PROPERTIES}"
    if not disk.exists(path):
        return MetaProperties(cluster_id, node_id, None)
    properties = checkpoints.read_meta_properties(disk, path)
    if properties.cluster_id != cluster_id:
        raise WrongDirectory(
            directory, f"it belongs to cluster {properties.cluster_id}, this is {cluster_id}"
        )
    if properties.node_id != node_id:
        raise WrongDirectory(
            directory, f"it belongs to node {properties.node_id}, this is {node_id}"
        )
    return properties


def read_contents(disk: Disk, directory: str, properties: MetaProperties) -> DirectoryContents:
    return DirectoryContents(
        properties,
        checkpoints.read_clean_shutdown(disk, f"{directory}/{checkpoints.CLEAN_SHUTDOWN}"),
        checkpoints.read_offsets(disk, f"{directory}/{checkpoints.RECOVERY_POINTS}"),
        checkpoints.read_offsets(disk, f"{directory}/{checkpoints.HIGH_WATERMARKS}"),
        checkpoints.read_offsets(disk, f"{directory}/{checkpoints.LOG_STARTS}"),
        checkpoints.read_cleaned(disk, f"{directory}/{checkpoints.CLEANED_OFFSETS}"),
    )
