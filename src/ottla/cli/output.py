"""What commands print: aligned columns for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from ottla.wire.printable import printable

if TYPE_CHECKING:
    from rich.progress import Progress


class Format(StrEnum):
    table = "table"
    json = "json"


FormatOption = Annotated[Format, typer.Option("--format", help="For people or for programs.")]


def print_json(value: Any) -> None:
    print(_json(value), flush=True)


def _json(value: Any) -> str:
    """What a terminal might obey is escaped: names that clients chose may hold it, and JSON means the same by it."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def count_of(number: int, noun: str) -> str:
    """`1 record`, `2 records`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def say(*lines: str) -> None:
    """Lines for people. They may hold names that clients chose, so nothing in them rules the terminal."""
    for line in lines:
        print(printable(line), flush=True)


def warn(message: str) -> None:
    """A note for people, on stderr: programs read stdout."""
    print(f"ottla: {printable(message)}", file=sys.stderr, flush=True)


def warn_of_silent(brokers: Iterable[int]) -> None:
    """A note under a list that was collected from all brokers."""
    for broker in brokers:
        warn(f"broker {broker} does not answer; what it coordinates is missing")


def print_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns as wide as their widest cell; numbers to the right."""
    cells = [[_text(cell) for cell in row] for row in rows]
    if not cells:
        warn(f"no {heads[0]} to show")
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    right = [
        bool(cells) and all(cell.lstrip("-").isdigit() or cell in ("", "-") for cell in column)
        for column in zip(*cells, strict=True)
    ] or [False] * len(heads)
    for line in (list(heads), *cells):
        padded = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ]
        print("  ".join(padded).rstrip(), flush=True)


def progress_bar(file: IO[str], head: str = "", news: str = "") -> Progress:
    """A bar, done and all, the time that it took and that is left; `head` and `news` are formats of texts around it."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        *([TextColumn(head)] if head else []),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        *([TextColumn(news)] if news else []),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(file=file),
    )


def _text(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, list | tuple):
        return printable(",".join(str(part) for part in cell)) or "-"
    return printable(str(cell))
