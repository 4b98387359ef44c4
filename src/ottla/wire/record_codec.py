"""A declarative codec for the records of Kafka's own topics that kio does not have.

Three kinds of records use it: the records of `__cluster_metadata`, the control records of the quorum, and the
coordinators' records of `__consumer_offsets` and `__transaction_state`.

A message is a frozen dataclass whose fields declare their wire type, the versions that have them and, where they
are optional on the wire, their tag. Reader and writer are derived from that table for each version. Flexible
versions (KIP-482) have compact lengths and end with tagged fields; older versions have plain lengths and no tags.

A coordinator's record has a key (type as int16, then the body) and a value (version as int16, then the body). Metadata
records have their own framing (`metadata.records`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, field, fields
from functools import cache, lru_cache
from typing import Any, ClassVar, NamedTuple, TypeVar, dataclass_transform
from uuid import UUID

from ottla.wire.errors import InvalidFrame
from ottla.wire.primitives import read_uvarint, uvarint

T = TypeVar("T", bound="Message")

RUN_MAX = 64
"""Arrays of numbers up to this length are read and written in one call. Replica lists are short, and one
`struct.Struct` is cached for each length."""

VERSION_MAX = (1 << 15) - 1

_LENGTH16 = struct.Struct(">h")
_LENGTH32 = struct.Struct(">i")
_INT16_BYTES = 2


class MalformedRecord(Exception):
    """Bytes that are not a message of the expected schema."""


class Reader:
    """A position in the bytes of a message of one version. Every read is bounds-checked."""

    __slots__ = ("data", "flexible", "position", "version")

    def __init__(
        self,
        data: bytes | memoryview,
        position: int = 0,
        *,
        version: int = 0,
        flexible: bool = True,
    ) -> None:
        self.data = bytes(data)
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

    def unpack(self, packer: struct.Struct) -> tuple[Any, ...]:
        position = self.position
        self.position = position + packer.size
        try:
            return packer.unpack_from(self.data, position)
        except struct.error as error:
            self.position = position
            raise MalformedRecord(f"{packer.size} bytes wanted, {self.remaining} left") from error

    def uvarint(self) -> int:
        position = self.position
        if position < len(self.data) and self.data[position] < 0x80:
            self.position = position + 1  # nearly all of them have one byte
            return self.data[position]
        try:
            value, self.position = read_uvarint(self.data, self.position)
        except InvalidFrame as error:
            raise MalformedRecord(str(error)) from error
        return value

    def length(self, plain: struct.Struct) -> int:
        """The length of a string, of bytes or of an array; -1 means null."""
        if self.flexible:
            return self.uvarint() - 1
        return int(self.unpack(plain)[0])

    def expect_end(self, what: str) -> None:
        if self.remaining:
            raise MalformedRecord(f"{self.remaining} bytes after the end of {what}")


class Writer:
    """Builds the bytes of a message of one version."""

    __slots__ = ("data", "flexible", "version")

    def __init__(self, *, version: int = 0, flexible: bool = True) -> None:
        self.data = bytearray()
        self.version = version
        self.flexible = flexible

    def uvarint(self, value: int) -> None:
        self.data += uvarint(value)

    def length(self, plain: struct.Struct, value: int) -> None:
        """-1 means null."""
        if self.flexible:
            self.data += uvarint(value + 1)
        else:
            self.data += plain.pack(value)


class WireType(NamedTuple):
    """How one kind of value is read and written."""

    read: Callable[[Reader], Any]
    write: Callable[[Writer, Any], None]
    layout: str = ""
    """For numbers: the `struct` letter, so that arrays are read and written in one call."""


def _number(layout: str) -> WireType:
    packer = struct.Struct(f">{layout}")

    def read(reader: Reader) -> Any:
        return reader.unpack(packer)[0]

    def write(writer: Writer, value: Any) -> None:
        writer.data += packer.pack(value)

    return WireType(read, write, layout)


INT8 = _number("b")
INT16 = _number("h")
INT32 = _number("i")
INT64 = _number("q")
UINT16 = _number("H")
FLOAT64 = _number("d")
BOOL = _number("?")


def _null(nullable: bool, length: int) -> None:
    """A negative length means null, if the schema allows it here."""
    if length != -1 or not nullable:
        raise MalformedRecord("null where the schema has none")


def _sized(
    plain: struct.Struct,
    decode: Callable[[bytes], Any],
    encode: Callable[[Any], bytes],
    nullable: bool,
) -> WireType:
    """A length (-1: null), then that many bytes."""

    def read(reader: Reader) -> Any:
        length = reader.length(plain)
        return decode(reader.take(length)) if length >= 0 else _null(nullable, length)

    def write(writer: Writer, value: Any) -> None:
        if value is None:
            assert nullable, "null where the schema has none"
            writer.length(plain, -1)
            return
        encoded = encode(value)
        writer.length(plain, len(encoded))
        writer.data += encoded

    return WireType(read, write)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise MalformedRecord(f"a string that is not UTF-8: {error}") from error


STRING = _sized(_LENGTH16, _text, str.encode, nullable=False)
NULLABLE_STRING = _sized(_LENGTH16, _text, str.encode, nullable=True)
BYTES = _sized(_LENGTH32, bytes, bytes, nullable=False)
NULLABLE_BYTES = _sized(_LENGTH32, bytes, bytes, nullable=True)


@lru_cache(maxsize=1 << 16)
def _uuid(raw: bytes) -> UUID:
    """Cached, because every partition repeats its topic's id and making a UUID is slow."""
    return UUID(bytes=raw)


def _read_uuid(reader: Reader) -> UUID:
    return _uuid(reader.take(16))


def _write_uuid(writer: Writer, value: UUID) -> None:
    writer.data += value.bytes


UUID_TYPE = WireType(_read_uuid, _write_uuid)


@cache
def _run_of(layout: str, count: int) -> struct.Struct:
    return struct.Struct(f">{count}{layout}")


def array(of: WireType, *, nullable: bool = False) -> WireType:
    def read(reader: Reader) -> Any:
        count = reader.length(_LENGTH32)
        if count < 0:
            return _null(nullable, count)
        if count > reader.remaining:  # every element takes at least a byte
            raise MalformedRecord(f"{count} elements in {reader.remaining} bytes")
        if of.layout and count <= RUN_MAX:
            return reader.unpack(_run_of(of.layout, count))
        return tuple(of.read(reader) for _ in range(count))

    def write(writer: Writer, value: Any) -> None:
        if value is None:
            assert nullable, "null where the schema has none"
            writer.length(_LENGTH32, -1)
            return
        writer.length(_LENGTH32, len(value))
        if of.layout and len(value) <= RUN_MAX:
            writer.data += _run_of(of.layout, len(value)).pack(*value)
            return
        for element in value:
            of.write(writer, element)

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
    until: int = VERSION_MAX,
    tag: int | None = None,
    default: Any = MISSING,
) -> Any:
    """Declare a field: its type on the wire, the first and last version that have it, its tag."""
    assert tag is None or default is not MISSING, "a tagged field is absent when it has its default"
    is_always_there = since == 0 and until == VERSION_MAX
    assert is_always_there or default is not MISSING, "versions without the field read its default"
    metadata = {"spec": _Spec(type, since, until, tag)}
    if default is MISSING:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(wire,))
def message(cls: type[T]) -> type[T]:
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Base class of everything that this codec reads and writes."""


class _Layout(NamedTuple):
    """The fields of one version: in order, by tag, and those that it lacks."""

    plain: list[tuple[str, WireType]]
    tagged: dict[int, tuple[str, WireType]]
    """In ascending order."""
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
        if not spec.since <= version <= spec.until:
            layout.unknown.append(each.name)
        elif spec.tag is None:
            layout.plain.append((each.name, spec.type))
        else:
            layout.tagged[spec.tag] = (each.name, spec.type)
    tagged = sorted(layout.tagged.items())
    layout.tagged.clear()
    layout.tagged.update(tagged)
    return layout


def fits(value: Message, version: int) -> bool:
    """Whether `version` can carry every field of `value` that differs from its default."""
    layout = _layout(type(value), version)
    return all(getattr(value, name) == layout.defaults[name] for name in layout.unknown)


def fields_of(value: Message, version: int) -> Iterator[tuple[str, Any]]:
    """Name and value of each field that `version` writes, in the order of the schema. A tagged field with its default is
    not written."""
    layout = _layout(type(value), version)
    tagged = {name for name, _ in layout.tagged.values()}
    for each in fields(value):
        found = getattr(value, each.name)
        is_absent = each.name in tagged and found == layout.defaults[each.name]
        if each.name not in layout.unknown and not is_absent:
            yield each.name, found


def read_message(cls: type[T], reader: Reader) -> T:
    layout = _layout(cls, reader.version)
    values: dict[str, Any] = {name: kind.read(reader) for name, kind in layout.plain}
    if reader.flexible:
        _read_tagged(reader, layout, values)
    return cls(**values)


def _read_tagged(reader: Reader, layout: _Layout, values: dict[str, Any]) -> None:
    """Tags are in ascending order; unknown ones are skipped."""
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
            values[name] = kind.read(reader)
            if reader.position != end:
                raise MalformedRecord(f"tag {tag} ends at {reader.position}, not at {end}")
        reader.position = end


def write_message(writer: Writer, value: Message) -> None:
    layout = _layout(type(value), writer.version)
    for name, kind in layout.plain:
        kind.write(writer, getattr(value, name))
    if not writer.flexible:
        return
    defaults = layout.defaults
    present = [
        (tag, kind, content)
        for tag, (name, kind) in layout.tagged.items()
        if (content := getattr(value, name)) != defaults[name]
    ]
    writer.uvarint(len(present))
    for tag, kind, content in present:
        inner = Writer(version=writer.version)
        kind.write(inner, content)
        writer.uvarint(tag)
        writer.uvarint(len(inner.data))
        writer.data += inner.data


def struct_of(cls: type[Message]) -> WireType:
    """A message inside a message, in the version of the outer one."""

    def read(reader: Reader) -> Any:
        return read_message(cls, reader)

    return WireType(read, write_message)


def tagged_nullable_struct_of(cls: type[Message]) -> WireType:
    """Kafka's encoding in a tagged field: an unsigned varint, 0 for null and 1 otherwise, before the message."""

    def read(reader: Reader) -> Any:
        return None if reader.uvarint() == 0 else read_message(cls, reader)

    def write(writer: Writer, value: Any) -> None:
        writer.uvarint(0 if value is None else 1)
        if value is not None:
            write_message(writer, value)

    return WireType(read, write)


# -- keys and values of coordinators' records -----------------------------------------------------------------


@message
class CoordinatorKey(Message):
    """The key of a coordinator's record. `TYPE` comes first on the wire; the only version is not flexible."""

    TYPE: ClassVar[int]


@message
class CoordinatorValue(Message):
    """The value of a coordinator's record. `VERSION` is the one written; all up to `NEWEST` are read."""

    VERSION: ClassVar[int] = 0
    NEWEST: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0


K = TypeVar("K", bound=CoordinatorKey)
V = TypeVar("V", bound=CoordinatorValue)


def write_key(key: CoordinatorKey) -> bytes:
    writer = Writer(flexible=False)
    INT16.write(writer, key.TYPE)
    write_message(writer, key)
    return bytes(writer.data)


def key_type(raw: bytes) -> int:
    return int(INT16.read(Reader(raw)))


def read_key(cls: type[K], raw: bytes) -> K:
    reader = Reader(raw, _INT16_BYTES, flexible=False)
    key = read_message(cls, reader)
    reader.expect_end("the key")
    return key


def write_value(value: CoordinatorValue, version: int | None = None) -> bytes:
    version = value.VERSION if version is None else version
    writer = Writer(version=version, flexible=version >= value.FLEXIBLE_FROM)
    INT16.write(writer, version)
    write_message(writer, value)
    return bytes(writer.data)


def read_value(cls: type[V], raw: bytes) -> V:
    version = int(INT16.read(Reader(raw)))
    if not 0 <= version <= cls.NEWEST:
        raise MalformedRecord(f"version {version} of {cls.__name__} is not known")
    reader = Reader(raw, _INT16_BYTES, version=version, flexible=version >= cls.FLEXIBLE_FROM)
    value = read_message(cls, reader)
    reader.expect_end("the value")
    return value
