"""A list: rows in order, of which only those are drawn that are seen."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from ottla.console.top.lines import Line, Span, Style, chosen, cut, line
from ottla.console.top.picture import Picture, Scene
from ottla.console.top.screen import moved, seen_text
from ottla.console.top.tables import ListColumn, table
from ottla.console.top.views import View
from ottla.console.watch.asking import Interest

K = TypeVar("K")
R = TypeVar("R")
MARGIN = " "
MARK = ">"


class ListWindow(NamedTuple, Generic[K]):
    """A list as somebody looks at it."""

    keys: Sequence[K]
    at: int
    """The index of the row under the cursor."""
    top: int
    rows: int
    """For how many there is room."""

    @property
    def visible(self) -> Sequence[K]:
        return self.keys[self.top : self.top + self.rows]

    @property
    def key(self) -> K | None:
        return self.keys[self.at] if self.keys else None


class ListScreen(ABC, Generic[K, R]):
    """What is to be said of one list; the rest is here. A row has a key, by which the cursor finds it again."""

    name: ClassVar[str]
    reads: ClassVar[tuple[str, ...]]
    """The tables of the model that decide which rows there are, and their natural order."""
    columns: Sequence[ListColumn[R]]

    @abstractmethod
    def keys(self, picture: Picture, scope: Any) -> list[K]:
        """In the order that is best."""

    @abstractmethod
    def row(self, picture: Picture, key: K) -> R:
        """Also of a key whose row has just gone."""

    @abstractmethod
    def words_of(self, row: R) -> str:
        """What is looked into for the words of a filter."""

    @abstractmethod
    def nothing(self, picture: Picture, scope: Any) -> str:
        """What is said in place of rows."""

    def title(self, scope: Any) -> str:
        return self.name

    def is_wrong(self, picture: Picture, row: R) -> bool:
        return False

    def head(self, picture: Picture, scope: Any, width: int) -> list[Line]:
        """Lines above the list."""
        return []

    def opened_by(self, picture: Picture, scope: Any, key: K) -> View | None:
        return None

    def explained_by(self, picture: Picture, key: K) -> str:
        return ""

    def looked_at(self, scope: Any, visible: Sequence[K]) -> Iterable[Interest]:
        return ()

    # As a Screen

    def drawn(self, scene: Scene, view: View, height: int) -> list[Line]:
        picture, width = scene.picture, scene.size.columns
        seen = self.seen(scene, view, height)
        above = self.head(picture, view.scope, width)
        heads, rows = table(
            self.columns,
            [self.row(picture, key) for key in seen.visible],
            picture,
            width - len(MARGIN),
            view.sort,
            reverse=view.reverse,
        )
        drawn = [*above, (Span(MARGIN), *heads)]
        for index, row in enumerate(rows, seen.top):
            if scene.cursor and index == seen.at:
                drawn.append(chosen((Span(MARK), *row), width))
            else:
                drawn.append((Span(MARGIN), *row))
        if not seen.keys:
            drawn.append(line(MARGIN, Span(self._why_empty(picture, view), Style.DIM)))
        return [cut(each, width) for each in drawn[: max(0, height)]]

    def _why_empty(self, picture: Picture, view: View) -> str:
        if view.words:
            return "Nothing here has these words."
        if view.wrong_only and self.keys(picture, view.scope):
            return "Nothing of this is wrong (w shows all)."
        return self.nothing(picture, view.scope)

    def seen(self, scene: Scene, view: View, height: int) -> ListWindow[K]:
        keys = self.ordered(scene, view)
        above = len(self.head(scene.picture, view.scope, scene.size.columns))
        rows = max(1, height - above - 1)
        index = min(view.at, len(keys) - 1) if view.cursor is not None else 0
        if view.cursor is not None:
            with suppress(ValueError):  # the row is gone: the cursor stays where it was
                index = keys.index(view.cursor)
        index = max(0, index)
        top = max(0, min(view.top, index, len(keys) - rows))
        return ListWindow(keys, index, max(top, index - rows + 1), rows)

    def ordered(self, scene: Scene, view: View) -> list[K]:
        """All rows, filtered, in order."""
        picture = scene.picture
        column = next((each for each in self.columns if each.head == view.sort), None)
        reads = (*self.reads, *(column.reads if column is not None else ()))
        since: Hashable = (
            tuple(picture.model.tables[name].changed for name in reads),
            view.sort,
            view.reverse,
            view.words,
            view.wrong_only,
        )
        return scene.orders.get(
            (self.name, view.scope), since, lambda: self._ordered(picture, view, column)
        )

    def _ordered(self, picture: Picture, view: View, column: ListColumn[R] | None) -> list[K]:
        keys = self.keys(picture, view.scope)
        if view.wrong_only:
            keys = [key for key in keys if self.is_wrong(picture, self.row(picture, key))]
        if words := view.words.lower().split():
            keys = [key for key in keys if self._has(picture, key, words)]
        if column is None or column.order is None:
            return keys[::-1] if view.reverse else keys
        by = [(column.order(picture, self.row(picture, key)), key) for key in keys]
        known = [each for each in by if each[0] is not None]
        known.sort(key=lambda each: each[0], reverse=column.right is not view.reverse)
        return [key for _, key in known] + [key for value, key in by if value is None]

    def _has(self, picture: Picture, key: K, words: Iterable[str]) -> bool:
        text = self.words_of(self.row(picture, key)).lower()
        return all(word in text for word in words)

    def standing(self, scene: Scene, view: View, height: int) -> str:
        seen = self.seen(scene, view, height)
        return seen_text(seen.top, len(seen.visible), len(seen.keys))

    def moved(self, scene: Scene, view: View, height: int, key: str) -> View:
        seen = self.seen(scene, view, height)
        index = moved(seen.at, len(seen.keys) - 1, seen.rows, key)
        chosen = view._replace(cursor=seen.keys[index] if index else None, at=index)
        return chosen._replace(top=self.seen(scene, chosen._replace(top=seen.top), height).top)

    def sorted_next(self, view: View) -> View:
        heads = ["", *(column.head for column in self.columns if column.order is not None)]
        at = heads.index(view.sort) if view.sort in heads else 0
        return view._replace(sort=heads[(at + 1) % len(heads)], reverse=False, top=0)

    def opens(self, scene: Scene, view: View, height: int) -> View | None:
        key = self.seen(scene, view, height).key
        return None if key is None else self.opened_by(scene.picture, view.scope, key)

    def about(self, scene: Scene, view: View, height: int) -> str:
        key = self.seen(scene, view, height).key
        return "" if key is None else self.explained_by(scene.picture, key)

    def interests(self, scene: Scene, view: View, height: int) -> Iterable[Interest]:
        return self.looked_at(view.scope, self.seen(scene, view, height).visible)
