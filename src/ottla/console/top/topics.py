"""The list of topics: what they hold, and what flows through them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ottla.console.model.rows import TopicRow
from ottla.console.top.figures import amount, number, sparkline
from ottla.console.top.lines import Cell, Span, Style
from ottla.console.top.listing import ListScreen
from ottla.console.top.picture import Picture
from ottla.console.top.tables import ListColumn, figure, member, named
from ottla.console.top.views import View
from ottla.console.watch.asking import TOPICS, Interest

SPARKS = 16
"""Eight minutes of the history, a point every thirty seconds."""


def _held(of: str) -> Callable[[Picture, TopicRow], Any]:
    return lambda picture, row: getattr(picture.model.flow.topic_sizes.get(row.name), of, None)


def _trend(picture: Picture, row: TopicRow) -> Cell:
    points = picture.model.flow.topic_rates.points(row.name)
    return Span(sparkline([point[1] for point in points], SPARKS), Style.ACCENT)


class TopicList(ListScreen[str, TopicRow]):
    name = "topics"
    reads = ("topics",)
    columns = (
        named("topic", member("name")),
        figure("partitions", member("partitions"), number, 2),
        figure("replicas", member("factor"), number, 5),
        figure("records", _held("records"), number, 1, least=9, reads=("topic_sizes",)),
        figure("size", _held("bytes"), amount, 1, least=9, reads=("topic_sizes",)),
        figure("records/s", _held("records_in"), number, 1, reads=("topic_sizes",)),
        figure("in/s", _held("bytes_in"), amount, 3, least=9, reads=("topic_sizes",)),
        figure("out/s", _held("bytes_out"), amount, 4, least=9, reads=("topic_sizes",)),
        ListColumn("8 min", _trend, 6, SPARKS),
    )

    def keys(self, picture: Picture, scope: Any) -> list[str]:
        """Those that people made first."""
        rows = picture.model.topics.values()
        return [row.name for row in sorted(rows, key=lambda row: (row.internal, row.name))]

    def row(self, picture: Picture, key: str) -> TopicRow:
        return picture.model.topics.get(key) or TopicRow(key, None, False, 0, 0)

    def words_of(self, row: TopicRow) -> str:
        return row.name

    def nothing(self, picture: Picture, scope: Any) -> str:
        return "There are no topics."

    def is_wrong(self, picture: Picture, row: TopicRow) -> bool:
        return any(topic == row.name for topic, _ in picture.model.structure.unwell)

    def opened_by(self, picture: Picture, scope: Any, key: str) -> View | None:
        return View("partitions", ("topic", key))

    def explained_by(self, picture: Picture, key: str) -> str:
        return f"topic:{key}"

    def looked_at(self, scope: Any, visible: Sequence[str]) -> Iterable[Interest]:
        return (TOPICS,)
