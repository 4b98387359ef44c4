"""The collectors of one node: each part of a node that has something to say registers one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from ottla.metrics.families import Collector, Family


class Metrics:
    """A collector is called for each scrape, in the order of registration."""

    def __init__(self) -> None:
        self._collectors: list[Collector] = []
        self._preparations: list[Callable[[], Awaitable[None]]] = []

    def register(self, collector: Collector) -> None:
        self._collectors.append(collector)

    def before_scrape(self, prepare: Callable[[], Awaitable[None]]) -> None:
        """For what a collector has to ask others for, or to read from a disk. It limits its time itself."""
        self._preparations.append(prepare)

    async def prepare(self) -> None:
        """To be awaited before `families`."""
        for prepare in self._preparations:
            await prepare()

    def unregister(self, collector: Collector) -> None:
        self._collectors.remove(collector)

    def families(self) -> Iterator[Family | None]:
        """Whoever goes through them may pause in between: nothing is collected ahead. None: a good moment for it."""
        seen: set[str] = set()
        for collector in list(self._collectors):
            for family in collector():
                if family is not None:
                    assert family.name not in seen, f"two collectors give {family.name}"
                    seen.add(family.name)
                yield family
