"""Rows in Arrow's layout, as plain buffers: what every decoder makes of batches, before Arrow itself is involved.

The decoder here goes record by record through `ottla.records`. It needs nothing that takes long to load and is the measure of
the faster one in `native.py`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from ottla.records.batch import Batch
from ottla.records.record import Record, records
from ottla.runtime.seams import Buffer
from ottla.spark.errors import SparkSourceError

ROWS_MAX: Final = 20_000
BYTES_MAX: Final = 8 << 20
"""Of one group of batches: enough that Spark's work per group does not count."""


TIMESTAMP_MS_MAX: Final = (2**63 - 1) // 1000
"""Spark counts microseconds in 64 bits."""
_RATIO: Final = 4
"""What records are taken to unpack to before they are."""


class Wanted(NamedTuple):
    """What of a record becomes a row."""

    start: int
    end: int
    """Offsets from `start` up to, not including, `end`."""
    key: bool
    value: bool
    headers: bool


class ByteColumn(NamedTuple):
    """A column of byte strings: `data[offsets[i]:offsets[i+1]]` is the i-th; a zero bit in `validity` makes it null."""

    offsets: Any
    data: Any
    validity: Any
    nulls: int


class Headers(NamedTuple):
    """A column of lists: entries `offsets[i]` to `offsets[i+1]` belong to the i-th row. A row without any has null."""

    offsets: Any
    validity: Any
    nulls: int
    entries: int
    keys: ByteColumn
    values: ByteColumn


class Rows(NamedTuple):
    rows: int
    key: ByteColumn | None
    value: ByteColumn | None
    offset: Any
    """int64."""
    timestamp: Any
    """int64, microseconds."""
    timestamp_type: Any
    """int32: 0 the producer's, 1 the broker's."""
    headers: Headers | None


def grouped(batches: Iterable[Batch]) -> Iterator[list[Batch]]:
    """Neighbours that together make one Arrow batch."""
    group: list[Batch] = []
    rows = size = 0
    for batch in batches:
        room = batch.size * (_RATIO if batch.codec else 1)
        if group and (rows + batch.count > ROWS_MAX or size + room > BYTES_MAX):
            yield group
            group, rows, size = [], 0, 0
        group.append(batch)
        rows += batch.count
        size += room
    if group:
        yield group


def decode(data: Buffer, group: Sequence[Batch], wanted: Wanted) -> Rows:
    """CorruptBatch on anything malformed."""
    found: list[Record] = []
    types = array("i")
    for batch in group:
        before = len(found)
        found += [each for each in records(data, batch) if wanted.start <= each.offset < wanted.end]
        types.extend([int(batch.log_append_time)] * (len(found) - before))
    return Rows(
        rows=len(found),
        key=byte_column([each.key for each in found]) if wanted.key else None,
        value=byte_column([each.value for each in found]) if wanted.value else None,
        offset=array("q", [each.offset for each in found]),
        timestamp=array("q", [_microseconds(each) for each in found]),
        timestamp_type=types,
        headers=_header_column(found) if wanted.headers else None,
    )


def _microseconds(record: Record) -> int:
    if not -TIMESTAMP_MS_MAX <= record.timestamp <= TIMESTAMP_MS_MAX:
        raise SparkSourceError(
            f"the record at offset {record.offset} has the timestamp {record.timestamp} ms, which Spark cannot hold: its "
            "producer does not count in milliseconds. Begin behind it ('startingOffsets')"
        )
    return record.timestamp * 1000


def byte_column(values: Sequence[bytes | None]) -> ByteColumn:
    present = [value is not None for value in values]
    nulls = present.count(False)
    lengths = [0 if value is None else len(value) for value in values]
    return ByteColumn(
        offsets=array("i", accumulate(lengths, initial=0)),
        data=b"".join(values if not nulls else [value or b"" for value in values]),  # type: ignore[arg-type]
        validity=_bitmap(present) if nulls else None,
        nulls=nulls,
    )


def _header_column(found: Sequence[Record]) -> Headers:
    entries = [entry for each in found for entry in each.headers]
    present = [bool(each.headers) for each in found]
    nulls = present.count(False)
    return Headers(
        offsets=array("i", accumulate((len(each.headers) for each in found), initial=0)),
        validity=_bitmap(present) if nulls else None,
        nulls=nulls,
        entries=len(entries),
        keys=byte_column([key.encode() for key, _ in entries]),
        values=byte_column([value for _, value in entries]),
    )


def _bitmap(present: Sequence[bool]) -> bytes:
    """Least significant bit first."""
    bits = 0
    for place, is_there in enumerate(present):
        bits |= is_there << place
    return bits.to_bytes(-(-len(present) // 8), "little")
