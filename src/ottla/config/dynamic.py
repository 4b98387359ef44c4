"""Which of a node's settings may change while it runs, and what holds now.

A value comes from the node's own entry in the metadata, else from the cluster's default there, else from the
node's file, else it is Kafka's default (KIP-226).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.config.cordoning import CORDONED
from ottla.config.inert import INERT
from ottla.config.names import not_served
from ottla.config.node_settings import TABLE, Settings
from ottla.config.security_settings import PREFIX, STORE_SETTINGS
from ottla.config.setting import Setting
from ottla.config.topic_settings import TOPIC_SETTINGS
from ottla.config.values import ConfigError

ROWS: Mapping[str, Setting] = {row.name: row for row in TABLE}


LISTENER_DYNAMIC = (*STORE_SETTINGS, "max.connections", "max.connection.creation.rate")


class NotDynamic(ConfigError):
    """A setting that is read once, when a node starts."""


DYNAMIC: frozenset[str] = frozenset(
    {
        *(row.server_name for row in TOPIC_SETTINGS.values() if row.server_name in ROWS),
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "log.cleaner.threads",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "max.connection.creation.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        CORDONED,
        "producer.id.expiration.ms",
    }
)


def dynamic_row(name: str) -> Setting | None:
    """The row of a setting that may change while a node runs. Those of key stores and trust stores may, and limits of
    connections, in the form for one listener. Which listeners a node has is known to that node only."""
    if name in DYNAMIC:
        return ROWS[name]
    if name.startswith(PREFIX):
        for setting in LISTENER_DYNAMIC:
            if name.endswith(f".{setting}") and len(name) > len(PREFIX) + len(setting) + 1:
                return ROWS[setting]
    return None


def validate_broker_config(configs: Mapping[str, str]) -> None:
    """ConfigError when a node's setting cannot be changed while it runs, or its value is wrong."""
    for name, value in configs.items():
        why = not_served(name)
        if why is not None:
            raise ConfigError(f"{name}: {why}")
        row = INERT.get(name) or dynamic_row(name)
        if row is None:
            raise NotDynamic(f"Cannot update these configs dynamically: {name}")
        kind = row.kind
        try:
            kind.parse(value)
        except ValueError as error:
            raise ConfigError(f"Invalid value for {name}: {error}") from None


def current(
    settings: Settings, own: Mapping[str, str], everywhere: Mapping[str, str], name: str
) -> Any:
    """A setting's typed value. `own` and `everywhere` are the metadata's entries for this node and for all."""
    text = own.get(name, everywhere.get(name))
    row = ROWS[name]
    return getattr(settings, row.attribute) if text is None else row.kind.parse(text)
