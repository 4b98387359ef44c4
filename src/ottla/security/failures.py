"""How long an address waits for the answer to a failed login: the more it failed, the longer.

The table is bounded. Who is not in it has the shortest delay, so whoever has many addresses gains only that.
"""

from __future__ import annotations

import ipaddress
from typing import Final, NamedTuple

ADDRESSES_MAX: Final = 10_000
FORGOTTEN_S: Final = 60.0
"""An address that did not fail for so long begins anew."""
DOUBLINGS_MAX: Final = 32
IPV6_NETWORK: Final = 64
"""Whoever has one IPv6 address has as many as this leaves: they count as one."""


class _Failed(NamedTuple):
    times: int
    last: float


class FailureDelays:
    def __init__(self, longest_s: float, addresses_max: int = ADDRESSES_MAX) -> None:
        self._longest_s = longest_s
        self._addresses_max = addresses_max
        self._failed: dict[str, _Failed] = {}
        """The one whose last failure is oldest comes first."""

    def __len__(self) -> int:
        return len(self._failed)

    def failed(self, host: str, first_s: float, now: float) -> float:
        """Seconds for which the answer is held back. `first_s`: for an address that has not failed lately. A login that
        succeeds shortens nothing: who guesses may have a user of its own."""
        key = network_of(host)
        before = self._failed.pop(key, None)
        times = 0 if before is None or now - before.last >= FORGOTTEN_S else before.times
        delay_s = min(first_s * 2.0**times, max(self._longest_s, first_s))
        if len(self._failed) >= self._addresses_max:
            del self._failed[next(iter(self._failed))]
        self._failed[key] = _Failed(min(times + 1, DOUBLINGS_MAX), now)
        return delay_s

    def failed_lately(self, host: str, now: float) -> bool:
        found = self._failed.get(network_of(host))
        return found is not None and now - found.last < FORGOTTEN_S


def network_of(host: str) -> str:
    """Whose failures and logins count together. The network of a network is itself."""
    if ":" not in host or "/" in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, IPV6_NETWORK), strict=False))
