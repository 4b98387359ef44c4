"""What happened, the newest first; live, with causes."""

from __future__ import annotations

from typing import Any

from ottla.console.model.rows import EventRow
from ottla.console.model.structure import THE
from ottla.console.top.lines import Cell, Line, Span, Style, wrapped
from ottla.console.top.listing import ListScreen
from ottla.console.top.picture import Picture
from ottla.console.top.screen import explained
from ottla.console.top.tables import ListColumn, member
from ottla.console.top.views import View
from ottla.diagnosis.words import clock
from ottla.event_log.kinds import KINDS, Severity

STYLES = {Severity.INFO: Style.PLAIN, Severity.WARNING: Style.WARN, Severity.ERROR: Style.BAD}
NO_LOG = "This cluster has no event log: only ottla's clusters keep one, from a few seconds after their first start on."


def with_cause(event: EventRow) -> str:
    """The sentences of some kinds have it already."""
    if not event.cause or event.cause in event.text:
        return event.text
    return f"{event.text}: {event.cause}"


def _text(picture: Picture, event: EventRow) -> Cell:
    return Span(with_cause(event), STYLES[Severity(event.severity)])


class EventList(ListScreen[EventRow, EventRow]):
    name = "events"
    reads = ("newest", "cluster")
    columns = (
        ListColumn("when (UTC)", lambda picture, event: clock(event.at_ms, picture.now_ms), right=True),
        ListColumn("node", lambda _, event: str(event.node), 2, right=True),
        ListColumn("kind", member("kind"), 3, order=member("kind")),
        ListColumn("what", _text, least=20, is_cut=True),
    )  # fmt: skip

    def keys(self, picture: Picture, scope: Any) -> list[EventRow]:
        return list(reversed(picture.model.happenings.events))

    def row(self, picture: Picture, key: EventRow) -> EventRow:
        return key

    def words_of(self, row: EventRow) -> str:
        return f"{row.kind} {row.about} {with_cause(row)}"

    def nothing(self, picture: Picture, scope: Any) -> str:
        known = picture.model.cluster[THE].has_event_log
        return "Nothing has happened yet." if known else NO_LOG if known is False else "Asking …"

    def is_wrong(self, picture: Picture, row: EventRow) -> bool:
        return row.severity > Severity.INFO

    def opened_by(self, picture: Picture, scope: Any, key: EventRow) -> View | None:
        return View("event", key)

    def explained_by(self, picture: Picture, key: EventRow) -> str:
        return explained(key.about)


def event_lines(event: EventRow, now_ms: int, width: int) -> list[Line]:
    """All of one entry."""
    when = f"{clock(event.at_ms, now_ms)} UTC, told by node {event.node}"
    lines = [
        *wrapped(f" {with_cause(event)}", width, Style.STRONG),
        *wrapped(f" {when}", width, Style.DIM),
        (),
    ]
    if event.kind in KINDS:
        lines += [
            *wrapped(f" {event.kind}: {KINDS[event.kind].meaning.replace('`', '')}", width),
            (),
        ]
    for name, value in event.fields.items():
        lines += wrapped(f" {name} = {value}", width)
    return lines
