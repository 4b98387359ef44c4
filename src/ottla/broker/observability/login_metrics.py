"""Logins at the listeners of a node, and how long their certificates are good for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ottla.broker.observability.observed import ObservedNode
from ottla.broker.server.server import Server
from ottla.metrics.families import Family, Labels, MetricKind, Sample

PREFIX = "kafka_server_socket_server_metrics"


class LoginMetrics:
    def __init__(self, node: ObservedNode) -> None:
        self._node = node
        self._ends: dict[bytes, float] = {}
        """When the certificates that were seen last are over, in seconds since 1970."""

    def collect(self) -> Iterator[Family]:
        yield self._of_listeners(
            f"{PREFIX}_successful_authentication_total",
            MetricKind.COUNTER,
            "Clients that logged in.",
            lambda server: 0 if server.gated is None else server.gated.succeeded,
        )
        yield self._of_listeners(
            f"{PREFIX}_failed_authentication_total",
            MetricKind.COUNTER,
            "Logins and TLS handshakes that failed.",
            _failed,
        )
        yield self._of_listeners(
            f"{PREFIX}_successful_reauthentication_total",
            MetricKind.COUNTER,
            "Clients that logged in again before their session ended.",
            lambda server: 0 if server.gated is None else server.gated.renewed,
        )
        yield self._of_listeners(
            f"{PREFIX}_expired_connections_killed_count",
            MetricKind.GAUGE,
            "Connections that were closed because their clients went on after the end of their session.",
            lambda server: 0 if server.gated is None else server.gated.expired,
        )
        yield self._of_listeners(
            "ottla_unauthenticated_connections",
            MetricKind.GAUGE,
            "Connections that have not logged in yet. Those within a TLS handshake are not counted.",
            lambda server: 0 if server.gated is None else len(server.gated.waiting),
        )
        now_s = self._node.runtime.clock.wall_ms() / 1000
        yield Family(
            "ottla_certificate_expiry_seconds",
            MetricKind.GAUGE,
            "Seconds until the certificate of a listener is over.",
            [
                Sample(Labels(listener=server.name), self._end(server.tls.certificate) - now_s)
                for server in self._node.servers.values()
                if server.tls is not None and server.tls.certificate is not None
            ],
        )

    def _of_listeners(
        self, name: str, kind: MetricKind, help: str, value: Callable[[Server], float]
    ) -> Family:
        samples = [
            Sample(Labels(listener=server.name, networkProcessor="0"), value(server))
            for server in self._node.servers.values()
        ]
        return Family(name, kind, help, samples)

    def _end(self, certificate: bytes) -> float:
        if certificate not in self._ends:
            from cryptography import x509  # who has a certificate has imported it already

            if len(self._ends) > len(self._node.servers):
                self._ends.clear()
            found = x509.load_der_x509_certificate(certificate)
            self._ends[certificate] = found.not_valid_after_utc.timestamp()
        return self._ends[certificate]


def _failed(server: Server) -> int:
    logins = 0 if server.gated is None else server.gated.failed
    return logins + (0 if server.tls is None else server.tls.handshakes_failed)
