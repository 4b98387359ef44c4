"""The metrics that clients have pushed: the last value of each, as families with the client's labels.

Names are those that OpenTelemetry's own translation to Prometheus gives: `org.apache.kafka.producer.…` with underscores,
and `_total` after a counter. Counters that come as differences are added up. What is kept is limited: by clients, and by
the series of each client. A client that misses three pushes is forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from uuid import UUID

from ottla.metrics.families import Family, Labels, MetricKind, Sample, counter, gauge
from ottla.telemetry.otlp import Point

SERIES_MAX = 500
"""Of one client."""
LABEL_VALUE_MAX = 200
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")
CLIENT_LABELS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
)

_Series = tuple[str, tuple[tuple[str, str], ...]]
"""Name and labels."""


class _Client:
    __slots__ = ("expires_ms", "labels", "series")

    def __init__(self, labels: dict[str, str]) -> None:
        self.labels = labels
        self.expires_ms = 0.0
        self.series: dict[_Series, tuple[Labels, float]] = {}


class PushedMetrics:
    """Times are monotonic milliseconds."""

    def __init__(self, clients_max: int) -> None:
        self._clients_max = clients_max
        self._clients: dict[UUID, _Client] = {}
        self._descriptions: dict[str, str] = {}
        self.pushes = 0
        self.series_dropped = 0

    def add(
        self,
        id: UUID,
        attributes: Mapping[str, str],
        points: Iterable[Point],
        expires_ms: float,
        now_ms: float,
    ) -> None:
        self.pushes += 1
        points = list(points)
        self._expire(now_ms)
        client = self._clients.get(id)
        if client is None:
            if len(self._clients) >= self._clients_max:
                self.series_dropped += len(points)
                return
            client = _Client(
                {name: attributes.get(name, "")[:LABEL_VALUE_MAX] for name in CLIENT_LABELS}
            )
            self._clients[id] = client
        client.expires_ms = expires_ms
        for point in points:
            self._keep(client, point)

    def _keep(self, client: _Client, point: Point) -> None:
        name = metric_name(point.name, is_counter=point.is_counter)
        if name is None:
            self.series_dropped += 1
            return
        pairs = _labels(client, point)
        series = name, tuple(pairs.items())
        known = client.series.get(series)
        if known is None:
            if len(client.series) >= SERIES_MAX or self._is_of_other_kind(name):
                self.series_dropped += 1
                return
            self._descriptions.setdefault(
                name, _one_line(point.description) or f"{name} of clients."
            )
            known = Labels(pairs), 0.0
        labels, before = known
        value = before + point.value if point.is_delta else point.value
        client.series[series] = labels, value

    def _is_of_other_kind(self, name: str) -> bool:
        """OpenMetrics names a counter's family without `_total`: then it would be there twice."""
        base = name.removesuffix("_total")
        return (f"{base}_total" if name == base else base) in self._descriptions

    def _expire(self, now_ms: float) -> None:
        gone = [id for id, client in self._clients.items() if client.expires_ms <= now_ms]
        for id in gone:
            del self._clients[id]
        if gone:
            left = {name for client in self._clients.values() for name, _ in client.series}
            self._descriptions = {
                name: text for name, text in self._descriptions.items() if name in left
            }

    def families(self, now_ms: float) -> Iterator[Family]:
        self._expire(now_ms)
        yield gauge(
            "ottla_client_metrics_clients",
            "Clients whose metrics are shown here.",
            len(self._clients),
        )
        yield counter(
            "ottla_client_metrics_pushes_total", "Pushes that clients have sent.", self.pushes
        )
        yield counter(
            "ottla_client_metrics_dropped_total",
            "Data points of clients that were not kept: too many clients, or series of one client.",
            self.series_dropped,
        )
        by_name: dict[str, list[Sample]] = {}
        for client in self._clients.values():
            for (name, _), (labels, value) in client.series.items():
                by_name.setdefault(name, []).append(Sample(labels, value))
        descriptions = self._descriptions  # as it is now: clients go while the page is made
        for name, samples in sorted(by_name.items()):
            kind = MetricKind.COUNTER if name.endswith("_total") else MetricKind.GAUGE
            yield Family(name, kind, descriptions[name], samples)


def metric_name(name: str, *, is_counter: bool) -> str | None:
    """None: nothing of it can be a name. Only Kafka's own prefix is taken, so that no client can give its metrics the name
    of a broker's."""
    clean = _NOT_IN_NAMES.sub("_", name)
    if not clean.startswith("org_apache_kafka_") or len(clean) > LABEL_VALUE_MAX:
        return None
    clean = clean.removesuffix("_total")
    return f"{clean}_total" if is_counter else clean


def _labels(client: _Client, point: Point) -> dict[str, str]:
    """In one order, whatever order they came in. The client's own win over attributes of the same name."""
    found = {
        label: value[:LABEL_VALUE_MAX]
        for name, value in point.attributes
        if (label := label_name(name)) is not None
    }
    return dict(sorted(found.items())) | client.labels


def label_name(name: str) -> str | None:
    """None: it cannot be a label, or Prometheus gives it a meaning of its own."""
    clean = _NOT_IN_NAMES.sub("_", name)[:LABEL_VALUE_MAX]
    is_reserved = clean.startswith("__") or clean in ("le", "quantile")
    return clean if clean and not clean[0].isdigit() and not is_reserved else None


def _one_line(text: str) -> str:
    return " ".join(text.split())[:LABEL_VALUE_MAX]
