"""Checks that untrusted bytes keep the bounds of a message's schema, before kio's reader sees them.

kio's native reader believes array counts: it reserves memory for as many elements as a request claims, and a
failed reservation aborts the whole process. So the layout is walked here first, without making values: every
length and count must fit into the bytes that are there, null stands only where the schema allows it, and no
tagged field comes twice. What remains for kio is a message that is safe to build.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Packing
from typing import Final

from ottla.wire.errors import InvalidFrame
from ottla.wire.primitives import STRING_BYTES_MAX, read_uvarint, tagged_fields
from ottla.wire.schema import FIXED_BYTES, Field, Struct

Walk = Callable[[memoryview, int], int]
"""From where something begins to where it ends. May raise IndexError or struct.error at the end of the
bytes; a fixed-size tail may lie beyond them, which the caller sees from the position."""

_INT16: Final = Packing(">h").unpack_from
_INT32: Final = Packing(">i").unpack_from


def struct_walk(struct: Struct) -> Walk:
    steps: list[tuple[int, Walk]] = []
    fixed = 0
    for field in struct.fields:
        if field.tag is not None:
            continue
        size = _fixed_bytes(field)
        if size is not None:
            fixed += size
        else:
            steps.append((fixed, _value_walk(field, struct.flexible)))
            fixed = 0
    if struct.flexible:
        steps.append((fixed, _tags_walk(struct)))
        fixed = 0
    tail = fixed

    def walk(data: memoryview, position: int) -> int:
        for skipped, step in steps:
            position = step(data, position + skipped)
        return position + tail

    return walk


def _fixed_bytes(field: Field) -> int | None:
    return None if field.array else FIXED_BYTES.get(field.kind)


def _value_walk(field: Field, flexible: bool) -> Walk:
    if field.array:
        return _array_walk(field, flexible)
    if field.struct is not None:
        inner = struct_walk(field.struct)
        return _nullable_struct_walk(inner) if field.nullable else inner
    if flexible:
        return _compact_walk(field)
    return _legacy_walk(field)


def _legacy_walk(field: Field) -> Walk:
    unpack, width = (_INT16, 2) if field.kind == "string" else (_INT32, 4)
    name, nullable = field.name, field.nullable

    def walk(data: memoryview, position: int) -> int:
        (length,) = unpack(data, position)
        if length < 0:
            if length != -1 or not nullable:
                raise InvalidFrame(f"{name} has length {length}")
            return position + width
        return position + width + int(length)

    return walk


def _compact_walk(field: Field) -> Walk:
    name, nullable = field.name, field.nullable
    longest = STRING_BYTES_MAX if field.kind == "string" else 0x7FFFFFFF

    def walk(data: memoryview, position: int) -> int:
        length, position = read_uvarint(data, position)
        if length == 0:
            if not nullable:
                raise InvalidFrame(f"{name} is null")
            return position
        if length - 1 > longest:
            raise InvalidFrame(f"{name} has {length - 1} bytes, more than {longest}")
        return position + length - 1

    return walk


def _array_walk(field: Field, flexible: bool) -> Walk:
    name, nullable = field.name, field.nullable
    size = FIXED_BYTES.get(field.kind)
    smallest = _smallest_element(field, flexible)
    element = Field(field.name, field.kind, field.struct, False, False, None, None)
    step = None if size is not None else _value_walk(element, flexible)

    def walk(data: memoryview, position: int) -> int:
        if flexible:
            count, position = read_uvarint(data, position)
            count -= 1
        else:
            (count,) = _INT32(data, position)
            position += 4
        if count < 0:
            if count != -1 or not nullable:
                raise InvalidFrame(f"{name} has {count} elements")
            return position
        if count * smallest > len(data) - position:
            raise InvalidFrame(f"{name} claims {count} elements, more than the frame can hold")
        if step is None:
            return position + int(count) * smallest
        for _ in range(count):
            position = step(data, position)
        return position

    return walk


def _smallest_element(field: Field, flexible: bool) -> int:
    """The fewest bytes one element can take; at least one."""
    if field.struct is not None:
        parts = (part for part in field.struct.fields if part.tag is None)
        return max(1, sum(_smallest(part, flexible) for part in parts) + flexible)
    return FIXED_BYTES.get(field.kind) or _length_bytes(field.kind, flexible)


def _smallest(field: Field, flexible: bool) -> int:
    if field.array:
        return 1 if flexible else 4
    if field.struct is not None:
        return 1 if field.nullable else _smallest_element(field, flexible)
    return FIXED_BYTES.get(field.kind) or _length_bytes(field.kind, flexible)


def _length_bytes(kind: str, flexible: bool) -> int:
    if flexible:
        return 1
    return 2 if kind == "string" else 4


def _nullable_struct_walk(inner: Walk) -> Walk:
    def walk(data: memoryview, position: int) -> int:
        marker = data[position]
        if marker == 0xFF:
            return position + 1
        if marker != 1:
            raise InvalidFrame(f"a nullable struct begins with {marker}")
        return inner(data, position + 1)

    return walk


def _tags_walk(struct: Struct) -> Walk:
    known: dict[int, Walk] = {}
    for field in struct.fields:
        if field.tag is not None:
            size = _fixed_bytes(field)
            known[field.tag] = _value_walk(field, True) if size is None else _fixed_walk(size)

    def walk(data: memoryview, position: int) -> int:
        if data[position] == 0:
            return position + 1
        fields, position = tagged_fields(data, position)
        for tag, (start, end) in fields.items():
            inner = known.get(tag)
            if inner is not None and inner(data, start) != end:
                raise InvalidFrame(f"tagged field {tag} has another size than its value")
        return position

    return walk


def _fixed_walk(size: int) -> Walk:
    return lambda data, position: position + size
