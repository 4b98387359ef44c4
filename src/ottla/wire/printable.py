"""Texts that clients sent, made fit for a terminal.

A group id, a client id or a transactional id may hold any character. Written as it is, an escape sequence would rule the
terminal, and a newline would add a line that nobody wrote.
"""

from __future__ import annotations

from typing import Final

NAME_CHARACTERS: Final = 256
"""As much of a name as a log line needs. A stranger's name may fill a whole frame, and each character may become ten."""


def printable_name(text: str) -> str:
    """As `printable`, and never long."""
    return printable(text if len(text) <= NAME_CHARACTERS else f"{text[: NAME_CHARACTERS - 1]}…")


def printable(text: str) -> str:
    r"""On one line, with `\n`, `\x1b` and `\u202e` in place of what a terminal obeys."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()
