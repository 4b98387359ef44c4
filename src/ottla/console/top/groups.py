"""The list of consumer groups, and the page of one: how far they are behind, since when, and where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ottla.console.model.consumers import LATE_S
from ottla.console.model.problems import LATE_WRONG_S, whole
from ottla.console.model.rows import GroupRow, LagRow, Place, place_text
from ottla.console.top.figures import NOTHING, age, number, sparkline
from ottla.console.top.lines import Cell, Line, Span, Style, cut, line
from ottla.console.top.listing import ListScreen
from ottla.console.top.picture import Picture
from ottla.console.top.tables import ListColumn, figure, member, named
from ottla.console.top.views import View
from ottla.console.watch.asking import GROUPS, Interest, group_of

SPARKS = 18
"""Three minutes of the history, a point every ten seconds."""
TREND = 60
GROWTH_POINTS = 6
"""How fast the lag grows is said of the last minute."""

LagKey = tuple[str, Place]
"""Group and partition."""


def behind_cell(seconds: float | None) -> Cell:
    if seconds is None:
        return NOTHING
    style = Style.PLAIN if seconds < LATE_S else Style.WARN if seconds < LATE_WRONG_S else Style.BAD
    return Span(whole(seconds), style)


def _growth(picture: Picture, row: GroupRow) -> float | None:
    """Records per second that the lag grows by, lately; negative while the group catches up."""
    points = picture.model.consumers.group_lags.points(row.id)[-GROWTH_POINTS:]
    if len(points) < 2:
        return None
    (first_ms, first, *_), (last_ms, last, *_) = points[0], points[-1]
    return (last - first) * 1000 / (last_ms - first_ms) if last_ms > first_ms else None


def _growth_cell(growth: float | None) -> Cell:
    if growth is None:
        return NOTHING
    return Span(f"{growth:+,.0f}", Style.WARN if growth >= 1 else Style.PLAIN)


def _trend(picture: Picture, row: GroupRow, width: int = SPARKS) -> Span:
    points = picture.model.consumers.group_lags.points(row.id)
    return Span(sparkline([point[1] for point in points], width), Style.ACCENT)


def _late(picture: Picture, row: GroupRow) -> str:
    since = age(row.late_since_ms, picture.now_ms)
    return f"{since} or more" if since and row.late_at_least else since


class GroupList(ListScreen[str, GroupRow]):
    name = "groups"
    reads = ("groups",)
    columns = (
        named("group", member("id")),
        ListColumn("state", member("state"), 2, order=member("state")),
        ListColumn("type", member("type"), 6, order=member("type")),
        figure("members", member("members"), number, 3),
        figure("lag", member("lag"), number, least=7),
        figure("behind", member("seconds"), behind_cell, least=7),
        ListColumn("late for", _late, 4, right=True, order=member("seconds")),
        figure("grows/s", _growth, _growth_cell, 3, reads=("group_lags",)),
        ListColumn("lag, 3 min", _trend, 5, SPARKS),
        ListColumn("topics", lambda _, row: ", ".join(row.topics), 4, 12, is_cut=True),
    )

    def keys(self, picture: Picture, scope: Any) -> list[str]:
        """Those that are late first."""
        rows = sorted(picture.model.consumers.groups.values(), key=lambda row: row.id)
        rows.sort(key=lambda row: _lateness(row.seconds))
        return [row.id for row in rows]

    def row(self, picture: Picture, key: str) -> GroupRow:
        return picture.model.consumers.groups.get(key) or GroupRow(key, "", "", "", -1)

    def words_of(self, row: GroupRow) -> str:
        return f"{row.id} {row.state} {' '.join(row.topics)}"

    def nothing(self, picture: Picture, scope: Any) -> str:
        return "There are no consumer groups."

    def is_wrong(self, picture: Picture, row: GroupRow) -> bool:
        return row.late_since_ms is not None

    def opened_by(self, picture: Picture, scope: Any, key: str) -> View | None:
        return View("group", key)

    def explained_by(self, picture: Picture, key: str) -> str:
        return f"group:{key}"

    def looked_at(self, scope: Any, visible: Sequence[str]) -> Iterable[Interest]:
        return (GROUPS,)


def _lateness(seconds: float | None) -> float:
    """All that are not late are alike: to sort them by their seconds would make them dance."""
    return -seconds if seconds is not None and seconds >= LATE_S else 0.0


# One group


def _reader(picture: Picture, row: LagRow) -> Cell:
    if row.member is None:
        return Span("nobody", Style.WARN)
    found = picture.model.consumers.members.get((row.group, row.member))
    return row.member if found is None else f"{found.client_id} {found.host}"


class GroupPage(ListScreen[LagKey, LagRow]):
    """The partitions of one group; `scope`: its id."""

    name = "group"
    reads = ("lags",)
    columns = (
        named("partition", lambda _, row: place_text((row.topic, row.partition))),
        figure("committed", member("committed"), number, 2),
        figure("end", member("log_end"), number, 3, least=7),
        figure("lag", member("lag"), number, least=7),
        figure("behind", member("seconds"), behind_cell, least=7),
        ListColumn("read by", _reader, 1, 12, is_cut=True),
    )

    def title(self, scope: Any) -> str:
        return f"group {scope}"

    def keys(self, picture: Picture, scope: Any) -> list[LagKey]:
        """Where it is late first."""
        found = [(key, row) for key, row in picture.model.consumers.lags.items() if key[0] == scope]
        found.sort(key=lambda each: (_lateness(each[1].seconds), each[0]))
        return [key for key, _ in found]

    def row(self, picture: Picture, key: LagKey) -> LagRow:
        group, place = key
        return picture.model.consumers.lags.get(key) or LagRow(group, *place, None, 0, 0, 0, 0.0)

    def words_of(self, row: LagRow) -> str:
        return place_text((row.topic, row.partition))

    def nothing(self, picture: Picture, scope: Any) -> str:
        if scope not in picture.model.consumers.groups:
            return "There is no such group any more."
        return "This group has committed no offsets."

    def is_wrong(self, picture: Picture, row: LagRow) -> bool:
        return (row.seconds or 0) >= LATE_S

    def head(self, picture: Picture, scope: Any, width: int) -> list[Line]:
        consumers = picture.model.consumers
        row = consumers.groups.get(scope)
        if row is None:
            return []
        late = _late(picture, row)
        members = [each for (group, _), each in consumers.members.items() if group == scope]
        names = ", ".join(f"{each.client_id} ({len(each.assigned)})" for each in members)
        lines = [
            line(
                Span(f" group {scope}", Style.STRONG),
                f"   {row.state} {row.type}   lag {number(row.lag)}   behind ",
                behind_cell(row.seconds),
                f"   late for {late}" if late else "",
            ),
            line(f" read by {names}" if names else Span(" It has no members: nobody reads.", Style.WARN)),
            line(
                " lag, 10 min ",
                _trend(picture, row, TREND),
                "   grows by ",
                _growth_cell(_growth(picture, row)),
                "/s",
            ),
        ]  # fmt: skip
        return [*(cut(each, width) for each in lines), ()]

    def opened_by(self, picture: Picture, scope: Any, key: LagKey) -> View | None:
        return View("partition", key[1])

    def explained_by(self, picture: Picture, key: LagKey) -> str:
        return f"group:{key[0]}"

    def looked_at(self, scope: Any, visible: Sequence[LagKey]) -> Iterable[Interest]:
        return (group_of(scope),)
