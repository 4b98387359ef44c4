"""Rows as Arrow's record batches, in exactly the types that Spark expects.

Arrays are made from buffers: `pa.array` would import pandas first, which takes two seconds. Columns that are the same in every
row are made once and cut to size.
"""

from __future__ import annotations

from array import array
from typing import Any

import pyarrow as pa

from ottla.spark.read.rows import ByteColumn, Headers, Rows


class ArrowBuilder:
    """`schema` is what Spark wants to have: any of the connector's columns, in any order."""

    def __init__(self, schema: pa.Schema, topic: str, partition: int) -> None:
        self._schema = schema
        self._topic = topic.encode()
        self._partition = partition
        self._constant_rows = 0
        self._constants: dict[str, pa.Array] = {}

    def record_batch(self, rows: Rows) -> pa.RecordBatch:
        if rows.rows > self._constant_rows:
            self._make_constants(rows.rows)
        return pa.RecordBatch.from_arrays(
            [self._column(field, rows) for field in self._schema], schema=self._schema
        )

    def _column(self, field: pa.Field, rows: Rows) -> pa.Array:
        match field.name:
            case "key":
                return _bytes_array(field.type, rows.rows, rows.key)
            case "value":
                return _bytes_array(field.type, rows.rows, rows.value)
            case "offset":
                return _numbers(field.type, rows.rows, rows.offset)
            case "timestamp":
                return _numbers(field.type, rows.rows, rows.timestamp)
            case "timestampType":
                return _numbers(field.type, rows.rows, rows.timestamp_type)
            case "headers":
                return _headers_array(field.type, rows.rows, rows.headers)
        return self._constants[field.name].slice(0, rows.rows)

    def _make_constants(self, rows: int) -> None:
        size = len(self._topic)
        offsets = array("i", range(0, (rows + 1) * size, size)) if size else array("i", [0]) * (rows + 1)  # fmt: skip
        topics = ByteColumn(offsets, self._topic * rows, None, 0)
        self._constants = {
            "topic": _bytes_array(pa.string(), rows, topics),
            "partition": _numbers(pa.int32(), rows, array("i", [self._partition]) * rows),
        }
        self._constant_rows = rows


def _numbers(type: pa.DataType, rows: int, values: Any) -> pa.Array:
    return pa.Array.from_buffers(type, rows, [None, pa.py_buffer(values)], null_count=0)


def _bytes_array(type: pa.DataType, rows: int, column: ByteColumn | None) -> pa.Array:
    assert column is not None, "decoded because it was wanted"
    buffers = [_buffer(column.validity), pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(type, rows, buffers, null_count=column.nulls)


def _headers_array(type: pa.DataType, rows: int, column: Headers | None) -> pa.Array:
    assert column is not None, "decoded because it was wanted"
    entry = type.value_type
    children = [
        _bytes_array(entry.field(0).type, column.entries, column.keys),
        _bytes_array(entry.field(1).type, column.entries, column.values),
    ]
    entries = pa.Array.from_buffers(entry, column.entries, [None], null_count=0, children=children)
    buffers = [_buffer(column.validity), pa.py_buffer(column.offsets)]
    return pa.Array.from_buffers(type, rows, buffers, null_count=column.nulls, children=[entries])


def _buffer(validity: Any) -> pa.Buffer | None:
    return None if validity is None else pa.py_buffer(validity)
