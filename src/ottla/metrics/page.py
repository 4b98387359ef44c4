"""The page of one scrape. A family is on it as a whole or not at all.

Half a histogram, or the sum of half of the partitions, would be taken for the truth. So a family whose samples fail, or
that has no room left, is taken off the page again. Names come from clients, so nothing else limits a page: without that a
scrape could take the broker's memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.metrics.exposition import ExpositionFormat
from ottla.metrics.families import Family
from ottla.metrics.registry import LeftOut, Metrics

PAGE_BYTES_MAX = 32 << 20
"""10,000 committed offsets of groups with ordinary names take 8 MiB, of groups with the longest names 24 MiB."""

ABOUT_ITSELF_BYTES = 1 << 10
"""Room for the last family."""


class PageIsFull(Exception):
    """This family has no room."""


class MetricsPage:
    def __init__(self, metrics: Metrics, wanted: ExpositionFormat) -> None:
        self._metrics = metrics
        self._wanted = wanted
        self._made: list[bytes] = []
        self._bytes_left = PAGE_BYTES_MAX

    def write(self) -> Iterator[None]:
        """Yields after each piece, so that others can have a turn."""
        for family in self._metrics.families():
            if family is None:
                yield
            else:
                yield from self._add(family)
        self._bytes_left += ABOUT_ITSELF_BYTES
        yield from self._add(self._metrics.about_itself())

    def _add(self, family: Family) -> Iterator[None]:
        begin, bytes_left = len(self._made), self._bytes_left
        try:
            for piece in self._pieces(family):
                self._bytes_left -= len(piece)
                if self._bytes_left < 0:
                    raise PageIsFull
                self._made.append(piece)
                yield
        except Exception as error:
            del self._made[begin:]
            self._bytes_left = bytes_left
            if isinstance(error, PageIsFull):
                self._metrics.leave_out(family.name, LeftOut.TOO_LARGE)
            else:
                self._metrics.leave_out(family.name, LeftOut.FAILED, error)

    def _pieces(self, family: Family) -> Iterator[bytes]:
        if self._made:
            yield self._wanted.between.encode()
        for piece in self._wanted.write(family):
            yield piece.encode(errors="replace")

    def body(self) -> bytes:
        before, after = self._wanted.before.encode(), self._wanted.after.encode()
        return b"".join((before, *self._made, after))
