"""An entry survives its way through a record, and a repeat is dropped."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.event_log.entry import (
    COMMON,
    REMEMBERED_IDS,
    EntryReader,
    EventEntry,
    Told,
    decode,
    entries,
)
from ottla.records.record import Record
from ottla.wire.types import TopicPartition

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
tolds = st.builds(
    Told,
    kind=names,
    about=names,
    cause=st.none() | names,
    fields=st.dictionaries(names.filter(lambda name: name not in COMMON), values, max_size=4),
    partition=st.none() | st.builds(TopicPartition, names, st.integers(0, 2**31 - 1)),
)
all_entries = st.builds(
    EventEntry,
    at_ms=st.integers(0, 4102444800000),
    node=st.integers(0, 2**31 - 1),
    id=names,
    told=tolds,
)


@given(all_entries)
@example(EventEntry(1, 1, "1-a-1", Told("k", "a", None, {}, TopicPartition("with-dash", 0))))
def test_an_entry_is_read_as_it_was_written(entry: EventEntry) -> None:
    assert decode(*entry.encode()) == entry


@given(all_entries)
def test_the_value_is_one_json_object_with_the_common_members_first(entry: EventEntry) -> None:
    key, value = entry.encode()
    members = json.loads(value)
    assert tuple(members)[: len(COMMON)] == COMMON
    assert datetime.fromisoformat(members["at"]).timestamp() * 1000 == pytest.approx(entry.at_ms)
    assert key.decode() == entry.told.about
    assert b"\n" not in value


def test_the_time_has_milliseconds() -> None:
    assert (
        EventEntry(1794850301465, 1, "", Told("k", "a", None, {})).at == "2026-11-16T17:31:41.465Z"
    )


def test_half_of_a_surrogate_pair_in_a_name_does_not_stop_the_log() -> None:
    entry = EventEntry(
        0, 1, "1-a-1", Told("rebalance", "group:\ud800", "\ud800", {"group": "\ud800"})
    )
    assert decode(*entry.encode()).told.fields["group"] == "?"


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"[]",
        b"1",
        b"{}",
        b'{"at":"now"}',
        b"\xff",
        b'{"at":1,"kind":"x","node":1,"id":"","partition":null,"cause":null}',
    ],
)
def test_what_is_no_entry_is_refused_by_the_one_and_left_out_by_the_other(value: Any) -> None:
    with pytest.raises(ValueError):
        decode(b"key", value)
    assert list(entries([Record(0, 0, b"key", value)])) == []


def record(number: int, id: str) -> Record:
    return Record(number, 0, *EventEntry(0, 1, id, Told("k", "a", None, {})).encode())


def test_a_repeat_is_dropped_also_in_a_later_batch() -> None:
    reader = EntryReader()
    first = reader.entries([record(0, "1-a-1"), record(1, "1-a-2"), record(2, "1-a-1")])
    assert [entry.id for entry in first] == ["1-a-1", "1-a-2"]
    assert [entry.id for entry in reader.entries([record(3, "1-a-2"), record(4, "1-b-2")])] == [
        "1-b-2"
    ]


def test_a_reader_that_follows_for_ever_does_not_remember_every_id() -> None:
    reader = EntryReader()
    for number in range(REMEMBERED_IDS + 1):
        list(reader.entries([record(0, str(number))]))
    assert [entry.id for entry in reader.entries([record(0, "5"), record(0, "0")])] == ["0"]


@pytest.mark.parametrize(
    "odd", ['"\\ud800"', '["x\\udfff"]', "NaN", "-Infinity", "1e999", '{"a":{"b":[1e999]}}']
)
def test_what_cannot_be_written_again_is_not_handed_on(odd: str) -> None:
    """Who shows entries elsewhere writes them as JSON and as UTF-8: one odd entry must not end that."""
    common = '"at":"2026-11-19T01:00:00.000Z","kind":"x","node":1,"id":"1","cause":null'
    entry = decode(b"cluster", f'{{{common},"partition":null,"odd":{odd},"group":"g"}}'.encode())
    json.dumps(entry.members(), allow_nan=False, ensure_ascii=False).encode()
    assert entry.told.fields["group"] == "g"


def test_a_value_that_is_no_utf8_is_no_entry() -> None:
    with pytest.raises(ValueError, match="utf-8"):
        decode(b"cluster", b'{"at":"2026-11-19T01:00:00.000Z","kind":"\xed\xa0\x80"}')
