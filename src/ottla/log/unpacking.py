"""Decompressing a client's batch within limits.

A broker decompresses a batch only to search it for a key or a timestamp, or to compress it with another codec. One
megabyte may decompress to a gigabyte of the smallest records, and all other clients would wait meanwhile. The limits are
above what ordinary producers send.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.records.batch import Batch
from ottla.records.record import Record, records, unpacked
from ottla.runtime.seams import Buffer
from ottla.wire.errors import ErrorCode, KafkaError

RECORDS_MAX = 1_000_000
BYTES_MAX = 128 * 1024 * 1024


def records_within_limits(buf: Buffer, batch: Batch) -> Iterator[Record]:
    """The records of the batch. KafkaError MESSAGE_TOO_LARGE beyond the limits."""
    _check_count(batch)
    return records(buf, batch, max_bytes=BYTES_MAX)


def unpacked_within_limits(buf: Buffer, batch: Batch) -> bytes:
    """The same as bytes, for `records.filtering`."""
    _check_count(batch)
    return unpacked(buf, batch, max_bytes=BYTES_MAX)


def _check_count(batch: Batch) -> None:
    if batch.count > RECORDS_MAX:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {batch.count} records is not opened, {RECORDS_MAX} is the limit",
        )
