"""Which of a node's settings may change while it runs, and what holds now.

A value comes from the node's own entry in the metadata, else from the cluster's default there, else from the
node's file, else it is Kafka's default (KIP-226).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.config.node_settings import TABLE, Setting, Settings
from ottla.config.topic_settings import TOPIC_SETTINGS

ROWS: Mapping[str, Setting] = {row.name: row for row in TABLE}

DYNAMIC: frozenset[str] = frozenset(
    {
        *(row.server_name for row in TOPIC_SETTINGS.values() if row.server_name in ROWS),
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "max.connections",
        "max.connections.per.ip",
        "producer.id.expiration.ms",
    }
)


def current(
    settings: Settings, own: Mapping[str, str], everywhere: Mapping[str, str], name: str
) -> Any:
    """A setting's typed value. `own` and `everywhere` are the metadata's entries for this node and for all."""
    text = own.get(name, everywhere.get(name))
    row = ROWS[name]
    return getattr(settings, row.attribute) if text is None else row.kind.parse(text)
