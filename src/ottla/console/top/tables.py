"""Columns that fit a width: what matters least is left out first, what may be cut is cut before that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ottla.console.top.lines import (
    Cell,
    Line,
    Span,
    Style,
    cells,
    cut_in_the_middle,
    filled,
    line,
    width_of,
)
from ottla.console.top.picture import Picture

R = TypeVar("R")
GAP = "  "
UP, DOWN = "▲", "▼"


@dataclass(frozen=True)
class ListColumn(Generic[R]):
    head: str
    cell: Callable[[Picture, R], Cell]
    rank: int = 0
    """Of two columns for which there is no room, the one with the higher rank goes; none of rank 0."""
    least: int = 0
    """Its width at least; of one that is cut, how far it may be cut."""
    right: bool = False
    """Numbers: to the right, and sorted from the highest."""
    is_cut: bool = False
    is_name: bool = False
    """It is cut in the middle."""
    order: Callable[[Picture, R], Any] | None = None
    """What it is sorted by, if it can be; None of a row goes last."""
    reads: tuple[str, ...] = ()
    """The tables of the model that decide this order, beside those of the list."""

    @property
    def shrinks_to(self) -> int:
        return max(self.least, len(self.head))


def figure(
    head: str,
    value: Callable[[Picture, R], Any],
    text: Callable[[Any], Cell],
    rank: int = 0,
    *,
    least: int = 0,
    reads: tuple[str, ...] = (),
) -> ListColumn[R]:
    """A column of numbers, sorted by them."""

    def cell(picture: Picture, row: R) -> Cell:
        return text(value(picture, row))

    return ListColumn(head, cell, rank, least, right=True, order=value, reads=reads)


def named(head: str, value: Callable[[Picture, R], str]) -> ListColumn[R]:
    """The column that says which row it is."""
    return ListColumn(head, value, least=14, is_cut=True, is_name=True, order=value)


def member(of: str) -> Callable[[Picture, Any], Any]:
    """Of the row."""
    return lambda _, row: getattr(row, of)


def table(
    columns: Sequence[ListColumn[R]],
    shown: Sequence[R],
    picture: Picture,
    width: int,
    sort: str = "",
    *,
    reverse: bool = False,
) -> tuple[Line, list[Line]]:
    """The heads and the lines."""
    rows = [[line(column.cell(picture, row)) for column in columns] for row in shown]
    heads = [_head(column, sort, reverse=reverse) for column in columns]
    natural = [
        max(
            column.least if not column.is_cut else 0,
            cells(heads[at]),
            *(width_of(row[at]) for row in rows),
            0,
        )
        for at, column in enumerate(columns)
    ]
    widths = fitted(columns, natural, width)
    head = [
        line(Span(text, Style.STRONG if sort and column.head == sort else Style.DIM))
        for text, column in zip(heads, columns, strict=True)
    ]
    return _joined(columns, head, widths), [_joined(columns, row, widths) for row in rows]


def _head(column: ListColumn[R], sort: str, *, reverse: bool) -> str:
    if not sort or column.head != sort:
        return column.head
    return f"{column.head}{DOWN if column.right is not reverse else UP}"


def fitted(columns: Sequence[ListColumn[R]], natural: Sequence[int], width: int) -> list[int]:
    """The width of each column; -1 of one that is left out."""
    shown = list(range(len(columns)))

    def least(at: int) -> int:
        column = columns[at]
        return min(natural[at], column.shrinks_to) if column.is_cut else natural[at]

    def used() -> int:
        return sum(map(least, shown)) + len(GAP) * (len(shown) - 1)

    while used() > width:
        last = max(shown, key=lambda at: (columns[at].rank, at))
        if not columns[last].rank:
            break
        shown.remove(last)
    spare = max(0, width - used())
    widths = [-1] * len(columns)
    for at in shown:
        more = min(spare, natural[at] - least(at))
        spare -= more
        widths[at] = least(at) + more
    return widths


def _joined(columns: Sequence[ListColumn[R]], row: Sequence[Line], widths: Sequence[int]) -> Line:
    parts: list[Span] = []
    for column, cell, width in zip(columns, row, widths, strict=True):
        if width < 0:
            continue
        if parts:
            parts.append(Span(GAP))
        fit = cut_in_the_middle(cell, width) if column.is_name else cell
        parts += filled(fit, width, right=column.right)
    return tuple(parts)
