"""Events of the requests that a node serves."""

from __future__ import annotations

from ottla.events import Event


class QuotaExceeded(Event):
    """A client's request was throttled, or refused, because the client is above its quota."""

    client_id: str
    quota: str
    """Kafka's name of the quota, for example `producer_byte_rate`."""
    rate: float
    """The allowed rate: bytes per second, percent, or changes per second."""
    throttle_s: float
    measured: float | None = None
    """The rate that was measured; None for a quota that is kept as tokens."""
    user: str | None = None
    """The name of the client's principal; None if nobody has logged in."""
