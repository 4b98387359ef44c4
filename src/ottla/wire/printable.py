"""Texts that clients sent, made fit for a terminal.

A group id, a client id or a transactional id may hold any character. Written as it is, an escape sequence would rule the
terminal, and a newline would add a line that nobody wrote.
"""

from __future__ import annotations


def printable(text: str) -> str:
    r"""On one line, with `\n`, `\x1b` and `\u202e` in place of what a terminal obeys."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()
