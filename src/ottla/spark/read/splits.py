"""How the offsets to read become tasks: one per partition, or more where somebody wants them smaller or balanced."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple


class Range(NamedTuple):
    """Offsets `start` up to, not including, `end` of one partition."""

    topic: str
    topic_id: str | None
    """In hexadecimal. None where the cluster does not tell."""
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def split(ranges: Sequence[Range], *, at_least: int | None, most_records: int | None) -> list[Range]:  # fmt: skip
    """`most_records` bounds each piece; then the largest pieces are cut until there are `at_least` of them (or one per
    offset), so that a skewed partition does not become one long task."""
    wanted = [each for each in ranges if each.size > 0]
    pieces = {each: 1 if most_records is None else -(-each.size // most_records) for each in wanted}
    if at_least is not None:
        _raise_to(pieces, at_least)
    return [piece for each, count in pieces.items() for piece in _cut(each, count)]


def _raise_to(pieces: dict[Range, int], at_least: int) -> None:
    """Give every range its share of `at_least` by its size, then one more to whose pieces are largest."""
    total = sum(each.size for each in pieces)
    for each in pieces:
        share = each.size * at_least // total
        pieces[each] = min(each.size, max(pieces[each], share))
    missing = min(at_least, total) - sum(pieces.values())
    for _ in range(missing):
        largest = max(
            (each for each in pieces if pieces[each] < each.size),
            key=lambda each: (each.size / pieces[each], each.topic, -each.partition),
        )
        pieces[largest] += 1


def _cut(whole: Range, count: int) -> list[Range]:
    """Pieces that differ by at most one offset."""
    bounds = [whole.start + whole.size * i // count for i in range(count + 1)]
    return [whole._replace(start=start, end=end) for start, end in itertools.pairwise(bounds)]
