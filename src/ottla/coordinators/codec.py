"""A declarative codec for the records of coordinators, in Kafka's schemas.

A message is a frozen dataclass whose fields say their wire type, the versions that have them and, where they
are optional on the wire, their tag. Unlike the cluster's metadata, these schemas are older than KIP-482: keys
and early versions have plain lengths, later ones compact lengths and tagged fields (`FLEXIBLE_FROM`).

A record's key is its type (int16) and a body; its value is a version (int16) and a body.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, TypeVar, dataclass_transform
from uuid import UUID

T = TypeVar("T", bound="Message")

NEVER = 1 << 15
"""`FLEXIBLE_FROM` of a schema without flexible versions."""

_INT16 = struct.Struct(">h")


class MalformedRecord(Exception):
    """Bytes that are not a message of the schema they claim to follow."""


class Cursor:
    """Bytes being read in one version; every step checks that they are there."""

    __slots__ = ("data", "flexible", "position", "version")

    def __init__(self, data: bytes, position: int, version: int, flexible: bool) -> None:
        self.data = data
        self.position = position
        self.version = version
        self.flexible = flexible

    @property
    def remaining(self) -> int:
        return len(self.data) - self.position

    def take(self, size: int) -> bytes:
        end = self.position + size
        if size < 0 or end > len(self.data):
            raise MalformedRecord(f"{size} bytes wanted, {self.remaining} left")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise MalformedRecord("varint longer than 5 bytes")

    def length(self, plain: struct.Struct) -> int:
        """-1 stands for null."""
        if self.flexible:
            return self.uvarint() - 1
        return int(plain.unpack(self.take(plain.size))[0])


class Sheet:
    """Bytes being written in one version."""

    __slots__ = ("data", "flexible", "version")

    def __init__(self, version: int, flexible: bool) -> None:
        self.data = bytearray()
        self.version = version
        self.flexible = flexible

    def uvarint(self, value: int) -> None:
        assert value >= 0
        while value > 0x7F:
            self.data.append(value & 0x7F | 0x80)
            value >>= 7
        self.data.append(value)

    def length(self, plain: struct.Struct, value: int) -> None:
        if self.flexible:
            self.uvarint(value + 1)
        else:
            self.data += plain.pack(value)


class WireType(NamedTuple):
    """How one kind of value is read and written."""

    read: Callable[[Cursor], Any]
    write: Callable[[Sheet, Any], None]


def _number(layout: str) -> WireType:
    packer = struct.Struct(f">{layout}")

    def read(cursor: Cursor) -> Any:
        return packer.unpack(cursor.take(packer.size))[0]

    def write(sheet: Sheet, value: Any) -> None:
        sheet.data += packer.pack(value)

    return WireType(read, write)


INT8 = _number("b")
INT16 = _number("h")
INT32 = _number("i")
INT64 = _number("q")

_LENGTH16 = struct.Struct(">h")
_LENGTH32 = struct.Struct(">i")


def _sized(
    plain: struct.Struct,
    decode: Callable[[bytes], Any],
    encode: Callable[[Any], bytes],
    nullable: bool,
) -> WireType:
    def read(cursor: Cursor) -> Any:
        length = cursor.length(plain)
        if length >= 0:
            return decode(cursor.take(length))
        if length == -1 and nullable:
            return None
        raise MalformedRecord("null where the schema has none")

    def write(sheet: Sheet, value: Any) -> None:
        if value is None:
            assert nullable, "null where the schema has none"
            sheet.length(plain, -1)
            return
        encoded = encode(value)
        sheet.length(plain, len(encoded))
        sheet.data += encoded

    return WireType(read, write)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise MalformedRecord(f"a string that is not UTF-8: {error}") from error


STRING = _sized(_LENGTH16, _text, str.encode, nullable=False)
NULLABLE_STRING = _sized(_LENGTH16, _text, str.encode, nullable=True)
BYTES = _sized(_LENGTH32, bytes, bytes, nullable=False)


def _read_uuid(cursor: Cursor) -> UUID:
    return UUID(bytes=cursor.take(16))


def _write_uuid(sheet: Sheet, value: UUID) -> None:
    sheet.data += value.bytes


UUID_TYPE = WireType(_read_uuid, _write_uuid)


def array(of: WireType, *, nullable: bool = False) -> WireType:
    def read(cursor: Cursor) -> Any:
        count = cursor.length(_LENGTH32)
        if count == -1 and nullable:
            return None
        if not 0 <= count <= cursor.remaining:  # every element takes at least a byte
            raise MalformedRecord(f"{count} elements in {cursor.remaining} bytes")
        return tuple(of.read(cursor) for _ in range(count))

    def write(sheet: Sheet, value: Any) -> None:
        if value is None:
            assert nullable, "null where the schema has none"
            sheet.length(_LENGTH32, -1)
            return
        sheet.length(_LENGTH32, len(value))
        for element in value:
            of.write(sheet, element)

    return WireType(read, write)


class _Spec(NamedTuple):
    type: WireType
    since: int
    until: int
    tag: int | None


def wire(
    type: WireType,
    *,
    since: int = 0,
    until: int = NEVER,
    tag: int | None = None,
    default: Any = MISSING,
) -> Any:
    """Declare a field: its type on the wire, the first and last version that have it, its tag."""
    assert tag is None or default is not MISSING, "a tagged field is absent when it has its default"
    assert (since == 0 and until == NEVER) or default is not MISSING, (
        "other versions read a default"
    )
    metadata = {"spec": _Spec(type, since, until, tag)}
    if default is MISSING:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(wire,))
def message(cls: type[T]) -> type[T]:
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Base of everything this codec reads and writes."""


class _Layout(NamedTuple):
    """The fields of one version: those in order, those by tag."""

    plain: tuple[tuple[str, WireType], ...]
    tagged: dict[int, tuple[str, WireType, Any]]


_layouts: dict[tuple[type, int], _Layout] = {}


def _layout(cls: type[Message], version: int) -> _Layout:
    layout = _layouts.get((cls, version))
    if layout is None:
        layout = _layouts[cls, version] = _lay_out(cls, version)
    return layout


def _lay_out(cls: type[Message], version: int) -> _Layout:
    plain, tagged = [], {}
    for each in fields(cls):
        spec: _Spec = each.metadata["spec"]
        if not spec.since <= version <= spec.until:
            continue
        if spec.tag is None:
            plain.append((each.name, spec.type))
        else:
            tagged[spec.tag] = (each.name, spec.type, each.default)
    return _Layout(tuple(plain), tagged)


def read_message(cls: type[T], cursor: Cursor) -> T:
    layout = _layout(cls, cursor.version)
    values = {name: kind.read(cursor) for name, kind in layout.plain}
    if cursor.flexible:
        for _ in range(cursor.uvarint()):
            tag, size = cursor.uvarint(), cursor.uvarint()
            end = cursor.position + size
            known = layout.tagged.get(tag)
            if known is not None:
                values[known[0]] = known[1].read(cursor)
                if cursor.position != end:
                    raise MalformedRecord(f"tag {tag} ends at {cursor.position}, not at {end}")
            else:
                cursor.take(size)
    return cls(**values)


def write_message(sheet: Sheet, value: Message) -> None:
    layout = _layout(type(value), sheet.version)
    for name, kind in layout.plain:
        kind.write(sheet, getattr(value, name))
    if not sheet.flexible:
        return
    present = [
        (tag, kind, getattr(value, name))
        for tag, (name, kind, default) in sorted(layout.tagged.items())
        if getattr(value, name) != default
    ]
    sheet.uvarint(len(present))
    for tag, kind, content in present:
        inner = Sheet(sheet.version, sheet.flexible)
        kind.write(inner, content)
        sheet.uvarint(tag)
        sheet.uvarint(len(inner.data))
        sheet.data += inner.data


def struct_of(cls: type[Message]) -> WireType:
    """A message inside a message, in the version of the outer one."""

    def read(cursor: Cursor) -> Any:
        return read_message(cls, cursor)

    def write(sheet: Sheet, value: Any) -> None:
        write_message(sheet, value)

    return WireType(read, write)


def nullable_struct_of(cls: type[Message]) -> WireType:
    """As Kafka marks it: a signed byte, -1 for null and 1 otherwise, before the message."""

    def read(cursor: Cursor) -> Any:
        return None if INT8.read(cursor) < 0 else read_message(cls, cursor)

    def write(sheet: Sheet, value: Any) -> None:
        INT8.write(sheet, -1 if value is None else 1)
        if value is not None:
            write_message(sheet, value)

    return WireType(read, write)


@message
class Key(Message):
    """What a record is about. `TYPE` opens it on the wire."""

    TYPE: ClassVar[int]


@message
class Value(Message):
    """What a record says. `VERSION` is the one written; all up to `NEWEST` are read."""

    VERSION: ClassVar[int] = 0
    NEWEST: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0


K = TypeVar("K", bound=Key)
V = TypeVar("V", bound=Value)


def write_key(key: Key) -> bytes:
    sheet = Sheet(0, flexible=False)
    write_message(sheet, key)
    return _INT16.pack(key.TYPE) + sheet.data


def key_type(raw: bytes) -> int:
    if len(raw) < 2:
        raise MalformedRecord("a key without a type")
    return int(_INT16.unpack_from(raw)[0])


def read_key(cls: type[K], raw: bytes) -> K:
    cursor = Cursor(raw, 2, 0, flexible=False)
    key = read_message(cls, cursor)
    if cursor.remaining:
        raise MalformedRecord(f"{cursor.remaining} bytes after the key")
    return key


def write_value(value: Value, version: int | None = None) -> bytes:
    version = value.VERSION if version is None else version
    sheet = Sheet(version, version >= value.FLEXIBLE_FROM)
    write_message(sheet, value)
    return _INT16.pack(version) + sheet.data


def read_value(cls: type[V], raw: bytes) -> V:
    if len(raw) < 2:
        raise MalformedRecord("a value without a version")
    version = int(_INT16.unpack_from(raw)[0])
    if not 0 <= version <= cls.NEWEST:
        raise MalformedRecord(f"version {version} of {cls.__name__} is not known")
    cursor = Cursor(raw, 2, version, version >= cls.FLEXIBLE_FROM)
    value = read_message(cls, cursor)
    if cursor.remaining:
        raise MalformedRecord(f"{cursor.remaining} bytes after the value")
    return value
