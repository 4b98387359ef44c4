"""The common parts of the hand-written Produce and Fetch codecs.

Both messages group partitions by topic, both name a topic by its name up to version 12 and by its id from
13 on, and both end with the endpoints of new leaders. Readers raise InvalidFrame, IndexError or struct.error
on bad bytes; `whole_request` and `whole_response` turn all of them into InvalidFrame.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from ottla.wire.errors import InvalidFrame
from ottla.wire.primitives import (
    STRING_BYTES_MAX,
    read_uvarint,
    skip_tagged_fields,
    uvarint,
)

T = TypeVar("T")

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
_ID: Final = Struct("16s")
TOPIC_IDS_FROM: Final = 13
"""Produce and Fetch name topics by id from this version on."""

NO_TAGS: Final = b"\x00"


class NodeEndpoint(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None


Parse: TypeAlias = Callable[[int, memoryview, int], tuple[T, int]]
"""(version, frame, offset) → (value, end position)"""
Read: TypeAlias = Callable[[int, memoryview, int], T]


def whole_request(parse: Parse[T]) -> Read[T]:
    """As in Kafka, bytes after a request's body are ignored."""
    return _whole(parse, may_be_longer=True)


def whole_response(parse: Parse[T]) -> Read[T]:
    """A response must fill its frame."""
    return _whole(parse, may_be_longer=False)


def _whole(parse: Parse[T], *, may_be_longer: bool) -> Read[T]:
    @wraps(parse)
    def read(version: int, frame: memoryview, offset: int) -> T:
        try:
            value, end = parse(version, frame, offset)
        except (IndexError, StructError) as error:
            raise InvalidFrame("the message is cut short") from error
        except UnicodeDecodeError as error:
            raise InvalidFrame("a string is not UTF-8") from error
        if end != len(frame) and (end > len(frame) or not may_be_longer):
            raise InvalidFrame(f"the message ends at {end}, its frame at {len(frame)}")
        return value

    return read


# There are few topic ids, and every request repeats them. Making a UUID costs more than reading the rest of a topic.
@lru_cache(maxsize=20_000)
def id_from_bytes(raw: bytes) -> UUID:
    return UUID(bytes=raw)


def string_bytes(text: str | None, flexible: bool) -> bytes:
    if text is None:
        return b"\x00" if flexible else b"\xff\xff"
    data = text.encode()
    if len(data) > STRING_BYTES_MAX:
        raise ValueError(f"a string of {len(data)} bytes is longer than {STRING_BYTES_MAX}")
    return (uvarint(len(data) + 1) if flexible else INT16.pack(len(data))) + data


def count_bytes(count: int, flexible: bool) -> bytes:
    """The length prefix of an array or of bytes."""
    return uvarint(count + 1) if flexible else INT32.pack(count)


def topic_bytes(version: int, flexible: bool, topic: str | None, topic_id: UUID | None) -> bytes:
    if version >= TOPIC_IDS_FROM:
        assert topic_id is not None, f"version {version} names topics by id"
        return topic_id.bytes
    assert topic is not None, f"version {version} names topics by name"
    return string_bytes(topic, flexible)


def tags_bytes(tags: Sequence[tuple[int, bytes]]) -> bytes:
    if not tags:
        return NO_TAGS
    parts = [uvarint(len(tags))]
    for tag, value in tags:
        parts += (uvarint(tag), uvarint(len(value)), value)
    return b"".join(parts)


def endpoints_bytes(endpoints: Sequence[tuple[int, str, int, str | None]]) -> bytes:
    """The value of the tagged field (flexible versions only)."""
    parts = [count_bytes(len(endpoints), True)]
    for node_id, host, port, rack in endpoints:
        parts += (INT32.pack(node_id), string_bytes(host, True), INT32.pack(port))
        parts += (string_bytes(rack, True), NO_TAGS)
    return b"".join(parts)


def read_count(data: memoryview, position: int, flexible: bool, smallest: int) -> tuple[int, int]:
    """The length of a non-null array whose elements take at least `smallest` bytes."""
    count: int
    if flexible:
        count, position = read_uvarint(data, position)
        count -= 1
    else:
        (count,) = INT32.unpack_from(data, position)
        position += 4
    if count < 0 or count * smallest > len(data) - position:
        raise InvalidFrame(f"an array claims {count} elements")
    return count, position


def read_size(data: memoryview, position: int, flexible: bool) -> tuple[int, int]:
    """The size of nullable bytes, checked against the remaining bytes; -1 for null."""
    size: int
    if flexible:
        size, position = read_uvarint(data, position)
        size -= 1
    else:
        (size,) = INT32.unpack_from(data, position)
        position += 4
    if size < -1 or size > len(data) - position:
        raise InvalidFrame(f"a field claims {size} bytes, {len(data) - position} are left")
    return size, position


def read_nullable_string(data: memoryview, position: int, flexible: bool) -> tuple[str | None, int]:
    length: int
    if flexible:
        length, position = read_uvarint(data, position)
        length -= 1
    else:
        (length,) = INT16.unpack_from(data, position)
        position += 2
    if length == -1:
        return None, position
    end = position + length
    if not 0 <= length <= STRING_BYTES_MAX or end > len(data):
        raise InvalidFrame(f"a string claims {length} bytes")
    return str(data[position:end], "utf-8"), end


def read_string(data: memoryview, position: int, flexible: bool) -> tuple[str, int]:
    text, position = read_nullable_string(data, position, flexible)
    if text is None:
        raise InvalidFrame("a string is null")
    return text, position


def read_topic(
    version: int, flexible: bool, data: memoryview, position: int
) -> tuple[str | None, UUID | None, int]:
    """(name, id, next position): either the name or the id is None."""
    if version < TOPIC_IDS_FROM:
        name, position = read_string(data, position, flexible)
        return name, None, position
    (raw,) = _ID.unpack_from(data, position)
    return None, id_from_bytes(raw), position + 16


def smallest_topic(version: int, flexible: bool) -> int:
    """The minimum size of a topic with its array of partitions."""
    if version >= TOPIC_IDS_FROM:
        return 16 + 1 + 1
    return 1 + 1 + 1 if flexible else 2 + 4


def read_endpoints(data: memoryview, span: tuple[int, int]) -> tuple[NodeEndpoint, ...]:
    position, end = span
    count, position = read_count(data[:end], position, True, 11)
    endpoints = []
    for _ in range(count):
        (node_id,) = INT32.unpack_from(data, position)
        host, position = read_string(data, position + 4, True)
        (port,) = INT32.unpack_from(data, position)
        rack, position = read_nullable_string(data, position + 4, True)
        position = skip_tagged_fields(data, position)
        endpoints.append(NodeEndpoint(node_id, host, port, rack))
    if position != end:
        raise InvalidFrame("node endpoints do not fill their tagged field")
    return tuple(endpoints)


def read_tagged(data: memoryview, span: tuple[int, int], packing: Struct) -> tuple[int, ...]:
    """A tagged struct of fixed-size fields."""
    start, end = span
    values = packing.unpack_from(data, start)
    if skip_tagged_fields(data, start + packing.size) != end:
        raise InvalidFrame("a tagged field has the wrong size")
    return values
