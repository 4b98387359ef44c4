"""One entry of the event log, and the record that holds it.

The value is one JSON object, the key says what the entry is about, the timestamp is the time of the event. A writer that
gets no answer sends its entries again, so an entry can be in the log twice. Its `id` tells: readers drop repeats.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from ottla.records.record import Record
from ottla.wire.types import TopicPartition

CLUSTER = "cluster"

COMMON = ("at", "kind", "node", "id", "partition", "cause")
"""The members that every entry has, in this order, before the fields of its kind."""

REMEMBERED_IDS = 10_000
"""A repeat comes within a few batches of the first copy."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Told(NamedTuple):
    """What an event tells, without when and by whom."""

    kind: str
    about: str
    """`partition:orders-0`, `broker:2`, `group:billing`, `cluster`."""
    cause: str | None
    fields: Mapping[str, Any]
    partition: TopicPartition | None = None


class EventEntry(NamedTuple):
    at_ms: int
    node: int
    id: str
    """Node, incarnation and sequence of the writer: equal for repeats, and for nothing else."""
    told: Told

    @property
    def kind(self) -> str:
        return self.told.kind

    @property
    def at(self) -> str:
        """ISO 8601, UTC, with milliseconds."""
        when = _EPOCH + timedelta(milliseconds=self.at_ms)
        return f"{when:%Y-%m-%dT%H:%M:%S}.{self.at_ms % 1000:03}Z"

    def members(self) -> dict[str, Any]:
        partition = self.told.partition
        return {
            "at": self.at,
            "kind": self.kind,
            "node": self.node,
            "id": self.id,
            "partition": None if partition is None else f"{partition.topic}-{partition.partition}",
            "cause": self.told.cause,
            **self.told.fields,
        }

    def encode(self) -> tuple[bytes, bytes]:
        """The key and the value of its record."""
        value = json.dumps(self.members(), separators=(",", ":"), ensure_ascii=False)
        # A name that clients chose may hold half of a surrogate pair, which is no UTF-8.
        return self.told.about.encode(errors="replace"), value.encode(errors="replace")


def decode(key: bytes | None, value: bytes | None) -> EventEntry:
    """ValueError if it is no entry. Fields that we do not know are kept: a newer node may have written it."""
    try:
        members = _members(value or b"")
        at, kind, node, id, name, cause = (members.pop(each) for each in COMMON)
        at_ms = (datetime.fromisoformat(at) - _EPOCH) // timedelta(milliseconds=1)
        why = None if cause is None else str(cause)
        told = Told(str(kind), (key or b"").decode(), why, members, _partition(name))
        return EventEntry(at_ms, int(node), str(id), told)
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError) as error:
        raise ValueError(f"no entry of an event log: {error!r}") from error


def _members(value: bytes) -> Any:
    """Only what can be written as JSON and as UTF-8 again, for whoever hands an entry on: no half of a surrogate pair, no
    number that is none."""
    text = value.decode()
    members = json.loads(text, parse_float=_finite, parse_constant=lambda _: None)
    if "\\u" in text:
        whole = json.dumps(members, ensure_ascii=False).encode(errors="replace")
        members = json.loads(whole)
    return members


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


def _partition(name: str | None) -> TopicPartition | None:
    if name is None:
        return None
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))


def entries(records: Iterable[Record]) -> Iterator[EventEntry]:
    """The entries in records of the topic, in order. What is no entry is left out, and so are repeats."""
    return EntryReader().entries(records)


class EntryReader:
    """Drops repeats, also those in a later batch."""

    def __init__(self) -> None:
        self._seen: dict[str, None] = {}
        self._order: deque[str] = deque()

    def entries(self, records: Iterable[Record]) -> Iterator[EventEntry]:
        for record in records:
            try:
                entry = decode(record.key, record.value)
            except ValueError:
                continue
            if entry.id not in self._seen:
                self._seen[entry.id] = None
                self._order.append(entry.id)
                if len(self._order) > REMEMBERED_IDS:
                    del self._seen[self._order.popleft()]
                yield entry
