"""The list of partitions: who leads, who is in sync, and how far each replica is; what is wrong first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ottla.console.model.rows import BrokerStanding, PartitionRow, Place, TopicSizeRow, place_text
from ottla.console.top.brokers import STYLES, address, broker_of
from ottla.console.top.figures import age, amount, because, ids, number, sparkline
from ottla.console.top.lines import Cell, Line, Span, Style, line
from ottla.console.top.listing import ListScreen
from ottla.console.top.picture import Picture
from ottla.console.top.tables import ListColumn, figure, member, named
from ottla.console.top.views import View
from ottla.console.watch.asking import Interest, listed, topic_of

TREND = 40
NOBODY = -1


def leader_cell(leader: int) -> Cell:
    return Span("none", Style.BAD) if leader < 0 else str(leader)


def in_sync_cell(row: PartitionRow) -> Cell:
    """`1,3 −2`: who is in sync, and who is not."""
    missing = "".join(f" −{id}" for id in row.out_of_sync)
    return line(ids(sorted(row.isr)), Span(missing, Style.BAD))


def _offsets(of: str) -> Callable[[Picture, PartitionRow], float | None]:
    return lambda picture, row: getattr(picture.model.flow.offsets.get(row.place), of, None)


def _log_end(picture: Picture, row: PartitionRow) -> Cell:
    """Never below the high watermark, which may have been asked a moment later."""
    ends, offsets = (
        picture.model.flow.ends.get(row.place),
        picture.model.flow.offsets.get(row.place),
    )
    if ends is None:
        return ""
    end = dict(ends.ends).get(row.leader)
    return number(end if end is None or offsets is None else max(end, offsets.end))


def _lags(picture: Picture, row: PartitionRow) -> Cell:
    """`2:0 3:15`: records that each follower has not copied."""
    ends = picture.model.flow.ends.get(row.place)
    if ends is None:
        return ""
    parts: list[Cell] = []
    for id in sorted(row.replicas):
        if id != row.leader:
            lag = ends.lag(id, row.leader)
            style = Style.BAD if id not in row.isr else Style.PLAIN if lag else Style.DIM
            parts.append(Span(f"{' ' if parts else ''}{id}:{number(lag)}", style))
    return line(*parts)


def _why(picture: Picture, row: PartitionRow) -> Cell:
    return "" if row.is_well else because(row.cause, row.since_ms, picture.now_ms)


class PartitionList(ListScreen[Place, PartitionRow]):
    """`scope`: None, ("broker", id) or ("topic", name)."""

    name = "partitions"
    reads = ("partitions",)
    columns = (
        named("partition", lambda _, row: place_text(row.place)),
        figure("leader", member("leader"), leader_cell),
        figure("epoch", member("epoch"), number, 2),
        ListColumn("in sync", lambda _, row: in_sync_cell(row), order=lambda _, row: len(row.isr)),
        figure("HW", _offsets("end"), number, 1, least=7, reads=("offsets",)),
        ListColumn("LEO", _log_end, 3, 7, right=True),
        ListColumn("lag", _lags, 2),
        figure("records/s", _offsets("rate"), number, 4, reads=("offsets",)),
        ListColumn("why", _why, 3, 12, is_cut=True),
    )

    def title(self, scope: Any) -> str:
        return self.name if scope is None else f"{scope[0]} {scope[1]}"

    def keys(self, picture: Picture, scope: Any) -> list[Place]:
        """Those without a leader, those that lack replicas, all others; of topics that people made first."""
        structure = picture.model.structure
        rows = structure.partitions

        def is_meant(place: Place) -> bool:
            if scope is None:
                return True
            kind, name = scope
            return place[0] == name if kind == "topic" else name in rows[place].replicas

        unwell = [place for place in structure.unwell if is_meant(place)]
        unwell.sort(key=lambda place: (rows[place].leader >= 0, len(rows[place].isr), place))
        well = sorted(place for place in rows if place not in structure.unwell and is_meant(place))
        internal = {name for name, row in picture.model.topics.items() if row.internal}
        return [
            place
            for places in (unwell, well)
            for of_people in (True, False)
            for place in places
            if (place[0] not in internal) is of_people
        ]

    def row(self, picture: Picture, key: Place) -> PartitionRow:
        return picture.model.partitions.get(key) or PartitionRow(*key, NOBODY, NOBODY, (), ())

    def words_of(self, row: PartitionRow) -> str:
        return place_text(row.place)

    def nothing(self, picture: Picture, scope: Any) -> str:
        return "There are no partitions."

    def is_wrong(self, picture: Picture, row: PartitionRow) -> bool:
        return not row.is_well

    def head(self, picture: Picture, scope: Any, width: int) -> list[Line]:
        if scope is None:
            return []
        kind, name = scope
        return [_of_topic(picture, name) if kind == "topic" else _of_broker(picture, name), ()]

    def opened_by(self, picture: Picture, scope: Any, key: Place) -> View | None:
        return View("partition", key)

    def explained_by(self, picture: Picture, key: Place) -> str:
        return f"partition:{place_text(key)}"

    def looked_at(self, scope: Any, visible: Sequence[Place]) -> Iterable[Interest]:
        found = {listed(place) for place in visible}
        if scope is not None and scope[0] == "topic":
            found.add(topic_of(scope[1]))
        return found


def _of_broker(picture: Picture, id: int) -> Line:
    row = broker_of(picture, id)
    rates = picture.model.flow.of_broker(id)
    parts: list[Cell] = [Span(f" broker {id}  ", Style.STRONG), Span(row.standing, STYLES[row.standing])]  # fmt: skip
    if row.standing is not BrokerStanding.UP and (since := age(row.since_ms, picture.now_ms)):
        parts.append(f" for {since}")
    parts.append(
        f"   {address(row)}   leads {number(row.leaders)} of {number(row.replicas)} replicas"
    )
    if rates is not None:
        parts.append(f"   in {amount(rates.bytes_in)}/s   out {amount(rates.bytes_out)}/s")
    return line(*parts)


def _of_topic(picture: Picture, name: str) -> Line:
    if name not in picture.model.topics:
        return line(Span(f" topic {name}", Style.STRONG), "   there is none any more")
    held = picture.model.flow.topic_sizes.get(name) or TopicSizeRow()
    points = picture.model.flow.topic_rates.points(name)
    return line(
        Span(f" topic {name}", Style.STRONG),
        f"   {number(held.records)} records, {amount(held.bytes)}   {number(held.records_in)} records/s ",
        Span(sparkline([point[1] for point in points], TREND).lstrip(), Style.ACCENT),
    )
