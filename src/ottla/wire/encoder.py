"""Encodes messages from plain dicts, lists and numbers.

kio encodes entities, which must be built first, field by field. Here the same plain values serve every version, and
encoding a response takes less than half the time. An encoder is composed once per message version from its schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from struct import Struct as Packing
from typing import Any, Final

from ottla.wire.errors import MESSAGE_LENGTH_MAX
from ottla.wire.primitives import uvarint
from ottla.wire.repeated import Repeated
from ottla.wire.schema import (
    FORMATS,
    Direction,
    Field,
    Struct,
    array_packing,
    names_of_all_versions,
    names_of_newest_version,
)

Encode = Callable[[bytearray, Any], None]

_INT16: Final = Packing(">h").pack
_INT32: Final = Packing(">i").pack
_FORMAT: Final = {kind: code for kind, code in FORMATS.items() if kind != "uuid"}


class Names:
    """Guards against misspelt field names. A name that this version lacks is dropped if another version has
    it, and refused if none has."""

    def __init__(self, key: int, direction: Direction, path: tuple[str, ...] = ()) -> None:
        self.key = key
        self.direction = direction
        self.path = path
        self._accepted: set[str] = set()

    def inside(self, name: str) -> Names:
        return Names(self.key, self.direction, (*self.path, name))

    def check(self, names: Mapping[str, Any]) -> None:
        if self._accepted.issuperset(names):
            return
        newest = names_of_newest_version(self.key, self.direction).get(self.path, set())
        if not newest.issuperset(names):
            self._look_everywhere(names)
        self._accepted.update(names)

    def _look_everywhere(self, names: Mapping[str, Any]) -> None:
        known = names_of_all_versions(self.key, self.direction).get(self.path, set())
        unknown = sorted(set(names) - known)
        if unknown:
            where = ".".join(self.path) or self.direction
            raise ValueError(
                f"no version of api key {self.key} has {', '.join(unknown)} in {where}; "
                f"it has {', '.join(sorted(known))}"
            )


def struct_encoder(struct: Struct, names: Names) -> Encode:
    """Takes the fields as a mapping."""
    steps: list[tuple[str, Encode]] = []
    untagged = [field for field in struct.fields if field.tag is None]
    for fixed, group in groupby(untagged, key=_is_number):
        fields = list(group)
        if fixed:
            steps.append((", ".join(field.name for field in fields), _numbers_encoder(fields)))
        else:
            steps += [(f.name, _member_encoder(f, struct.flexible, names)) for f in fields]
    if struct.flexible:
        steps.append(("tagged fields", _tags_encoder(struct, names)))
    own = frozenset(field.name for field in struct.fields)

    def encode(out: bytearray, value: Mapping[str, Any]) -> None:
        if not own.issuperset(value):
            names.check(value)
        what = ""
        try:
            for what, step in steps:  # noqa: B007 (used in the note)
                step(out, value)
        except Exception as error:
            error.add_note(f"while writing {'.'.join((*names.path, what))}")
            raise

    return encode


def _is_number(field: Field) -> bool:
    return not field.array and field.kind in _FORMAT


def _numbers_encoder(fields: list[Field]) -> Encode:
    """Adjacent numbers are packed in one call."""
    pack_all = Packing(">" + "".join(_FORMAT[field.kind] for field in fields)).pack
    defaults = [(field.name, field.default) for field in fields]

    def encode(out: bytearray, value: Mapping[str, Any]) -> None:
        get = value.get
        out += pack_all(*[get(name, default) for name, default in defaults])

    return encode


def _member_encoder(field: Field, flexible: bool, names: Names) -> Encode:
    name, default = field.name, field.default
    encode_value = _value_encoder(field, flexible, names)

    def encode(out: bytearray, value: Mapping[str, Any]) -> None:
        encode_value(out, value.get(name, default))

    return encode


def _tags_encoder(struct: Struct, names: Names) -> Encode:
    """A tagged field with its default value is omitted, as in Kafka."""
    entries: list[tuple[int, str, Any, Encode, bytearray | None]] = []
    for field in struct.fields:
        if field.tag is not None:
            encode_value = _value_encoder(field, True, names)
            usual: bytearray | None = None
            if field.default is not None:
                usual = bytearray()
                encode_value(usual, field.default)
            entries.append((field.tag, field.name, field.default, encode_value, usual))
    entries.sort(key=itemgetter(0))

    def encode(out: bytearray, value: Mapping[str, Any]) -> None:
        written = bytearray()
        count = 0
        for tag, name, default, encode_value, usual in entries:
            given = value.get(name, default)
            if given is None and default is None:
                continue
            encoded = bytearray()
            encode_value(encoded, given)
            if encoded != usual:
                count += 1
                written += uvarint(tag) + uvarint(len(encoded)) + encoded
        out += uvarint(count)
        out += written

    return encode


def _value_encoder(field: Field, flexible: bool, names: Names) -> Encode:
    if field.array:
        return _array_encoder(field, flexible, names)
    if field.struct is not None:
        inner = struct_encoder(field.struct, names.inside(field.name))
        nullable = field.nullable and field.tag is None
        return _nullable_struct_encoder(inner) if nullable else inner
    if field.kind == "uuid":
        return _encode_uuid
    if field.kind in _FORMAT:
        return _number_encoder(Packing(">" + _FORMAT[field.kind]).pack)
    return _sized_encoder(field, flexible)


def _number_encoder(pack_value: Callable[[Any], bytes]) -> Encode:
    def encode(out: bytearray, value: Any) -> None:
        out += pack_value(value)

    return encode


def _encode_uuid(out: bytearray, value: Any) -> None:
    out += value.bytes


def _sized_encoder(field: Field, flexible: bool) -> Encode:
    """Strings, bytes and records."""
    is_text, nullable = field.kind == "string", field.nullable
    is_message = field.name == "error_message"  # may contain text from a client
    pack_length = _INT16 if is_text else _INT32
    bytes_max = field.bytes_max

    def encode(out: bytearray, value: Any) -> None:
        if value is None:
            if not nullable:
                raise ValueError(f"{field.name} may not be null in this version")
            out += b"\x00" if flexible else pack_length(-1)
            return
        if is_message and len(value) > MESSAGE_LENGTH_MAX:
            value = value[: MESSAGE_LENGTH_MAX - 1] + "…"
        data = value.encode() if is_text else value
        if is_text and len(data) > bytes_max:
            raise ValueError(f"a string of {len(data)} bytes is longer than {bytes_max}")
        out += uvarint(len(data) + 1) if flexible else pack_length(len(data))
        out += data

    return encode


def _array_encoder(field: Field, flexible: bool, names: Names) -> Encode:
    element = replace(field, array=False, nullable=False, tag=None)
    encode_element = _value_encoder(element, flexible, names)
    number = _FORMAT.get(field.kind)
    nullable = field.nullable

    def encode(out: bytearray, value: Any) -> None:
        if value is None:
            if not nullable:
                raise ValueError(f"{field.name} may not be null in this version")
            out += b"\x00" if flexible else _INT32(-1)
            return
        if value.__class__ is Repeated:
            out += once(value)
            return
        out += uvarint(len(value) + 1) if flexible else _INT32(len(value))
        if number is not None:
            out += array_packing(number, len(value)).pack(*value)
            return
        for item in value:
            encode_element(out, item)

    def once(value: Repeated) -> bytes:
        encoded = value.encoded.get(encode)
        if encoded is None:
            made = bytearray()
            encode(made, list(value))
            encoded = value.encoded[encode] = bytes(made)
        return encoded

    return encode


def _nullable_struct_encoder(inner: Encode) -> Encode:
    def encode(out: bytearray, value: Any) -> None:
        if value is None:
            out += b"\xff"
        else:
            out += b"\x01"
            inner(out, value)

    return encode
