"""Entries of the event log as rows.

An event log is small: rows are tuples, and Spark makes Arrow of them. What is no entry is left out, and so is an entry that
its writer sent twice, if both are read by the same task; `dropDuplicates(["id"])` removes the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.types import StructType

from ottla.event_log.entry import EntryReader, EventEntry
from ottla.records.record import Record
from ottla.spark.columns import columns

STORED = StructType([columns(False)[name] for name in ("key", "value", "offset")])
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def event_rows(schema: StructType, batches: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """In the order of the schema's columns. `batches` are Arrow batches with the columns of `STORED`."""
    names, reader = schema.fieldNames(), EntryReader()
    for batch in batches:
        stored = zip(*(batch.column(name).to_pylist() for name in STORED.fieldNames()), strict=True)
        for key, value, offset in stored:
            for entry in reader.entries([Record(offset, 0, key, value)]):
                row = _columns_of(entry, offset)
                yield tuple(row[name] for name in names)


def _columns_of(entry: EventEntry, offset: int) -> dict[str, Any]:
    members = entry.members()
    return {
        "at": _EPOCH + timedelta(milliseconds=entry.at_ms),
        "kind": entry.kind,
        "node": entry.node,
        "partition": members["partition"],
        "cause": entry.told.cause,
        "about": entry.told.about,
        "fields": {name: _text(value) for name, value in entry.told.fields.items()},
        "id": entry.id,
        "offset": offset,
    }


def _text(value: Any) -> str | None:
    """Lists and objects are JSON; a text is itself."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
