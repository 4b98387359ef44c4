"""The encoder of `ottla.spark.write.encode`, compiled: the same bytes and the same checksum, a hundred times as fast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit

from ottla.spark.write.encode import MULTIPLIER, STICKY, Columns, Encoded

_MULTIPLIER = np.uint64(MULTIPLIER)
_32 = np.uint64(32)
_8 = np.uint64(8)


def choose_partitions(columns: Columns, partition_counts: Sequence[int], out: Any) -> None:
    counts = np.array(partition_counts, np.int64)
    key = columns.key
    _choose(columns.partition, key.offsets, key.data, key.valid, columns.topic, counts, out)


def encode(
    columns: Columns, rows: Any, first_delta: int, seed: int, out: Any, position: int
) -> Encoded:
    done, end, checksum = _encode(
        rows,
        first_delta,
        np.uint64(seed),
        columns.key,
        columns.value,
        columns.header_offsets,
        columns.header_keys,
        columns.header_values,
        out,
        position,
    )
    return Encoded(done, end, int(checksum))


@njit(cache=True, nogil=True)
def _choose(partition, offsets, data, valid, topic, counts, out):  # type: ignore[no-untyped-def]
    for row in range(len(partition)):
        chosen = partition[row]
        if chosen == STICKY and valid[row]:
            hashed = _murmur2(data, offsets[row], offsets[row + 1])
            chosen = (hashed & 0x7FFFFFFF) % counts[topic[row]]
        out[row] = chosen


@njit(cache=True, nogil=True)
def _murmur2(data, start, end):  # type: ignore[no-untyped-def]
    """Kafka's, in 64 bits of which the upper half is cut off."""
    mask = 0xFFFFFFFF
    multiplier = 0x5BD1E995
    length = end - start
    h = 0x9747B28C ^ length
    position = start
    while position + 4 <= end:
        k = (
            np.int64(data[position])
            | np.int64(data[position + 1]) << 8
            | np.int64(data[position + 2]) << 16
            | np.int64(data[position + 3]) << 24
        )
        k = (k * multiplier) & mask
        k = ((k ^ (k >> 24)) * multiplier) & mask
        h = ((h * multiplier) & mask) ^ k
        position += 4
    if position < end:
        rest = np.int64(0)
        for i in range(end - position):
            rest |= np.int64(data[position + i]) << (8 * i)
        h = ((h ^ rest) * multiplier) & mask
    h = ((h ^ (h >> 13)) * multiplier) & mask
    return h ^ (h >> 15)


@njit(cache=True, nogil=True)
def _varint_bytes(value):  # type: ignore[no-untyped-def]
    """Of a number that is not negative, or -1."""
    left = np.int64(1) if value < 0 else value << 1
    size = 1
    while left > 0x7F:
        left >>= 7
        size += 1
    return size


@njit(cache=True, nogil=True)
def _write_varint(out, position, value):  # type: ignore[no-untyped-def]
    left = np.int64(1) if value < 0 else value << 1
    while left > 0x7F:
        out[position] = (left & 0x7F) | 0x80
        left >>= 7
        position += 1
    out[position] = left
    return position + 1


@njit(cache=True, nogil=True)
def _sized_bytes(column, row):  # type: ignore[no-untyped-def]
    if not column.valid[row]:
        return 1
    length = column.offsets[row + 1] - column.offsets[row]
    return _varint_bytes(length) + length


@njit(cache=True, nogil=True)
def _write_sized(out, position, column, row):  # type: ignore[no-untyped-def]
    if not column.valid[row]:
        return _write_varint(out, position, np.int64(-1))
    start, end = column.offsets[row], column.offsets[row + 1]
    position = _write_varint(out, position, end - start)
    out[position : position + end - start] = column.data[start:end]
    return position + end - start


@njit(cache=True, nogil=True)
def _content_checksum(out, start, end, seed):  # type: ignore[no-untyped-def]
    mixed = seed ^ np.uint64(end - start)
    position = start
    while position + 8 <= end:
        word = np.uint64(0)
        for i in range(8):
            word |= np.uint64(out[position + i]) << np.uint64(8 * i)
        mixed = (mixed ^ word) * _MULTIPLIER
        mixed ^= mixed >> _32
        position += 8
    if position < end:
        word = np.uint64(0)
        for i in range(end - position):
            word |= np.uint64(out[position + i]) << np.uint64(8 * i)
        mixed = (mixed ^ word) * _MULTIPLIER
        mixed ^= mixed >> _32
    return mixed


@njit(cache=True, nogil=True)
def _encode(  # type: ignore[no-untyped-def]
    rows, first_delta, seed, key, value, header_offsets, header_keys, header_values, out, position
):
    checksum = np.uint64(0)
    for number in range(len(rows)):
        row = rows[number]
        delta = first_delta + number
        first, last = header_offsets[row], header_offsets[row + 1]
        size = 2 + _varint_bytes(delta) + _sized_bytes(key, row) + _sized_bytes(value, row)
        size += _varint_bytes(last - first)
        for entry in range(first, last):
            size += _sized_bytes(header_keys, entry) + _sized_bytes(header_values, entry)
        if position + _varint_bytes(size) + size > len(out):
            return number, position, checksum
        position = _write_varint(out, position, size)
        out[position] = 0
        out[position + 1] = 0
        content = _write_varint(out, position + 2, delta)
        position = _write_sized(out, content, key, row)
        position = _write_sized(out, position, value, row)
        position = _write_varint(out, position, last - first)
        for entry in range(first, last):
            position = _write_sized(out, position, header_keys, entry)
            position = _write_sized(out, position, header_values, entry)
        checksum += _content_checksum(out, content, position, seed)
    return len(rows), position, checksum
