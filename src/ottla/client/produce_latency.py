"""How long producers wait for their answers: what a move of replicas must not make much longer.

Brokers with a metrics page say it themselves: the 99th percentile of what they answered since the last look. The others,
such as Apache Kafka's, are probed: the slowest but one of some small requests to each broker, which wait in the same queue
as those of producers.
"""

from __future__ import annotations

import asyncio
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

Buckets = Mapping[float, int]
"""How many took at most so many seconds."""


class ProduceLatency:
    """Of the brokers that take part in a move."""

    def __init__(self, client: Client, brokers: Iterable[int]) -> None:
        self._client = client
        self._brokers = sorted(set(brokers))
        self._pages: dict[int, tuple[str, int]] = {}
        self._seen: dict[int, Buckets] = {}

    async def find_pages(self) -> None:
        """Ask the brokers where their metrics are."""
        hosts = {each.id: each.host for each in (await self._client.metadata([])).brokers}
        admin = Admin(self._client)
        for broker in self._brokers:
            resource = (BROKER, str(broker))
            try:
                found = await admin.describe_configs([resource], keys=[METRICS_LISTENERS])
            except (KafkaError, OSError, Unreachable):
                continue  # it is probed
            values = [each.value for each in found[resource] if each.name == METRICS_LISTENERS]
            at = metrics_address(values[0] if values else None, hosts.get(broker, ""))
            if at is not None and (page := await _buckets(at)) is not None:
                self._pages[broker], self._seen[broker] = at, page

    @property
    def is_probed(self) -> bool:
        """Whether the brokers do not say it themselves."""
        return not self._pages

    async def read(self) -> float | None:
        """Seconds, of the slowest broker. None: nobody produces, or nobody answers."""
        found = await asyncio.gather(*(self._of(broker) for broker in self._brokers))
        return max((each for each in found if each is not None), default=None)

    async def _of(self, broker: int) -> float | None:
        if broker not in self._pages:
            return await self._probe(broker)
        now = await _buckets(self._pages[broker])
        if now is None:
            return None
        before, self._seen[broker] = self._seen[broker], now
        return p99(before, now)

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


def p99(before: Buckets, now: Buckets) -> float | None:
    """The bound under which 99 of 100 of the latest requests are; None if there were none."""
    counts = [(bound, count - before.get(bound, 0)) for bound, count in sorted(now.items())]
    total = counts[-1][1] if counts else 0
    if total <= 0:
        return None
    return next(bound for bound, count in counts if count >= 0.99 * total)


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
