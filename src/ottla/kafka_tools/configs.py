"""kafka-configs: dynamic settings of topics, brokers, groups and loggers, and quotas of clients."""

from __future__ import annotations

import re
import sys
from typing import Any

from ottla.client.admin import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    ConfigEntry,
    Resource,
)
from ottla.client.group_admin import GroupAdmin
from ottla.kafka_tools.ending import ended
from ottla.kafka_tools.java import (
    double_text,
    exception_text,
    hash_order,
    message_of,
    names_in_order,
    string_hash,
)
from ottla.kafka_tools.options import (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Option,
    OptionParser,
    Parsed,
    ToolError,
)
from ottla.kafka_tools.session import ToolSession, properties, with_cluster
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

TOPICS, CLIENTS, USERS, BROKERS = "topics", "clients", "users", "brokers"
IPS, METRICS, GROUPS, LOGGERS = "ips", "client-metrics", "groups", "broker-loggers"
TYPES = (TOPICS, CLIENTS, USERS, BROKERS, IPS, METRICS, GROUPS, LOGGERS)
RESOURCES = {
    TOPICS: TOPIC,
    BROKERS: BROKER,
    LOGGERS: BROKER_LOGGER,
    METRICS: CLIENT_METRICS,
    GROUPS: GROUP,
}
QUOTA_ENTITIES = {USERS: "user", CLIENTS: "client-id", IPS: "ip"}
QUOTA_NAMES = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
CLIENT_QUOTAS = frozenset(
    {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
)
IP_QUOTAS = frozenset({"connection_creation_rate"})
SCRAM = frozenset({"SCRAM-SHA-256", "SCRAM-SHA-512"})
SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
OWN_SOURCE = {TOPICS: 1, BROKERS: 2, METRICS: 7, GROUPS: 8}
CLUSTER_SOURCE = 3
FLAGS = {
    "topic": TOPICS,
    "client": CLIENTS,
    "user": USERS,
    "broker": BROKERS,
    "broker-logger": LOGGERS,
    "ip": IPS,
    "client-metrics": METRICS,
    "group": GROUPS,
}
DEFAULT_FLAGS = {
    "client-defaults": CLIENTS,
    "user-defaults": USERS,
    "broker-defaults": BROKERS,
    "ip-defaults": IPS,
}
OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"
TIMEOUT_MS = 30_000
PARSER = OptionParser(
    "This tool helps to manipulate and describe entity config for a topic, client, user, broker, ip,"
    " client-metrics or group",
    [
        BOOTSTRAP,
        Option("bootstrap-controller", "The Kafka controllers to connect to.", "host:port,..."),
        COMMAND_CONFIG,
        Option("alter", "Alter the configuration for the entity."),
        Option("describe", "List configs for the given entity."),
        Option("all", "List all configs, including static ones."),
        Option("entity-type", f"Type of entity ({'/'.join(TYPES)})", "type"),
        Option("entity-name", "Name of entity", "name"),
        Option("entity-default", "Default entity name for clients/users/brokers/ips"),
        Option("add-config", "Configs to add: k1=v1,k2=[v1,v2]", "configs"),
        Option("add-config-file", "Properties file with configs to add.", "file"),
        Option("delete-config", "Configs to remove: k1,k2", "names"),
        *(Option(name, f"The name of one of the {kind}.", "name") for name, kind in FLAGS.items()),
        *(Option(name, f"The defaults of all {kind}.") for name, kind in DEFAULT_FLAGS.items()),
    ],
)


def main(words: list[str]) -> int:
    return ended(lambda: _main(words))


def _main(words: list[str]) -> int:
    options = PARSER.parse(words)
    kinds, names = _entities(options)
    _check(options, kinds, names)
    settings = properties(options.value("command-config"))
    if options.has("alter") and len(kinds) != len(names):
        raise ToolError("An entity name must be specified for every entity type")

    async def work(session: ToolSession) -> int:
        try:
            if options.has("alter"):
                await _alter(session, options, kinds, names)
            elif kinds[0] in RESOURCES:
                await _describe(session, kinds[0], names[0] if names else None, options.has("all"))
            else:
                await _describe_quotas(session, kinds, names)
                if kinds[0] != IPS and CLIENTS not in kinds and "" not in names:
                    await _describe_scram(session, names)
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                raise ToolError(message_of(error)) from None
            print(
                f"Error while executing config command with args '{' '.join(words)}'",
                file=sys.stderr,
            )
            print(
                f"java.util.concurrent.ExecutionException: {exception_text(error)}", file=sys.stderr
            )
            return 1
        return 0

    bootstrap = options.value("bootstrap-server") or options.text("bootstrap-controller")
    return with_cluster(bootstrap, settings, "kafka-configs", work, TIMEOUT_MS)


# The command line


def _entities(options: Parsed) -> tuple[list[str], list[str]]:
    """The types and the names that were given; an empty name is the default of the type."""
    given = [name for name in FLAGS if options.has(name)]
    defaults = [name for name in DEFAULT_FLAGS if options.has(name)]
    kinds = [
        *options.values("entity-type"),
        *(FLAGS[name] for name in given),
        *(DEFAULT_FLAGS[name] for name in defaults),
    ]
    named = [
        value or "" for name, value in options.order if name in ("entity-name", "entity-default")
    ]
    return kinds, [*named, *(options.text(name) for name in given), *("" for _ in defaults)]


def _check(options: Parsed, kinds: list[str], names: list[str]) -> None:
    if options.has("alter") == options.has("describe"):
        PARSER.usage("Command must include exactly one action: --describe, --alter")
    PARSER.forbid(options, "describe", "add-config", "delete-config")
    twice = [kind for kind in dict.fromkeys(kinds) if kinds.count(kind) > 1]
    if twice:
        raise ToolError(f"Duplicate entity type(s) specified: {','.join(twice)}")
    servers = [options.has(name) for name in ("bootstrap-server", "bootstrap-controller")]
    if not any(servers):
        raise ToolError("Either --bootstrap-server or --bootstrap-controller must be specified.")
    for kind in kinds:
        if kind not in TYPES:
            raise ToolError(
                f"Invalid entity type {kind}, the entity type must be one of {', '.join(TYPES)}"
                " with a --bootstrap-server or --bootstrap-controller argument"
            )
    if not kinds:
        raise ToolError("At least one entity type must be specified")
    if len(kinds) > 1 and set(kinds) != {USERS, CLIENTS}:
        raise ToolError("Only 'users' and 'clients' entity types may be specified together")
    general = any(options.has(f"entity-{part}") for part in ("type", "name", "default"))
    if general and any(options.has(name) for name in (*FLAGS, *DEFAULT_FLAGS)):
        raise ToolError(
            "--entity-{type,name,default} should not be used in conjunction with specific entity flags"
        )
    if all(servers):
        raise ToolError("Only one of --bootstrap-server or --bootstrap-controller can be specified")
    if kinds[0] in (BROKERS, LOGGERS):
        for name in filter(None, names):
            _broker_id(
                name, f"The entity name for {kinds[0]} must be a valid integer broker id, but it is"
            )
    _check_action(options, kinds, names)


def _check_action(options: Parsed, kinds: list[str], names: list[str]) -> None:
    has_name = any(names)
    with_defaults = {USERS, CLIENTS, BROKERS, IPS} & set(kinds)
    if options.has("describe"):
        if not with_defaults and options.has("entity-default"):
            raise ToolError(
                f"--entity-default must not be specified with --describe of {','.join(kinds)}"
            )
        if LOGGERS in kinds and not has_name:
            raise ToolError(
                f"An entity name must be specified with --describe of {','.join(kinds)}"
            )
        return
    if with_defaults:
        if not names:
            raise ToolError(
                "An entity-name or default entity must be specified with --alter of users, clients,"
                " brokers or ips"
            )
    elif not has_name:
        raise ToolError(f"An entity name must be specified with --alter of {','.join(kinds)}")
    if options.has("add-config") and options.has("add-config-file"):
        raise ToolError("Only one of --add-config or --add-config-file must be specified")
    if not any(options.has(name) for name in ("add-config", "add-config-file", "delete-config")):
        raise ToolError(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified"
            " with --alter"
        )


def _broker_id(name: str, complaint: str) -> int:
    try:
        return int(name)
    except ValueError:
        raise ToolError(f"{complaint}: {name}") from None


def _added(options: Parsed) -> dict[str, str]:
    added = properties(options.value("add-config-file"))
    text = options.value("add-config")
    if text is not None:
        pairs = [
            re.split(rf"\s*={OUTSIDE_BRACKETS}\s*", part)
            for part in re.split(f",{OUTSIDE_BRACKETS}", text)
        ]
        if not all(len(pair) == 2 for pair in pairs):
            raise ToolError(
                "requirement failed: Invalid entity config: all configs to be added must be in the format"
                ' "key=val" or  "key=[val1,val2]" to group values which contain commas.'
            )
        added |= {name.strip(): re.sub(r"[\[\]]", "", value).strip() for name, value in pairs}
    for name in added:
        if re.fullmatch(r"[$a-zA-Z0-9._-]*", name) is None:
            raise ToolError(f"Invalid character found for config key: {name}")
    return added


# Changing


async def _alter(session: ToolSession, options: Parsed, kinds: list[str], names: list[str]) -> None:
    kind, name = kinds[0], names[0]
    added = _added(options)
    deleted = [part.strip() for text in options.values("delete-config") for part in text.split(",")]
    if kind in RESOURCES:
        if kind == LOGGERS:
            await _check_loggers(session, name, [*deleted, *added])
        changes = [*((key, None) for key in deleted), *added.items()]
        await session.admin.alter_configs({(RESOURCES[kind], name): changes})
    else:
        _check_quotas(kinds, added, deleted)
        await _alter_quotas(session, kinds, names, added, deleted)
    if name:
        print(f"Completed updating config for {kind[:-1]} {name}.")
    else:
        print(f"Completed updating default config for {kind} in the cluster.")


async def _check_loggers(session: ToolSession, broker: str, names: list[str]) -> None:
    resource = (BROKER_LOGGER, broker)
    known = {entry.name for entry in (await session.admin.describe_configs([resource]))[resource]}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ToolError(f"Invalid broker logger(s): {','.join(unknown)}")


def _check_quotas(kinds: list[str], added: dict[str, str], deleted: list[str]) -> None:
    if kinds == [IPS]:
        unknown = [name for name in (*added, *deleted) if name not in IP_QUOTAS]
        if unknown:
            raise ToolError(
                "Only connection quota configs can be added for 'ips' using --bootstrap-server."
                f" Unexpected config names: {','.join(unknown)}"
            )
        return
    for names, verb in ((list(added), "added"), (deleted, "deleted")):
        scram = [name for name in names if name in SCRAM]
        unknown = [name for name in names if name not in CLIENT_QUOTAS and name not in SCRAM]
        if CLIENTS in kinds and (unknown or scram):
            raise ToolError(
                f"Only quota configs can be {verb} for 'clients' using --bootstrap-server."
                f" Unexpected config names: {','.join([*unknown, *scram])}"
            )
        if unknown:
            raise ToolError(
                f"Only quota and SCRAM credential configs can be {verb} for 'users' using"
                f" --bootstrap-server. Unexpected config names: {','.join(unknown)}"
            )
        if scram:
            raise ToolError(
                "This tool takes no passwords: every user of the machine reads the arguments of a process. Use"
                " ottla users add NAME or ottla users rotate NAME (with -b and --password-file), or ottla users remove NAME"
            )


async def _alter_quotas(
    session: ToolSession,
    kinds: list[str],
    names: list[str],
    added: dict[str, str],
    deleted: list[str],
) -> None:
    present = await _quotas(session, kinds, names)
    known = present[0][1] if present else {}
    missing = [name for name in deleted if name not in known]
    if missing:
        raise ToolError(f"Invalid config(s): {','.join(missing)}")
    ops: list[dict[str, Any]] = []
    for name, text in added.items():
        try:
            ops.append({"key": name, "value": float(text), "remove": False})
        except ValueError:
            raise ToolError(f"Cannot parse quota configuration value for {name}: {text}") from None
    ops += [{"key": name, "value": 0.0, "remove": True} for name in deleted]
    entity = [
        {"entity_type": QUOTA_ENTITIES[kind], "entity_name": name or None}
        for kind, name in zip(kinds, names, strict=True)
    ]
    fields = {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}
    answer = await session.admin.ask(ApiKey.ALTER_CLIENT_QUOTAS, fields)
    for entry in answer.entries:
        if int(entry.error_code):
            raise KafkaError(ErrorCode(int(entry.error_code)), entry.error_message or "")


# Describing


async def _describe(session: ToolSession, kind: str, name: str | None, everything: bool) -> None:
    if name is not None and not everything and not await _exists(session, kind, name):
        print(f"The {kind[:-1]} '{name}' doesn't exist and doesn't have dynamic config.")
        return
    names = [name] if name is not None else await _all(session, kind)
    for each in names:
        if each == "":
            print(f"Default configs for {kind} in the cluster are:")
        else:
            print(f"{'All' if everything else 'Dynamic'} configs for {kind[:-1]} {each} are:")
        for entry in await _entries(session, kind, each, everything):
            synonyms = ", ".join(
                f"{SOURCES[source]}:{known}={_shown(value)}"
                for known, value, source in entry.synonyms
            )
            print(
                f"  {entry.name}={_shown(entry.value)} sensitive={str(entry.sensitive).lower()}"
                f" synonyms={{{synonyms}}}"
            )


def _shown(value: str | None) -> str:
    return "null" if value is None else value


async def _exists(session: ToolSession, kind: str, name: str) -> bool:
    return name in await _all(session, kind)


async def _all(session: ToolSession, kind: str) -> list[str]:
    if kind == TOPICS:
        return names_in_order(topic.name for topic in await session.admin.list_topics())
    if kind in (BROKERS, LOGGERS):
        brokers = (await session.client.metadata([])).brokers
        return [*(str(broker.id) for broker in sorted(brokers)), ""]
    found: list[str] = []
    if kind == GROUPS:
        listed = (await GroupAdmin(session.client).all()).answers
        found = names_in_order(group.id for group in listed)
    fields = {"resource_types": [RESOURCES[kind]]}
    answer = await session.admin.ask(ApiKey.LIST_CONFIG_RESOURCES, fields)
    return list(dict.fromkeys([*found, *(each.resource_name for each in answer.config_resources)]))


async def _entries(
    session: ToolSession, kind: str, name: str, everything: bool
) -> list[ConfigEntry]:
    resource: Resource = (RESOURCES[kind], name)
    found = (await session.admin.describe_configs([resource], synonyms=True))[resource]
    source = CLUSTER_SOURCE if kind == BROKERS and name == "" else OWN_SOURCE.get(kind)
    return sorted(
        entry for entry in found if everything or source is None or entry.source == source
    )


Quotas = list[tuple[dict[str, str | None], dict[str, float]]]


async def _quotas(session: ToolSession, kinds: list[str], names: list[str]) -> Quotas:
    """Of each entity that matches: its parts, and its quotas."""
    if len(names) > len(kinds):
        raise ToolError("More entity names specified than entity types")
    components = []
    for position, kind in enumerate(kinds):
        name = names[position] if position < len(names) else None
        match = 2 if name is None else 0 if name else 1  # any, this one, the default
        components.append(
            {"entity_type": QUOTA_ENTITIES[kind], "match_type": match, "match": name or None}
        )
    fields = {"components": components, "strict": True}
    answer = await session.admin.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, fields)
    found = [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {each.key: each.value for each in entry.values},
        )
        for entry in answer.entries or ()
    ]
    hashes = [_entity_hash(entity) for entity, _ in found]
    return [
        found[position]
        for position in hash_order(range(len(found)), hashes.__getitem__, len(found))
    ]


def _entity_hash(entity: dict[str, str | None]) -> int:
    """Of Kafka's ClientQuotaEntity."""
    parts = (string_hash(k) ^ (0 if v is None else string_hash(v)) for k, v in entity.items())
    return (31 + sum(parts)) & 0xFFFFFFFF


async def _describe_quotas(session: ToolSession, kinds: list[str], names: list[str]) -> None:
    for entity, values in await _quotas(session, kinds, names):
        who = ", ".join(
            f"the default {text}" if entity[part] is None else f"{text} '{entity[part]}'"
            for part, text in QUOTA_NAMES.items()
            if part in entity
        )
        what = ", ".join(
            f"{name}={double_text(values[name])}" for name in names_in_order(values, len(values))
        )
        print(f"Quota configs for {who} are {what}")


async def _describe_scram(session: ToolSession, names: list[str]) -> None:
    """Kafka's tool asks about SCRAM credentials whenever it describes users."""
    fields = {"users": [{"name": name} for name in names] or None}
    answer = await session.admin.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, fields)
    for result in answer.results:
        if int(result.error_code):
            error = KafkaError(ErrorCode(int(result.error_code)), result.error_message or "")
            simple = exception_text(error).rsplit(".", 1)[-1]
            if error.code is not ErrorCode.RESOURCE_NOT_FOUND:
                print(
                    f"Error retrieving SCRAM credential configs for user-principal '{result.user}': {simple}"
                )
            continue
        shown = ", ".join(
            f"SCRAM-SHA-{256 if int(each.mechanism) == 1 else 512}=iterations={each.iterations}"
            for each in result.credential_infos
        )
        print(f"SCRAM credential configs for user-principal '{result.user}' are {shown}")
