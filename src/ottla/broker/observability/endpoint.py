"""The node's HTTP endpoint: `/metrics` in the format that the client asks for, `/livez` and `/readyz`.

Nobody logs in here. So a node with an authorizer, TLS or SASL shows its metrics on loopback addresses only, unless a setting says
otherwise. Elsewhere it says whether it is alive and ready, and not why.

It listens from the moment at which the node has its ports, so a node that recovers its logs for minutes says so.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Iterator

from ottla.broker.observability.cluster_metrics import ClusterMetrics
from ottla.broker.observability.group_metrics import GroupMetrics
from ottla.broker.observability.health import Health
from ottla.broker.observability.http import HttpRequest, HttpServer, Page
from ottla.broker.observability.login_metrics import LoginMetrics
from ottla.broker.observability.loop_metrics import LoopMetrics
from ottla.broker.observability.observed import ObservedNode
from ottla.broker.observability.process_metrics import ProcessMetrics
from ottla.broker.observability.replica_metrics import ReplicaMetrics
from ottla.broker.observability.request_metrics import RequestMetrics
from ottla.broker.observability.transaction_metrics import TransactionMetrics
from ottla.config import ConfigError, ListenerAddress
from ottla.metrics.exposition import JSON, format_for
from ottla.metrics.families import Family, gauge
from ottla.metrics.page import MetricsPage
from ottla.metrics.registry import Metrics

logger = logging.getLogger(__name__)

FLUSHES_MAX = 10_000
"""Times of flushes kept until the next tick; beyond that the oldest are forgotten."""
SLICE_S = 0.001
"""A page is made in slices of this length. Between them the broker has its turns."""


class Observability:
    """What can be seen of one node. Parts of the node register collectors with `metrics`."""

    def __init__(self, node: ObservedNode) -> None:
        self._runtime = node.runtime
        settings = node.settings
        self._is_secure = bool(settings.authorizer_class_name) or any(
            not security.is_plain for security in settings.security.values()
        )
        self._is_public = settings.ottla_metrics_without_login
        self._one_scrape = asyncio.Lock()
        self.health = Health(node)
        self.metrics = Metrics()
        self.addresses: list[ListenerAddress] = []
        self._servers: list[HttpServer] = []
        requests = RequestMetrics()
        self.request_times = requests.times
        """For the node's listeners."""
        flush_times: deque[float] = deque(maxlen=FLUSHES_MAX)
        node.runtime.disk.flush_times = flush_times
        self._loop = LoopMetrics(node.runtime.clock, requests, flush_times)
        process, cluster, replicas = (
            ProcessMetrics(node),
            ClusterMetrics(node),
            ReplicaMetrics(node),
        )
        self._groups = GroupMetrics(node)
        transactions = TransactionMetrics(node)
        for collector in (
            self._health,
            process.collect,
            self._loop.collect,
            requests.collect,
            LoginMetrics(node).collect,
            cluster.collect,
            replicas.collect,
            self._groups.collect,
            transactions.collect,
            lambda: () if node.broker is None else node.broker.telemetry.families(),
        ):
            self.metrics.register(collector)
        for prepare in (process.read, self._groups.prepare, transactions.prepare):
            self.metrics.before_scrape(prepare)
        self._subscribers = (cluster.note, replicas.note)
        for subscriber in self._subscribers:
            self._runtime.events.subscribe(subscriber)

    async def listen(self, listeners: tuple[ListenerAddress, ...]) -> None:
        self._loop.start()
        pages = {
            "/metrics": self._metrics_page,
            "/livez": self._live_page,
            "/readyz": self._ready_page,
        }
        closed = {"/metrics": _refused_page, "/livez": self._live_word, "/readyz": self._ready_word}
        for listener in listeners:
            is_open = not self._is_secure or self._is_public or _is_loopback(listener.host)
            server = HttpServer(pages if is_open else closed, self._runtime.clock)
            try:
                port = await server.listen(listener.host, listener.port)
            except OSError as error:
                reason = error.strerror or error
                raise ConfigError(f"metrics.listeners: {listener}: {reason}") from error
            self._servers.append(server)
            self.addresses.append(listener._replace(port=port))
            logger.info("metrics and health are served address=%s", self.addresses[-1])

    async def close(self) -> None:
        self._loop.stop()
        self._runtime.disk.flush_times = None
        for subscriber in self._subscribers:
            self._runtime.events.unsubscribe(subscriber)
        for server in self._servers:
            await server.close()
        self._groups.close()

    def _health(self) -> Iterator[Family]:
        yield gauge("ottla_ready", "1 if /readyz says so.", int(not self.health.why_not_ready()))
        recovery = self.health.recovery
        if recovery is not None:
            yield gauge("ottla_recovery_logs", "Logs that were found at the start.", recovery.total)
            yield gauge(
                "ottla_recovery_logs_done", "Those of them that are recovered.", recovery.done
            )

    async def _metrics_page(self, request: HttpRequest) -> Page:
        wanted = format_for(request.headers.get("accept", ""))
        if request.query == "format=json":
            wanted = JSON
        async with self._one_scrape:
            await self.metrics.prepare()
            page = MetricsPage(self.metrics, wanted)
            await self._in_slices(page.write())
        return Page(page.body(), wanted.content_type)

    async def _live_page(self, request: HttpRequest) -> Page:
        return self._health_page(request, self.health.why_dead(), "alive")

    async def _ready_page(self, request: HttpRequest) -> Page:
        return self._health_page(request, self.health.why_not_ready(), "ready")

    async def _live_word(self, request: HttpRequest) -> Page:
        return _word(not self.health.why_dead(), "alive")

    async def _ready_word(self, request: HttpRequest) -> Page:
        return _word(not self.health.why_not_ready(), "ready")

    def _health_page(self, request: HttpRequest, reasons: list[str], well: str) -> Page:
        status = 503 if reasons else 200
        if request.query == "format=json":
            told = json.dumps(self.health.as_json()) + "\n"
            return Page(told.encode(), "application/json", status)
        lines = [f"not {well}: {reason}" for reason in reasons] or [well]
        return Page(("\n".join(lines) + "\n").encode(), status=status)

    async def _in_slices(self, work: Iterator[None]) -> None:
        monotonic = self._runtime.clock.monotonic
        until = monotonic() + SLICE_S
        for _ in work:
            if monotonic() >= until:
                await asyncio.sleep(0)
                until = monotonic() + SLICE_S


def _word(is_well: bool, well: str) -> Page:
    return Page(f"{'' if is_well else 'not '}{well}\n".encode(), status=200 if is_well else 503)


async def _refused_page(request: HttpRequest) -> Page:
    why = b"this node is secured: its metrics are on loopback addresses, or with ottla.metrics.without.login=true\n"
    return Page(why, status=403)


def _is_loopback(host: str) -> bool:
    return host in ("127.0.0.1", "::1", "localhost") or host.startswith("127.")
