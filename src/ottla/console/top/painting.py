"""From lines to what a terminal obeys: only lines that changed are written again.

Colours are chosen to be read on a dark and on a light background: of those in between, where both contrasts are four or more.
A terminal that knows eight colours only gets the two of them that can be read on both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.console.top.lines import Line, Span, Style

ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
"""The other screen of the terminal, without a cursor; what is too long is cut, not continued on the next row."""
LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"

_PLAIN = "\x1b[0m"
_CLEAR_TO_END = "\x1b[K"
_WITHOUT_COLOURS: Mapping[Style, str] = {
    Style.PLAIN: "",
    Style.DIM: "2",
    Style.STRONG: "1",
    Style.GOOD: "",
    Style.WARN: "1",
    Style.BAD: "1",
    Style.ACCENT: "",
    Style.CHOSEN: "7",
}
_EIGHT = {**_WITHOUT_COLOURS, Style.WARN: "35", Style.BAD: "1;31"}
COLOURS = {Style.GOOD: 28, Style.WARN: 130, Style.BAD: 196, Style.ACCENT: 27}
"""Of the 256 of xterm."""
_MANY = {
    **_WITHOUT_COLOURS,
    **{style: f"38;5;{number}" for style, number in COLOURS.items()},
    Style.BAD: f"1;38;5;{COLOURS[Style.BAD]}",
}
_CODES = {0: _WITHOUT_COLOURS, 8: _EIGHT, 256: _MANY}


def colours(environment: Mapping[str, str]) -> int:
    """How many there are to be had: 0, 8 or 256."""
    if environment.get("NO_COLOR"):
        return 0
    names = environment.get("TERM", ""), environment.get("COLORTERM", "")
    return 256 if "256color" in names[0] or names[1] in ("truecolor", "24bit") else 8


class Painter:
    """Knows what a terminal shows."""

    def __init__(self, colours: int) -> None:
        self._codes = _CODES[colours]
        self._shown: list[Line] = []
        self._is_known = False

    def forget(self) -> None:
        """Somebody else has written to the terminal, or its size has changed."""
        self._is_known = False

    def paint(self, lines: Sequence[Line]) -> str:
        """What makes the terminal show these."""
        parts = [] if self._is_known else [f"{_PLAIN}\x1b[2J"]
        before = self._shown if self._is_known else []
        for at, each in enumerate(lines):
            if at >= len(before) or before[at] != each:
                parts.append(f"\x1b[{at + 1};1H{self._painted(each)}{_CLEAR_TO_END}")
        self._shown, self._is_known = list(lines), True
        return "".join(parts)

    def _painted(self, each: Line) -> str:
        return "".join(map(self._span, each))

    def _span(self, span: Span) -> str:
        code = self._codes[span.style]
        return f"\x1b[{code}m{span.text}{_PLAIN}" if code else span.text
