"""What is wrong now, in words, the worst first."""

from __future__ import annotations

from typing import Any

from ottla.console.model.rows import Problem
from ottla.console.model.structure import THE
from ottla.console.top.figures import age
from ottla.console.top.lines import Cell, Line, Span, Style, wrapped
from ottla.console.top.listing import ListScreen
from ottla.console.top.picture import Picture
from ottla.console.top.screen import explained
from ottla.console.top.tables import ListColumn
from ottla.console.top.views import View
from ottla.diagnosis.explanation import DEGRADED, NOTICE, WRONG

MARKS = {WRONG: Span("✗", Style.BAD), DEGRADED: Span("!", Style.WARN), NOTICE: Span("·")}
ALL_IS_WELL = "Nothing is wrong."


def problem_of(picture: Picture, id: str) -> Problem:
    return picture.model.problems.get(id) or Problem(id, NOTICE, "This is over.", "", 0, "")


def _sentences(picture: Picture, row: Problem) -> Cell:
    return (Span(row.text, Style.STRONG), Span(f" {row.why}"))


class ProblemList(ListScreen[str, Problem]):
    name = "wrong"
    reads = ("problems",)
    columns = (
        ListColumn("", lambda _, row: MARKS[row.severity]),
        ListColumn("for", lambda picture, row: age(row.since_ms, picture.now_ms), 1, 5, right=True),
        ListColumn("what, and why", _sentences, least=20, is_cut=True),
    )

    def keys(self, picture: Picture, scope: Any) -> list[str]:
        return [row.id for row in worst(picture)]

    def row(self, picture: Picture, key: str) -> Problem:
        return problem_of(picture, key)

    def words_of(self, row: Problem) -> str:
        return f"{row.text} {row.why} {' '.join(row.places)}"

    def nothing(self, picture: Picture, scope: Any) -> str:
        is_known = picture.model.structure.totals.get(THE) is not None
        return ALL_IS_WELL if is_known else "Nobody has answered yet."

    def is_wrong(self, picture: Picture, row: Problem) -> bool:
        return row.severity > NOTICE

    def opened_by(self, picture: Picture, scope: Any, key: str) -> View | None:
        return View("problem", key)

    def explained_by(self, picture: Picture, key: str) -> str:
        return explained(problem_of(picture, key).about)


def worst(picture: Picture) -> list[Problem]:
    return sorted(picture.model.problems.values(), key=lambda row: row.rank)


def problem_lines(row: Problem, now_ms: int, width: int) -> list[Line]:
    lines = wrapped(f" {row.text}", width, Style.STRONG)
    if row.why:
        lines += wrapped(f" {row.why}", width)
    if since := age(row.since_ms, now_ms):
        lines += wrapped(f" For {since}.", width)
    if row.places:
        more = row.total - len(row.places)
        names = ", ".join(row.places) + (f" and {more:,} more" if more > 0 else "")
        lines += [(), *wrapped(f" Partitions: {names}", width)]
    return lines
