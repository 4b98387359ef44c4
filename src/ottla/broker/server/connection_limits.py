"""How many connections a node takes, and how fast (Kafka's limits: KIP-402, KIP-612).

All listeners of a broker share them. Over the limit of its address a connection is closed at once. Over the number of
all connections, or over the rate, nothing is accepted: clients wait in the system's queue. If brokers have a listener of their
own, that one goes on, and the connection elsewhere that was idle for longest is closed. An address over its own rate (the
quota `connection_creation_rate` of `ip`) is kept waiting, unread, and closed.

A connection counts among all from the moment at which its client has logged in. Until then it is one of those that have not,
which are limited apart: strangers cannot use up what clients need. For its address it counts at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.server.quotas import IP, METERS_MAX, Meter, Window
from ottla.config.node_settings import Settings
from ottla.config.values import INT_MAX
from ottla.metadata.image import QuotaKey

if TYPE_CHECKING:
    from ottla.broker.server.connections import ServerConnection

logger = logging.getLogger(__name__)

CONNECTION_RATE: Final = "connection_creation_rate"
LOOK_AGAIN_S: Final = 0.05
"""While there is no room, it is looked for so often."""


class Most(NamedTuple):
    connections: int = INT_MAX
    rate: int = INT_MAX
    """New ones a second."""


class LimitRules(NamedTuple):
    of_all: Most = Most()
    of_listeners: Mapping[str, Most] = {}
    per_address: int = INT_MAX
    of_addresses: Mapping[str, int] = {}


def rules_of(settings: Settings) -> LimitRules:
    """A listener without limits of its own has none beside those of all."""

    def own(listener: str, setting: str) -> int:
        name = f"listener.name.{listener.lower()}.{setting}"
        return int(settings.per_listener.get(name, INT_MAX))

    return LimitRules(
        Most(settings.max_connections, settings.max_connection_creation_rate),
        {
            each.name: Most(
                own(each.name, "max.connections"), own(each.name, "max.connection.creation.rate")
            )
            for each in settings.listeners
        },
        settings.max_connections_per_ip,
        dict(settings.max_connections_per_ip_overrides),
    )


class ConnectionLimits:
    def __init__(
        self,
        rules: LimitRules,
        now: Callable[[], float],
        window: Window,
        protected: str | None = None,
    ) -> None:
        """`protected`: the listener of brokers, if there are others beside it."""
        self.rules = rules
        self._now = now
        self._window = window
        self._protected = protected
        self._from: dict[str, int] = {}
        """How many connections each address has."""
        self._inside: dict[ServerConnection, None] = {}
        self._of_listeners: dict[str, int] = {}
        """How many of these each listener has."""
        self._rates: dict[str, Meter] = {}
        """By listener; of all: under the empty name."""
        self._ip_quotas: Mapping[QuotaKey, Mapping[str, float]] = {}
        self._ip_rates: dict[str, Meter] = {}
        self.waiting: dict[str, None] = {}
        """Listeners of which it was said that they wait."""

    def door(self, listener: str) -> ListenerDoor:
        return ListenerDoor(self, listener)

    def change(self, rules: LimitRules) -> None:
        self.rules = rules
        self._close_excess()

    def quotas_changed(self, quotas: Mapping[QuotaKey, Mapping[str, float]]) -> None:
        found = {key: rates for key, rates in quotas.items() if key[0][0] == IP}
        if found != self._ip_quotas:
            self._ip_quotas = found
            self._ip_rates.clear()

    # Before a connection is accepted

    def wait_s(self, listener: str) -> float:
        wait_s = LOOK_AGAIN_S if not self._has_room(listener) else self._rate_wait_s(listener)
        if not wait_s:
            self.waiting.pop(listener, None)
        elif listener not in self.waiting:
            self.waiting[listener] = None
            logger.warning(
                "new connections wait, there are too many or they come too fast listener=%s"
                " connections=%d",
                listener,
                len(self._inside),
            )
        return wait_s

    def _has_room(self, listener: str) -> bool:
        rules = self.rules
        own = rules.of_listeners.get(listener, Most()).connections
        if self._of_listeners.get(listener, 0) >= own:
            return False
        return listener == self._protected or len(self._inside) < rules.of_all.connections

    def _rates_of(self, listener: str) -> dict[str, int]:
        """The rates that count for a listener, if any."""
        rates = {listener: self.rules.of_listeners.get(listener, Most()).rate}
        if listener != self._protected:
            rates[""] = self.rules.of_all.rate
        return {name: rate for name, rate in rates.items() if rate < INT_MAX}

    def _rate_wait_s(self, listener: str) -> float:
        now, longest = self._now(), 0.0
        for name, rate in self._rates_of(listener).items():
            if not rate:
                return self._window.seconds
            meter = self._rates.get(name)
            if meter is not None:
                longest = max(longest, meter.delay(rate, now))
        # Looked at again at least once in a window: the rate may have been changed.
        return min(longest, self._window.seconds)

    def refusal(self, listener: str, host: str) -> float | None:
        if self._is_full(host):
            self._refused(host, listener)
            return 0.0
        now = self._now()
        rate = self._ip_rate(host)
        if rate is not None:
            meter = self._ip_rates.get(host)
            if meter is None:
                if len(self._ip_rates) >= METERS_MAX:
                    self._ip_rates.clear()
                meter = self._ip_rates[host] = Meter(self._window)
            delay_s = meter.delay(rate, now)
            if delay_s > 0:
                logger.info(
                    "refusing connection, its address comes too fast host=%s listener=%s",
                    host,
                    listener,
                )
                return min(delay_s, self._window.seconds)
            meter.record(1, now)
        for name in self._rates_of(listener):
            self._rates.setdefault(name, Meter(self._window)).record(1, now)
        return None

    def _ip_rate(self, host: str) -> float | None:
        if not self._ip_quotas:
            return None
        for name in (host, None):
            rate = self._ip_quotas.get(((IP, name),), {}).get(CONNECTION_RATE)
            if rate is not None:
                return rate
        return None

    def _is_full(self, host: str) -> bool:
        most = self.rules.of_addresses.get(host, self.rules.per_address)
        return self._from.get(host, 0) >= most

    def _refused(self, host: str, listener: str) -> None:
        logger.warning(
            "refusing connection, too many connections from its address host=%s listener=%s",
            host,
            listener,
        )

    # Connections

    def came(self, connection: ServerConnection) -> bool:
        """Accepted, and not necessarily logged in. False: it is to be closed."""
        host = connection.peer_host
        if self._is_full(host):  # more came while it was busy with TLS
            self._refused(host, connection.listener)
            return False
        self._from[host] = self._from.get(host, 0) + 1
        connection.is_counted = True
        return True

    def entered(self, connection: ServerConnection) -> bool:
        """It has logged in, or need not. False: there is no room left, so it is to be closed."""
        listener = connection.listener
        if not self._has_room(listener):
            logger.warning(
                "closing connection, too many connections peer=%s listener=%s",
                connection.peer,
                listener,
            )
            return False
        self._inside[connection] = None
        self._of_listeners[listener] = self._of_listeners.get(listener, 0) + 1
        self._close_excess()
        return True

    def _close_excess(self) -> None:
        """Brokers need room: whoever was idle for longest on another listener gives way."""
        excess = len(self._inside) - self.rules.of_all.connections
        if excess <= 0:
            return
        others = [each for each in self._inside if each.listener != self._protected]
        for connection in sorted(others, key=lambda each: -each.idle_s)[:excess]:
            logger.warning(
                "closing connection, too many connections peer=%s listener=%s",
                connection.peer,
                connection.listener,
            )
            self.left(connection)
            connection.abort()

    def left(self, connection: ServerConnection) -> None:
        """It is over, whether it was counted or not."""
        if connection.is_counted:
            connection.is_counted = False
            host = connection.peer_host
            self._from[host] -= 1
            if not self._from[host]:
                del self._from[host]
        if connection in self._inside:
            del self._inside[connection]
            self._of_listeners[connection.listener] -= 1


class ListenerDoor(NamedTuple):
    """The `Door` of one listener."""

    limits: ConnectionLimits
    listener: str

    def wait_s(self) -> float:
        return self.limits.wait_s(self.listener)

    def refusal(self, host: str) -> float | None:
        return self.limits.refusal(self.listener, host)
