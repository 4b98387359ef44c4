"""Settings of one group: Kafka's names, with the node's own as defaults, within the node's bounds (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.config.names import GROUP_NOT_YET, nearest
from ottla.config.node_settings import TABLE, Settings
from ottla.config.values import ConfigError, SettingKind, text_of

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"


class GroupSetting(NamedTuple):
    name: str
    kind: SettingKind[Any]
    default: str
    server_name: str
    """The node's setting that gives the default."""
    doc: str


def _group_settings() -> dict[str, GroupSetting]:
    rows = {row.name: row for row in TABLE}
    defaults = Settings.defaults()
    found = {}
    for name in (SESSION_TIMEOUT, HEARTBEAT_INTERVAL, ASSIGNMENT_INTERVAL):
        server = rows[f"group.{name}"]
        found[name] = GroupSetting(
            name, server.kind, defaults[server.name], server.name, server.doc
        )
    return found


def validate_group_config(settings: Settings, configs: Mapping[str, str]) -> None:
    """ConfigError when a group's setting is unknown, or its value wrong or out of the node's bounds."""
    values = {}
    for name, text in configs.items():
        row = GROUP_SETTINGS.get(name)
        if row is None:
            for beginning, why in GROUP_NOT_YET:
                if name.startswith(beginning):
                    raise ConfigError(f"{name}: {why}")
            raise ConfigError(f"Unknown group config name: {name}{nearest(name, GROUP_SETTINGS)}")
        try:
            values[name] = value = row.kind.parse(text)
        except ValueError as error:
            raise ConfigError(f"Invalid value for {name}: {error}") from None
        _check_bounds(settings, name, value)
    session = values.get(SESSION_TIMEOUT, settings.group_consumer_session_timeout_ms)
    if values and session <= values.get(
        HEARTBEAT_INTERVAL, settings.group_consumer_heartbeat_interval_ms
    ):
        raise ConfigError(f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}")


def _check_bounds(settings: Settings, name: str, value: int) -> None:
    kind = name.removeprefix("consumer.")
    for bound, is_broken in (("min", int.__lt__), ("max", int.__gt__)):
        limit_name = f"group.consumer.{bound}.{kind}"
        limit: int = getattr(settings, limit_name.replace(".", "_"))
        if is_broken(value, limit):
            side = "greater" if bound == "min" else "less"
            raise ConfigError(
                f"{name} must be {side} than or equal to {limit_name}, {text_of(limit)}"
            )


GROUP_SETTINGS: dict[str, GroupSetting] = _group_settings()
