"""Arguments of script commands: how they are read, and what is said about wrong ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import TypeVar

T = TypeVar("T")


class ScriptError(Exception):
    """A step that could not be taken."""


class NotInTime(ScriptError):
    """A condition that a command waits for did not become true."""


def number(text: str | int) -> int:
    try:
        return int(text)
    except ValueError:
        raise ScriptError(f"{text} is no number") from None


def one_of(name: str, known: Mapping[str, T]) -> T:
    if name not in known:
        raise ScriptError(f"{name} is none of {', '.join(known) or '(nothing yet)'}")
    return known[name]


def pairs(texts: Sequence[str]) -> dict[str, str]:
    return {name: value for name, _, value in (text.partition("=") for text in texts)}


def values(text: str) -> list[bytes]:
    """`m1` is one value, `r1..r9` are nine."""
    first, dots, last = text.partition("..")
    if not dots:
        return [text.encode()]
    prefix = first.rstrip("0123456789")
    begin, end = int(first.removeprefix(prefix)), int(last.removeprefix(prefix))
    return [f"{prefix}{number}".encode() for number in range(begin, end + 1)]


def usage(name: str, command: Callable[..., list[str]]) -> str:
    """How the command is written: `send kind node [which]`."""
    words = [
        f"[{each.name} …]"
        if each.kind is each.VAR_POSITIONAL
        else each.name
        if each.default is each.empty
        else f"[{each.name}]"
        for each in signature(command).parameters.values()
    ]
    return " ".join([name, *words])
