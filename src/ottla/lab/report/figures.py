"""Numbers as people read them: thousands separators, no more digits than say something, columns that align."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ottla.lab.results import Cell, Table

DIGITS = 3
"""Significant digits of a fraction. Whole numbers are counts, and keep all of theirs."""
SPREAD_MAX = 1000
"""Largest over smallest value of a column whose cells still get the same number of decimals."""
NOT_APPLICABLE = "–"
_LIKE_A_NUMBER = re.compile(r"[<>≤≥~]?\s?[-+]?\d[\d,.]*\s?(?:%|[a-zµ]{1,3}(?:/[a-z]+)?)?")


@dataclass(frozen=True)
class Column:
    head: str
    cells: Sequence[str]
    is_numeric: bool


def decimals_of(value: float) -> int:
    """How many decimals are needed to show its significant digits."""
    if not math.isfinite(value) or value == int(value):
        return 0
    wanted = max(0, DIGITS - 1 - math.floor(math.log10(abs(value))))
    shown = f"{value:.{wanted}f}".rstrip("0")
    return len(shown.partition(".")[2])


def number(value: float, decimals: int | None = None) -> str:
    """`12,345` and `0.125`."""
    if isinstance(value, float) and not math.isfinite(value):
        return NOT_APPLICABLE
    if not value:
        return "0"
    return f"{value:,.{decimals_of(value) if decimals is None else decimals}f}"


def columns_of(table: Table) -> list[Column]:
    assert all(len(row) == len(table.columns) for row in table.rows), (
        f"{table.title}: a row has more or fewer cells than there are columns"
    )
    return [_column(head, [row[at] for row in table.rows]) for at, head in enumerate(table.columns)]


def _column(head: str, cells: Sequence[Cell]) -> Column:
    given = [cell for cell in cells if cell is not None]
    figures = [
        cell for cell in given if isinstance(cell, int | float) or _LIKE_A_NUMBER.fullmatch(cell)
    ]
    is_numeric = 2 * len(figures) > len(given)  # a word or two may stand for what was not measured
    numbers = [cell for cell in given if isinstance(cell, int | float)]
    decimals = _common_decimals(numbers)
    return Column(head, [_text(cell, decimals) for cell in cells], is_numeric)


def _common_decimals(numbers: Sequence[float]) -> int | None:
    """None where one number of decimals for all would hide the small values or pad the large ones."""
    sizes = [abs(each) for each in numbers if each and math.isfinite(each)]
    if not sizes or max(sizes) / min(sizes) > SPREAD_MAX:
        return None
    return max(decimals_of(each) for each in numbers)


def _text(cell: Cell, decimals: int | None) -> str:
    match cell:
        case None:
            return NOT_APPLICABLE
        case bool():
            return "yes" if cell else "no"
        case int() | float():
            return number(cell, decimals)
    return cell
