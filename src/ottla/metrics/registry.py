"""The collectors of one node: each part of a node that has something to say registers one.

Whoever looks for a fault needs the page most. So a collector that fails costs its own families and no others: they are
left out, counted, and logged once.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from enum import Enum

from ottla.metrics.families import Collector, Family, Labels, MetricKind, Sample

logger = logging.getLogger(__name__)


class LeftOut(Enum):
    """Why a family is not on the page."""

    FAILED = "failed"
    TOO_LARGE = "too_large"


class Metrics:
    """A collector is called for each scrape, in the order of registration."""

    def __init__(self) -> None:
        self._collectors: list[Collector] = []
        self._preparations: list[Callable[[], Awaitable[None]]] = []
        self._left_out = dict.fromkeys(LeftOut, 0)
        self._logged: set[tuple[str, LeftOut]] = set()

    def register(self, collector: Collector) -> None:
        self._collectors.append(collector)

    def before_scrape(self, prepare: Callable[[], Awaitable[None]]) -> None:
        """For what a collector has to ask others for, or to read from a disk. It limits its time itself."""
        self._preparations.append(prepare)

    async def prepare(self) -> None:
        """To be awaited before `families`."""
        for prepare in self._preparations:
            try:
                await prepare()
            except Exception as error:
                self.leave_out(_name(prepare), LeftOut.FAILED, error)

    def unregister(self, collector: Collector) -> None:
        self._collectors.remove(collector)

    def families(self) -> Iterator[Family | None]:
        """Whoever goes through them may pause in between: nothing is collected ahead. None: a good moment for it."""
        seen: set[str] = set()
        for collector in list(self._collectors):
            try:
                for family in collector():
                    if family is not None:
                        assert family.name not in seen, f"two collectors give {family.name}"
                        seen.add(family.name)
                    yield family
            except Exception as error:
                self.leave_out(_name(collector), LeftOut.FAILED, error)

    def leave_out(self, what: str, why: LeftOut, error: Exception | None = None) -> None:
        """A family, or the rest of what a collector gives."""
        self._left_out[why] += 1
        if (what, why) not in self._logged:
            self._logged.add((what, why))
            logger.error("metrics are left out what=%s why=%s", what, why.value, exc_info=error)

    def about_itself(self) -> Family:
        """What the page lacks. It is the last of the page."""
        return Family(
            "ottla_metrics_families_left_out_total",
            MetricKind.COUNTER,
            "Metrics that a page lacks, because they failed (the log says how) or made it too large.",
            [Sample(Labels(why=why.value), count) for why, count in self._left_out.items()],
        )


def _name(part: Callable[[], object]) -> str:
    return getattr(part, "__qualname__", repr(part))
