"""A page of these families, as a node makes it."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.metrics.exposition import TEXT, ExpositionFormat
from ottla.metrics.families import Family
from ottla.metrics.page import MetricsPage
from ottla.metrics.registry import Metrics


def page(metrics: Metrics, wanted: ExpositionFormat = TEXT) -> str:
    made = MetricsPage(metrics, wanted)
    for _ in made.write():
        pass
    return made.body().decode()


def written(families: Iterable[Family], wanted: ExpositionFormat = TEXT) -> str:
    metrics = Metrics()
    metrics.register(lambda: families)
    return page(metrics, wanted)
