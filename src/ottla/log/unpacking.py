"""Opening a batch that a client packed, where the broker must: to look for a key or a time in it, or to pack it
anew. A megabyte may unpack to a gigabyte of the smallest records there are, and all clients would wait
meanwhile, so a broker opens no more than any producer of good will packs."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.records.batch import Batch
from ottla.records.record import Record, records, unpacked
from ottla.runtime.seams import Buffer
from ottla.wire.errors import ErrorCode, KafkaError

RECORDS_MAX = 1_000_000
BYTES_MAX = 128 * 1024 * 1024


def opened(buf: Buffer, batch: Batch) -> Iterator[Record]:
    """The records in it; KafkaError MESSAGE_TOO_LARGE if they are more than we open."""
    _check_count(batch)
    return records(buf, batch, max_bytes=BYTES_MAX)


def unpacked_within_limits(buf: Buffer, batch: Batch) -> bytes:
    """The same as bytes, for whoever sifts them."""
    _check_count(batch)
    return unpacked(buf, batch, max_bytes=BYTES_MAX)


def _check_count(batch: Batch) -> None:
    if batch.count > RECORDS_MAX:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {batch.count} records is not opened, {RECORDS_MAX} is the limit",
        )
