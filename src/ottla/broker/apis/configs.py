"""DescribeConfigs: every setting of a topic, a group or of this node, where its value comes from, and its
kind; ListConfigResources: what has settings at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ottla.broker.apis.broker_loggers import levels
from ottla.broker.server.connections import Request
from ottla.broker.server.registration import serves
from ottla.config.client_metrics_settings import CLIENT_METRICS_SETTINGS
from ottla.config.dynamic import DYNAMIC, ROWS, dynamic_row
from ottla.config.group_settings import GROUP_SETTINGS
from ottla.config.inert import INERT
from ottla.config.node_settings import TABLE, Settings
from ottla.config.security_settings import PREFIX, take_apart
from ottla.config.topic_settings import TOPIC_SETTINGS
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from ottla.security.needs import (
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC_CONFIGS,
    NOT_ALLOWED,
)
from ottla.wire import messages
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.internal_topics import UNLISTED_TOPICS
from ottla.wire.types import is_valid_topic_name

# Kafka's config sources.
SOURCE_TOPIC = 1
SOURCE_BROKER = 2
SOURCE_CLUSTER = 3
SOURCE_FILE = 4
SOURCE_DEFAULT = 5
SOURCE_LOGGER = 6
SOURCE_CLIENT_METRICS = 7
SOURCE_GROUP = 8

# Kafka's config types.
TYPES = {
    "BOOLEAN": 1,
    "STRING": 2,
    "INT": 3,
    "SHORT": 4,
    "LONG": 5,
    "DOUBLE": 6,
    "LIST": 7,
    "CLASS": 8,
    "PASSWORD": 9,
}


_NEEDS = {TOPIC_RESOURCE: DESCRIBE_TOPIC_CONFIGS, GROUP_RESOURCE: DESCRIBE_GROUP_CONFIGS}
"""Of all other kinds: the cluster's."""


class DescribeConfigsHandler:
    def __init__(self, settings: Settings, image: Callable[[], MetadataImage]) -> None:
        self._settings = settings
        self._image = image
        self._texts = settings.texts()

    @serves(ApiKey.DESCRIBE_CONFIGS)
    def __call__(self, request: Request) -> None:
        """DescribeConfigs 1-4 for topics (2), brokers (4), their loggers (8), groups (32), and
        subscriptions to metrics of clients (16)."""
        message = request.message()
        with_synonyms = messages.field(message, "include_synonyms", False)
        with_docs = messages.field(message, "include_documentation", False)
        results = []
        # Each resource once: a request of megabytes that names one topic again and again would have an
        # answer of gigabytes.
        wanted = {(int(r.resource_type), r.resource_name): r for r in message.resources}
        for (kind, name), resource in wanted.items():
            result: dict[str, Any] = {
                "error_code": ErrorCode.NONE,
                "error_message": None,
                "resource_type": resource.resource_type,
                "resource_name": name,
                "configs": (),
            }
            try:
                need = _NEEDS.get(kind, DESCRIBE_CLUSTER_CONFIGS)
                if not need.met(request.rights, name):
                    raise KafkaError(need.denied, NOT_ALLOWED)
                entries = list(self._describe(kind, name))
            except KafkaError as error:
                result["error_code"] = error.code
                result["error_message"] = error.message
            else:
                keys = resource.configuration_keys
                asked = frozenset(keys or ())  # none named: all of them, as in Kafka
                result["configs"] = [
                    _entry(entry, with_synonyms, with_docs)
                    for entry in entries
                    if not asked or entry["name"] in asked
                ]
            results.append(result)
        request.respond({"results": results})

    def _describe(self, kind: int, name: str) -> Iterable[dict[str, Any]]:
        if kind == TOPIC_RESOURCE:
            return self._topic(name)
        if kind == BROKER_RESOURCE:
            return self._broker(name)
        if kind == GROUP_RESOURCE:
            return self._group(name)
        if kind == BROKER_LOGGER_RESOURCE:
            return self._loggers(name)
        if kind == CLIENT_METRICS_RESOURCE:
            return self._client_metrics(name)
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"resources of type {kind} have no settings here"
        )

    def _topic(self, name: str) -> Iterable[dict[str, Any]]:
        image = self._image()
        if not is_valid_topic_name(name):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"'{name}' can be no topic's name")
        if name not in image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        own = image.config(TOPIC_RESOURCE, name)
        for row in TOPIC_SETTINGS.values():
            synonyms = []
            if row.name in own:
                synonyms.append((row.name, own[row.name], SOURCE_TOPIC))
            elif row.is_internal:
                continue
            synonyms += self._server_synonyms(row.server_name, row.default)
            yield {
                "name": row.name,
                "synonyms": synonyms,
                "type": row.kind.type_name,
                "doc": row.doc,
                "read_only": False,
                "of_no_node": row.server_name == row.name and row.name not in ROWS,
            }

    def _group(self, name: str) -> Iterable[dict[str, Any]]:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        own = self._image().config(GROUP_RESOURCE, name)
        for row in GROUP_SETTINGS.values():
            synonyms = self._server_synonyms(row.server_name, row.default)
            if row.name in own:
                synonyms.insert(0, (row.name, own[row.name], SOURCE_GROUP))
            yield {
                "name": row.name,
                "synonyms": synonyms,
                "type": row.kind.type_name,
                "doc": row.doc,
                "read_only": False,
            }

    def _broker(self, name: str) -> Iterable[dict[str, Any]]:
        if name == "":
            for key, value in sorted(self._image().config(BROKER_RESOURCE, "").items()):
                row = INERT.get(key) or dynamic_row(key) or ROWS.get(key)
                yield {
                    "name": key,
                    "synonyms": [(key, value, SOURCE_CLUSTER)],
                    "type": row.kind.type_name if row is not None else "STRING",
                    "doc": row.doc if row is not None else "",
                    "read_only": False,
                }
            return
        self._check_asked_here(name)
        for row in TABLE:
            yield {
                "name": row.name,
                "synonyms": self._server_synonyms(row.name, DEFAULTS[row.name]),
                "type": row.kind.type_name,
                "doc": row.doc,
                "read_only": row.name not in DYNAMIC,
            }
        yield from self._of_listeners()
        for inert in INERT.values():
            yield {
                "name": inert.name,
                "synonyms": self._server_synonyms(inert.name, inert.default),
                "type": inert.kind.type_name,
                "doc": inert.doc,
                "read_only": False,
            }

    def _of_listeners(self) -> Iterable[dict[str, Any]]:
        """What is set for one listener only: in the node's file, or in the metadata."""
        listeners = {*self._settings.security, *dict(self._settings.listener_security_protocol_map)}
        own = self._image().config(BROKER_RESOURCE, str(self._settings.node_id))
        everywhere = self._image().config(BROKER_RESOURCE, "")
        for name in sorted({*self._settings.per_listener, *own, *everywhere}):
            if not name.startswith(PREFIX):
                continue
            try:
                setting = take_apart(name, listeners).setting
            except ValueError:
                continue  # of a listener that other nodes have
            row = ROWS[setting]
            yield {
                "name": name,
                "synonyms": self._server_synonyms(name, DEFAULTS[setting]),
                "type": row.kind.type_name,
                "doc": row.doc,
                "read_only": dynamic_row(name) is None,
            }

    def _loggers(self, name: str) -> Iterable[dict[str, Any]]:
        self._check_asked_here(name)
        for logger, level in levels().items():
            yield {
                "name": logger,
                "synonyms": [(logger, level, SOURCE_LOGGER)],
                "type": "STRING",
                "doc": "The level of this logger until the node is started again.",
                "read_only": False,
            }

    def _client_metrics(self, name: str) -> Iterable[dict[str, Any]]:
        if not name:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"
            )
        own = self._image().config(CLIENT_METRICS_RESOURCE, name)
        for setting, row in CLIENT_METRICS_SETTINGS.items():
            synonyms = [(setting, row.default, SOURCE_DEFAULT)]
            if setting in own:
                synonyms.insert(0, (setting, own[setting], SOURCE_CLIENT_METRICS))
            yield {
                "name": setting,
                "synonyms": synonyms,
                "type": row.type_name,
                "doc": row.doc,
                "read_only": False,
                "of_no_node": True,
            }

    def _check_asked_here(self, name: str) -> None:
        if name != str(self._settings.node_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"broker {name} must be asked itself; this is {self._settings.node_id}",
            )

    def _server_synonyms(self, name: str, default: str) -> list[tuple[str, str, int]]:
        """The node's value of a setting: what wins first, then what it hides."""
        image = self._image()
        found = []
        own = image.config(BROKER_RESOURCE, str(self._settings.node_id))
        everywhere = image.config(BROKER_RESOURCE, "")
        if name in own:
            found.append((name, own[name], SOURCE_BROKER))
        if name in everywhere:
            found.append((name, everywhere[name], SOURCE_CLUSTER))
        if name in self._settings.given:
            found.append((name, self._texts.get(name, self._settings.given[name]), SOURCE_FILE))
        found.append((name, default, SOURCE_DEFAULT))
        return found


class ListConfigResourcesHandler:
    """Of a broker; a controller's listener describes settings and does not list what has them."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image

    @serves(ApiKey.LIST_CONFIG_RESOURCES)
    def __call__(self, request: Request) -> None:
        """ListConfigResources 0-1. Version 0 asks for subscriptions to metrics of clients."""
        message = request.message()
        if not DESCRIBE_CLUSTER_CONFIGS.met(request.rights):
            error = DESCRIBE_CLUSTER_CONFIGS.denied
            request.respond({"error_code": error, "config_resources": ()})
            return
        wanted = dict.fromkeys(messages.field(message, "resource_types", ()))
        if request.version == 0:
            wanted = {CLIENT_METRICS_RESOURCE: None}
        image = self._image()
        brokers = [str(broker) for broker in sorted(image.brokers)]
        names: dict[int, list[str]] = {
            TOPIC_RESOURCE: sorted(image.topics.keys() - UNLISTED_TOPICS),
            BROKER_RESOURCE: brokers,
            BROKER_LOGGER_RESOURCE: brokers,
            **{
                wanted_kind: sorted(name for kind, name in image.configs if kind == wanted_kind)
                for wanted_kind in (CLIENT_METRICS_RESOURCE, GROUP_RESOURCE)
            },
        }
        if not wanted.keys() <= names.keys():
            request.respond({"error_code": ErrorCode.UNSUPPORTED_VERSION, "config_resources": ()})
            return
        resources = [
            {"resource_name": name, "resource_type": kind}
            for kind in (wanted or names)
            for name in names[kind]
        ]
        request.respond({"error_code": ErrorCode.NONE, "config_resources": resources})


DEFAULTS: Mapping[str, str] = Settings.defaults()


def _entry(entry: Mapping[str, Any], with_synonyms: bool, with_docs: bool) -> Mapping[str, Any]:
    _, value, source = entry["synonyms"][0]
    is_secret = entry["type"] == "PASSWORD"
    return {
        "name": entry["name"],
        "value": _shown(entry, value),
        "read_only": entry["read_only"],
        "config_source": source,
        "is_sensitive": is_secret,
        "synonyms": [
            {"name": name, "value": _shown(entry, text), "source": where}
            for name, text, where in entry["synonyms"]
            # A default is a synonym where it is that of a node's setting.
            if where != SOURCE_DEFAULT or not entry.get("of_no_node")
        ]
        if with_synonyms
        else (),
        "config_type": TYPES[entry["type"]],
        "documentation": entry["doc"] if with_docs else None,
    }


def _shown(entry: Mapping[str, Any], text: str) -> str | None:
    """A setting that is not set, and has no default, has no value (Kafka's null). Nor is a secret shown."""
    if entry["type"] == "PASSWORD":
        return None
    row = ROWS.get(entry["name"])
    return None if text == "" and row is not None and row.is_optional else text
