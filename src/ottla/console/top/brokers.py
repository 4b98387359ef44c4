"""The list of brokers: what each of them carries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.console.model.rows import BrokerRow, BrokerStanding
from ottla.console.model.structure import THE
from ottla.console.top.figures import amount, because, number, part, sparkline
from ottla.console.top.lines import Cell, Span, Style, line
from ottla.console.top.listing import ListScreen
from ottla.console.top.picture import Picture
from ottla.console.top.tables import ListColumn, figure, member
from ottla.console.top.views import View

SPARKS = 12
IN, OUT = 2, 3
"""Where they are in a point of the rates of a broker."""
STYLES = {
    BrokerStanding.UP: Style.GOOD,
    BrokerStanding.SILENT: Style.BAD,
    BrokerStanding.FENCED: Style.BAD,
    BrokerStanding.GONE: Style.WARN,
}


def broker_of(picture: Picture, id: int) -> BrokerRow:
    return picture.model.brokers.get(id) or BrokerRow(id, standing=BrokerStanding.GONE)


def address(row: BrokerRow) -> str:
    return f"{row.host}:{row.port}" if row.host else ""


def lacking(count: int) -> Cell:
    return Span(number(count), Style.BAD if count else Style.DIM)


def _state(picture: Picture, row: BrokerRow) -> Cell:
    quorum = picture.model.quorum.get(THE)
    leads = quorum is not None and quorum.leader == row.id
    return line(Span(row.standing, STYLES[row.standing]), ", controller" if leads else "")


def _rate(of: str) -> Callable[[Picture, BrokerRow], float | None]:
    return lambda picture, row: getattr(picture.model.flow.of_broker(row.id), of, None)


def _trend(at: int) -> Callable[[Picture, BrokerRow], Cell]:
    def chart(picture: Picture, row: BrokerRow) -> Cell:
        points = picture.model.flow.broker_rates.points(row.id)
        return Span(sparkline([point[at] for point in points], SPARKS), Style.ACCENT)

    return chart


def _used(picture: Picture, row: BrokerRow) -> float | None:
    disk = picture.model.flow.disks.get(row.id)
    return None if disk is None else disk.used_bytes


def _full(picture: Picture, row: BrokerRow) -> float | None:
    disk = picture.model.flow.disks.get(row.id)
    if disk is None or not disk.total_bytes or disk.free_bytes is None:
        return None
    return 1 - disk.free_bytes / disk.total_bytes


def _why(picture: Picture, row: BrokerRow) -> Cell:
    if row.standing is BrokerStanding.UP:
        return ""
    return because(row.cause, row.since_ms, picture.now_ms)


class BrokerList(ListScreen[int, BrokerRow]):
    name = "brokers"
    reads = ("brokers",)
    columns = (
        figure("broker", member("id"), str),
        ListColumn("state", _state, least=14, order=member("standing")),
        figure("leaders", member("leaders"), number, 1),
        figure("replicas", member("replicas"), number, 2),
        figure("behind", member("out_of_sync"), lacking, 3),
        figure("in/s", _rate("bytes_in"), amount, 3, least=9, reads=("rates",)),
        ListColumn("", _trend(IN), 5, SPARKS),
        figure("out/s", _rate("bytes_out"), amount, 3, least=9, reads=("rates",)),
        ListColumn("", _trend(OUT), 6, SPARKS),
        figure("copied/s", _rate("copied_in"), amount, 6, least=9, reads=("rates",)),
        figure("logs", _used, amount, 4, least=8, reads=("disks",)),
        figure("full", _full, part, 5, least=5, reads=("disks",)),
        figure("CPU", _rate("cpu"), part, 4, least=5, reads=("rates",)),
        ListColumn("rack", lambda _, row: row.rack or "", 7),
        ListColumn("address", lambda _, row: address(row), 8),
        ListColumn("why", _why, 4, 12, is_cut=True),
    )

    def keys(self, picture: Picture, scope: Any) -> list[int]:
        return sorted(picture.model.brokers)

    def row(self, picture: Picture, key: int) -> BrokerRow:
        return broker_of(picture, key)

    def words_of(self, row: BrokerRow) -> str:
        return f"{row.id} {row.standing} {row.rack or ''} {address(row)}"

    def nothing(self, picture: Picture, scope: Any) -> str:
        return "No broker has answered yet."

    def is_wrong(self, picture: Picture, row: BrokerRow) -> bool:
        return row.standing is not BrokerStanding.UP or row.out_of_sync > 0

    def opened_by(self, picture: Picture, scope: Any, key: int) -> View | None:
        return View("partitions", ("broker", key))

    def explained_by(self, picture: Picture, key: int) -> str:
        return f"broker:{key}"
