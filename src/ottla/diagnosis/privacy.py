"""What may leave the machine in a bundle: names that operators chose, numbers, fixed texts.

Everything is decided by lists of what is known to be harmless, not of what is known to be secret: a setting, a field of
a log line or of an event that nobody has thought of is hidden. Texts that clients chose (client ids, member ids,
transactional ids) are replaced by numbered names, the same name everywhere in one bundle.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from ottla.client.group_admin import GroupDescription, GroupMember
from ottla.client.model import Config
from ottla.config.names import HARMLESS, TOPIC_TO_SERVER
from ottla.config.node_settings import NAMES
from ottla.diagnosis.facts import Facts, GroupFacts, MachineFacts, TopicFacts
from ottla.security.operations import AclOperation, ResourceType, resource_kind
from ottla.wire.apis import APIS, PRIVATE_APIS
from ottla.wire.errors import ErrorCode

HIDDEN: Final = "(hidden)"

_SECRET_NAME = re.compile(
    r"password|secret|token|credential|jaas|keystore|truststore|certificate|private|\.key\b|sasl\.|ssl\.",
    re.IGNORECASE,
)
_NUMBERS = re.compile(r"[-\d.,:/ ]*")
_NAMED_VALUES = frozenset(
    {
        "address",
        "api",
        "cause",
        "code",
        "directory",
        "group",
        "how",
        "listener",
        "listeners",
        "log_dirs",
        "name",
        "partition",
        "path",
        "peer",
        "role",
        "roles",
        "signal",
        "state",
        "step",
        "task",
        "topic",
        "topics",
        "topic_id",
        "traps",
        "version",
    }
)
"""Fields of log lines and events whose texts an operator or the program chose."""
_SENT_BY_PEERS = frozenset({"first_bytes"})
"""Hidden also if they are digits alone."""
_GROUP_KINDS = frozenset({"rebalance", "member_expired"})
"""Kinds of events whose cause names members."""
_LOG_LINE = re.compile(r"(\d{4}-\d\d-\d\d[ T][\d:.,]+Z?) ([A-Z]+) (.*)")
_FIELD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)')
_TRACE_LINE = re.compile(r'  File "[^"]*", line \d+, in \S+')
_DECISION = re.compile(
    r"Principal = .* is (?P<verdict>Allowed|Denied) operation = (?P<operation>"
    + "|".join(AclOperation.__members__)
    + r") from host = .* on resource = (?P<resource_type>"
    + "|".join(resource_kind(each) for each in ResourceType)
    + r"):LITERAL:.* for request = (?P<request>\w+) with .*",
    re.DOTALL,
)
_REQUESTS = frozenset({*(api.name for api in APIS.values()), *PRIVATE_APIS.values()})
_WORDS = frozenset({*ErrorCode.__members__, "true", "false", "records", "bytes", "seconds"})
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_PUSHED = re.compile(r"(# (HELP|TYPE|UNIT) )?org_apache_kafka_")
_CLIENT_LABELS = frozenset(
    {"client_id", "clientid", "user", "member", "member_id", "transactional_id"}
)


def is_harmless(name: str) -> bool:
    """Whether the value of this setting may be shown."""
    known = name in NAMES or name in HARMLESS or name in TOPIC_TO_SERVER
    return known and not _SECRET_NAME.search(name)


def settings(values: Mapping[str, str | None]) -> dict[str, str | None]:
    return {
        name: value if value is None or is_harmless(name) else HIDDEN
        for name, value in values.items()
    }


class Aliases:
    """Numbered names in place of texts that clients chose: `client-1`, `client-2`."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], str] = {}

    def of(self, kind: str, text: str) -> str:
        number = sum(each == kind for each, _ in self._known) + 1
        return self._known.setdefault((kind, text), f"{kind}-{number}")


def facts(found: Facts) -> Facts:
    """Without secrets and without what clients chose."""
    aliases = Aliases()
    return replace(
        found,
        topics=tuple(_topic(each) for each in found.topics),
        groups=tuple(_group(each, aliases) for each in found.groups),
        transactions=tuple(
            each._replace(id=aliases.of("transaction", each.id)) for each in found.transactions
        ),
        broker_configs={
            broker: tuple(_config(each) for each in configs)
            for broker, configs in found.broker_configs.items()
        },
        machine=None if found.machine is None else _machine(found.machine),
        unknown={_without_ids(what): _without_message(why) for what, why in found.unknown.items()},
    )


def _without_ids(what: str) -> str:
    return re.sub(r"^transactional id .*", "a transactional id", what)


def _without_message(why: str) -> str:
    """The code of an error: its message may name what a client chose."""
    return why.partition(":")[0]


def _topic(topic: TopicFacts) -> TopicFacts:
    return replace(topic, configs=settings(topic.configs))


def _config(config: Config) -> Config:
    return config if is_harmless(config.name) else config._replace(value=HIDDEN)


def _machine(machine: MachineFacts) -> MachineFacts:
    nodes = tuple(
        replace(
            node,
            settings={name: value or "" for name, value in settings(node.settings).items()},
        )
        for node in machine.nodes
    )
    return replace(machine, nodes=nodes)


def _group(group: GroupFacts, aliases: Aliases) -> GroupFacts:
    told = group.description
    held_up = None
    if told.hold_up is not None:
        held_up = {
            name: value for name, value in told.hold_up.items() if isinstance(value, int | float)
        } | {"late": [HIDDEN for _ in told.hold_up.get("late", ())]}
    description: GroupDescription = told._replace(
        members=tuple(_member(each, aliases) for each in told.members), hold_up=held_up
    )
    return replace(group, description=description)


def _member(member: GroupMember, aliases: Aliases) -> GroupMember:
    instance = member.instance_id
    return member._replace(
        id=aliases.of("member", member.id),
        client_id=aliases.of("client", member.client_id),
        instance_id=None if instance is None else aliases.of("instance", instance),
    )


# Logs


class LogLines:
    """A node's log: times, levels, fixed texts, and those values that may be shown."""

    def __init__(self, sources: str) -> None:
        """`sources`: of this program. What begins a string there is a fixed text. Any other text may be somebody's name."""
        self._sources = sources
        self._known: dict[str, bool] = {}

    def shown(self, text: str) -> Iterator[str]:
        for line in text.splitlines():
            if line.startswith("{"):
                yield self._json_line(line)
            elif match := _LOG_LINE.fullmatch(line):
                yield f"{match[1]} {match[2]} {self._message(match[3])}"
            elif match := _TRACE_LINE.match(line):
                yield match[0]
            elif line:
                yield _characters(line)

    def _message(self, message: str) -> str:
        if (decision := _authorized(message)) is not None:
            text, fields = decision
        else:
            first = _FIELD.search(message)
            if first is None:
                return self._if_fixed(message.partition(": ")[0], message)
            text = message[: first.start()].rstrip()
            found = dict(_FIELD.findall(message))
            if not self._is_fixed(text) or not all(map(self._is_field, found)):
                return _characters(message)
            fields = _of_line(found)
        return " ".join((text, *(f"{name}={value}" for name, value in fields.items())))

    def _json_line(self, line: str) -> str:
        try:
            told = json.loads(line)
            text, fields = str(told["text"]), _of_line(told["fields"])
            kept = {name: told[name] for name in ("at", "level", "logger")}
        except (ValueError, KeyError, TypeError, AttributeError):
            return _characters(line)
        if (decision := _authorized(text)) is not None:
            text, fields = decision
        else:
            text = self._if_fixed(text.partition(": ")[0], text)
        return json.dumps({**kept, "text": text, "fields": fields})

    def _if_fixed(self, text: str, whole: str) -> str:
        return text if self._is_fixed(text) else _characters(whole)

    def _is_fixed(self, text: str) -> bool:
        return self._is_in_sources(f'"{text}')

    def _is_field(self, name: str) -> bool:
        return self._is_in_sources(f" {name}=")

    def _is_in_sources(self, words: str) -> bool:
        found = self._known.get(words)
        if found is None:
            found = self._known[words] = words in self._sources
        return found


def _characters(text: str) -> str:
    return f"({len(text)} characters of another kind)"


def _authorized(text: str) -> tuple[str, dict[str, str]] | None:
    """A line of the authorizer, which is Kafka's: one sentence with the names of users, hosts and resources. What clients cannot
    choose is kept."""
    if not text.startswith("Principal = "):
        return None
    found = _DECISION.match(text)
    if found is None or found["request"] not in _REQUESTS:
        return f"authorizer {_characters(text)}", {}
    shown = {name: found[name] for name in ("operation", "resource_type", "request")}
    return found["verdict"], {"principal": HIDDEN, "host": HIDDEN, "resource": HIDDEN, **shown}


def _of_line(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a line that may be shown. The cause of what happens to a group names its members."""
    shown = {name: _json_value(name, value) for name, value in fields.items()}
    if "group" in shown and "cause" in shown:
        shown["cause"] = HIDDEN
    return shown


def _value(name: str, value: str) -> str:
    if name in _SENT_BY_PEERS:
        return HIDDEN
    harmless = name in _NAMED_VALUES or value in _WORDS or _NUMBERS.fullmatch(value)
    return value if harmless else HIDDEN


# Events


def event(text: str, aliases: Aliases) -> str | None:
    """An entry of the event log; None if it is none."""
    try:
        told = json.loads(text)
        kind = told["kind"]
    except (ValueError, KeyError, TypeError):
        return None
    shown = {name: _json_value(name, value) for name, value in told.items()}
    shown |= {"at": told.get("at"), "kind": kind}
    if told.get("by") is not None:
        shown["by"] = aliases.of("changer", str(told["by"]))
    if kind in _GROUP_KINDS:
        shown["cause"] = HIDDEN
    if kind == "setting_changed" and is_harmless(str(told.get("name"))):
        shown |= {name: told.get(name) for name in ("old", "new")}
    return json.dumps(shown)


def _json_value(name: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list):
        return [_json_value(name, each) for each in value]
    if isinstance(value, dict):
        return {_value("", str(key)): _json_value(name, each) for key, each in value.items()}
    return _value(name, str(value))


# Metrics


def metrics(text: str) -> Iterator[str]:
    """Without the names of clients and users in labels, and without the metrics that clients pushed (KIP-714): they chose
    every name in them."""

    def label(match: re.Match[str]) -> str:
        return f'{match[1]}="{HIDDEN}"' if match[1].lower() in _CLIENT_LABELS else match[0]

    return (_LABEL.sub(label, line) for line in text.splitlines() if not _PUSHED.match(line))


def lines(texts: Iterable[str]) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()
