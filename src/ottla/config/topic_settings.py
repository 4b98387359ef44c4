"""Topic settings: Kafka's names, checked like the node's own, with defaults taken from those."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, NamedTuple

from ottla.config.names import TOPIC_NOT_YET, TOPIC_TO_SERVER, NotYet, nearest
from ottla.config.node_settings import TABLE, Settings
from ottla.config.values import THROTTLED, ConfigError, SettingKind, integer, text_of

INTERNAL_SEGMENT_BYTES: Final = "internal.segment.bytes"
"""Kafka's own name of it (KIP-1030)."""


class TopicSetting(NamedTuple):
    name: str
    kind: SettingKind[Any]
    default: str
    server_name: str
    """The node's setting that gives the default; its own name where no node has one."""
    doc: str
    is_internal: bool = False
    """Shown only where it is set."""


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
    not_yet = {
        name: TopicSetting(name, _only_default(each), each.default, each.server_name, each.why)
        for name, each in TOPIC_NOT_YET.items()
    }
    internal = TopicSetting(
        INTERNAL_SEGMENT_BYTES,
        integer(14),
        "",
        INTERNAL_SEGMENT_BYTES,
        "Size of a segment file that may be smaller than segment.bytes allows; for tests.",
        is_internal=True,
    )
    return (
        throttled
        | not_yet
        | {INTERNAL_SEGMENT_BYTES: internal}
        | {
            name: TopicSetting(
                name,
                server[server_name].kind,
                text_of(defaults[server_name]),
                server_name,
                server[server_name].doc,
            )
            for name, server_name in TOPIC_TO_SERVER.items()
        }
    )


def _only_default(setting: NotYet) -> SettingKind[str]:
    def parse(text: str) -> str:
        if text.strip().lower() != setting.default:
            raise ValueError(f"'{text}' is not {setting.default}: {setting.why}")
        return text

    return SettingKind(setting.type_name, parse)


def validate_topic_config(configs: Mapping[str, str | None]) -> None:
    """ConfigError when a topic setting is unknown or its value wrong. None (delete it) is always right."""
    for name, value in configs.items():
        known = TOPIC_SETTINGS.get(name)
        if known is None:
            raise ConfigError(f"Unknown topic config name: {name}{nearest(name, TOPIC_SETTINGS)}")
        if value is not None:
            try:
                known.kind.parse(value)
            except ValueError as error:
                raise ConfigError(f"Invalid value for {name}: {error}") from None


TOPIC_SETTINGS: dict[str, TopicSetting] = _topic_settings()
