"""Rows and rings that remember when they changed, so that each reader can be told what is new since it last looked.

A reader that is slow gets one answer for all that happened meanwhile: nothing is queued for it. A row is written as JSON once,
however many readers there are.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

K = TypeVar("K")
R = TypeVar("R", bound="Row")

NOTHING = -1
"""The version of a reader that has seen nothing."""
REMOVALS_MAX = 10_000
"""Removals that a table remembers. Who was away for longer gets the whole table."""


class Row(Protocol):
    """A NamedTuple of what JSON knows, or one with a method `as_json`."""

    def _asdict(self) -> dict[str, Any]: ...


class Versions:
    """Counts the changes of all tables of a model."""

    def __init__(self) -> None:
        self.now = 0

    def next(self) -> int:
        self.now += 1
        return self.now


class TableNews(NamedTuple):
    """What a reader needs to have a table as it is. Rows and points are JSON already."""

    whole: bool
    """Forget what you have."""
    gone: list[str]
    """Forget these, before you take what is new."""
    new: dict[str, str]
    keep: int | None = None
    """Of a ring: how many points are kept; new ones follow those that are known."""

    def __bool__(self) -> bool:
        return bool(self.whole or self.gone or self.new)

    def as_text(self) -> str:
        new = ",".join(f"{json.dumps(key)}:{text}" for key, text in self.new.items())
        parts = ['"whole":true'] if self.whole else []
        if self.gone:
            parts.append(f'"gone":{json.dumps(self.gone)}')
        if self.keep is not None:
            parts.append(f'"keep":{self.keep}')
        parts.append(f'"new":{{{new}}}')
        return f"{{{','.join(parts)}}}"


class _Removals(Generic[K]):
    """The keys that went, and when. The oldest are forgotten."""

    def __init__(self, versions: Versions) -> None:
        self._at: dict[K, int] = {}
        self.forgotten = versions.now
        """Who saw something before does not know what went since."""

    def add(self, key: K, version: int) -> None:
        self._at.pop(key, None)
        self._at[key] = version
        if len(self._at) > REMOVALS_MAX:
            oldest = next(iter(self._at))
            self.forgotten = self._at.pop(oldest)

    @property
    def last(self) -> int:
        """The version of the last one."""
        return next(reversed(self._at.values()), NOTHING)

    def since(self, version: int) -> Iterator[K]:
        for key, at in reversed(self._at.items()):
            if at <= version:
                return
            yield key


class _Cell(Generic[R]):
    __slots__ = ("row", "text", "version")

    def __init__(self, row: R, version: int) -> None:
        self.row = row
        self.version = version
        self.text: str | None = None


class RowTable(Generic[K, R]):
    """Rows by key. Equal rows are no change."""

    def __init__(self, versions: Versions, key_text: Callable[[K], str]) -> None:
        self._versions = versions
        self._key_text = key_text
        self._cells: dict[K, _Cell[R]] = {}
        """In the order of their last change."""
        self._removals: _Removals[K] = _Removals(versions)

    def put(self, key: K, row: R) -> bool:
        """Whether that is a change."""
        before = self._cells.get(key)
        if before is not None:
            if before.row == row:
                return False
            del self._cells[key]
        self._cells[key] = _Cell(row, self._versions.next())
        return True

    def drop(self, key: K) -> None:
        if self._cells.pop(key, None) is not None:
            self._removals.add(key, self._versions.next())

    def replace(self, rows: Mapping[K, R]) -> None:
        """These, and no others."""
        self.retain(lambda key: key in rows)
        for key, row in rows.items():
            self.put(key, row)

    def retain(self, wanted: Callable[[K], bool]) -> None:
        """Drop all others."""
        for key in [key for key in self._cells if not wanted(key)]:
            self.drop(key)

    @property
    def changed(self) -> int:
        """The version of the last change of any row."""
        newest = next(reversed(self._cells.values()), None)
        return max(self._removals.last, NOTHING if newest is None else newest.version)

    def get(self, key: K) -> R | None:
        cell = self._cells.get(key)
        return None if cell is None else cell.row

    def version_of(self, key: K) -> int:
        """When it changed last; NOTHING if there is no such row."""
        cell = self._cells.get(key)
        return NOTHING if cell is None else cell.version

    def __getitem__(self, key: K) -> R:
        return self._cells[key].row

    def __contains__(self, key: K) -> bool:
        return key in self._cells

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[K]:
        return iter(self._cells)

    def values(self) -> Iterator[R]:
        return (cell.row for cell in self._cells.values())

    def items(self) -> Iterator[tuple[K, R]]:
        return ((key, cell.row) for key, cell in self._cells.items())

    def news(self, since: int, wanted: Callable[[K], bool] | None = None) -> TableNews:
        whole = since < self._removals.forgotten
        new: dict[str, str] = {}
        for key, cell in reversed(self._cells.items()):
            if not whole and cell.version <= since:
                break
            if wanted is None or wanted(key):
                if cell.text is None:
                    cell.text = _row_json(cell.row)
                new[self._key_text(key)] = cell.text
        if whole:
            return TableNews(True, [], new)
        gone = [
            self._key_text(key)
            for key in self._removals.since(since)
            if wanted is None or wanted(key)
        ]
        return TableNews(False, gone, new)


class Rings(Generic[K]):
    """The newest points of each key, oldest first. A point is a tuple of what JSON knows."""

    def __init__(self, versions: Versions, keep: int, key_text: Callable[[K], str]) -> None:
        self.keep = keep
        self._versions = versions
        self._key_text = key_text
        self._points: dict[K, deque[tuple[int, tuple[Any, ...]]]] = {}
        """Version and point; keys in the order of their last change."""
        self._removals: _Removals[K] = _Removals(versions)

    def add(self, key: K, point: tuple[Any, ...]) -> None:
        kept = self._points.pop(key, None)
        if kept is None:
            kept = deque(maxlen=self.keep)
        kept.append((self._versions.next(), point))
        self._points[key] = kept

    def drop(self, key: K) -> None:
        if self._points.pop(key, None) is not None:
            self._removals.add(key, self._versions.next())

    @property
    def changed(self) -> int:
        """The version of the last change of any ring."""
        newest = next(reversed(self._points.values()), None)
        return max(self._removals.last, NOTHING if newest is None else newest[-1][0])

    def points(self, key: K) -> list[tuple[Any, ...]]:
        return [point for _, point in self._points.get(key, ())]

    def newest(self, key: K) -> tuple[Any, ...] | None:
        kept = self._points.get(key)
        return kept[-1][1] if kept else None

    def retain(self, wanted: Callable[[K], bool]) -> None:
        """Drop all others."""
        for key in [key for key in self._points if not wanted(key)]:
            self.drop(key)

    def __contains__(self, key: K) -> bool:
        return key in self._points

    def __iter__(self) -> Iterator[K]:
        return iter(self._points)

    def __len__(self) -> int:
        return len(self._points)

    def news(self, since: int, wanted: Callable[[K], bool] | None = None) -> TableNews:
        whole = since < self._removals.forgotten
        new: dict[str, str] = {}
        for key, kept in reversed(self._points.items()):
            if not whole and kept[-1][0] <= since:
                break
            if wanted is None or wanted(key):
                fresh = sum(1 for _ in _newer(kept, NOTHING if whole else since))
                points = islice(kept, len(kept) - fresh, None)
                new[self._key_text(key)] = _json([point for _, point in points])
        if whole:
            return TableNews(True, [], new, self.keep)
        # A key that went and came again is in both: what the reader has of it is another ring.
        gone = [
            self._key_text(key)
            for key in self._removals.since(since)
            if wanted is None or wanted(key)
        ]
        return TableNews(False, gone, new, self.keep)


def _newer(
    kept: deque[tuple[int, tuple[Any, ...]]], since: int
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    for each in reversed(kept):
        if each[0] <= since:
            return
        yield each


def _row_json(row: Row) -> str:
    return _json(getattr(row, "as_json", row._asdict)())


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def replay(state: Mapping[str, Any], news: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a reader after this news (parsed JSON). `state` is what an earlier call gave; empty at first. What browsers do
    in `static/store.js`."""
    tables = dict(state.get("tables", {}))
    for name, told in news["tables"].items():
        rows = {} if told.get("whole") else dict(tables.get(name, {}))
        for key in told.get("gone", ()):
            rows.pop(key, None)
        if (keep := told.get("keep")) is None:
            rows |= told["new"]
        else:
            for key, points in told["new"].items():
                rows[key] = [*rows.get(key, ()), *points][-keep:]
        tables[name] = rows
    return {"version": news["version"], "tables": tables}
