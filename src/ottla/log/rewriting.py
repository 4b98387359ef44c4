"""Batches that a topic's settings change or refuse.

A topic may stamp them with the time of the append, compress them with its own codec, or, if it is compacted, refuse records
without a key.
"""

from __future__ import annotations

from ottla.log.config import LogConfig
from ottla.log.unpacking import records_within_limits, unpacked_within_limits
from ottla.records.batch import Batch, read_batch, set_max_timestamp
from ottla.records.filtering import record_outlines
from ottla.records.record import build
from ottla.wire.errors import RecordsRefused

RECORD_ERRORS_MAX = 100
"""Named in one answer. Clients take the other records for good ones in a batch that was refused."""
CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def must_rewrite(config: LogConfig, batch: Batch) -> bool:
    return (
        config.message_timestamp_type == "LogAppendTime"
        or (
            config.compression_type != "producer" and CODECS[config.compression_type] != batch.codec
        )
        or "compact" in config.cleanup_policy
    )


def as_configured(
    config: LogConfig, buf: memoryview, batch: Batch, now_ms: int
) -> tuple[memoryview, Batch]:
    """The batch as the topic wants it, in the same bytes or in new ones."""
    if config.compacted:
        _check_keys(buf, batch)
    if config.compression_type != "producer":
        codec = CODECS[config.compression_type]
        if codec != batch.codec:
            buf, batch = _recompressed(buf, batch, codec, config.compression_level)
    if config.log_append_time:
        batch = set_max_timestamp(buf, batch, now_ms)
    return buf, batch


def _check_keys(buf: memoryview, batch: Batch) -> None:
    """Compaction could not find a record without a key again."""
    keyless = [
        (number, "a compacted topic takes no record without a key")
        for number, outline in enumerate(record_outlines(unpacked_within_limits(buf, batch), batch))
        if outline[5] is None
    ]
    if keyless:
        raise RecordsRefused(
            f"{len(keyless)} of {batch.count} records have no key, which a compacted topic needs",
            keyless[:RECORD_ERRORS_MAX],
        )


def _recompressed(
    buf: memoryview, batch: Batch, codec: int, level: int | None
) -> tuple[memoryview, Batch]:
    packed = memoryview(
        build(
            records_within_limits(buf, batch),
            codec=codec,
            level=level,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            transactional=batch.is_transactional,
        )
    )
    return packed, read_batch(packed, 0)
