"""A node's settings: Kafka's names, Kafka's defaults, from a properties file and the environment.

`Settings` is at once the table and the typed result. Each of its fields (in `table_of_…`, by theme) states its Kafka name, its kind,
its default and one sentence of documentation, so `settings.broker_session_timeout_ms` is an `int` for the
type checker, and the same line answers DescribeConfigs. Keys of our own begin with `ottla.`.

Whatever is not in the table is refused with the nearest right name. Kafka has many settings for machinery that we do not have. Those
that cannot change what a user sees (thread counts, buffer sizes) are accepted and named once in the log. Those that promise
something that we do not do (tiered storage, plug-in classes) are refused, because a silently ignored promise is worse than a
node that does not start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property
from typing import Any, NoReturn

from ottla.config import cordoning
from ottla.config.inert import INERT
from ottla.config.names import HARMLESS, TOPIC_TO_SERVER, refuse_unknown
from ottla.config.security_settings import (
    PREFIX,
    TLS_WITHOUT_EFFECT,
    ListenerSecurity,
    listener_security,
    protocol_faults,
    security_faults,
    take_apart,
)
from ottla.config.setting import Setting
from ottla.config.sources import Entry, entries_from_environment, read_properties
from ottla.config.table_of_coordinators import CoordinatorSettings
from ottla.config.table_of_identity import IdentitySettings
from ottla.config.table_of_logs import LogSettings
from ottla.config.table_of_observability import ObservabilitySettings
from ottla.config.table_of_quorum import QuorumSettings
from ottla.config.table_of_security import SecuritySettings
from ottla.config.table_of_serving import ServingSettings
from ottla.config.values import ConfigError, ListenerAddress, text_of
from ottla.security.secrets import HIDDEN


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Settings(
    CoordinatorSettings,
    LogSettings,
    ServingSettings,
    ObservabilitySettings,
    QuorumSettings,
    SecuritySettings,
    IdentitySettings,
):
    """All settings of one node. Build with `Settings.load` or `Settings.of`, which validate.

    Of a dataclass the fields of the last base come first."""

    given: Mapping[str, str]
    """Name and text of what the operator set, by Kafka's main names; everything else is default."""
    ignored: tuple[str, ...]
    """Settings of Kafka that the operator set and that have no effect here."""
    per_listener: Mapping[str, Any]
    """What is set for one listener, by its whole name: `listener.name.<name>.<setting>`."""

    # -- building one

    @classmethod
    def load(cls, path: str | None, environ: Mapping[str, str]) -> Settings:
        """From a properties file (or none) and Kafka's environment variables, which win."""
        entries = read_properties(path) if path is not None else []
        return cls._build([*entries, *entries_from_environment(environ)], path or "the environment")

    @classmethod
    def of(cls, values: Mapping[str, str], source: str = "settings") -> Settings:
        """From a mapping of Kafka's names to texts."""
        entries = [Entry(name, value, source) for name, value in values.items()]
        return cls._build(entries, source)

    @classmethod
    def _build(cls, entries: Iterable[Entry], source: str) -> Settings:
        given: dict[str, Entry] = {}
        ignored: list[str] = []
        inert: dict[str, str] = {}
        prefixed: list[Entry] = []
        for entry in entries:
            if entry.name in NAMES:
                given[entry.name] = entry
            elif entry.name.startswith(PREFIX) and entry.marked:
                prefixed.append(entry)
            elif entry.name in HARMLESS:
                ignored.append(entry.name)
                inert |= {entry.name: entry.value} if entry.name in INERT else {}
            else:
                refuse_unknown(entry, NAMES)
        values: dict[str, Any] = {}
        texts: dict[str, str] = {}
        places: dict[str, str] = {}
        for row in TABLE:
            for name, factor in ((row.name, 1), *row.also):
                if (found := given.get(name)) is not None:
                    values[row.attribute] = value = _parse(row, found, factor)
                    texts[row.name] = (
                        HIDDEN
                        if row.is_secret
                        else found.value
                        if name == row.name
                        else text_of(value)
                    )
                    places[row.name] = f"{found.where}: {name}"
                    break
        derived = _derived(values)
        per_listener = {}
        for entry in prefixed:
            of_listener = _row_of_listener(entry, derived)
            if of_listener is None:
                ignored.append(entry.name)
                continue
            per_listener[entry.name] = _parse(of_listener, entry, 1)
            texts[entry.name] = HIDDEN if of_listener.is_secret else entry.value
            places[entry.name] = f"{entry.where}: {entry.name}"
        settings = cls(
            given=texts | inert, ignored=tuple(ignored), per_listener=per_listener, **derived
        )
        settings._check(places, source)
        return settings

    @cached_property
    def security(self) -> Mapping[str, ListenerSecurity]:
        """Of each listener of this node, and of those of other nodes that it connects to."""
        return listener_security(self)

    def _check(self, places: Mapping[str, str], source: str) -> None:
        """Checks that concern several settings."""

        def wrong(name: str, why: str) -> NoReturn:
            raise ConfigError(f"{places.get(name, f'{source}: {name}')}: {why}")

        if self.node_id < 0:
            wrong("node.id", "is missing")
        if not self.process_roles:
            wrong("process.roles", "is missing; use broker, controller, or broker,controller")
        if not self.controller_quorum_voters and not self.controller_quorum_bootstrap_servers:
            wrong("controller.quorum.voters", "is missing (or controller.quorum.bootstrap.servers)")
        if not self.controller_listener_names:
            wrong("controller.listener.names", "is missing")
        for name, why in self._listener_faults():
            wrong(name, why)
        voters = [voter.id for voter in self.controller_quorum_voters]
        if self.is_controller and voters and self.node_id not in voters:
            wrong("controller.quorum.voters", f"does not name this controller, node {self.node_id}")
        if self.controller_quorum_auto_join_enable and (voters or not self.is_controller):
            wrong(
                "controller.quorum.auto.join.enable",
                "is for controllers whose voters are dynamic: process.roles must have controller, and"
                " controller.quorum.bootstrap.servers must stand in place of controller.quorum.voters",
            )
        if not self.is_controller and self.node_id in voters:
            wrong("controller.quorum.voters", f"names node {self.node_id}, which is no controller")
        previous = "delegation.token.secret.key.previous"
        if self.delegation_token_secret_key_previous and not self.delegation_token_secret_key:
            wrong(previous, "is given without delegation.token.secret.key, the one of now")
        if self.broker_heartbeat_interval_ms * 2 > self.broker_session_timeout_ms:
            wrong(
                "broker.heartbeat.interval.ms",
                f"{self.broker_heartbeat_interval_ms} is more than half of"
                f" broker.session.timeout.ms, {self.broker_session_timeout_ms}",
            )
        if self.replica_fetch_wait_max_ms > self.replica_lag_time_max_ms:
            wrong("replica.fetch.wait.max.ms", "is longer than replica.lag.time.max.ms")
        if not self.log_dirs:
            wrong("log.dirs", "is empty")
        for why in cordoning.wrong(self.cordoned_log_dirs, self.log_dirs):
            wrong("cordoned.log.dirs", why)
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            wrong("group.min.session.timeout.ms", "is longer than group.max.session.timeout.ms")
        for kind in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"):
            low, value, high = (
                getattr(self, f"group.consumer.{bound}{kind}".replace(".", "_"))
                for bound in ("min.", "", "max.")
            )
            if not low <= value <= high:
                wrong(
                    f"group.consumer.{kind}",
                    f"{value} is not between group.consumer.min.{kind}, {low}, and"
                    f" group.consumer.max.{kind}, {high}",
                )
        if "classic" not in self.group_coordinator_rebalance_protocols:
            wrong("group.coordinator.rebalance.protocols", "must contain classic")
        if not self.group_consumer_assignors:
            wrong("group.consumer.assignors", "is empty")
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            wrong(
                "group.consumer.heartbeat.interval.ms",
                "must be shorter than group.consumer.session.timeout.ms",
            )

    def _listener_faults(self) -> Iterable[tuple[str, str]]:
        names = [listener.name for listener in self.listeners]
        wanted = set(self.controller_listener_names)
        if self.is_controller and not wanted & set(names):
            yield "listeners", f"has no controller listener {self.controller_listener_names[0]}"
        if self.is_broker and not set(names) - wanted:
            yield "listeners", "has no listener for clients beside the controller's"
        if not self.is_controller and wanted & set(names):
            yield "listeners", "has a controller listener, but this node is no controller"
        used = [listener.port for listener in self.listeners if listener.port]
        if len(set(used)) != len(used):
            yield "listeners", "uses a port twice"
        for listener in self.advertised_listeners:
            if listener.name not in names:
                yield "advertised.listeners", f"names {listener.name}, which is not in listeners"
            if listener.host in ("0.0.0.0", "::"):
                yield (
                    "advertised.listeners",
                    f"would tell clients to connect to {listener.host}; name an address they can reach",
                )
        if self.is_broker and self.inter_broker_listener_name not in set(names) - wanted:
            yield (
                "inter.broker.listener.name",
                f"{self.inter_broker_listener_name} is not one of the broker's listeners",
            )
        yield from protocol_faults(self)
        yield from security_faults(self)

    # -- reading one

    @property
    def is_broker(self) -> bool:
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.process_roles

    @property
    def rack(self) -> str | None:
        return self.broker_rack

    @property
    def broker_listeners(self) -> tuple[ListenerAddress, ...]:
        """The listeners for clients and other brokers."""
        return tuple(x for x in self.listeners if x.name not in self.controller_listener_names)

    @property
    def controller_listeners(self) -> tuple[ListenerAddress, ...]:
        return tuple(x for x in self.listeners if x.name in self.controller_listener_names)

    @property
    def uses_local_sockets(self) -> bool:
        """With security only where it was asked for: over a Unix socket, a process of the node's own user counts as the node."""
        if all(security.is_plain for security in self.security.values()):
            return self.ottla_local_sockets_enable
        return self.ottla_local_sockets_enable and "ottla.local.sockets.enable" in self.given

    def topic_defaults(self) -> dict[str, str]:
        """This node's default of every topic setting, by the topic's names."""
        texts = self.texts()
        return {name: texts[server_name] for name, server_name in TOPIC_TO_SERVER.items()}

    @staticmethod
    def defaults() -> dict[str, str]:
        """The default of every setting as text."""
        return {
            f.metadata["setting"].name: text_of(f.default) for f in fields(Settings) if f.metadata
        }

    def changed(self, texts: Mapping[str, str]) -> Settings:
        """With other values of settings of listeners, as the metadata has them. ConfigError if they cannot be."""
        entries = [Entry(name, text, "metadata") for name, text in texts.items()]
        per_listener = {**self.per_listener}
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        for entry in entries:
            row = _row_of_listener(entry, values)
            if row is not None:
                per_listener[entry.name] = _parse(row, entry, 1)
        changed = replace(self, per_listener=per_listener)
        for name, why in security_faults(changed):
            raise ConfigError(f"{name}: {why}")
        return changed

    def texts(self) -> dict[str, str]:
        """Every setting as text, as DescribeConfigs shows it."""
        return {row.name: text_of(getattr(self, row.attribute)) for row in TABLE}

    def derived_cluster_id(self) -> str:
        """The cluster id of an unformatted node that was given none: all nodes that name the same
        controllers derive the same one, so that several machines agree without a format step."""
        from base64 import urlsafe_b64encode
        from hashlib import sha256

        controllers = self.controller_quorum_voters or self.controller_quorum_bootstrap_servers
        text = ",".join(sorted(str(controller) for controller in controllers))
        digest = sha256(b"ottla cluster " + text.encode()).digest()
        # The first bit is cleared so that the text never begins with "-", which tools take for an option.
        return urlsafe_b64encode(bytes([digest[0] & 0x7F]) + digest[1:16]).decode().rstrip("=")


def _parse(row: Setting, entry: Entry, factor: int) -> Any:
    try:
        value = row.kind.parse(entry.value)
    except ValueError as error:
        raise ConfigError(f"{entry.where}: {entry.name}: {error}") from None
    return value * factor if factor != 1 and value >= 0 else value


def _row_of_listener(entry: Entry, values: Mapping[str, Any]) -> Setting | None:
    """The row of a setting of one listener. None for one without effect."""
    mapped = {name for name, _ in values.get("listener_security_protocol_map", ())}
    names = {x.name for x in values["listeners"]} | set(values["controller_listener_names"])
    try:
        setting_name = take_apart(entry.name, mapped | names).setting
    except ValueError as error:
        raise ConfigError(f"{entry.where}: {entry.name}: {error}") from None
    return None if setting_name in TLS_WITHOUT_EFFECT else _ROWS[setting_name]


def _derived(values: dict[str, Any]) -> dict[str, Any]:
    """Fill in what follows from other settings."""
    values["controller_listener_names"] = tuple(
        name.upper() for name in values.get("controller_listener_names", ())
    )
    controllers = set(values["controller_listener_names"])
    listeners = values.setdefault("listeners", (ListenerAddress("PLAINTEXT", "", 9092),))
    advertised = {x.name: x for x in values.get("advertised_listeners", ())}
    unknown = tuple(x for x in advertised.values() if x.name not in {y.name for y in listeners})
    values["advertised_listeners"] = (
        tuple(_reachable(advertised.get(x.name, x)) for x in listeners) + unknown
    )
    brokers = [x.name for x in listeners if x.name not in controllers]
    name = values.get("inter_broker_listener_name")
    values["inter_broker_listener_name"] = (
        name.upper()
        if name
        else protocol
        if (protocol := values.get("security_inter_broker_protocol"))
        else "PLAINTEXT"
        if "PLAINTEXT" in brokers
        else next(iter(brokers), None)
    )
    _widen(values)
    if not values.get("metadata_log_dir"):
        values["metadata_log_dir"] = next(iter(values.get("log_dirs", ("/tmp/kafka-logs",))), "")
    return values


def _widen(values: dict[str, Any]) -> None:
    """A default bound gives way to a value that the operator set."""
    defaults = {f.name: f.default for f in fields(Settings) if f.metadata}
    for kind in ("session_timeout_ms", "heartbeat_interval_ms"):
        value = values.get(f"group_consumer_{kind}", defaults[f"group_consumer_{kind}"])
        for bound, choose in (("min", min), ("max", max)):
            name = f"group_consumer_{bound}_{kind}"
            values.setdefault(name, choose(value, defaults[name]))


def _reachable(listener: ListenerAddress) -> ListenerAddress:
    if listener.host:
        return listener
    import socket

    return listener._replace(host=socket.getfqdn())


def _table() -> tuple[Setting, ...]:
    rows = [f.metadata["setting"] for f in fields(Settings) if f.metadata]
    assert all(f.default is not MISSING for f in fields(Settings) if f.metadata)
    return tuple(rows)


TABLE: tuple[Setting, ...] = _table()
_ROWS: Mapping[str, Setting] = {row.name: row for row in TABLE}
NAMES: frozenset[str] = frozenset(name for row in TABLE for name in row.names)
