"""The metrics that clients have pushed: the last value of each, as families with the client's labels.

Names are those that OpenTelemetry's own translation to Prometheus gives: `org.apache.kafka.producer.…` with underscores,
and `_total` after a counter. Counters that come as differences are added up. What is kept is limited: by clients, by the
series and the bytes of each client, and by the bytes of all. A client that misses three pushes is forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ottla.metrics.families import Family, Labels, MetricKind, Sample, counter, gauge, shortened
from ottla.telemetry.otlp import Point

SERIES_MAX = 500
"""Of one client."""
CLIENT_BYTES_MAX = 1 << 20
BYTES_MAX = 64 << 20
"""Of all clients: a thousand of them with some dozens of series each."""
SERIES_BYTES = 500
"""That a series takes besides its labels."""
NAME_MAX = 200
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")
CLIENT_LABELS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
)

_Pairs: TypeAlias = tuple[tuple[str, str], ...]
_Series: TypeAlias = tuple[str, _Pairs]
"""Name and labels."""


class PushedPoint(NamedTuple):
    """A data point under the names of Prometheus."""

    series: _Series
    """Without the client's own labels."""
    description: str
    value: float
    is_delta: bool


class _Client:
    __slots__ = ("bytes", "expires_ms", "labels", "owner", "series")

    def __init__(self, owner: str, labels: dict[str, str]) -> None:
        self.owner = owner
        self.labels = labels
        self.expires_ms = 0.0
        self.bytes = 0
        self.series: dict[_Series, tuple[Labels, float]] = {}


class PushedMetrics:
    """Times are monotonic milliseconds."""

    def __init__(self, clients_max: int) -> None:
        self._clients_max = clients_max
        self._clients: dict[UUID, _Client] = {}
        self._descriptions: dict[str, str] = {}
        self.bytes = 0
        self.pushes = 0
        self.series_dropped = 0

    def add(
        self,
        id: UUID,
        owner: str,
        attributes: Mapping[str, str],
        points: Sequence[PushedPoint | None],
        expires_ms: float,
        now_ms: float,
    ) -> None:
        """What `measured` made of the points. None: it had no use for one."""
        self.pushes += 1
        self._expire(now_ms)
        client = self._clients.get(id)
        if client is None:
            if len(self._clients) >= self._clients_max:
                self.series_dropped += len(points)
                return
            labels = {name: shortened(attributes.get(name, "")) for name in CLIENT_LABELS}
            client = self._clients[id] = _Client(owner, labels)
        elif client.owner != owner:
            # Its connection is closed, but what it pushed is still shown, as its own.
            self.series_dropped += len(points)
            return
        client.expires_ms = expires_ms
        for point in points:
            if point is None or not self._keep(client, point):
                self.series_dropped += 1

    def _keep(self, client: _Client, point: PushedPoint) -> bool:
        known = client.series.get(point.series)
        if known is None:
            name, pairs = point.series
            if len(client.series) >= SERIES_MAX or self._is_of_other_kind(name):
                return False
            labels = Labels(dict(pairs) | client.labels)
            size = SERIES_BYTES + 2 * len(labels.text)
            if client.bytes + size > CLIENT_BYTES_MAX or self.bytes + size > BYTES_MAX:
                return False
            client.bytes += size
            self.bytes += size
            self._descriptions.setdefault(name, point.description)
            known = labels, 0.0
        labels, before = known
        value = before + point.value if point.is_delta else point.value
        client.series[point.series] = labels, value
        return True

    def _is_of_other_kind(self, name: str) -> bool:
        """OpenMetrics names a counter's family without `_total`: then it would be there twice."""
        base = name.removesuffix("_total")
        return (f"{base}_total" if name == base else base) in self._descriptions

    def _expire(self, now_ms: float) -> None:
        gone = [id for id, client in self._clients.items() if client.expires_ms <= now_ms]
        for id in gone:
            self.bytes -= self._clients.pop(id).bytes
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
            "Data points of clients that were not kept: no usable name, or too much of one client or of all.",
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


def measured(point: Point) -> PushedPoint | None:
    """None: nothing of its name can be a name. A pure function, and most of the work: it runs in a thread."""
    name = metric_name(point.name, is_counter=point.is_counter)
    if name is None:
        return None
    description = _one_line(point.description) or f"{name} of clients."
    return PushedPoint((name, _labels(point)), description, point.value, point.is_delta)


def metric_name(name: str, *, is_counter: bool) -> str | None:
    """None: nothing of it can be a name. Only Kafka's own prefix is taken, so that no client can give its metrics the name
    of a broker's."""
    clean = _NOT_IN_NAMES.sub("_", name)
    if not clean.startswith("org_apache_kafka_") or len(clean) > NAME_MAX:
        return None
    clean = clean.removesuffix("_total")
    return f"{clean}_total" if is_counter else clean


def _labels(point: Point) -> _Pairs:
    """In one order, whatever order they came in."""
    found = {
        label: shortened(value)
        for name, value in point.attributes
        if (label := label_name(name)) is not None
    }
    return tuple(sorted(found.items()))


def label_name(name: str) -> str | None:
    """None: it cannot be a label, or Prometheus or we give it a meaning of its own."""
    clean = _NOT_IN_NAMES.sub("_", name)[:NAME_MAX]
    is_reserved = clean.startswith("__") or clean in ("le", "quantile", *CLIENT_LABELS)
    return clean if clean and not clean[0].isdigit() and not is_reserved else None


def _one_line(text: str) -> str:
    return " ".join(text.split())[:NAME_MAX]
