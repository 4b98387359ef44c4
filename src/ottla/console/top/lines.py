"""Lines of a terminal: texts with a meaning, cut and filled to a number of cells."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from itertools import takewhile
from textwrap import TextWrapper
from typing import NamedTuple
from unicodedata import category, east_asian_width

from ottla.wire.printable import printable

CUT = "…"
UNLIMITED = 1 << 20
"""The width of a file."""


class Style(StrEnum):
    """What a text means. How that looks, `painting` says."""

    PLAIN = "plain"
    DIM = "dim"
    STRONG = "strong"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    ACCENT = "accent"
    CHOSEN = "chosen"
    """Under the cursor."""


class Span(NamedTuple):
    text: str
    style: Style = Style.PLAIN


Line = tuple[Span, ...]
Cell = str | Span | Line
"""A part of a line. Clients may have chosen its words: `line` makes them printable."""


def line(*parts: Cell) -> Line:
    """Nothing in it rules the terminal."""
    return tuple(
        Span(printable(each.text), each.style)
        for part in parts
        for each in _spans(part)
        if each.text
    )


def _spans(part: Cell) -> Iterable[Span]:
    if isinstance(part, str):
        return (Span(part),)
    return (part,) if isinstance(part, Span) else part


def text_of(line: Line) -> str:
    return "".join(span.text for span in line)


def cells(text: str) -> int:
    """How many cells of a terminal a text takes: ideographs take two, accents none."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


@lru_cache(4096)
def _cells_of(char: str) -> int:
    if category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(char) in "WF" else 1


def width_of(line: Line) -> int:
    return sum(cells(span.text) for span in line)


def cut(line: Line, width: int) -> Line:
    """At most so wide; what is missing is marked."""
    if width_of(line) <= width:
        return line
    left = width - 1
    kept: list[Span] = []
    for span in line:
        if left < 0:
            break
        text = span.text if cells(span.text) <= left else _beginning(span.text, left)
        kept.append(span._replace(text=text))
        left -= cells(text)
        if text != span.text:
            break
    return (*kept, Span(CUT, kept[-1].style)) if width > 0 and kept else ()


def _beginning(text: str, width: int) -> str:
    end = 0
    for char in text:
        width -= _cells_of(char)
        if width < 0:
            break
        end += 1
    return text[:end]


def cut_in_the_middle(line: Line, width: int) -> Line:
    """The end of a name says most: of a partition, its number."""
    if width_of(line) <= width or width < 4:
        return cut(line, width)
    whole = Span(text_of(line), line[0].style)
    tail = _beginning(whole.text[::-1], width // 2)[::-1]
    head = _beginning(whole.text, width - 1 - cells(tail))
    return (whole._replace(text=head + CUT + tail),)


def filled(line: Line, width: int, *, right: bool = False) -> Line:
    """Exactly so wide."""
    line = cut(line, width)
    space = Span(" " * (width - width_of(line)))
    if not space.text:
        return line
    return (space, *line) if right else (*line, space)


def apart(left: Line, right: Line, width: int) -> Line:
    """One at each end; if there is no room for both, the left one is cut, and the right one left out if it took most of it."""
    if width >= UNLIMITED:
        return (*left, Span("   "), *right) if width_of(right) else left
    room = width - width_of(right)
    if room < width // 2:
        return cut(left, width)
    return (*filled(cut(left, max(0, room - 1)), room), *right)


def chosen(line: Line, width: int) -> Line:
    """The whole line under the cursor."""
    return (Span(text_of(filled(line, width)), Style.CHOSEN),)


def wrapped(text: str, width: int, style: Style = Style.PLAIN) -> list[Line]:
    """A text in as many lines as it takes. What follows a line that begins with spaces is indented by two more."""
    found: list[Line] = []
    for each in text.split("\n"):
        indent = len(list(takewhile(str.isspace, each)))
        indent = min(indent + 2 if indent else 0, width // 2)
        wrapper = TextWrapper(
            max(width, 1),
            subsequent_indent=" " * indent,
            break_on_hyphens=False,
            drop_whitespace=True,
        )
        found += [cut(line(Span(part, style)), width) for part in wrapper.wrap(each) or [""]]
    return found
