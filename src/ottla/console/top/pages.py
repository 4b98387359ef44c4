"""Pages: what is read, and scrolled, rather than chosen from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

from ottla.console.top.events import event_lines
from ottla.console.top.lines import Line, Style, cut, line, wrapped
from ottla.console.top.picture import Picture, Scene
from ottla.console.top.screen import explained, moved, seen_text
from ottla.console.top.views import View
from ottla.console.top.wrong import problem_lines, problem_of
from ottla.console.watch.asking import Interest


class TextPage(ABC):
    """What is to be said of one page; the rest is here."""

    name: ClassVar[str]

    def title(self, scope: Any) -> str:
        return self.name

    @abstractmethod
    def lines(self, picture: Picture, scope: Any, width: int) -> list[Line]:
        """All of it."""

    def opened_by(self, picture: Picture, scope: Any) -> View | None:
        about = self.explained_by(picture, scope)
        return View("explain", about) if about else None

    def explained_by(self, picture: Picture, scope: Any) -> str:
        return ""

    # As a Screen

    def drawn(self, scene: Scene, view: View, height: int) -> list[Line]:
        width = scene.size.columns
        lines = self.lines(scene.picture, view.scope, width)
        top = _top(view.top, len(lines), height)
        return [cut(each, width) for each in lines[top : top + max(0, height)]]

    def standing(self, scene: Scene, view: View, height: int) -> str:
        total = len(self.lines(scene.picture, view.scope, scene.size.columns))
        if total <= height:
            return ""
        top = _top(view.top, total, height)
        return f"lines {seen_text(top, min(height, total - top), total)}"

    def moved(self, scene: Scene, view: View, height: int, key: str) -> View:
        total = len(self.lines(scene.picture, view.scope, scene.size.columns))
        top = moved(_top(view.top, total, height), total - 1, max(1, height - 1), key)
        return view._replace(top=_top(top, total, height))

    def sorted_next(self, view: View) -> View:
        return view

    def opens(self, scene: Scene, view: View, height: int) -> View | None:
        return self.opened_by(scene.picture, view.scope)

    def about(self, scene: Scene, view: View, height: int) -> str:
        return self.explained_by(scene.picture, view.scope)

    def interests(self, scene: Scene, view: View, height: int) -> Iterable[Interest]:
        return ()


def _top(wanted: int, total: int, height: int) -> int:
    return max(0, min(wanted, total - height))


class EventPage(TextPage):
    """One entry of the event log; `scope`: its row."""

    name = "event"

    def title(self, scope: Any) -> str:
        return str(scope.kind)

    def lines(self, picture: Picture, scope: Any, width: int) -> list[Line]:
        return event_lines(scope, picture.now_ms, width)

    def opened_by(self, picture: Picture, scope: Any) -> View | None:
        """The partition, the group or the broker that it is about."""
        if scope.place is not None:
            return View("partition", scope.place)
        kind, _, name = scope.about.partition(":")
        return View("group", name) if kind == "group" else super().opened_by(picture, scope)

    def explained_by(self, picture: Picture, scope: Any) -> str:
        return explained(scope.about)


class ProblemPage(TextPage):
    """One thing that is wrong; `scope`: its id."""

    name = "problem"

    def title(self, scope: Any) -> str:
        return str(scope)

    def lines(self, picture: Picture, scope: Any, width: int) -> list[Line]:
        return problem_lines(problem_of(picture, scope), picture.now_ms, width)

    def explained_by(self, picture: Picture, scope: Any) -> str:
        return explained(problem_of(picture, scope).about)


class ExplanationPage(TextPage):
    """The words of `ottla explain`; `scope`: what it is about."""

    name = "explain"

    def title(self, scope: Any) -> str:
        kind, _, name = str(scope).partition(":")
        return f"explain {kind if kind == 'broker' else ''} {name}".replace("  ", " ")

    def lines(self, picture: Picture, scope: Any, width: int) -> list[Line]:
        told = picture.explanations.get(scope)
        if told is None or told.text is None:
            return [line(" Finding out …")]
        return [
            each
            for text in told.text.split("\n")
            for each in wrapped(f" {text}", width, Style.STRONG if _is_head(text) else Style.PLAIN)
        ]

    def opened_by(self, picture: Picture, scope: Any) -> View | None:
        return None

    def explained_by(self, picture: Picture, scope: Any) -> str:
        return str(scope)


def _is_head(text: str) -> bool:
    return text.endswith(":") and not text.startswith(" ")


HELP = """\
Keys
  1 to 6, Tab       brokers, partitions, groups, topics, events, what is wrong
  arrows, PgUp, PgDn, Home, End, or k j g G
                    move
  Enter             more: a broker's partitions, a partition's replicas, its explanation
  Esc               back
  e                 explain the row under the cursor: why it is so, and what to do
  /                 only rows with certain words; Enter keeps them, Esc forgets them
  w                 only what is wrong, or all
  s, r              sort by the next column; in the reverse order
  ? and q           this page, and the end

Words
  leader      the broker that all writes to a partition go to
  epoch       how often a partition had a new leader
  in sync     the replicas (ISR) that have all committed records; −2: broker 2 is not
  LEO         log end offset: where the next record will be written
  HW          high watermark: records below it are committed, and can be read
  lag         records that a replica has not copied, or a group has not read
  behind      of a broker: replicas out of sync; of a group: the age of its oldest unread record
  full        of the disks of a broker's log directories
  copied      what a broker reads from leaders, as a follower

Rates are over the last seconds. Bytes, and the CPU, are known of ottla's brokers; of others, what came in follows from
the growth of their logs."""


class HelpPage(TextPage):
    name = "help"

    def lines(self, picture: Picture, scope: Any, width: int) -> list[Line]:
        return [
            each
            for text in HELP.split("\n")
            for each in wrapped(
                f" {text}", width, Style.STRONG if text in ("Keys", "Words") else Style.PLAIN
            )
        ]
