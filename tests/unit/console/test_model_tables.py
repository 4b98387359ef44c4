"""What a reader gets since a version brings it to exactly what a reader has who begins now."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.console.model import tables
from ottla.console.model.tables import NOTHING, Rings, RowTable, Versions, replay


class ValueRow(NamedTuple):
    value: int
    words: tuple[str, ...] = ()


keys = st.sampled_from("abcde")
rows = st.builds(ValueRow, st.integers(0, 3), st.lists(st.sampled_from("xyz")).map(tuple))
KEEP = 3


class Readers(RuleBasedStateMachine):
    """A table and rings that change, and a reader that looks now and then."""

    def __init__(self) -> None:
        super().__init__()
        versions = Versions()
        self.versions = versions
        self.table: RowTable[str, ValueRow] = RowTable(versions, str)
        self.rings: Rings[str] = Rings(versions, KEEP, str)
        self.reader: dict[str, Any] = {}
        self.seen = NOTHING

    def _news(self, since: int) -> dict[str, Any]:
        text = ",".join(
            f'"{name}":{table.news(since).as_text()}'
            for name, table in (("table", self.table), ("rings", self.rings))
        )
        parsed: dict[str, Any] = json.loads(
            f'{{"version":{self.versions.now},"tables":{{{text}}}}}'
        )
        return parsed

    @rule(key=keys, row=rows)
    def put(self, key: str, row: ValueRow) -> None:
        before = self.versions.now
        changed = self.table.get(key) != row
        assert self.table.put(key, row) is changed
        assert (self.versions.now > before) is changed

    @rule(key=keys)
    def drop(self, key: str) -> None:
        self.table.drop(key)

    @rule(new=st.dictionaries(keys, rows))
    def replace(self, new: dict[str, ValueRow]) -> None:
        self.table.replace(new)
        assert dict(self.table.items()) == new

    @rule(key=keys, point=st.integers())
    def add(self, key: str, point: int) -> None:
        self.rings.add(key, (point,))

    @rule(key=keys)
    def drop_ring(self, key: str) -> None:
        self.rings.drop(key)

    @rule()
    def look(self) -> None:
        self.reader = replay(self.reader, self._news(self.seen))
        self.seen = self.reader["version"]

    @invariant()
    def a_reader_that_looks_now_has_what_there_is(self) -> None:
        assert replay(self.reader, self._news(self.seen)) == replay({}, self._news(NOTHING))

    @invariant()
    def a_table_has_changed_exactly_when_it_has_news(self) -> None:
        for table in (self.table, self.rings):
            if self.seen != NOTHING:
                assert (table.changed > self.seen) is bool(table.news(self.seen))


TestReaders = Readers.TestCase


def test_a_reader_that_was_away_for_too_long_gets_the_whole_table(monkeypatch: Any) -> None:
    monkeypatch.setattr(tables, "REMOVALS_MAX", 2)
    versions = Versions()
    table: RowTable[int, ValueRow] = RowTable(versions, str)
    for key in range(6):
        table.put(key, ValueRow(key))
    seen = versions.now
    for key in range(5):
        table.drop(key)
    news = table.news(seen)
    assert news.whole
    assert news.new == {"5": '{"value":5,"words":[]}'}


def test_removals_do_not_pile_up() -> None:
    versions = Versions()
    table: RowTable[int, ValueRow] = RowTable(versions, str)
    for key in range(tables.REMOVALS_MAX * 2):
        table.put(key, ValueRow(0))
        table.drop(key)
    assert len(table._removals._at) == tables.REMOVALS_MAX


@given(st.dictionaries(keys, rows), keys)
def test_a_reader_is_told_only_of_what_it_wants(all_rows: dict[str, ValueRow], one: str) -> None:
    table: RowTable[str, ValueRow] = RowTable(Versions(), str)
    table.replace(all_rows)
    assert set(table.news(NOTHING, lambda key: key == one).new) == {one} & all_rows.keys()


def test_what_did_not_change_is_not_told() -> None:
    versions = Versions()
    table: RowTable[str, ValueRow] = RowTable(versions, str)
    table.put("a", ValueRow(1))
    table.put("b", ValueRow(1))
    seen = versions.now
    table.put("b", ValueRow(2))
    assert list(table.news(seen).new) == ["b"]
    assert not table.news(versions.now)
