"""Decodes messages from untrusted bytes into kio's entities.

A server cannot use kio's own native reader, although it is fast. It reserves memory for as many array elements as a
request claims (a five-byte frame aborts the process), and it refuses unknown tagged fields, which KIP-482 requires to
be skipped. So only its classes are used. Here every length and count must fit into the remaining bytes, null is
allowed only where the schema allows it, and no tagged field may appear twice. The schema alone determines the nesting,
so no input can make the reader recurse deeper.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import MISSING, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from struct import Struct as Packing
from typing import Any, Final
from uuid import UUID

from ottla.wire.errors import InvalidFrame
from ottla.wire.primitives import read_uvarint, tagged_fields
from ottla.wire.schema import FIXED_BYTES, FORMATS, Field, Struct, array_packing

Decode = Callable[[memoryview, int], tuple[Any, int]]
"""Returns (value, end position). May raise IndexError or struct.error if the bytes end too early, ValueError or
OverflowError for impossible values."""

_Fill = Callable[[Any, memoryview, int], int]
"""Reads some fields into an entity, and returns the end position."""

_INT16: Final = Packing(">h").unpack_from
_INT32: Final = Packing(">i").unpack_from
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ZERO_ID: Final = bytes(16)


UNLIMITED: Final = 2**31 - 1


class Elements:
    """How many elements a message may have, but for those of arrays of numbers, which are read at once. Whoever reads a
    message sets `left` to `together` first."""

    __slots__ = ("each", "left", "together")

    def __init__(self, each: int = UNLIMITED, together: int = UNLIMITED) -> None:
        self.each = each
        """In one array."""
        self.left = self.together = together
        """In all of its arrays: many short ones, one inside another, take as much memory as a long one."""


def struct_decoder(struct: Struct, elements: Elements) -> Decode:
    entity = struct.entity
    untagged = [field for field in struct.fields if field.tag is None]
    fills: list[_Fill] = []
    for fixed, group in groupby(untagged, key=_is_fixed):
        fields = list(group)
        if fixed:
            fills.append(_fixed_fill(entity, fields))
        else:
            fills += [_sized_fill(entity, field, struct.flexible, elements) for field in fields]
    if struct.flexible:
        fills.append(_tags_fill(struct, elements))

    def decode(data: memoryview, position: int) -> tuple[Any, int]:
        value = object.__new__(entity)
        for fill in fills:
            position = fill(value, data, position)
        return value, position

    return decode


def _is_fixed(field: Field) -> bool:
    return not field.array and field.kind in FIXED_BYTES


def _setter(entity: type[Any], name: str) -> Callable[[Any, Any], None]:
    """kio's entities are frozen; their slots are set here during construction."""
    descriptor = getattr(entity, name)
    return descriptor.__set__  # type: ignore[no-any-return]


def _conversion(kind: str) -> Callable[[Any], Any] | None:
    match kind:
        case "uuid":
            return _to_id
        case "error_code":
            return _to_error_code()
        case "timedelta_i32" | "timedelta_i64":
            return _to_timedelta
        case "datetime_i64":
            return _to_datetime
    return None


def _to_id(raw: bytes) -> UUID | None:
    return None if raw == _ZERO_ID else UUID(bytes=raw)


def _to_timedelta(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def _to_datetime(milliseconds: int) -> datetime | None:
    if milliseconds < 0:
        if milliseconds != -1:
            raise InvalidFrame(f"time {milliseconds} is out of range")
        return None
    return _EPOCH + timedelta(milliseconds=milliseconds)


def _to_error_code() -> Callable[[int], Any]:
    codes: Any = importlib.import_module("kio.schema.errors").ErrorCode
    by_number = {int(code): code for code in codes}
    unknown = codes.unknown_server_error
    return lambda number: by_number.get(number, unknown)


def _fixed_fill(entity: type[Any], fields: list[Field]) -> _Fill:
    """Adjacent fields of fixed size are unpacked in one call."""
    packing = Packing(">" + "".join(FORMATS[field.kind] for field in fields))
    unpack, size = packing.unpack_from, packing.size
    targets = [(_setter(entity, field.name), _conversion(field.kind)) for field in fields]

    def fill(value: Any, data: memoryview, position: int) -> int:
        for (store, convert), raw in zip(targets, unpack(data, position), strict=True):
            store(value, raw if convert is None else convert(raw))
        return position + size

    return fill


def _sized_fill(entity: type[Any], field: Field, flexible: bool, elements: Elements) -> _Fill:
    store = _setter(entity, field.name)
    decode = _value_decoder(field, flexible, elements)

    def fill(value: Any, data: memoryview, position: int) -> int:
        inner, position = decode(data, position)
        store(value, inner)
        return position

    return fill


def _tags_fill(struct: Struct, elements: Elements) -> _Fill:
    entity = struct.entity
    known: dict[int, tuple[Callable[[Any, Any], None], Decode]] = {}
    absent: list[tuple[Callable[[Any, Any], None], Any]] = []
    for field in struct.fields:
        if field.tag is not None:
            store = _setter(entity, field.name)
            known[field.tag] = store, _value_decoder(field, True, elements)
            absent.append((store, _absent(field)))

    def fill(value: Any, data: memoryview, position: int) -> int:
        for store, default in absent:
            store(value, default)
        if data[position] == 0:
            return position + 1
        fields, position = tagged_fields(data, position)
        for tag, (start, end) in fields.items():
            if tag in known:
                store, decode = known[tag]
                inner, inner_end = decode(data[:end], start)
                if inner_end != end:
                    raise InvalidFrame(f"tagged field {tag} is longer than its value")
                store(value, inner)
        return position

    return fill


def _absent(field: Field) -> Any:
    """The value of a field that was not sent, as in kio's entities."""
    if field.kio_default is not MISSING:
        return field.kio_default
    if field.struct is not None:
        return field.struct.entity(**{part.name: _absent(part) for part in field.struct.fields})
    convert = _conversion(field.kind)
    return field.default if convert is None else convert(field.default)


def _value_decoder(field: Field, flexible: bool, elements: Elements) -> Decode:
    if field.array:
        return _array_decoder(field, flexible, elements)
    if field.struct is not None:
        inner = struct_decoder(field.struct, elements)
        return _nullable_struct_decoder(inner) if field.nullable and field.tag is None else inner
    if field.kind in FIXED_BYTES:
        return _fixed_decoder(field.kind)
    return _compact_decoder(field) if flexible else _legacy_decoder(field)


def _fixed_decoder(kind: str) -> Decode:
    packing = Packing(">" + FORMATS[kind])
    unpack, size = packing.unpack_from, packing.size
    convert = _conversion(kind)

    def decode(data: memoryview, position: int) -> tuple[Any, int]:
        (raw,) = unpack(data, position)
        return raw if convert is None else convert(raw), position + size

    return decode


def _legacy_decoder(field: Field) -> Decode:
    name, nullable, is_text = field.name, field.nullable, field.kind == "string"
    unpack, width = (_INT16, 2) if is_text else (_INT32, 4)

    def decode(data: memoryview, position: int) -> tuple[Any, int]:
        (length,) = unpack(data, position)
        position += width
        if length < 0:
            if length != -1 or not nullable:
                raise InvalidFrame(f"{name} has length {length}")
            return None, position
        end = position + length
        if end > len(data):
            raise InvalidFrame(f"{name} is longer than the frame")
        return str(data[position:end], "utf-8") if is_text else bytes(data[position:end]), end

    return decode


def _compact_decoder(field: Field) -> Decode:
    name, nullable, is_text = field.name, field.nullable, field.kind == "string"
    bytes_max = field.bytes_max

    def decode(data: memoryview, position: int) -> tuple[Any, int]:
        length, position = read_uvarint(data, position)
        if length == 0:
            if not nullable:
                raise InvalidFrame(f"{name} is null")
            return None, position
        end = position + length - 1
        if end > len(data):
            raise InvalidFrame(f"{name} is longer than the frame")
        if not is_text:
            return bytes(data[position:end]), end
        if length - 1 > bytes_max:
            raise InvalidFrame(f"{name} has {length - 1} bytes, more than {bytes_max}")
        return str(data[position:end], "utf-8"), end

    return decode


def _array_decoder(field: Field, flexible: bool, elements: Elements) -> Decode:
    name, nullable = field.name, field.nullable
    smallest = _smallest_element(field, flexible)
    number = FORMATS.get(field.kind) if _conversion(field.kind) is None else None
    element = replace(field, array=False, nullable=False, tag=None)
    decode_element = _value_decoder(element, flexible, elements)

    def decode(data: memoryview, position: int) -> tuple[Any, int]:
        if flexible:
            count, position = read_uvarint(data, position)
            count -= 1
        else:
            (count,) = _INT32(data, position)
            position += 4
        if count < 0:
            if count != -1 or not nullable:
                raise InvalidFrame(f"{name} has {count} elements")
            return None, position
        if count * smallest > len(data) - position:
            raise InvalidFrame(f"{name} claims {count} elements, more than the frame can hold")
        if number is not None:
            packing = array_packing(number, count)
            return packing.unpack_from(data, position), position + packing.size
        if count > elements.each:
            raise InvalidFrame(f"{name} has {count} elements, more than {elements.each}")
        elements.left -= count
        if elements.left < 0:
            raise InvalidFrame(f"with {name} it has more than {elements.together} elements")
        items = []
        for _ in range(count):
            item, position = decode_element(data, position)
            items.append(item)
        return tuple(items), position

    return decode


def _smallest_element(field: Field, flexible: bool) -> int:
    """The minimum size of an array element in bytes."""
    if field.struct is not None:
        untagged = (part for part in field.struct.fields if part.tag is None)
        return sum(_smallest(part, flexible) for part in untagged) + flexible
    return FIXED_BYTES.get(field.kind) or _length_bytes(field.kind, flexible)


def _smallest(field: Field, flexible: bool) -> int:
    if field.array:
        return 1 if flexible else 4
    if field.nullable and field.struct is not None:
        return 1
    return _smallest_element(field, flexible)


def _length_bytes(kind: str, flexible: bool) -> int:
    if flexible:
        return 1
    return 2 if kind == "string" else 4


def _nullable_struct_decoder(inner: Decode) -> Decode:
    def decode(data: memoryview, position: int) -> tuple[Any, int]:
        marker = data[position]
        if marker == 0xFF:
            return None, position + 1
        if marker != 1:
            raise InvalidFrame(f"a nullable struct begins with {marker}")
        return inner(data, position + 1)

    return decode
