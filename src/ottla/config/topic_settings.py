"""Topic settings: Kafka's names, checked like the node's own, with defaults taken from those."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from ottla.config.names import TOPIC_NOT_YET, TOPIC_TO_SERVER, nearest
from ottla.config.node_settings import TABLE, Settings
from ottla.config.values import THROTTLED, ConfigError, SettingKind, text_of


class TopicSetting(NamedTuple):
    name: str
    kind: SettingKind[Any]
    default: str
    server_name: str
    """The node's setting that gives the default; its own name where no node has one."""
    doc: str


def _topic_settings() -> dict[str, TopicSetting]:
    server = {row.name: row for row in TABLE}
    defaults = {f.metadata["setting"].name: f.default for f in fields(Settings) if f.metadata}
    throttled = {
        name: TopicSetting(name, THROTTLED, "", name, doc)
        for name, doc in (
            ("leader.replication.throttled.replicas", "Replicas whose leaders are throttled."),
            ("follower.replication.throttled.replicas", "Replicas that are throttled themselves."),
        )
    }
    return throttled | {
        name: TopicSetting(
            name,
            server[server_name].kind,
            text_of(defaults[server_name]),
            server_name,
            server[server_name].doc,
        )
        for name, server_name in TOPIC_TO_SERVER.items()
    }


def validate_topic_config(configs: Mapping[str, str | None]) -> None:
    """ConfigError when a topic setting is unknown or its value wrong. None (delete it) is always right."""
    for name, value in configs.items():
        known = TOPIC_SETTINGS.get(name)
        if known is None:
            if name in TOPIC_NOT_YET:
                raise ConfigError(f"{name}: {TOPIC_NOT_YET[name]}")
            raise ConfigError(f"Unknown topic config name: {name}{nearest(name, TOPIC_SETTINGS)}")
        if value is not None:
            try:
                known.kind.parse(value)
            except ValueError as error:
                raise ConfigError(f"Invalid value for {name}: {error}") from None


TOPIC_SETTINGS: dict[str, TopicSetting] = _topic_settings()
