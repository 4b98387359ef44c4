"""The directories of new logs, made in a thread before the logs.

A topic may have thousands of partitions. Each is a directory and files, which take a busy file system milliseconds, and
whoever waits for the event loop would wait for them.
"""

from __future__ import annotations

from functools import partial
from uuid import UUID

from ottla.log.log import directory_name, make_directory
from ottla.log.segment import file_name
from ottla.runtime.seams import Disk
from ottla.wire.types import TopicPartition


class DirectoriesPlan:
    """`run` may be called in a thread."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._wanted: dict[TopicPartition, tuple[str, UUID]] = {}
        self.made: dict[TopicPartition, str] = {}
        """By log. Where it fails, whoever makes the log tries again, and reports it."""

    def add(self, key: TopicPartition, directory: str, topic_id: UUID) -> None:
        self._wanted[key] = f"{directory}/{directory_name(*key)}", topic_id

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def run(self) -> None:
        self._disk.together([partial(self._make, key, *each) for key, each in self._wanted.items()])

    def _make(self, key: TopicPartition, path: str, topic_id: UUID) -> None:
        try:
            make_directory(self._disk, path, topic_id)
            self._disk.open(f"{path}/{file_name(0, '.log')}", create=True).close()
        except OSError:
            return
        self.made[key] = path
