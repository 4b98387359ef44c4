"""How long producers wait for their answers: what a move of replicas must not make much longer.

Brokers with a metrics page say it themselves: the 99th percentile of what all of them answered lately. The others,
such as Apache Kafka's, are probed: the slowest but one of some small requests to each broker, which wait in the same queue
as those of producers.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence

from ottla.client.admin import BROKER, Admin
from ottla.client.client import Client
from ottla.client.connections import Unreachable
from ottla.client.http_pages import http_page, metrics_address
from ottla.wire.apis import ApiKey
from ottla.wire.errors import KafkaError

METRICS_LISTENERS = "metrics.listeners"
BUCKETS = 'ottla_request_seconds_bucket{api="Produce",phase="total",le="'
PROBES = 8
PROBE_PAUSE_S = 0.02
PATIENCE_S = 1.0
WINDOW_READINGS = 4
ENOUGH = 100
"""Requests of which the slowest one is more than chance."""

Buckets = Mapping[float, int]
"""How many took at most so many seconds."""


class ProduceLatency:
    """Of the brokers that take part in a move, over a window of time."""

    def __init__(self, client: Client, brokers: Iterable[int]) -> None:
        self._client = client
        self._brokers = sorted(set(brokers))
        self._pages: dict[int, tuple[str, int]] = {}
        self._began: dict[int, Buckets] = {}
        """What the pages said when the window began."""
        self._now: dict[int, Buckets] = {}
        self._readings = 0

    async def find_pages(self) -> None:
        """Ask the brokers where their metrics are."""
        hosts = {each.id: each.host for each in (await self._client.metadata([])).brokers}
        admin = Admin(self._client)
        for broker in self._brokers:
            if broker not in hosts:
                continue  # it is down, and would be waited for
            resource = (BROKER, str(broker))
            try:
                found = await admin.describe_configs([resource], keys=[METRICS_LISTENERS])
            except (KafkaError, OSError, Unreachable):
                continue  # it is probed
            values = [each.value for each in found[resource] if each.name == METRICS_LISTENERS]
            at = metrics_address(values[0] if values else None, hosts.get(broker, ""))
            if at is not None and (page := await _buckets(at)) is not None:
                self._pages[broker], self._now[broker] = at, page
        self.begin()

    @property
    def is_probed(self) -> bool:
        """Whether the brokers do not say it themselves."""
        return not self._pages

    @property
    def is_settled(self) -> bool:
        """Whether the window is long enough to tell that all is well. That something is wrong shows sooner."""
        return self._readings >= (1 if self.is_probed else WINDOW_READINGS)

    def begin(self) -> None:
        """Begin another window: what was before it counts no more."""
        self._began, self._readings = dict(self._now), 0

    async def read(self) -> float | None:
        """Seconds, since the window began. None: nobody produces, or nobody answers."""
        probed = [broker for broker in self._brokers if broker not in self._pages]
        times = await asyncio.gather(*(self._probe(broker) for broker in probed))
        pages = await asyncio.gather(*(_buckets(self._pages[id]) for id in sorted(self._pages)))
        for broker, page in zip(sorted(self._pages), pages, strict=True):
            if page is not None:
                self._now[broker] = page
        self._readings += 1
        said = p99(self._began, self._now, 1 if self.is_settled else ENOUGH)
        return max((each for each in (said, *times) if each is not None), default=None)

    async def _probe(self, broker: int) -> float | None:
        loop = asyncio.get_running_loop()
        times = []
        for _ in range(PROBES):
            began = loop.time()
            try:
                async with asyncio.timeout(PATIENCE_S):
                    fields = {"topics": [], "allow_auto_topic_creation": False}
                    await self._client.connections.ask(ApiKey.METADATA, fields, broker=broker)
            except (OSError, KafkaError, Unreachable):
                return None  # it is down: whoever moves replicas says so
            times.append(loop.time() - began)
            await asyncio.sleep(PROBE_PAUSE_S)
        return sorted(times)[-2]


def p99(before: Mapping[int, Buckets], now: Mapping[int, Buckets], enough: int = 1) -> float | None:
    """What 99 of 100 of the latest requests took at most, to all brokers together; None if there were not enough. Between two
    bounds it is taken to be in proportion."""
    together: dict[float, int] = {}
    for broker, buckets in now.items():
        seen = before.get(broker, {})
        if any(count < seen.get(bound, 0) for bound, count in buckets.items()):
            seen = {}  # the broker was restarted
        for bound, count in buckets.items():
            together[bound] = together.get(bound, 0) + count - seen.get(bound, 0)
    total = max(together.values(), default=0)
    if total < enough:
        return None
    lowest, below = 0.0, 0
    for bound, count in sorted(together.items()):
        if count >= 0.99 * total:
            if bound == math.inf:
                return lowest
            return lowest + (bound - lowest) * (0.99 * total - below) / (count - below)
        lowest, below = bound, count
    raise AssertionError("the last bucket has all")


async def _buckets(at: tuple[str, int]) -> Buckets | None:
    """Empty if nobody has produced yet; None if there is no such page."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            _, body = await http_page(*at, "/metrics")
    except OSError:
        return None
    return read_buckets(body.splitlines())


def read_buckets(lines: Sequence[str]) -> Buckets:
    found = {}
    for line in lines:
        if line.startswith(BUCKETS):
            bound, _, count = line.removeprefix(BUCKETS).partition('"} ')
            found[float(bound)] = int(float(count.split()[0]))
    return found
