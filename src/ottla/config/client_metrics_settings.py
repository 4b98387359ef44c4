"""A subscription to metrics of clients (KIP-714): a resource of the type CLIENT_METRICS, with Kafka's three settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.config.values import ConfigError
from ottla.patterns.re2 import BadPattern, Pattern

METRICS, INTERVAL, MATCH = "metrics", "interval.ms", "match"
INTERVAL_DEFAULT_MS = 300_000


class ClientMetricsSetting(NamedTuple):
    type_name: str
    default: str
    doc: str


CLIENT_METRICS_SETTINGS = {
    INTERVAL: ClientMetricsSetting(
        "INT", str(INTERVAL_DEFAULT_MS), "How often a client pushes, in milliseconds."
    ),
    MATCH: ClientMetricsSetting("LIST", "", "Which clients: attribute=pattern."),
    METRICS: ClientMetricsSetting("LIST", "", "Beginnings of the names of metrics; * is all."),
}
INTERVAL_MIN_MS, INTERVAL_MAX_MS = 100, 3_600_000
ATTRIBUTES = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""By which clients are selected."""


class RefusedSubscription(ConfigError):
    """What Kafka answers with INVALID_REQUEST; other errors are INVALID_CONFIG."""


class MetricsSubscription(NamedTuple):
    name: str
    metrics: frozenset[str]
    """Prefixes of names; `*` stands for all."""
    interval_ms: int
    match: Mapping[str, Pattern]
    """By attribute. A client has to match all of them."""

    def is_for(self, attributes: Mapping[str, str]) -> bool:
        try:
            return all(
                name in attributes and pattern.select((attributes[name],))
                for name, pattern in self.match.items()
            )
        except BadPattern:  # it takes too long for what this client calls itself
            return False


def subscription_of(name: str, configs: Mapping[str, str]) -> MetricsSubscription:
    """ConfigError if a setting is unknown or its value wrong."""
    if not name:
        raise RefusedSubscription("Subscription name can't be empty")
    for each in configs:
        if each not in CLIENT_METRICS_SETTINGS:
            raise RefusedSubscription(f"Unknown client metrics configuration: {each}")
    return MetricsSubscription(
        name,
        frozenset(_members(configs.get(METRICS, ""))),
        _interval(configs.get(INTERVAL, str(INTERVAL_DEFAULT_MS))),
        dict(map(_pattern, _members(configs.get(MATCH, "")))),
    )


def _members(text: str) -> list[str]:
    return [member.strip() for member in text.split(",")] if text else []


def _interval(text: str) -> int:
    try:
        interval_ms = int(text)
    except ValueError:
        raise ConfigError(f"Invalid value {text} for {INTERVAL}: not a number") from None
    if not INTERVAL_MIN_MS <= interval_ms <= INTERVAL_MAX_MS:
        raise RefusedSubscription(
            f"Invalid value {interval_ms} for {INTERVAL}, interval must be between 100 and 3600000"
            " (1 hour)"
        )
    return interval_ms


def _pattern(text: str) -> tuple[str, Pattern]:
    name, _, pattern = text.partition("=")
    name, pattern = name.strip(), pattern.strip()
    if name not in ATTRIBUTES or not pattern or "=" in pattern:
        raise ConfigError(f"Illegal client matching pattern: {text}")
    try:
        return name, Pattern(pattern)
    except BadPattern as error:
        raise ConfigError(f"Illegal client matching pattern: {text} ({error})") from None
