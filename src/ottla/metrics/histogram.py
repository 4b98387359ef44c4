"""How often values fell between which bounds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import inf, nan

from ottla.metrics.families import Labels, Sample

SECONDS = (
    *(0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
"""Bounds for latencies: from what a request takes in memory to what a client waits at most."""


class Histogram:
    """Counts by upper bound; the last count is of what is above all bounds."""

    __slots__ = ("_buckets", "bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        assert list(bounds) == sorted(set(bounds)), f"bounds must rise: {bounds}"
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self._buckets: tuple[Labels, list[Labels]] | None = None
        """The labels of the last scrape with those of their buckets: they are the same in the next."""

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def samples(self, labels: Labels) -> Iterator[Sample]:
        counts, total = list(self.counts), self.sum  # as they are now: the node goes on
        for bucket, below in zip(self._bucket_labels(labels), accumulate(counts), strict=True):
            yield Sample(bucket, below, "_bucket")
        yield Sample(labels, total, "_sum")
        yield Sample(labels, sum(counts), "_count")

    def _bucket_labels(self, labels: Labels) -> list[Labels]:
        if self._buckets is None or self._buckets[0] is not labels:
            bounds = [*map(str, self.bounds), "+Inf"]
            self._buckets = labels, [labels.also(le=bound) for bound in bounds]
        return self._buckets[1]


QUANTILES = {
    "0.50": 0.5,
    "0.75": 0.75,
    "0.95": 0.95,
    "0.98": 0.98,
    "0.99": 0.99,
    "0.999": 0.999,
}
"""Those that Kafka reports, as the JMX exporter labels them."""


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float:
    """The value below which this share of them lies, as far as the bounds tell; NaN of none."""
    assert 0 <= share <= 1 and len(counts) == len(bounds) + 1
    wanted = share * sum(counts)
    if not wanted:
        return nan if not sum(counts) else 0.0
    below = 0
    for index, count in enumerate(counts):
        if below + count >= wanted:
            if index == len(bounds):
                return bounds[-1]
            low = bounds[index - 1] if index else 0.0
            return low + (bounds[index] - low) * (wanted - below) / count
        below += count
    return inf
