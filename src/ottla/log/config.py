"""The settings of a topic that concern its logs: Kafka's names and defaults, parsed once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

NEVER = (1 << 63) - 1
INT_MAX = (1 << 31) - 1
DAY_MS = 24 * 60 * 60 * 1000


class InvalidSetting(ValueError):
    """A setting with an unknown name or an impossible value."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.name = name
        self.why = why


@dataclass(frozen=True, slots=True)
class LogConfig:
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    index_bytes_max: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * DAY_MS
    """-1: no limit."""
    retention_bytes: int = -1
    """-1: no limit."""
    max_message_bytes: int = (1 << 20) + 12
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = NEVER
    message_timestamp_after_max_ms: int = NEVER
    flush_messages: int = NEVER
    flush_ms: int = NEVER
    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    file_delete_delay_ms: int = 60_000
    min_insync_replicas: int = 1
    unclean_leader_election: bool = False
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER
    min_cleanable_dirty_ratio: float = 0.5
    leader_throttled_replicas: tuple[str, ...] = ()
    follower_throttled_replicas: tuple[str, ...] = ()

    # Derived from the others once, not with each batch:
    compacted: bool = field(init=False)
    roll_ms: int = field(init=False)
    """How old a segment may get before the next batch begins another. Only closed segments are compacted, so
    max.compaction.lag.ms limits it too."""
    takes_as_is: bool = field(init=False)
    """Batches are written unchanged."""

    def __post_init__(self) -> None:
        compacted = "compact" in self.cleanup_policy
        compacted_within_ms = self.max_compaction_lag_ms if compacted else NEVER
        takes_as_is = not (compacted or self.log_append_time or self.compression_type != "producer")
        object.__setattr__(self, "compacted", compacted)
        object.__setattr__(self, "roll_ms", min(self.segment_ms, compacted_within_ms))
        object.__setattr__(self, "takes_as_is", takes_as_is)

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], defaults: Self | None = None) -> Self:
        """The defaults, changed by a topic's own settings. InvalidSetting names the first bad one."""
        changes: dict[str, Any] = {}
        # The last one of a field wins: that with internal.
        for name, text in sorted(
            settings.items(), key=lambda each: each[0].startswith("internal.")
        ):
            setting = SETTINGS.get(name)
            if setting is None:
                raise InvalidSetting(name, "no such topic setting")
            try:
                changes[setting.field] = setting.parse(text)
            except ValueError as error:
                raise InvalidSetting(name, str(error)) from error
        return replace(defaults if defaults is not None else cls(), **changes)

    @property
    def compression_level(self) -> int | None:
        """Of the log's own codec; None where that has no levels."""
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.compression_type)

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"


class LogSetting(NamedTuple):
    """Where a setting of a topic goes in LogConfig, and how its text is read."""

    field: str
    parse: Callable[[str], Any]


def _integer(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text.strip())
        if not low <= value <= high:
            raise ValueError(f"{value} is not within {low}..{high}")
        return value

    return parse


def _gzip_level(text: str) -> int:
    level = _integer(-1, 9)(text)
    if level == 0:
        raise ValueError("0 is neither within 1..9 nor -1")
    return level


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.strip() not in choices:
            raise ValueError(f"{text!r} is none of {', '.join(choices)}")
        return text.strip()

    return parse


def _boolean(text: str) -> bool:
    value = text.strip().lower()
    if value not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return value == "true"


def _ratio(text: str) -> float:
    value = float(text)
    if math.isnan(value) or not 0 <= value <= 1:
        raise ValueError(f"{text} is not within 0..1")
    return value


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _policies(text: str) -> tuple[str, ...]:
    policies = _names(text)
    for policy in policies:
        if policy not in ("delete", "compact"):
            raise ValueError(f"{policy!r} is neither delete nor compact")
    return policies


def _long(low: int) -> Callable[[str], int]:
    return _integer(low, NEVER)


def _int(low: int) -> Callable[[str], int]:
    return _integer(low, INT_MAX)


SETTINGS: dict[str, LogSetting] = {
    "segment.bytes": LogSetting("segment_bytes", _int(14)),
    "internal.segment.bytes": LogSetting("segment_bytes", _int(14)),
    "segment.ms": LogSetting("segment_ms", _long(1)),
    "segment.jitter.ms": LogSetting("segment_jitter_ms", _long(0)),
    "segment.index.bytes": LogSetting("index_bytes_max", _int(4)),
    "index.interval.bytes": LogSetting("index_interval_bytes", _int(0)),
    "retention.ms": LogSetting("retention_ms", _long(-1)),
    "retention.bytes": LogSetting("retention_bytes", _long(-1)),
    "max.message.bytes": LogSetting("max_message_bytes", _int(0)),
    "message.timestamp.type": LogSetting(
        "message_timestamp_type", _one_of("CreateTime", "LogAppendTime")
    ),
    "message.timestamp.before.max.ms": LogSetting("message_timestamp_before_max_ms", _long(0)),
    "message.timestamp.after.max.ms": LogSetting("message_timestamp_after_max_ms", _long(0)),
    "flush.messages": LogSetting("flush_messages", _long(1)),
    "flush.ms": LogSetting("flush_ms", _long(0)),
    "cleanup.policy": LogSetting("cleanup_policy", _policies),
    "compression.type": LogSetting(
        "compression_type",
        _one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    ),
    "compression.gzip.level": LogSetting("compression_gzip_level", _gzip_level),
    "compression.lz4.level": LogSetting("compression_lz4_level", _integer(1, 17)),
    "compression.zstd.level": LogSetting("compression_zstd_level", _integer(-131072, 22)),
    "file.delete.delay.ms": LogSetting("file_delete_delay_ms", _long(0)),
    "min.insync.replicas": LogSetting("min_insync_replicas", _int(1)),
    "unclean.leader.election.enable": LogSetting("unclean_leader_election", _boolean),
    "delete.retention.ms": LogSetting("delete_retention_ms", _long(0)),
    "min.compaction.lag.ms": LogSetting("min_compaction_lag_ms", _long(0)),
    "max.compaction.lag.ms": LogSetting("max_compaction_lag_ms", _long(1)),
    "min.cleanable.dirty.ratio": LogSetting("min_cleanable_dirty_ratio", _ratio),
    "leader.replication.throttled.replicas": LogSetting("leader_throttled_replicas", _names),
    "follower.replication.throttled.replicas": LogSetting("follower_throttled_replicas", _names),
}
