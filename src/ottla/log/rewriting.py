"""Batches that a topic's settings do not let pass as they came: stamped with the time of the append, packed
with the topic's own codec, or refused because a compacted topic needs a key in every record."""

from __future__ import annotations

from ottla.log.config import LogConfig
from ottla.log.opening import opened
from ottla.records.batch import Batch, read_batch, set_max_timestamp
from ottla.records.record import build
from ottla.wire.errors import ErrorCode, KafkaError

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
        for record in opened(buf, batch):
            if record.key is None:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD, "a compacted topic takes no record without a key"
                )
    if config.compression_type != "producer":
        codec = CODECS[config.compression_type]
        if codec != batch.codec:
            buf, batch = _repacked(buf, batch, codec)
    if config.log_append_time:
        batch = set_max_timestamp(buf, batch, now_ms)
    return buf, batch


def _repacked(buf: memoryview, batch: Batch, codec: int) -> tuple[memoryview, Batch]:
    packed = memoryview(
        build(
            opened(buf, batch),
            codec=codec,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            transactional=batch.is_transactional,
        )
    )
    return packed, read_batch(packed, 0)
