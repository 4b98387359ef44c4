"""A declarative codec for Kafka's flexible messages, for the metadata records that kio does not have.

A message is a frozen dataclass whose fields say their wire type, the version that brought them and,
where they are optional on the wire, their tag. From that table this module derives reader and writer
per version. Only flexible versions exist here: compact lengths everywhere, tagged fields last.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeVar, dataclass_transform
from uuid import UUID

T = TypeVar("T", bound="Message")

RUN_MAX = 64
"""Arrays of numbers up to this length are handled as a whole; replicas are few, and a layout is kept for each
length."""


class MalformedRecord(Exception):
    """Bytes that are not a message of the schema they claim to follow."""


class Reader:
    """A cursor over bytes; every step checks that the bytes are there."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes | memoryview, position: int = 0) -> None:
        self.data = bytes(data)
        self.position = position

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

    def unpack(self, packer: struct.Struct) -> tuple[Any, ...]:
        position = self.position
        self.position = position + packer.size
        try:
            return packer.unpack_from(self.data, position)
        except struct.error as error:
            self.position = position
            raise MalformedRecord(f"{packer.size} bytes wanted, {self.remaining} left") from error

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            if self.position >= len(self.data):
                raise MalformedRecord("1 bytes wanted, 0 left")
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                raise MalformedRecord("varint longer than 5 bytes")
        if value > 0xFFFFFFFF:
            raise MalformedRecord("varint wider than 32 bits")
        return value


def write_uvarint(out: bytearray, value: int) -> None:
    assert value >= 0
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


class WireType(NamedTuple):
    """How one kind of value is read and written."""

    read: Callable[[Reader, int], Any]
    write: Callable[[bytearray, Any, int], None]
    layout: str = ""
    """Of a number: its letter for `struct`, so that arrays of it are read and written in one go."""


def _number(layout: str) -> WireType:
    packer = struct.Struct(f">{layout}")

    def read(reader: Reader, version: int) -> Any:
        return reader.unpack(packer)[0]

    def write(out: bytearray, value: Any, version: int) -> None:
        out += packer.pack(value)

    return WireType(read, write, layout)


INT8 = _number("b")
INT16 = _number("h")
INT32 = _number("i")
INT64 = _number("q")
UINT16 = _number("H")
FLOAT64 = _number("d")
BOOL = _number("?")


def _sized(
    decode: Callable[[bytes], Any], encode: Callable[[Any], bytes], nullable: bool
) -> WireType:
    """Length + 1 as an unsigned varint (0 = null), then the bytes."""

    def read(reader: Reader, version: int) -> Any:
        length = reader.uvarint() - 1
        if length < 0:
            if nullable:
                return None
            raise MalformedRecord("null where the schema has none")
        return decode(reader.take(length))

    def write(out: bytearray, value: Any, version: int) -> None:
        if value is None:
            assert nullable, "null where the schema has none"
            out.append(0)
            return
        encoded = encode(value)
        write_uvarint(out, len(encoded) + 1)
        out += encoded

    return WireType(read, write)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise MalformedRecord(f"a string that is not UTF-8: {error}") from error


STRING = _sized(_text, str.encode, nullable=False)
NULLABLE_STRING = _sized(_text, str.encode, nullable=True)
BYTES = _sized(bytes, bytes, nullable=False)


@lru_cache(maxsize=1 << 16)
def _uuid(raw: bytes) -> UUID:
    """A topic's id comes with each of its partitions, and making a UUID is not cheap."""
    return UUID(bytes=raw)


def _read_uuid(reader: Reader, version: int) -> UUID:
    return _uuid(reader.take(16))


def _write_uuid(out: bytearray, value: UUID, version: int) -> None:
    out += value.bytes


UUID_TYPE = WireType(_read_uuid, _write_uuid)


@cache
def _run_of(layout: str, count: int) -> struct.Struct:
    return struct.Struct(f">{count}{layout}")


def array(of: WireType, *, nullable: bool = False) -> WireType:
    def read(reader: Reader, version: int) -> Any:
        count = reader.uvarint() - 1
        if count < 0:
            if nullable:
                return None
            raise MalformedRecord("null where the schema has none")
        if count > reader.remaining:  # every element takes at least a byte
            raise MalformedRecord(f"{count} elements in {reader.remaining} bytes")
        if of.layout and count <= RUN_MAX:
            return reader.unpack(_run_of(of.layout, count))
        return tuple(of.read(reader, version) for _ in range(count))

    def write(out: bytearray, value: Any, version: int) -> None:
        if value is None:
            assert nullable, "null where the schema has none"
            out.append(0)
            return
        write_uvarint(out, len(value) + 1)
        if of.layout and len(value) <= RUN_MAX:
            out += _run_of(of.layout, len(value)).pack(*value)
            return
        for element in value:
            of.write(out, element, version)

    return WireType(read, write)


class _Spec(NamedTuple):
    type: WireType
    since: int
    tag: int | None


def wire(type: WireType, *, since: int = 0, tag: int | None = None, default: Any = MISSING) -> Any:
    """Declare a field of a message: its type on the wire, the first version that has it, its tag."""
    assert tag is None or default is not MISSING, "a tagged field is absent when it has its default"
    assert since == 0 or default is not MISSING, "older versions read the default"
    metadata = {"spec": _Spec(type, since, tag)}
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
    """The fields of one version: those in order, those by tag, those too new for it."""

    plain: list[tuple[str, WireType]]
    tagged: dict[int, tuple[str, WireType]]
    defaults: dict[str, Any]
    unknown: list[str]


_layouts: dict[tuple[type, int], _Layout] = {}


def _layout(cls: type[Message], version: int) -> _Layout:
    known = _layouts.get((cls, version))
    if known is not None:
        return known
    layout = _layouts[cls, version] = _Layout([], {}, {}, [])
    for each in fields(cls):
        spec: _Spec = each.metadata["spec"]
        if each.default is not MISSING:
            layout.defaults[each.name] = each.default
        if spec.since > version:
            layout.unknown.append(each.name)
        elif spec.tag is None:
            layout.plain.append((each.name, spec.type))
        else:
            layout.tagged[spec.tag] = (each.name, spec.type)
    return layout


def fits(value: Message, version: int) -> bool:
    """Whether `version` can carry every field of `value` that differs from its default."""
    layout = _layout(type(value), version)
    return all(getattr(value, name) == layout.defaults[name] for name in layout.unknown)


def read_message(cls: type[T], reader: Reader, version: int) -> T:
    layout = _layout(cls, version)
    values: dict[str, Any] = {name: kind.read(reader, version) for name, kind in layout.plain}
    previous = -1
    for _ in range(reader.uvarint()):
        tag = reader.uvarint()
        if tag <= previous:
            raise MalformedRecord(f"tag {tag} after tag {previous}")
        previous = tag
        size = reader.uvarint()
        end = reader.position + size
        if end > len(reader.data):
            raise MalformedRecord(f"{size} bytes in tag {tag}, {reader.remaining} left")
        if tag in layout.tagged:
            name, kind = layout.tagged[tag]
            values[name] = kind.read(reader, version)
            if reader.position != end:
                raise MalformedRecord(f"tag {tag} ends at {reader.position}, not at {end}")
        reader.position = end
    return cls(**values)


def write_message(out: bytearray, value: Message, version: int) -> None:
    layout = _layout(type(value), version)
    for name, kind in layout.plain:
        kind.write(out, getattr(value, name), version)
    present = [
        (tag, kind, getattr(value, name))
        for tag, (name, kind) in sorted(layout.tagged.items())
        if getattr(value, name) != layout.defaults[name]
    ]
    write_uvarint(out, len(present))
    for tag, kind, content in present:
        encoded = bytearray()
        kind.write(encoded, content, version)
        write_uvarint(out, tag)
        write_uvarint(out, len(encoded))
        out += encoded


def struct_of(cls: type[Message]) -> WireType:
    """A message inside a message, in the version of the outer one."""

    def read(reader: Reader, version: int) -> Any:
        return read_message(cls, reader, version)

    def write(out: bytearray, value: Any, version: int) -> None:
        write_message(out, value, version)

    return WireType(read, write)
