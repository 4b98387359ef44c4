"""Kinds of settings: how text becomes a number, an address or a list, and back."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar, cast

T = TypeVar("T")

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
FLOAT_MAX = sys.float_info.max
MIB = 1 << 20
HOUR_MS = 3_600_000
WEEK_MS = 7 * 24 * HOUR_MS


class ConfigError(Exception):
    """One line: where, which setting, what is wrong with it, and what would be right."""


class ListenerAddress(NamedTuple):
    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{join_address(self.host, self.port)}"


class QuorumVoter(NamedTuple):
    id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.id}@{join_address(self.host, self.port)}"


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return join_address(self.host, self.port)


class SuperUsers(tuple[str, ...]):
    """Principals as texts. They are separated by `;`, because the names in certificates have commas."""

    __slots__ = ()

    def __str__(self) -> str:
        return ";".join(self)


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(text: str) -> Address:
    """`host:port` or `[v6]:port`; ValueError says what is missing."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"'{text.strip()}' is not host:port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return Address(host, int(port))


@dataclass(frozen=True)
class SettingKind(Generic[T]):
    """How one setting is read. `type_name` is Kafka's ConfigDef type, which DescribeConfigs reports."""

    type_name: str
    parse: Callable[[str], T]


_WHOLE_NUMBER = re.compile(r"\s*[+-]?[0-9]{1,30}\s*")


def number(at_least: int | None = None, *, at_most: int, type_name: str) -> SettingKind[int]:
    def parse(text: str) -> int:
        if not _WHOLE_NUMBER.fullmatch(text):  # int() would take underscores, and very many digits
            raise ValueError(f"'{text}' is not a whole number")
        value = int(text)
        if at_least is not None and value < at_least:
            raise ValueError(f"{value} is below {at_least}")
        low = -at_most - 1 if at_least is None else at_least
        if not low <= value <= at_most:
            raise ValueError(f"{value} is not between {low} and {at_most}")
        return value

    return SettingKind(type_name, parse)


def integer(at_least: int | None = None, *, at_most: int = INT_MAX) -> SettingKind[int]:
    return number(at_least, at_most=at_most, type_name="INT")


def long(at_least: int | None = None) -> SettingKind[int]:
    return number(at_least, at_most=LONG_MAX, type_name="LONG")


def _parse_gzip_level(text: str) -> int:
    level = integer(-1, at_most=9).parse(text)
    if level == 0:
        raise ValueError("0 is neither between 1 and 9 nor -1, gzip's usual level")
    return level


REPLICATION_FACTOR = number(1, at_most=(1 << 15) - 1, type_name="SHORT")
SHORT = number(at_most=(1 << 15) - 1, type_name="SHORT")


def _parse_boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(f"'{text}' is neither true nor false")
    return lowered == "true"


def decimal() -> SettingKind[float]:
    """Any number."""

    def parse(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise ValueError(f"'{text}' is not a number") from None

    return SettingKind("DOUBLE", parse)


def _parse_ratio(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"'{text}' is not a number") from None
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{text} is not between 0 and 1")
    return value


def _split_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def choice(*allowed: str) -> SettingKind[str]:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"'{text}' is not one of {', '.join(allowed)}")
        return text

    return SettingKind("STRING", parse)


def choices(*allowed: str) -> SettingKind[tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        values = _split_list(text)
        for value in values:
            if value not in allowed:
                raise ValueError(f"'{value}' is not one of {', '.join(allowed)}")
        if len(set(values)) != len(values):
            raise ValueError("a value is given twice")
        return values

    return SettingKind("LIST", parse)


def _parse_listeners(text: str) -> tuple[ListenerAddress, ...]:
    result = []
    for part in _split_list(text):
        name, separator, address = part.partition("://")
        if not separator or not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
            raise ValueError(f"'{part}' is not NAME://host:port")
        host, port = split_address(address)
        result.append(ListenerAddress(name.upper(), host, port))
    if len({listener.name for listener in result}) != len(result):
        raise ValueError("a listener name is given twice")
    return tuple(result)


def _parse_http_listeners(text: str) -> tuple[ListenerAddress, ...]:
    result = []
    for part in _split_list(text):
        scheme, separator, address = part.partition("://")
        if not separator or scheme.upper() != "HTTP":
            raise ValueError(f"'{part}' is not HTTP://host:port")
        result.append(ListenerAddress("HTTP", *split_address(address)))
    return tuple(result)


def _parse_voters(text: str) -> tuple[QuorumVoter, ...]:
    result = []
    for part in _split_list(text):
        voter_id, at, address = part.partition("@")
        if not at or not voter_id.isdigit():
            raise ValueError(f"'{part}' is not id@host:port")
        result.append(QuorumVoter(int(voter_id), *split_address(address)))
    if len({voter.id for voter in result}) != len(result):
        raise ValueError("a voter id is given twice")
    return tuple(result)


def _parse_protocol_map(text: str) -> tuple[tuple[str, str], ...]:
    result = []
    for part in _split_list(text):
        name, colon, protocol = part.partition(":")
        if not colon:
            raise ValueError(f"'{part}' is not NAME:PROTOCOL")
        if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
            raise ValueError(f"'{protocol}' is not a security protocol")
        result.append((name.upper(), protocol))
    return tuple(result)


def _parse_super_users(text: str) -> SuperUsers:
    names = SuperUsers(part.strip() for part in text.split(";") if part.strip())
    for name in names:
        kind, colon, rest = name.partition(":")
        if not colon or not kind or not rest:
            raise ValueError(f"'{name}' is not TYPE:NAME, for example User:admin")
    return names


def _parse_per_address(text: str) -> tuple[tuple[str, int], ...]:
    import ipaddress  # few nodes have such limits

    result = []
    for part in _split_list(text):
        host, colon, most = part.rpartition(":")
        if not colon or not most.isascii() or not most.isdigit():
            raise ValueError(f"'{part}' is not ADDRESS:NUMBER")
        try:
            address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        except ValueError:
            raise ValueError(f"'{host}' is no IP address; names are not resolved") from None
        result.append((str(address), int(most)))
    return tuple(result)


def _parse_rate(text: str) -> float:
    value = float(text)
    if not 0 < value <= FLOAT_MAX:
        raise ValueError(f"{text} is not a number above 0")
    return value


def _parse_throttled(text: str) -> tuple[str, ...]:
    replicas = _split_list(text)
    if replicas != ("*",):
        for replica in replicas:
            if not re.fullmatch(r"[0-9]+:[0-9]+", replica):
                raise ValueError(f"'{replica}' is not partition:broker")
    return replicas


BOOLEAN: SettingKind[bool] = SettingKind("BOOLEAN", _parse_boolean)
TEXT: SettingKind[str] = SettingKind("STRING", str)
OPTIONAL_TEXT: SettingKind[str | None] = SettingKind("STRING", lambda text: text or None)
OPTIONAL_COUNT: SettingKind[int | None] = SettingKind(
    "INT", lambda text: integer(1).parse(text) if text else None
)
RACK_AWARE = choice("org.apache.kafka.common.replica.RackAwareReplicaSelector")
SELECTOR: SettingKind[str | None] = SettingKind(
    "STRING", lambda text: RACK_AWARE.parse(text) if text else None
)
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AUTHORIZER: SettingKind[str] = SettingKind("STRING", choice("", STANDARD_AUTHORIZER).parse)
SUPER_USERS: SettingKind[tuple[str, ...]] = SettingKind("STRING", _parse_super_users)
RATIO: SettingKind[float] = SettingKind("DOUBLE", _parse_ratio)
RATE: SettingKind[float] = SettingKind("DOUBLE", _parse_rate)
LIST: SettingKind[tuple[str, ...]] = SettingKind("LIST", _split_list)
THROTTLED: SettingKind[tuple[str, ...]] = SettingKind("LIST", _parse_throttled)
ASSIGNORS = choices("uniform", "range")
PROTOCOLS = choices("classic", "consumer")
LISTENERS: SettingKind[tuple[ListenerAddress, ...]] = SettingKind("LIST", _parse_listeners)
HTTP_LISTENERS: SettingKind[tuple[ListenerAddress, ...]] = SettingKind(
    "LIST", _parse_http_listeners
)
VOTERS: SettingKind[tuple[QuorumVoter, ...]] = SettingKind("LIST", _parse_voters)
ADDRESSES: SettingKind[tuple[Address, ...]] = SettingKind(
    "LIST", lambda text: tuple(split_address(part) for part in _split_list(text))
)
PER_ADDRESS: SettingKind[tuple[tuple[str, int], ...]] = SettingKind("STRING", _parse_per_address)
PROTOCOL_MAP: SettingKind[tuple[tuple[str, str], ...]] = SettingKind("STRING", _parse_protocol_map)
ROLES: SettingKind[frozenset[str]] = SettingKind(
    "LIST", lambda text: frozenset(choices("broker", "controller").parse(text))
)
CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")
POLICIES = choices("delete", "compact")
GZIP_LEVEL: SettingKind[int] = SettingKind("INT", _parse_gzip_level)
TIMESTAMP_TYPES = choice("CreateTime", "LogAppendTime")


def text_of(value: object) -> str:
    """A value as it would stand in a properties file."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, SuperUsers):
        return str(value)
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return ",".join(
            ":".join(part) if type(part) is tuple else str(part) for part in cast(Any, value)
        )
    return str(value)
