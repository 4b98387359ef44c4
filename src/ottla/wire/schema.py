"""The fields of a message in one version, as plain descriptions taken from kio's generated classes.

kio contains Kafka's schemas as annotated dataclasses. Its modules cost milliseconds each to import, so a
message's module is imported when that message is first read or written, and never by `import ottla.wire`.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from struct import Struct as Packing
from struct import calcsize
from typing import Any, Final, Literal
from uuid import UUID

from ottla.wire.apis import ApiKey
from ottla.wire.primitives import STRING_BYTES_MAX
from ottla.wire.types import ZERO_UUID

Direction = Literal["request", "response"]

FORMATS: Final[Mapping[str, str]] = {
    "bool": "?",
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "error_code": "h",
    "int32": "i",
    "uint32": "I",
    "timedelta_i32": "i",
    "int64": "q",
    "uint64": "Q",
    "timedelta_i64": "q",
    "datetime_i64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""The `struct` formats of the fixed-size kinds."""


@lru_cache(maxsize=256)
def array_packing(code: str, count: int) -> Packing:
    return Packing(f">{count}{code}")


FIXED_BYTES: Final = {kind: calcsize(">" + code) for kind, code in FORMATS.items()}


OWN_TAGS_FROM: Final = 10_000
"""Kafka numbers its tagged fields from 0 on. Readers skip those that they do not know (KIP-482)."""
OWN_STRING_BYTES_MAX: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    kind: str
    """A name of FORMATS, "string", "bytes", "records" or "struct"."""
    struct: Struct | None
    array: bool
    nullable: bool
    tag: int | None
    default: Any
    """The default that is written, as plain values; {} is a struct of defaults."""
    kio_default: Any
    """The default in kio's entities; dataclasses.MISSING if there is none."""

    @property
    def bytes_max(self) -> int:
        """Of a string. One of our own may be about all brokers or partitions of a node, and Kafka does not read it."""
        is_own = self.tag is not None and self.tag >= OWN_TAGS_FROM
        return OWN_STRING_BYTES_MAX if is_own else STRING_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Struct:
    flexible: bool
    fields: tuple[Field, ...]
    entity: type[Any]
    """kio's class for the struct."""


OWN_FIELDS: Final[Mapping[tuple[int, Direction], tuple[str, ...]]] = {
    (ApiKey.ALTER_PARTITION, "request"): ("ottla_isr_reasons",),
    (ApiKey.BROKER_REGISTRATION, "request"): ("ottla_log_dirs_away",),
    (ApiKey.BROKER_HEARTBEAT, "request"): ("ottla_load", "ottla_asks", "ottla_short_log_dirs"),
    (ApiKey.BROKER_HEARTBEAT, "response"): ("ottla_loads",),
    (ApiKey.DESCRIBE_LOG_DIRS, "response"): ("ottla_full_log_dirs",),
}
"""Tagged fields of our own at the end of a message: between nodes of one cluster, or for our own commands. Each is a text as
UTF-8 bytes, because a Kafka string ends at 32,767 bytes, and what a hundred brokers carry does not fit."""


@cache
def message(key: int, version: int, direction: Direction) -> Struct:
    """KeyError if Kafka has no such message."""
    try:
        package = ApiKey(key).name.lower()
        module = _kio_module(f"kio.schema.{package}.v{version}.{direction}")
    except (ValueError, ModuleNotFoundError) as error:
        raise KeyError(f"api key {key} has no {direction} of version {version}") from error
    root = "".join(part.capitalize() for part in (*package.split("_"), direction))
    entity = getattr(module, root)
    return _struct(_extended(entity, OWN_FIELDS.get((key, direction), ())))


def _kio_module(name: str) -> types.ModuleType:
    """Import a kio module without hypothesis. kio loads hypothesis if it is installed, which takes
    ten times as long and five times the memory of all the rest, so it is hidden during the import."""
    if "kio.static._phantom" in sys.modules or "hypothesis" in sys.modules:
        return importlib.import_module(name)
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        return importlib.import_module(name)
    finally:
        del sys.modules["hypothesis"]


@cache
def names_of_all_versions(key: int, direction: Direction) -> Mapping[tuple[str, ...], set[str]]:
    """Every field name of any version, by the path of field names to its struct."""
    return _names(key, direction, _versions(key))


@cache
def names_of_newest_version(key: int, direction: Direction) -> Mapping[tuple[str, ...], set[str]]:
    """The same of the newest version, which nearly always has all names: kio takes some ten milliseconds to load one."""
    return _names(key, direction, _versions(key)[-1:])


def _versions(key: int) -> list[int]:
    index = _kio_module("kio.schema.index")
    return sorted(index.schema_name_map[ApiKey(key).name.lower()])


def _names(
    key: int, direction: Direction, versions: Sequence[int]
) -> Mapping[tuple[str, ...], set[str]]:
    names: dict[tuple[str, ...], set[str]] = {}

    def collect(struct: Struct, path: tuple[str, ...]) -> None:
        for field in struct.fields:
            names.setdefault(path, set()).add(field.name)
            if field.struct is not None:
                collect(field.struct, (*path, field.name))

    for version in versions:
        collect(message(key, version, direction), ())
    return names


def _extended(entity: type[Any], names: tuple[str, ...]) -> type[Any]:
    if not names or not entity.__flexible__:  # older versions have no tagged fields
        return entity
    fields: list[tuple[str, type[Any], Any]] = [
        (
            name,
            bytes,
            dataclasses.field(
                default=b"", metadata={"kafka_type": "bytes", "tag": OWN_TAGS_FROM + number}
            ),
        )
        for number, name in enumerate(names)
    ]
    return dataclasses.make_dataclass(
        entity.__name__, fields, bases=(entity,), frozen=True, slots=True, kw_only=True
    )


def _struct(entity: type[Any]) -> Struct:
    return Struct(
        flexible=entity.__flexible__,
        fields=tuple(_field(field) for field in dataclasses.fields(entity)),
        entity=entity,
    )


def _field(field: dataclasses.Field[Any]) -> Field:
    inner, nullable = _without_none(field.type)
    array = typing.get_origin(inner) is tuple
    if array:
        inner, _ = _without_none(typing.get_args(inner)[0])
    kind = "struct" if dataclasses.is_dataclass(inner) else str(field.metadata["kafka_type"])
    # kio represents a zero id and a time of -1 as None; on the wire both are plain values.
    none_stands_for = None if array else {"uuid": ZERO_UUID, "datetime_i64": -1}.get(kind)
    if none_stands_for is not None:
        nullable = False
    if field.default is not dataclasses.MISSING:
        default = _plain(field.default)
    elif nullable:
        default = None
    else:
        default = () if array else _natural_default(kind)
    if default is None and none_stands_for is not None:
        default = none_stands_for
    return Field(
        name=field.name,
        kind=kind,
        struct=_struct(typing.cast(type[Any], inner)) if kind == "struct" else None,
        array=array,
        nullable=nullable,
        tag=field.metadata.get("tag"),
        default=default,
        kio_default=field.default,
    )


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        rest = [part for part in typing.get_args(annotation) if part is not types.NoneType]
        assert len(rest) == 1, annotation
        return rest[0], True
    return annotation, False


def _natural_default(kind: str) -> Any:
    match kind:
        case "struct":
            return {}
        case "string":
            return ""
        case "bytes" | "records":
            return b""
        case "uuid":
            return ZERO_UUID
        case "bool":
            return False
    return 0


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, bool | int | float | str | bytes | UUID) or value is None:
        return value
    if value == ():
        return ()
    assert dataclasses.is_dataclass(value), value
    defaults = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return {name: _plain(inner) for name, inner in defaults.items()}
