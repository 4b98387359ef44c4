"""Events of the requests that a node serves."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.events import Event


@dataclass(frozen=True, slots=True)
class QuotaExceeded(Event):
    """A request of a client was throttled, or refused, because the client is above its quota."""

    client_id: str
    quota: str
    """Kafka's name of the quota, for example `producer_byte_rate`."""
    rate: float
    """What the quota allows: bytes a second, percent, or changes a second."""
    throttle_s: float
