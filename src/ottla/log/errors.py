"""Failures of a log that have no error code in Kafka. The owner of the log handles them."""

from __future__ import annotations

import errno
from typing import NamedTuple

from ottla.runtime.seams import FileRange


class LogDirError(Exception):
    """The disk under a log directory failed. Nothing in that directory may be written any more."""

    def __init__(self, directory: str, cause: OSError) -> None:
        super().__init__(f"log directory {directory} failed: {cause}")
        self.directory = directory
        self.cause: Exception = cause


class FatalDirectory(LogDirError):
    """A node cannot go on: this was its last log directory, or it holds its metadata. As in Kafka the process ends, so that
    whoever watches over it starts it again. The text says what to do before that."""

    def __init__(self, directory: str, cause: Exception) -> None:
        why = cause.strerror if isinstance(cause, OSError) and cause.strerror else cause
        self.advice = f"{remedy(cause)}, then start the node again"
        Exception.__init__(self, f"{directory}: {why}; {self.advice}")
        self.directory = directory
        self.cause = cause


def remedy(cause: Exception) -> str:
    """What a person does about a disk that failed in this way."""
    if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space there"
    return "look at that disk"


class InMemory(NamedTuple):
    """What a reader that must not wait for the disk has just loaded into memory."""

    place: bool = False
    """The part of the file where the first batch is searched for."""
    size: int = 0
    """So many bytes of records."""


class NotInMemory(Exception):
    """`range` has to be loaded from the disk, and the reader must not wait for that here. Afterwards the reader tries again
    with `then`. Each attempt gets further than the one before, even if the system drops pages from memory at once."""

    def __init__(self, range: FileRange, then: InMemory) -> None:
        super().__init__(f"{range.size} bytes at {range.position} of {range.file.path}")
        self.range = range
        self.then = then


class CorruptLog(Exception):
    """Flushed data is missing or altered. The log is not truncated: the partition stays offline until it is rebuilt from
    another replica."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


class CorruptCheckpoint(Exception):
    """A checkpoint file that does not have its format. `line` counts from 1."""

    def __init__(self, path: str, line: int, why: str) -> None:
        super().__init__(f"{path}, line {line}: {why}")
        self.path = path
        self.line = line
        self.why = why


class WrongDirectory(Exception):
    """A log directory that belongs to another cluster or node, or is in use by another process."""

    def __init__(self, directory: str, why: str) -> None:
        super().__init__(f"{directory}: {why}")
        self.directory = directory
        self.why = why
