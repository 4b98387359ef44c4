"""The ways in which a log fails that have no error code of Kafka's: whoever owns the log decides."""

from __future__ import annotations

from typing import NamedTuple

from ottla.runtime.seams import FileRange


class LogDirError(Exception):
    """The disk under a log directory failed. Nothing in that directory may be written any more."""

    def __init__(self, directory: str, cause: OSError) -> None:
        super().__init__(f"log directory {directory} failed: {cause}")
        self.directory = directory
        self.cause = cause


class InMemory(NamedTuple):
    """What somebody who reads without waiting for the disk knows to be in memory, because it was brought."""

    place: bool = False
    """That by which one finds where the records begin."""
    size: int = 0
    """So many bytes of them."""


class NotInMemory(Exception):
    """`range` has to come from the disk first, and whoever reads would not wait for that. `then` is what they know
    when it has come. Each time they know more, so that all comes in the end, however soon memory forgets it."""

    def __init__(self, range: FileRange, then: InMemory) -> None:
        super().__init__(f"{range.size} bytes at {range.position} of {range.file.path}")
        self.range = range
        self.then = then


class CorruptLog(Exception):
    """Data that was flushed is missing or altered. It is not cut away: the partition stays out until it
    is rebuilt from a peer."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


class CorruptCheckpoint(Exception):
    """A checkpoint file that does not say what its format allows. `line` counts from 1."""

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
