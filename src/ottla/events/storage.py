"""Events of a node's logs and log directories."""

from __future__ import annotations

from enum import StrEnum

from ottla.events import Event
from ottla.wire.types import TopicPartition

# Log directories


class LogDirectoryFailed(Event):
    """The disk of a log directory failed. The directory is offline until the node restarts."""

    directory: str
    cause: str
    partitions: tuple[TopicPartition, ...]
    """The partitions whose logs went offline with it."""


class LogDirectoryRoomChanged(Event):
    """A disk is nearly full, so that its log directory takes no records; or it has room again."""

    directory: str
    level: str
    """`ample`, `scarce` (clients' records are refused) or `none` (replicas copy nothing either)."""
    free_bytes: int
    total_bytes: int


class MoveStep(StrEnum):
    STARTED = "started"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


class DirectoryMove(Event):
    """A replica begins to move to another log directory of its broker, or the move has ended."""

    partition: TopicPartition
    step: MoveStep
    source: str
    """The log directory that it leaves."""
    target: str
    log_end: int
    """How far it is copied."""
    cause: str | None = None
    """Why it was cancelled, or failed."""


class CleanShutdownRecognized(Event):
    """The node started, and every log directory has the marker of one clean shutdown."""

    directories: tuple[str, ...]
    broker_epoch: int
    """The epoch of the broker that shut down."""


# Logs


class LogSetAside(Event):
    """A corrupt or unusable log was renamed and kept. The partition is rebuilt from another replica."""

    partition: TopicPartition
    directory: str
    path: str
    """The log's new path."""
    kept: str | None = None
    """The id under which `ottla losses` lists it; None if nothing in it could be read."""


class TornTailCut(Event):
    """Recovery found a damaged or incomplete batch beyond the recovery point, and truncated the log there."""

    partition: TopicPartition
    directory: str
    bytes_cut: int
    log_end: int


class SegmentsExpired(Event):
    """Retention deleted the oldest segments of a log."""

    partition: TopicPartition
    directory: str
    segments: int
    bytes: int
    log_start: int
    """The log start after that."""
    why: tuple[str, ...]
    """One or several of `retention.ms`, `retention.bytes` and `log start` (DeleteRecords)."""


class LogCompacted(Event):
    """A round of compaction over a log has ended, and all its segments are in place."""

    partition: TopicPartition
    directory: str
    cleaned_up_to: int
    bytes_read: int
    bytes_kept: int


# Producers


class DuplicateBatchAnswered(Event):
    """A producer repeated a batch that is in the log. It got the offsets of the first copy, and nothing was written."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    base_sequence: int
    base_offset: int


class ProducerFenced(Event):
    """A partition refused a batch because the log has a later epoch of the same producer id."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    """The epoch of the batch."""
    current_epoch: int
    """The epoch in the log."""


class MarkerRefused(Event):
    """A partition refused a transaction marker because its producer epoch or coordinator epoch is outdated."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    cause: str
