"""Which metrics each client instance is to push, how often, and whether it keeps to that. As Kafka's ClientMetricsManager.

A client asks for its subscription, and pushes once in each interval. An id stands for what it was told: when the subscriptions
change, its next push has a wrong id, and it asks again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

from ottla.config.client_metrics_settings import INTERVAL_DEFAULT_MS, MetricsSubscription
from ottla.metrics.families import Family, counter, gauge, shortened
from ottla.records.compression import Codec
from ottla.records.crc import crc32c
from ottla.wire.errors import ErrorCode, KafkaError

CLIENT_METRICS = "kafka_server_client_metrics"
INSTANCES_MAX = 16_384
EXPIRY_MIN_MS = 60_000
INTERVALS_MISSED_MAX = 3
ALL_METRICS = "*"
ACCEPTED_CODECS = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""The best first."""
RESERVED_IDS = frozenset({UUID(int=0), UUID(int=1)})
NEVER = float("-inf")


class Wish(NamedTuple):
    """What one client instance is to push."""

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int


class ClientInstance:
    def __init__(self, id: UUID, owner: str, attributes: Mapping[str, str], wanted: Wish) -> None:
        self.id = id
        self.owner = owner
        """The principal that asked first. For others this id is nobody's to use: who knows it could end or overwrite what it stands for."""
        self.attributes = attributes
        self.wanted = wanted
        self.version = 0
        """Of the subscriptions that `wanted` follows from."""
        self.expires_ms = 0.0
        self.is_terminating = False
        self._got_ms = NEVER
        self._pushed_ms = NEVER

    def may_ask(self, now_ms: float) -> bool:
        if now_ms - max(self._got_ms, self._pushed_ms) < self.wanted.interval_ms:
            return False
        self._got_ms = now_ms
        return True

    def may_push(self, now_ms: float) -> bool:
        """The first push after the question may come early: clients spread it over the interval."""
        follows_question = self._got_ms > self._pushed_ms
        if not follows_question and now_ms - self._pushed_ms < self.wanted.interval_ms:
            return False
        self._pushed_ms = now_ms
        return True


class PushPace:
    """Of one connection: an id costs a client nothing, so a fresh one for each push is no way around the interval."""

    def __init__(self) -> None:
        self._pushed_ms = NEVER
        self._is_terminating = False

    def may_push(self, interval_ms: int, now_ms: float, *, terminating: bool) -> bool:
        """Clients wait at least half of an interval. The last push comes at any time, and is the last."""
        is_early = now_ms - self._pushed_ms < interval_ms / 2
        if self._is_terminating or (is_early and not terminating):
            return False
        self._pushed_ms = now_ms
        self._is_terminating = terminating
        return True


class ClientInstances:
    """Times are monotonic milliseconds."""

    def __init__(self) -> None:
        self._subscriptions: tuple[MetricsSubscription, ...] = ()
        self._version = 0
        self._instances: dict[UUID, ClientInstance] = {}
        """The one that was heard of last comes last."""
        self.throttled = 0
        self.unknown_subscriptions = 0

    def __len__(self) -> int:
        return len(self._instances)

    def families(self) -> Iterator[Family]:
        """Under the names of Kafka's client-metrics."""
        yield gauge(
            f"{CLIENT_METRICS}_instance_count",
            "Client instances that have asked which metrics are wanted.",
            len(self),
        )
        yield counter(
            f"{CLIENT_METRICS}_unknown_subscription_request_total",
            "Pushes for a subscription that has changed.",
            self.unknown_subscriptions,
        )
        yield counter(
            f"{CLIENT_METRICS}_throttle_total",
            "Pushes and questions that came before their time.",
            self.throttled,
        )

    def subscribe(self, subscriptions: Iterable[MetricsSubscription]) -> None:
        """These from now on."""
        self._subscriptions = tuple(subscriptions)
        self._version += 1

    def forget(self, id: UUID) -> None:
        """Its connection is closed."""
        self._instances.pop(id, None)

    def ask(
        self, id: UUID, owner: str, attributes: Mapping[str, str], now_ms: float
    ) -> ClientInstance:
        """GetTelemetrySubscriptions. KafkaError for an instance that asks too early, or that is somebody else's."""
        instance = self._instance(id, owner, attributes, now_ms)
        if not instance.may_ask(now_ms):
            self.throttled += 1
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        return instance

    def push(
        self,
        id: UUID | None,
        owner: str,
        attributes: Mapping[str, str],
        subscription_id: int,
        codec: int,
        *,
        terminating: bool,
        pace: PushPace,
        now_ms: float,
    ) -> ClientInstance:
        """PushTelemetry, without the metrics themselves. KafkaError if it is refused."""
        if id is None or id in RESERVED_IDS:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        instance = self._instance(id, owner, attributes, now_ms)
        try:
            self._check_push(instance, subscription_id, codec, terminating, now_ms)
        finally:
            instance.is_terminating = terminating
        if not pace.may_push(instance.wanted.interval_ms, now_ms, terminating=terminating):
            self.throttled += 1
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        return instance

    def _check_push(
        self,
        instance: ClientInstance,
        subscription_id: int,
        codec: int,
        terminating: bool,
        now_ms: float,
    ) -> None:
        if instance.is_terminating:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if not instance.may_push(now_ms) and not terminating:
            self.throttled += 1
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if subscription_id != instance.wanted.subscription_id:
            self.unknown_subscriptions += 1
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if codec not in tuple(Codec):
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)

    def _instance(
        self, id: UUID, owner: str, attributes: Mapping[str, str], now_ms: float
    ) -> ClientInstance:
        self._expire(now_ms)
        instance = self._instances.get(id)
        if instance is not None and instance.owner != owner:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        self._instances.pop(id, None)
        if instance is None or instance.version < self._version:
            kept = {name: shortened(value) for name, value in attributes.items()}
            instance = ClientInstance(id, owner, kept, self._wanted(id, attributes))
            instance.version = self._version
        patience_ms = max(EXPIRY_MIN_MS, INTERVALS_MISSED_MAX * instance.wanted.interval_ms)
        instance.expires_ms = now_ms + patience_ms
        self._instances[id] = instance
        return instance

    def _expire(self, now_ms: float) -> None:
        """Those at the front only: an instance with a longer interval may hide others for a while."""
        while self._instances:
            oldest = next(iter(self._instances.values()))
            if oldest.expires_ms > now_ms and len(self._instances) < INSTANCES_MAX:
                break
            del self._instances[oldest.id]

    def _wanted(self, id: UUID, attributes: Mapping[str, str]) -> Wish:
        metrics: set[str] = set()
        interval_ms = INTERVAL_DEFAULT_MS
        for subscription in self._subscriptions:
            if subscription.is_for(attributes):
                metrics |= subscription.metrics
                interval_ms = min(interval_ms, subscription.interval_ms)
        names = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
        return Wish(_subscription_id(names, interval_ms, id), names, interval_ms)


def _subscription_id(names: tuple[str, ...], interval_ms: int, id: UUID) -> int:
    """CRC32C of what is wanted, with the instance's id (its hash code in Java)."""
    crc = crc32c(f"[{', '.join(names)}]{interval_ms}".encode())
    folded = (id.int >> 64) ^ (id.int & (1 << 64) - 1)
    number = crc ^ (folded >> 32) ^ (folded & 0xFFFFFFFF)
    return number - (1 << 32) if number >> 31 else number
