"""What all screens have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from ottla.console.top.lines import Line
from ottla.console.top.picture import Scene
from ottla.console.top.views import View
from ottla.console.watch.asking import Interest


class Screen(Protocol):
    """`height` is always that of the part of the terminal which the screen has."""

    @property
    def name(self) -> str: ...

    def title(self, scope: Any) -> str:
        """A few words, for the way that led here."""

    def drawn(self, scene: Scene, view: View, height: int) -> list[Line]:
        """At most so many lines."""

    def standing(self, scene: Scene, view: View, height: int) -> str:
        """How much of all is seen."""

    def moved(self, scene: Scene, view: View, height: int, key: str) -> View:
        """After a key that moves: one of MOVES."""

    def sorted_next(self, view: View) -> View:
        """By the next column."""

    def opens(self, scene: Scene, view: View, height: int) -> View | None:
        """What Enter opens."""

    def about(self, scene: Scene, view: View, height: int) -> str:
        """What there is to explain, as `partition:orders-0`; empty if nothing."""

    def interests(self, scene: Scene, view: View, height: int) -> Iterable[Interest]:
        """What must be asked often while somebody looks."""


EXPLAINED = ("partition", "topic", "group", "broker")


def explained(about: str) -> str:
    """`about`, if there is an explanation of that; else nothing."""
    kind, _, name = about.partition(":")
    return about if kind in EXPLAINED and name else ""


MOVES = ("up", "down", "pgup", "pgdn", "home", "end")


def moved(index: int, last: int, page: int, key: str) -> int:
    """The place after a key that moves."""
    found = {
        "up": index - 1,
        "down": index + 1,
        "pgup": index - page,
        "pgdn": index + page,
        "home": 0,
        "end": last,
    }[key]
    return max(0, min(found, last))


def seen_text(first: int, count: int, total: int, matched: str = "") -> str:
    """`1 to 30 of 15,000`."""
    if count >= total:
        return f"{total:,}{matched}"
    return f"{first + 1:,} to {first + count:,} of {total:,}{matched}"
