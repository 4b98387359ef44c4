"""Client quotas at work: how long a client must wait that sends, receives or changes more than it may.

A client is known by its user and its client id; the most specific quota that was set for them holds, and
all clients that share it share its allowance (KIP-13, KIP-546). Bytes and time are measured over a sliding
window; who is above its rate gets its answer, with the time in it that would bring the rate down again,
and is not read from for so long (KIP-219). Changes to the cluster are measured by a bucket of tokens, and
newer clients are refused instead of delayed (KIP-599).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.broker.server.connections import Handler, Request
from ottla.config.node_settings import Settings
from ottla.metadata.image import MetadataImage, QuotaKey
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ANONYMOUS = "ANONYMOUS"
"""The user of every connection without authentication."""

PRODUCED = "producer_byte_rate"
CONSUMED = "consumer_byte_rate"
REQUESTS = "request_percentage"
MUTATIONS = "controller_mutation_rate"

METERS_MAX = 10_000
"""Clients measured at one time. Client ids are free to choose: beyond it, all are measured anew."""

BROKERS_ADD_FROM = 4
"""Versions of AddPartitionsToTxn from this one on are sent by brokers."""


class Window(NamedTuple):
    samples: int
    seconds: float


class Meter:
    """A rate over the last samples, as Kafka measures it: the newest sample is still growing, and before
    there are enough of them the missing ones count as empty, if a first burst is allowed."""

    def __init__(self, window: Window, *, allows_burst: bool = True) -> None:
        self._window = window
        self._shortest = max(window.samples - 1, 1) if allows_burst else 1
        """Samples that count at least."""
        self._samples: deque[list[float]] = deque()
        """[begin, sum] of each, oldest first."""

    def record(self, amount: float, now: float) -> None:
        samples, (_, length) = self._samples, self._window
        if not samples or now - samples[-1][0] >= length:
            samples.append([now, 0.0])
        samples[-1][1] += amount

    def delay(self, rate: float, now: float) -> float:
        """Seconds until what was recorded is no more than `rate` allows, if nothing comes meanwhile."""
        samples, (count, length) = self._samples, self._window
        while samples and now - samples[0][0] >= count * length:
            samples.popleft()
        if not samples:
            return 0.0
        elapsed = max(now - samples[0][0], self._shortest * length)
        return max(0.0, sum(amount for _, amount in samples) / rate - elapsed)


class Bucket:
    """Tokens that come at a steady rate, up to what a window holds. It may be overdrawn once."""

    def __init__(self, window: Window, rate: float, now: float) -> None:
        self._window_s = window.samples * window.seconds
        self._tokens = rate * self._window_s
        self._at = now

    def delay(self, rate: float, now: float) -> float:
        self._tokens = min(rate * self._window_s, self._tokens + (now - self._at) * rate)
        self._at = now
        return max(0.0, -self._tokens / rate)

    def take(self, tokens: float) -> None:
        self._tokens -= tokens


class Allowance(NamedTuple):
    """The quota that holds for a client, and who shares it."""

    rate: float
    shared_by: QuotaKey


class ClientQuotas:
    """The quotas of one node. `active` is what the hot path asks: no quota, no cost."""

    def __init__(
        self, settings: Settings, now: Callable[[], float], image: Callable[[], MetadataImage]
    ) -> None:
        self.active = False
        self.limits_requests = False
        self._seen: Mapping[QuotaKey, Mapping[str, float]] = {}
        self._now = now
        self._image = image
        self._window = Window(settings.quota_window_num, settings.quota_window_size_seconds)
        self._bucket_window = Window(
            settings.controller_quota_window_num, settings.controller_quota_window_size_seconds
        )
        self._meters: dict[tuple[str, QuotaKey], Meter] = {}
        self._buckets: dict[QuotaKey, Bucket] = {}
        self._allowances: dict[tuple[str, str], Allowance | None] = {}

    def refresh(self) -> None:
        """The image may be another one now."""
        quotas = self._image().client_quotas
        if quotas is self._seen:
            return
        self._seen = quotas
        self.active = bool(quotas)
        self.limits_requests = any(REQUESTS in each for each in quotas.values())
        self._allowances.clear()
        self._forget()

    # -- who may what --------------------------------------------------------------------------------

    def allowance(self, what: str, client_id: str) -> Allowance | None:
        key = (what, client_id)
        if key not in self._allowances:
            if len(self._allowances) >= METERS_MAX:
                self._allowances.clear()
            self._allowances[key] = self._find(what, client_id)
        return self._allowances[key]

    def _find(self, what: str, client_id: str) -> Allowance | None:
        """The most specific that is set. A default counts for each client by itself."""
        quotas = self._image().client_quotas
        for user in (ANONYMOUS, None):
            for client in (client_id, None):
                found = quotas.get(((CLIENT_ID, client), (USER, user)), {}).get(what)
                if found is not None:
                    return Allowance(found, ((CLIENT_ID, client_id), (USER, ANONYMOUS)))
            found = quotas.get(((USER, user),), {}).get(what)
            if found is not None:
                return Allowance(found, ((USER, ANONYMOUS),))
        for client in (client_id, None):
            found = quotas.get(((CLIENT_ID, client),), {}).get(what)
            if found is not None:
                return Allowance(found, ((CLIENT_ID, client_id),))
        return None

    # -- what it costs -------------------------------------------------------------------------------

    def consumed(self, request: Request, size: int) -> None:
        self._charge(request, CONSUMED, size)

    def handle(self, request: Request, handler: Handler, size: int) -> None:
        """Have a request of `size` bytes served, and measured. The time that it takes is charged to the
        client's next one, since this one's answer may be gone when it is known."""
        api_key = request.header.api_key
        if api_key == ApiKey.PRODUCE:
            self._charge(request, PRODUCED, size)
        if not self.limits_requests or _is_between_brokers(request):
            handler(request)
            return
        self._charge(request, REQUESTS, 0.0)
        began = self._now()
        handler(request)
        allowed = self.allowance(REQUESTS, request.client_id)
        if allowed is not None:
            now = self._now()
            self._meter(REQUESTS, allowed).record((now - began) * 100.0, now)

    def consumable_bytes(self, client_id: str) -> int | None:
        """The most that one answer may hold: what the client may receive in a whole window."""
        allowed = self.allowance(CONSUMED, client_id)
        if allowed is None:
            return None
        return int(allowed.rate * (self._window.samples - 1 or 1) * self._window.seconds)

    def _charge(self, request: Request, what: str, amount: float) -> None:
        allowed = self.allowance(what, request.client_id)
        if allowed is None:
            return
        now = self._now()
        meter = self._meter(what, allowed)
        if amount:
            meter.record(amount, now)
        delay = meter.delay(allowed.rate, now)
        if what == REQUESTS:
            delay = min(delay, self._window.seconds)  # time is never owed for longer than a sample
        if delay > 0.0:
            request.throttle(delay)

    def _meter(self, what: str, allowed: Allowance) -> Meter:
        key = (what, allowed.shared_by)
        meter = self._meters.get(key)
        if meter is None:
            if len(self._meters) >= METERS_MAX:
                self._forget()
            meter = self._meters[key] = Meter(self._window)
        return meter

    def _forget(self) -> None:
        self._meters.clear()
        self._buckets.clear()

    # -- changes to the cluster ----------------------------------------------------------------------

    def mutations(self, client_id: str, *, is_strict: bool) -> Mutations | None:
        """What one request's changes are charged to; None without a quota."""
        self.refresh()
        if not self.active or (allowed := self.allowance(MUTATIONS, client_id)) is None:
            return None
        bucket = self._buckets.get(allowed.shared_by)
        if bucket is None:
            if len(self._buckets) >= METERS_MAX:
                self._forget()
            bucket = Bucket(self._bucket_window, allowed.rate, self._now())
            self._buckets[allowed.shared_by] = bucket
        return Mutations(bucket, allowed.rate, self._now, is_strict)


class Mutations:
    """Takes the tokens for one request. A strict one is refused while the bucket is overdrawn; older
    clients do not know that error, and are delayed instead."""

    def __init__(
        self, bucket: Bucket, rate: float, now: Callable[[], float], is_strict: bool
    ) -> None:
        self._bucket = bucket
        self._rate = rate
        self._now = now
        self._is_strict = is_strict
        self.delay = 0.0

    def permit(self, partitions: int) -> None:
        before = self._bucket.delay(self._rate, self._now())
        if self._is_strict:
            self.delay = before
            if before > 0.0:
                raise KafkaError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded."
                )
        self._bucket.take(partitions)
        if not self._is_strict:
            self.delay = self._bucket.delay(self._rate, self._now())


def _is_between_brokers(request: Request) -> bool:
    """Replication and transactions must not wait for a quota of clients."""
    api_key = request.header.api_key
    return (
        request.connection.is_follower
        or api_key == ApiKey.WRITE_TXN_MARKERS
        or (api_key == ApiKey.ADD_PARTITIONS_TO_TXN and request.version >= BROKERS_ADD_FROM)
    )
