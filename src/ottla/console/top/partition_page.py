"""One partition: the logs of its replicas as bars, its leader epochs, who reads it, and what happened to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.console.model.rows import (
    BrokerStanding,
    PartitionRow,
    Place,
    ReplicaRow,
    place_text,
)
from ottla.console.model.structure import THE
from ottla.console.top.brokers import broker_of
from ottla.console.top.events import NO_LOG, STYLES, with_cause
from ottla.console.top.figures import amount, because, ids, number
from ottla.console.top.lines import Cell, Line, Span, Style, filled, line, width_of, wrapped
from ottla.console.top.pages import TextPage
from ottla.console.top.partitions import in_sync_cell, leader_cell
from ottla.console.top.picture import Picture
from ottla.console.top.views import View
from ottla.console.watch.asking import Interest, partition_of
from ottla.diagnosis.words import clock
from ottla.event_log.kinds import Severity

EVENTS_MAX = 50
EPOCHS_SHOWN = 8
LEAST_OFFSETS = 64
"""A bar shows at least so many offsets, and always the newest."""
COMMITTED, UNCOMMITTED, GONE = "█", "▒", "·"
BAR_MIN = 10


class PartitionPage(TextPage):
    """`scope`: topic and number."""

    name = "partition"

    def title(self, scope: Any) -> str:
        return place_text(scope)

    def lines(self, picture: Picture, scope: Any, width: int) -> list[Line]:
        place: Place = scope
        row = picture.model.partitions.get(place)
        if row is None:
            return [line(f" There is no partition {place_text(place)} any more.")]
        return [
            *_head(picture, row),
            (),
            *_replicas(picture, row, width),
            *_epochs(picture, place, width),
            *_move(picture, place),
            *_readers(picture, place, width),
            (),
            *_happened(picture, place, width),
        ]

    def opened_by(self, picture: Picture, scope: Any) -> View | None:
        return View("explain", self.explained_by(picture, scope))

    def explained_by(self, picture: Picture, scope: Any) -> str:
        return f"partition:{place_text(scope)}"

    def interests(self, scene: Any, view: View, height: int) -> Iterable[Interest]:
        return (partition_of(view.scope),)


def _head(picture: Picture, row: PartitionRow) -> list[Line]:
    offsets = picture.model.flow.offsets.get(row.place)
    parts: list[Cell] = [
        Span(" leader ", Style.STRONG),
        leader_cell(row.leader),
        f"   epoch {row.epoch}   in sync ",
        in_sync_cell(row),
        f"   replicas {ids(row.replicas)}",
    ]
    if offsets is not None and offsets.rate is not None:
        parts.append(f"   {number(offsets.rate)} records/s")
    lines = [line(*parts)]
    if why := because(row.cause, row.since_ms, picture.now_ms):
        lines.append(line(f" leader and ISR so since: {why}"))
    return lines


# The logs side by side


def _replicas(picture: Picture, row: PartitionRow, width: int) -> list[Line]:
    found = picture.model.flow.replicas
    rows = {id: known for id in row.replicas if (known := found.get((row.place, id))) is not None}
    if not rows:
        return [line(Span(" Asking its replicas …", Style.DIM))]
    heads = {id: _role(picture, row, id) for id in row.replicas}
    told = {id: _offsets_of(row, rows, id) for id in row.replicas}
    head_width = max(map(width_of, heads.values()))
    told_width = max(map(width_of, told.values()))
    bar_width = width - head_width - told_width - 5
    low, high = window(rows.values())
    lines = []
    for id in row.replicas:
        parts = [Span(" "), *filled(heads[id], head_width), Span("  ")]
        if bar_width >= BAR_MIN:
            known = rows.get(id)
            text = bar(known, low, high, bar_width) if known is not None else " " * bar_width
            parts += [Span(text, Style.PLAIN if id in row.isr else Style.BAD), Span("  ")]
        lines.append((*parts, *told[id]))
    if bar_width >= BAR_MIN and high > low:
        legend = f"{COMMITTED} committed  {UNCOMMITTED} not yet   offsets {number(low)} to {number(high - 1)}"
        lines.append(line(" " * (head_width + 3), Span(legend, Style.DIM)))
    return lines


def _role(picture: Picture, row: PartitionRow, id: int) -> Line:
    standing = broker_of(picture, id).standing
    role = "leader" if id == row.leader else "follower"
    sync = Span("in sync") if id in row.isr else Span("not in sync", Style.BAD)
    if standing is not BrokerStanding.UP:
        sync = Span(standing, Style.BAD)
    elif id in row.offline:
        sync = Span("disk failed", Style.BAD)
    strong = Style.STRONG if id == row.leader else Style.PLAIN
    return line(Span(f"broker {id}  {role:<8}  ", strong), sync)


def _offsets_of(row: PartitionRow, rows: Mapping[int, ReplicaRow], id: int) -> Line:
    known, leader = rows.get(id), rows.get(row.leader)
    if known is None or known.end is None:
        return line(Span("does not answer", Style.DIM))
    parts: list[Cell] = [f"HW {number(known.high_watermark)}  LEO {number(known.end)}"]
    if id != row.leader and leader is not None and leader.end is not None:
        lag = max(0, leader.end - known.end)
        parts.append(Span(f"  lag {number(lag)}", Style.WARN if lag else Style.DIM))
    return line(*parts)


def window(rows: Iterable[ReplicaRow]) -> tuple[int, int]:
    """The offsets that bars show, up to the highest log end: about twice what the furthest behind lacks. It grows and shrinks by
    doubling, so that a bar does not jump with each record."""
    known = [row for row in rows if row.end is not None]
    if not known:
        return 0, 0
    ends = [row.end or 0 for row in known]
    marks = [row.high_watermark for row in known if row.high_watermark is not None]
    high = max(ends)
    lowest = min([*ends, *marks])
    offsets = LEAST_OFFSETS
    while offsets < 2 * (high - lowest):
        offsets *= 2
    first = min(row.start or 0 for row in known)
    return max(min(first, high), high - offsets), high


def bar(row: ReplicaRow, low: int, high: int, width: int) -> str:
    """The log between these offsets: what is committed as this replica knows it, what is not yet, and what it does not have."""
    if row.end is None or high <= low:
        return " " * width

    def cell(at: int) -> str:
        offset = low + (high - low) * at // width
        assert row.end is not None
        if offset < (row.start or 0):
            return " "
        if offset >= row.end:
            return GONE
        return UNCOMMITTED if offset >= (row.high_watermark or 0) else COMMITTED

    return "".join(map(cell, range(width)))


# What else there is to know


def _epochs(picture: Picture, place: Place, width: int) -> list[Line]:
    row = picture.model.flow.epochs.get(place)
    if row is None or not row.epochs:
        return []
    named = [f"{epoch} from {number(first)}" for epoch, first in row.epochs[-EPOCHS_SHOWN:]]
    more = "… " if len(row.epochs) > EPOCHS_SHOWN else ""
    return wrapped(f" Leader epochs: {more}{', '.join(named)}", width)


def _move(picture: Picture, place: Place) -> list[Line]:
    row = picture.model.structure.moves.get(place)
    if row is None:
        return []
    done = "" if row.copied is None else f", {amount(row.copied)} of {amount(row.total)} copied"
    words = f" Moving to brokers {ids(row.adding)}, away from {ids(row.removing)}{done}"
    return [line(Span(words, Style.WARN))]


def _readers(picture: Picture, place: Place, width: int) -> list[Line]:
    lags = picture.model.consumers.lags
    found = [
        f"{group} (lag {number(row.lag)})"
        for group in sorted(picture.model.consumers.groups)
        if (row := lags.get((group, place))) is not None
    ]
    return wrapped(f" Read by: {', '.join(found)}", width) if found else []


def _happened(picture: Picture, place: Place, width: int) -> list[Line]:
    """The newest first: what is above the edge of the screen is read first."""
    if picture.model.cluster[THE].has_event_log is False:
        return wrapped(f" {NO_LOG}", width, Style.DIM)
    events = picture.model.happenings.last_of(place_text(place), EVENTS_MAX)
    if not events:
        return [line(Span(" Nothing has happened to it as far as the event log tells.", Style.DIM))]
    lines = [line(Span(" What happened (UTC), the newest first:", Style.DIM))]
    for event in reversed(events):
        text = with_cause(event).removeprefix(f"{place_text(place)}: ")
        style = STYLES[Severity(event.severity)]
        lines += wrapped(f"   {clock(event.at_ms, picture.now_ms)}  {text}", width, style)
    return lines
