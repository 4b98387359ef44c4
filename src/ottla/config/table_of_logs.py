"""The logs on disk, and the defaults of what each topic may set for itself."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.config.setting import setting
from ottla.config.values import (
    BOOLEAN,
    CODECS,
    FLOAT_MAX,
    GZIP_LEVEL,
    HOUR_MS,
    LIST,
    LONG_MAX,
    MIB,
    POLICIES,
    RATE,
    RATIO,
    TIMESTAMP_TYPES,
    WEEK_MS,
    choice,
    integer,
    long,
)


@dataclass(frozen=True, eq=False, repr=False)
class LogSettings:
    # Logs on disk
    log_dirs: tuple[str, ...] = setting(
        "log.dirs", LIST, ("/tmp/kafka-logs",), "Directories of the logs.", also=(("log.dir", 1),)
    )
    cordoned_log_dirs: tuple[str, ...] = setting(
        "cordoned.log.dirs",
        LIST,
        (),
        "Those of log.dirs that get no new replicas, or * for all. Replicas that are there stay.",
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms", long(1), 300_000, "How often retention is applied."
    )
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms", long(1), LONG_MAX, "How often a due flush is looked for."
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms",
        integer(0),
        60_000,
        "How often recovery points are written to disk.",
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        integer(0),
        60_000,
        "How often log start offsets are written to disk.",
    )

    log_cleaner_enable: bool = setting(
        "log.cleaner.enable",
        BOOLEAN,
        True,
        "Whether topics with cleanup.policy=compact are compacted.",
    )
    log_cleaner_threads: int = setting(
        "log.cleaner.threads", integer(0), 1, "Logs that are compacted at the same time."
    )
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms", long(0), 15_000, "Pause when no log is dirty enough."
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size",
        long(0),
        128 << 20,
        "Bytes for the keys that compaction remembers, over all threads.",
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second",
        RATE,
        FLOAT_MAX,
        "Bytes that compaction reads and writes at most.",
    )
    ottla_disk_watermark_percent: int = setting(
        "ottla.disk.watermark.percent",
        integer(1, at_most=100),
        95,
        "A log directory whose disk is used to more than this refuses records, before the disk is full; 100 never does.",
    )
    ottla_disk_headroom_max_bytes: int = setting(
        "ottla.disk.headroom.max.bytes",
        long(0),
        5 << 30,
        "A disk with more free bytes than this is never too full, whatever its percent.",
    )
    ottla_kept_records_max_bytes: int = setting(
        "ottla.kept.records.max.bytes",
        long(0),
        1 << 30,
        "Bytes of lost records that each log directory keeps aside, the newest; 0 keeps none.",
    )
    ottla_kept_records_retention_ms: int = setting(
        "ottla.kept.records.retention.ms",
        long(0),
        WEEK_MS,
        "How long lost records are kept aside.",
    )

    # Defaults of topic settings
    log_segment_bytes: int = setting(
        "log.segment.bytes", integer(MIB), 1 << 30, "Size of a segment file."
    )
    log_roll_ms: int = setting(
        "log.roll.ms",
        long(1),
        WEEK_MS,
        "Age at which a segment is rolled.",
        also=(("log.roll.hours", HOUR_MS),),
    )
    log_roll_jitter_ms: int = setting(
        "log.roll.jitter.ms",
        long(0),
        0,
        "Random part taken off that age, so that not all segments roll at once.",
        also=(("log.roll.jitter.hours", HOUR_MS),),
    )
    log_index_size_max_bytes: int = setting(
        "log.index.size.max.bytes", integer(4), 10 << 20, "Size of an index file."
    )
    log_index_interval_bytes: int = setting(
        "log.index.interval.bytes", integer(0), 4096, "Bytes of log per index entry."
    )
    log_flush_interval_messages: int = setting(
        "log.flush.interval.messages", long(1), LONG_MAX, "Records after which a log is flushed."
    )
    log_flush_interval_ms: int = setting(
        "log.flush.interval.ms", long(0), LONG_MAX, "Time after which a log is flushed."
    )
    log_retention_ms: int = setting(
        "log.retention.ms",
        long(-1),
        WEEK_MS,
        "Age at which a segment is deleted (-1: never).",
        also=(("log.retention.minutes", 60_000), ("log.retention.hours", HOUR_MS)),
    )
    log_retention_bytes: int = setting(
        "log.retention.bytes", long(-1), -1, "Size of a partition kept (-1: no limit)."
    )
    log_cleanup_policy: tuple[str, ...] = setting(
        "log.cleanup.policy", POLICIES, ("delete",), "What happens to old segments."
    )
    log_cleaner_delete_retention_ms: int = setting(
        "log.cleaner.delete.retention.ms", long(0), 24 * HOUR_MS, "How long delete markers stay."
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        "log.cleaner.min.compaction.lag.ms", long(0), 0, "Time a record stays uncompacted at least."
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        "log.cleaner.max.compaction.lag.ms", long(1), LONG_MAX, "… and at most."
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        "log.cleaner.min.cleanable.ratio",
        RATIO,
        0.5,
        "Share of a log that is dirty before cleaning.",
    )
    log_segment_delete_delay_ms: int = setting(
        "log.segment.delete.delay.ms", long(0), 60_000, "Pause before a deleted file is removed."
    )
    log_message_timestamp_type: str = setting(
        "log.message.timestamp.type", TIMESTAMP_TYPES, "CreateTime", "Whose clock stamps a record."
    )
    log_message_timestamp_before_max_ms: int = setting(
        "log.message.timestamp.before.max.ms", long(0), LONG_MAX, "How old a timestamp may be."
    )
    log_message_timestamp_after_max_ms: int = setting(
        "log.message.timestamp.after.max.ms", long(0), HOUR_MS, "How far ahead it may be."
    )
    message_max_bytes: int = setting(
        "message.max.bytes", integer(0), (1 << 20) + 12, "Largest record batch that is accepted."
    )
    compression_type: str = setting(
        "compression.type", choice(*CODECS), "producer", "Codec of the log, or the producer's own."
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level", GZIP_LEVEL, -1, "Of the log's own codec; -1 is gzip's usual one."
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level",
        integer(1, at_most=17),
        9,
        "Of the log's own codec; 9 is the fast one.",
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level", integer(-131072, at_most=22), 3, "Of the log's own codec."
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas", integer(1), 1, "In-sync replicas that acks=all needs."
    )
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        BOOLEAN,
        False,
        "Let a replica that is not in sync lead when no other is left (loses records).",
    )
