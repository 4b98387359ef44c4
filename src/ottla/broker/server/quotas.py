"""Client quotas: for how long a client is throttled that sends, receives or changes more than it may.

A client is known by its user and its client id. The most specific quota that is set for them holds. All clients that
share a quota share its allowance (KIP-13, KIP-546). Bytes and time are measured over a sliding window. A client above
its rate gets its answer. The answer holds the time that would bring the rate down again, and the client's connection is
not read for so long (KIP-219). Changes to the cluster are measured by a token bucket. Newer clients are refused there
instead of delayed (KIP-599).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

from ottla.broker.server.connections import Handler, Request
from ottla.config.node_settings import Settings
from ottla.events import Events
from ottla.events.requests import QuotaExceeded
from ottla.metadata.image import MetadataImage, QuotaKey
from ottla.security.needs import CLUSTER_ACTION
from ottla.security.principals import ANONYMOUS
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

USER, CLIENT_ID, IP = "user", "client-id", "ip"

PRODUCED = "producer_byte_rate"
CONSUMED = "consumer_byte_rate"
REQUESTS = "request_percentage"
MUTATIONS = "controller_mutation_rate"

METERS_MAX = 10_000
"""Client ids measured at one time. Clients choose their ids freely, so beyond this number one that was not heard of for long is
forgotten. Users cannot be chosen, and each of them has a meter for as long as the node lives."""
OLDEST_ASKED = 16
"""So many of those that were not heard of for longest are asked whether they can be forgotten."""

BROKERS_ADD_FROM = 4
"""Versions of AddPartitionsToTxn from this one on are sent by brokers."""


class Window(NamedTuple):
    samples: int
    seconds: float


class Meter:
    """A rate over the last samples, as Kafka measures it. The newest sample is still growing. While there are too few
    samples, the missing ones count as empty, if a first burst is allowed."""

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
        """Seconds until the recorded amount is within `rate`, if nothing is added."""
        samples, (count, length) = self._samples, self._window
        while samples and now - samples[0][0] >= count * length:
            samples.popleft()
        if not samples:
            return 0.0
        return max(0.0, sum(amount for _, amount in samples) / rate - self._elapsed(now))

    def scale(self, factor: float) -> None:
        """Count what was recorded so many times."""
        for sample in self._samples:
            sample[1] *= factor

    def measured(self, now: float) -> float:
        """The rate of what was recorded, over the time that counts."""
        return sum(amount for _, amount in self._samples) / self._elapsed(now)

    def _elapsed(self, now: float) -> float:
        return max(now - self._samples[0][0], self._shortest * self._window.seconds)


class Bucket:
    """A token bucket: tokens come at a steady rate, up to what a window holds. It may be overdrawn once."""

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
    """The quota that holds for a client, and the clients that share it."""

    rate: float
    shared_by: QuotaKey


_Measure = TypeVar("_Measure", Meter, Bucket)


class Measures(Generic[_Measure]):
    """What is measured of whom. Nobody gets rid of what he has used, or of what others have, by coming under many ids."""

    def __init__(self) -> None:
        self._of_users: dict[Hashable, _Measure] = {}
        self._of_ids: dict[Hashable, _Measure] = {}
        """Who was heard of last comes last."""
        self._rates: dict[Hashable, float] = {}
        """Of those of ids."""

    def get(
        self,
        what: str,
        allowed: Allowance,
        make: Callable[[], _Measure],
        now: float,
    ) -> _Measure:
        shared_by: QuotaKey = allowed.shared_by
        key: Hashable = what, shared_by
        if shared_by[0][0] != CLIENT_ID:
            return self._of_users.get(key) or self._of_users.setdefault(key, make())
        found = self._of_ids.pop(key, None)
        if found is None:
            found = make()
            if len(self._of_ids) >= METERS_MAX and not self._make_room(now):
                # All others are above their rates. Those who come now have one client's rate together.
                key = what, ((CLIENT_ID, None), *shared_by[1:])
                found = self._of_ids.pop(key, found)
        self._of_ids[key] = found
        self._rates[key] = allowed.rate
        return found

    def _make_room(self, now: float) -> bool:
        """Forget one that is not above its rate; those who are go behind the others."""
        for _ in range(OLDEST_ASKED):
            key = next(iter(self._of_ids))
            measure, rate = self._of_ids.pop(key), self._rates[key]
            if measure.delay(rate, now) <= 0.0:
                del self._rates[key]
                return True
            self._of_ids[key] = measure
        return False

    def clear(self) -> None:
        self._of_users.clear()
        self._of_ids.clear()
        self._rates.clear()

    def __len__(self) -> int:
        return len(self._of_users) + len(self._of_ids)


class ClientQuotas:
    """The quotas of one node. Requests are measured only while `active`: without a quota there is no cost."""

    def __init__(
        self,
        settings: Settings,
        now: Callable[[], float],
        image: Callable[[], MetadataImage],
        *,
        events: Events,
    ) -> None:
        self.active = False
        self.limits_requests = False
        self._seen: Mapping[QuotaKey, Mapping[str, float]] = {}
        self._now = now
        self._image = image
        self._events = events
        self._window = Window(settings.quota_window_num, settings.quota_window_size_seconds)
        self._bucket_window = Window(
            settings.controller_quota_window_num, settings.controller_quota_window_size_seconds
        )
        self._meters: Measures[Meter] = Measures()
        self._buckets: Measures[Bucket] = Measures()
        self._allowances: dict[tuple[str, str, str], Allowance | None] = {}

    def refresh(self) -> None:
        """Call this when the image has changed."""
        quotas = self._image().client_quotas
        if quotas is self._seen:
            return
        self._seen = quotas
        self.active = any(entity[0][0] != IP for entity in quotas)
        self.limits_requests = any(REQUESTS in each for each in quotas.values())
        self._allowances.clear()
        self._meters.clear()
        self._buckets.clear()

    # The quota of a client

    def allowance(self, what: str, user: str, client_id: str) -> Allowance | None:
        """`user`: the name of the principal."""
        key = (what, user, client_id)
        if key not in self._allowances:
            if len(self._allowances) >= METERS_MAX:
                self._allowances.clear()
            self._allowances[key] = self._find(what, user, client_id)
        return self._allowances[key]

    def _find(self, what: str, user: str, client_id: str) -> Allowance | None:
        """The most specific that is set. A default counts for each client by itself."""
        quotas = self._image().client_quotas
        for named in (user, None):
            for client in (client_id, None):
                found = quotas.get(((CLIENT_ID, client), (USER, named)), {}).get(what)
                if found is not None:
                    return Allowance(found, ((CLIENT_ID, client_id), (USER, user)))
            found = quotas.get(((USER, named),), {}).get(what)
            if found is not None:
                return Allowance(found, ((USER, user),))
        for client in (client_id, None):
            found = quotas.get(((CLIENT_ID, client),), {}).get(what)
            if found is not None:
                return Allowance(found, ((CLIENT_ID, client_id),))
        return None

    # Measuring

    def consumed(self, request: Request, size: int) -> None:
        self._charge(request, CONSUMED, size)

    def handle(self, request: Request, handler: Handler, size: int) -> None:
        """Serve and measure a request of `size` bytes. The time it takes is charged to the client's next request, because
        this request's answer may be sent before the time is known."""
        api_key = request.header.api_key
        if api_key == ApiKey.PRODUCE:
            self._charge(request, PRODUCED, size)
        if not self.limits_requests or _is_between_brokers(request):
            handler(request)
            return
        self._charge(request, REQUESTS, 0.0)
        began = self._now()
        handler(request)
        allowed = self._allowance_of(request, REQUESTS)
        if allowed is not None:
            now = self._now()
            self._meter(REQUESTS, allowed, now).record((now - began) * 100.0, now)

    def _allowance_of(self, request: Request, what: str) -> Allowance | None:
        return self.allowance(what, request.connection.principal.name, request.client_id)

    def consumable_bytes(self, request: Request) -> int | None:
        """The largest answer: what the client may receive in a whole window."""
        allowed = self._allowance_of(request, CONSUMED)
        if allowed is None:
            return None
        return int(allowed.rate * (self._window.samples - 1 or 1) * self._window.seconds)

    def _charge(self, request: Request, what: str, amount: float) -> None:
        allowed = self._allowance_of(request, what)
        if allowed is None:
            return
        now = self._now()
        meter = self._meter(what, allowed, now)
        if amount:
            meter.record(amount, now)
        delay = meter.delay(allowed.rate, now)
        if what == REQUESTS:
            delay = min(delay, self._window.seconds)  # at most one sample, as in Kafka
        if delay > 0.0:
            request.throttle(delay)
            if QuotaExceeded in self._events:
                measured = meter.measured(now)
                user = _logged_in(request.connection.principal.name)
                self._events.emit(
                    QuotaExceeded(request.client_id, what, allowed.rate, delay, measured, user)
                )

    def _meter(self, what: str, allowed: Allowance, now: float) -> Meter:
        return self._meters.get(what, allowed, lambda: Meter(self._window), now)

    # Changes to the cluster

    def mutations(self, user: str, client_id: str, *, is_strict: bool) -> Mutations | None:
        """Charges the changes of one request to whoever made it, not to the broker that passed it on. None without a
        quota."""
        self.refresh()
        if not self.active or (allowed := self.allowance(MUTATIONS, user, client_id)) is None:
            return None
        now = self._now()
        bucket = self._buckets.get(
            MUTATIONS, allowed, lambda: Bucket(self._bucket_window, allowed.rate, now), now
        )
        return Mutations(bucket, allowed.rate, self._now, is_strict, user, client_id, self._events)


class Mutations:
    """Takes the tokens for one request. A strict request is refused while the bucket is overdrawn. Older clients do
    not know that error, and are delayed instead."""

    def __init__(
        self,
        bucket: Bucket,
        rate: float,
        now: Callable[[], float],
        is_strict: bool,
        user: str,
        client_id: str,
        events: Events,
    ) -> None:
        self._bucket = bucket
        self._rate = rate
        self._now = now
        self._is_strict = is_strict
        self._user = user
        self._client_id = client_id
        self._events = events
        self.delay = 0.0

    def permit(self, partitions: int) -> None:
        before = self._bucket.delay(self._rate, self._now())
        if self._is_strict:
            self.delay = before
            if before > 0.0:
                self._exceeded()
                raise KafkaError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded."
                )
        self._bucket.take(partitions)
        if not self._is_strict:
            self.delay = self._bucket.delay(self._rate, self._now())
            if self.delay > 0.0:
                self._exceeded()

    def _exceeded(self) -> None:
        if QuotaExceeded in self._events:
            user = _logged_in(self._user)
            self._events.emit(
                QuotaExceeded(self._client_id, MUTATIONS, self._rate, self.delay, user=user)
            )


def _logged_in(user: str) -> str | None:
    return None if user == ANONYMOUS.name else user


def _is_between_brokers(request: Request) -> bool:
    """Client quotas must not delay replication and transactions. Only who may act for the cluster is a broker."""
    api_key = request.header.api_key
    if request.connection.is_follower:
        return True  # that right was asked for when it fetched
    return (
        api_key == ApiKey.WRITE_TXN_MARKERS
        or (api_key == ApiKey.ADD_PARTITIONS_TO_TXN and request.version >= BROKERS_ADD_FROM)
    ) and CLUSTER_ACTION.met(request.rights)
