"""The encodings of Kafka's protocol that `struct` lacks, with bounds checks for untrusted input.

Every reader raises InvalidFrame if the value is not completely inside the buffer.
"""

from __future__ import annotations

from typing import Final

from ottla.wire.errors import InvalidFrame

STRING_BYTES_MAX: Final = 32767
TAGGED_FIELDS_MAX: Final = 100
"""Kafka's messages have at most a dozen."""


def read_uvarint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """(value, next position); at most five bytes and 32 bits."""
    try:
        byte = data[position]
        if byte < 0x80:
            return byte, position + 1
        value = byte & 0x7F
        shift = 7
        while True:
            position += 1
            byte = data[position]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                raise InvalidFrame("varint of more than five bytes")
    except IndexError as error:
        raise InvalidFrame("varint is cut short") from error
    if value > 0xFFFFFFFF:
        raise InvalidFrame("varint of more than 32 bits")
    return value, position + 1


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))


def tagged_fields(data: memoryview, position: int) -> tuple[dict[int, tuple[int, int]], int]:
    """({tag: (start, end) of its bytes}, next position). A tag may occur only once."""
    count, position = read_uvarint(data, position)
    if count > TAGGED_FIELDS_MAX:
        raise InvalidFrame(f"{count} tagged fields")
    fields: dict[int, tuple[int, int]] = {}
    for _ in range(count):
        tag, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        end = position + size
        if end > len(data):
            raise InvalidFrame(f"tagged field {tag} is longer than the frame")
        if tag in fields:
            raise InvalidFrame(f"tagged field {tag} occurs twice")
        fields[tag] = (position, end)
        position = end
    return fields, position


def skip_tagged_fields(data: memoryview, position: int) -> int:
    """The position after unknown tagged fields."""
    try:
        if data[position] == 0:
            return position + 1
    except IndexError as error:
        raise InvalidFrame("tagged fields are cut short") from error
    return tagged_fields(data, position)[1]
