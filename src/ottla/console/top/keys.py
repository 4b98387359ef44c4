"""Keys from what a terminal sends: a letter is itself, other keys are sequences that begin with an escape."""

from __future__ import annotations

import re

ESCAPE = "\x1b"
_SEQUENCE = re.compile(r"\x1b(?:\[([0-9;?<]*)([@-~])|O(.))")
_INCOMPLETE = re.compile(r"\x1b(?:\[[0-9;?<]*|O)?")
_BY_LETTER = {
    "A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end", "Z": "backtab", "P": "f1",
    "M": "enter",
}  # fmt: skip
_BY_NUMBER = {
    "1": "home",
    "4": "end",
    "5": "pgup",
    "6": "pgdn",
    "7": "home",
    "8": "end",
    "11": "f1",
}
_BY_CHARACTER = {
    "\r": "enter", "\n": "enter", "\t": "tab", "\x7f": "backspace", "\b": "backspace", "\x15": "clear", "\x0c": "redraw",
}  # fmt: skip


def keys_in(received: str, *, is_all: bool = False) -> tuple[list[str], str]:
    """The keys, and the beginning of one that is not complete. `is_all`: nothing follows, so that an escape is the key Esc."""
    keys: list[str] = []
    while received:
        if received[0] != ESCAPE:
            keys.append(_BY_CHARACTER.get(received[0], received[0]))
            received = received[1:]
        elif found := _SEQUENCE.match(received):
            keys.append(_named(found))
            received = received[found.end() :]
        elif _INCOMPLETE.fullmatch(received) and not is_all:
            break
        else:
            keys.append("esc")
            received = received[1:]
    return keys, received


def _named(found: re.Match[str]) -> str:
    """Empty for a key that means nothing here. Numbers behind the first are of Shift, Control and Alt."""
    numbers, letter, alone = found.groups()
    if letter == "~":
        return _BY_NUMBER.get(numbers.partition(";")[0], "")
    return _BY_LETTER.get(letter or alone, "")
