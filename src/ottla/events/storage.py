"""Events of a node's logs and log directories."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.events import Event
from ottla.wire.types import TopicPartition

# Log directories


@dataclass(frozen=True, slots=True)
class LogDirectoryFailed(Event):
    """The disk of a log directory failed. The directory is offline until the node restarts."""

    directory: str
    cause: str
    partitions: tuple[TopicPartition, ...]
    """Whose logs went offline with it."""


@dataclass(frozen=True, slots=True)
class CleanShutdownRecognized(Event):
    """The node started, and every log directory has the marker of one clean shutdown."""

    directories: tuple[str, ...]
    broker_epoch: int
    """Of the broker that shut down."""


# Logs


@dataclass(frozen=True, slots=True)
class LogSetAside(Event):
    """A log that is corrupt or of no use was renamed and kept. The partition is rebuilt from another replica."""

    partition: TopicPartition
    directory: str
    path: str
    """Where it is now."""


@dataclass(frozen=True, slots=True)
class TornTailCut(Event):
    """Recovery found a damaged or incomplete batch beyond the recovery point, and cut the log there."""

    partition: TopicPartition
    directory: str
    bytes_cut: int
    log_end: int


@dataclass(frozen=True, slots=True)
class SegmentsExpired(Event):
    """Retention dropped the oldest segments of a log."""

    partition: TopicPartition
    directory: str
    segments: int
    bytes: int
    log_start: int
    """Of what is left."""
    why: tuple[str, ...]
    """One or several of `retention.ms`, `retention.bytes` and `log start` (DeleteRecords)."""


@dataclass(frozen=True, slots=True)
class LogCompacted(Event):
    """A round of compaction over a log has ended, and all its segments are in place."""

    partition: TopicPartition
    directory: str
    cleaned_up_to: int
    bytes_read: int
    bytes_kept: int


# Producers


@dataclass(frozen=True, slots=True)
class DuplicateBatchAnswered(Event):
    """A producer sent a batch again that is in the log. It gets the offsets of the first time, nothing is written."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    base_sequence: int
    base_offset: int


@dataclass(frozen=True, slots=True)
class ProducerFenced(Event):
    """A partition refused a batch, because the log has one of the same producer id with a later epoch."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    """Of the batch."""
    current_epoch: int
    """In the log."""


@dataclass(frozen=True, slots=True)
class MarkerRefused(Event):
    """A partition refused the end of a transaction, because its producer epoch or coordinator epoch is outdated."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    cause: str
