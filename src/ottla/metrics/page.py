"""The page of one scrape. A family is on it as a whole or not at all.

Half a histogram, or the sum of half of the partitions, would be taken for the truth. So a family whose samples fail is
taken off the page again.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.metrics.exposition import ExpositionFormat
from ottla.metrics.families import Family
from ottla.metrics.registry import LeftOut, Metrics


class MetricsPage:
    def __init__(self, metrics: Metrics, wanted: ExpositionFormat) -> None:
        self._metrics = metrics
        self._wanted = wanted
        self._made: list[bytes] = []

    def write(self) -> Iterator[None]:
        """Yields after each piece, so that others can have a turn."""
        for family in self._metrics.families():
            if family is None:
                yield
            else:
                yield from self._add(family)
        yield from self._add(self._metrics.about_itself())

    def _add(self, family: Family) -> Iterator[None]:
        begin = len(self._made)
        if begin:
            self._made.append(self._wanted.between.encode())
        try:
            for piece in self._wanted.write(family):
                self._made.append(piece.encode(errors="replace"))
                yield
        except Exception as error:
            del self._made[begin:]
            self._metrics.leave_out(family.name, LeftOut.FAILED, error)

    def body(self) -> bytes:
        before, after = self._wanted.before.encode(), self._wanted.after.encode()
        return b"".join((before, *self._made, after))
