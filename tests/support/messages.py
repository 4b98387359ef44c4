"""What a message of confluent-kafka has that carries a record.

The client declares every field of a message optional, because a message may also carry an error.
"""

from __future__ import annotations

from confluent_kafka import Message


def key_of(message: Message) -> bytes:
    key = message.key()
    assert key is not None, "a record without a key"
    return key


def value_of(message: Message) -> bytes:
    value = message.value()
    assert value is not None, "a record without a value"
    return value


def headers_of(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    found: list[tuple[str, bytes | None]] = []
    headers = message.headers() or []
    assert isinstance(headers, list), headers
    for name, value in headers:
        assert not isinstance(value, str), headers
        found.append((name, value))
    return tuple(found)


def place_of(message: Message) -> tuple[int, int]:
    """Its partition and its offset."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None, message
    return partition, offset
