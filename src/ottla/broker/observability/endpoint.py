"""The node's HTTP endpoint: `/metrics` in the format that the client asks for, `/livez` and `/readyz`.

It listens from the moment at which the node has its ports, so a node that recovers its logs for minutes says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from ottla.broker.observability.group_metrics import GroupMetrics
from ottla.broker.observability.http import HttpRequest, HttpServer, Page
from ottla.broker.observability.observed import ObservedNode
from ottla.broker.observability.replica_metrics import ReplicaMetrics
from ottla.broker.observability.transaction_metrics import TransactionMetrics
from ottla.config import ConfigError, ListenerAddress
from ottla.metrics.exposition import JSON, format_for
from ottla.metrics.registry import Metrics

SLICE_S = 0.002
"""A page is made in slices of this length. Between them the broker has its turns."""


class Observability:
    """What can be seen of one node. Parts of the node register collectors with `metrics`."""

    def __init__(self, node: ObservedNode) -> None:
        self._clock = node.runtime.clock
        self.metrics = Metrics()
        self.addresses: list[ListenerAddress] = []
        self._servers: list[HttpServer] = []
        self.metrics.register(ReplicaMetrics(node).collect)
        self._groups = GroupMetrics(node)
        self.metrics.before_scrape(self._groups.prepare)
        self.metrics.register(self._groups.collect)
        transactions = TransactionMetrics(node)
        self.metrics.before_scrape(transactions.prepare)
        self.metrics.register(transactions.collect)
        self.metrics.register(
            lambda: () if node.broker is None else node.broker.telemetry.families()
        )

    async def listen(self, listeners: tuple[ListenerAddress, ...]) -> None:
        pages = {"/metrics": self._metrics_page}
        for listener in listeners:
            server = HttpServer(pages)
            try:
                port = await server.listen(listener.host, listener.port)
            except OSError as error:
                reason = error.strerror or error
                raise ConfigError(f"metrics.listeners: {listener}: {reason}") from error
            self._servers.append(server)
            self.addresses.append(listener._replace(port=port))

    async def close(self) -> None:
        for server in self._servers:
            await server.close()
        self._groups.close()

    async def _metrics_page(self, request: HttpRequest) -> Page:
        wanted = format_for(request.headers.get("accept", ""))
        if request.query == "format=json":
            wanted = JSON
        await self.metrics.prepare()
        body = await self._in_slices(wanted.write(self.metrics.families()))
        return Page(body, wanted.content_type)

    async def _in_slices(self, pieces: Iterator[str]) -> bytes:
        monotonic = self._clock.monotonic
        made: list[bytes] = []
        until = monotonic() + SLICE_S
        for piece in pieces:
            made.append(piece.encode())
            if monotonic() >= until:
                await asyncio.sleep(0)
                until = monotonic() + SLICE_S
        return b"".join(made)
