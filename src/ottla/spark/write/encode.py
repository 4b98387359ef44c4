"""Rows of Arrow columns become the records of batches.

Two encoders do the same, byte for byte: this one in plain Python, which is at once ready and serves few rows, and
`ottla.spark.write.encode_numba`, compiled, for many. Both work on `Columns`: the buffers of Arrow's arrays as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ottla.client.partitioner import partition_for
from ottla.records.record import write_varint
from ottla.spark.errors import SparkSourceError

SLOW_BYTES_MAX: Final = 8 << 20
"""To load what numba compiled takes more than a second of processor time, in which so many bytes are encoded slowly. A worker
that has come so far will write more."""

MASK: Final = (1 << 64) - 1
MULTIPLIER: Final = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio: spreads bits well, and any odd number would do."""

STICKY: Final = -1
"""The partition of a row that may go anywhere."""


class InputColumn(NamedTuple):
    """A column of strings or bytes: value i is `data[offsets[i]:offsets[i + 1]]`, unless it is null. The arrays are
    read-only: for numba, writable ones are another type, for which it would compile again."""

    offsets: Any
    data: Any
    valid: Any

    def at(self, row: int) -> bytes | None:
        if not self.valid[row]:
            return None
        return bytes(self.data[self.offsets[row] : self.offsets[row + 1]])


@dataclass(frozen=True)
class Columns:
    """Of one Arrow batch. A row's headers are those from `header_offsets[row]` up to the next row's."""

    rows: int
    value: InputColumn
    key: InputColumn
    header_offsets: Any
    header_keys: InputColumn
    header_values: InputColumn
    partition: Any
    """STICKY where it is not given."""
    topics: tuple[str, ...]
    topic: Any
    """Which of `topics`, for each row."""


def columns_of(batch: Any, topic: str | None) -> Columns:
    """Of a pyarrow.RecordBatch. `topic` wins over a column of that name."""
    import numpy as np

    rows = batch.num_rows
    names = batch.schema.names

    def column(name: str) -> Any | None:
        return batch.column(names.index(name)) if name in names else None

    zeros = _frozen(np.zeros(rows + 1, np.int64))
    nothing = InputColumn(zeros, _frozen(np.zeros(0, np.uint8)), _frozen(np.zeros(rows, np.uint8)))
    key = column("key")
    headers = column("headers")
    if headers is None:
        header_offsets, entries = zeros, (nothing, nothing)
    else:
        header_offsets, entries = _headers(headers)
    topics, which = ((topic,), zeros[:rows]) if topic else _topics(column("topic"))
    return Columns(
        rows,
        _bytes(column("value")),
        nothing if key is None else _bytes(key),
        header_offsets,
        *entries,
        _partitions(column("partition"), rows),
        topics,
        which,
    )


def _frozen(array: Any) -> Any:
    array.setflags(write=False)
    return array


def _valid(array: Any) -> Any:
    """A byte for each value, since a bit is slow to look at."""
    import numpy as np

    bitmap = array.buffers()[0]
    if bitmap is None or array.null_count == 0:
        return _frozen(np.ones(len(array), np.uint8))
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")
    return _frozen(bits[array.offset : array.offset + len(array)])


def _offsets(array: Any, buffer: Any) -> Any:
    """Of a column of bytes, strings or lists, which may be large ones; also of a slice of one."""
    import numpy as np

    is_large = str(array.type).startswith("large_")
    if buffer is None:
        return _frozen(np.zeros(len(array) + 1, np.int64))
    found = np.frombuffer(buffer, np.int64 if is_large else np.int32)
    return _frozen(found[array.offset : array.offset + len(array) + 1].astype(np.int64))


def _bytes(array: Any) -> InputColumn:
    import numpy as np

    _, offsets, data = array.buffers()
    whole = _frozen(np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8))
    return InputColumn(_offsets(array, offsets), whole, _valid(array))


def _headers(array: Any) -> tuple[Any, tuple[InputColumn, InputColumn]]:
    """A null list has no headers, as an empty one."""
    import numpy as np

    offsets = _offsets(array, array.buffers()[1])
    if array.null_count:
        lengths = np.diff(offsets)
        if lengths[_valid(array) == 0].any():
            raise SparkSourceError("a null in the column 'headers' hides entries")
    entries = array.values
    keys, values = _bytes(entries.field(0)), _bytes(entries.field(1))
    used = slice(int(offsets[0]), int(offsets[-1]))
    if not (keys.valid[used].all() and _valid(entries)[used].all()):
        raise SparkSourceError("a header in the column 'headers' is null or has no key")
    return offsets, (keys, values)


def _topics(array: Any) -> tuple[tuple[str, ...], Any]:
    import numpy as np

    if array.null_count:
        raise SparkSourceError(
            "a row has no topic: the column 'topic' is null there; set the option 'topic' to write all rows to one"
        )
    encoded = array.dictionary_encode()
    start = encoded.indices.offset
    indices = np.frombuffer(encoded.indices.buffers()[1], np.int32)[start : start + len(array)]
    return tuple(encoded.dictionary.to_pylist()), _frozen(indices.astype(np.int64))


def _partitions(array: Any | None, rows: int) -> Any:
    import numpy as np

    if array is None:
        return _frozen(np.full(rows, STICKY, np.int64))
    given = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + rows]
    if ((given < 0) & (_valid(array) == 1)).any():
        raise SparkSourceError("a row has a negative number in the column 'partition'")
    return _frozen(np.where(_valid(array) == 1, given, STICKY).astype(np.int64))


_slow_bytes = 0


def encoder_for(size: int) -> Any:
    """The module to encode so many more bytes with; where there is no numba it is always this one."""
    global _slow_bytes
    _slow_bytes += size
    if _slow_bytes > SLOW_BYTES_MAX:
        with suppress(ImportError):
            from ottla.spark.write import encode_numba

            return encode_numba
    return sys.modules[__name__]


class Encoded(NamedTuple):
    rows: int
    """How many of those that were asked for had room."""
    position: int
    checksum: int


def choose_partitions(columns: Columns, partition_counts: Sequence[int], out: Any) -> None:
    """As Kafka does: what the row says, else by the hash of its key, else STICKY."""
    keys = columns.key
    for row in range(columns.rows):
        chosen = columns.partition[row]
        if chosen == STICKY and keys.valid[row]:
            key = keys.at(row)
            assert key is not None
            chosen = partition_for(key, partition_counts[columns.topic[row]])
        out[row] = chosen


def encode(
    columns: Columns, rows: Any, first_delta: int, seed: int, out: Any, position: int
) -> Encoded:
    """Write as many of these rows as there is room for into `out`, from `position` on, as records with rising offset
    deltas and no time of their own. The checksum is the sum of one for each record, so that their order does not
    count."""
    checksum = 0
    for number, row in enumerate(rows):
        content = _content(columns, row)
        body = bytearray(2)  # attributes and the difference in time, both 0
        write_varint(body, first_delta + number)
        record = bytearray()
        write_varint(record, len(body) + len(content))
        record += body
        record += content
        if position + len(record) > len(out):
            return Encoded(number, position, checksum)
        out[position : position + len(record)] = memoryview(record)
        position += len(record)
        checksum = (checksum + content_checksum(content, seed)) & MASK
    return Encoded(len(rows), position, checksum)


def record_bytes_max(columns: Columns, row: int) -> int:
    """What a record of this row takes at most: for the one that fits into no ordinary batch."""
    return len(_content(columns, row)) + 16


def _content(columns: Columns, row: int) -> bytearray:
    """The part of a record that does not depend on its place."""
    content = bytearray()
    _write_sized(content, columns.key.at(row))
    _write_sized(content, columns.value.at(row))
    first, end = int(columns.header_offsets[row]), int(columns.header_offsets[row + 1])
    write_varint(content, end - first)
    for entry in range(first, end):
        _write_sized(content, columns.header_keys.at(entry))
        _write_sized(content, columns.header_values.at(entry))
    return content


def _write_sized(out: bytearray, data: bytes | None) -> None:
    write_varint(out, -1 if data is None else len(data))
    out += data or b""


def content_checksum(content: bytes | bytearray, seed: int) -> int:
    """64 bits, eight bytes at a time; the last ones are filled up with zeros, and the length counts."""
    mixed = (seed ^ len(content)) & MASK
    for start in range(0, len(content), 8):
        word = int.from_bytes(content[start : start + 8], "little")
        mixed = (mixed ^ word) * MULTIPLIER & MASK
        mixed ^= mixed >> 32
    return mixed
