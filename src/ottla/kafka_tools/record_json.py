"""Records of internal topics as JSON, as Kafka's generated converters write them."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from typing import Any
from uuid import UUID

from ottla.kafka_tools.java import double_text, uuid_text
from ottla.wire.record_codec import (
    INT16,
    INT32,
    NULLABLE_BYTES,
    NULLABLE_STRING,
    STRING,
    MalformedRecord,
    Message,
    Reader,
    array,
    fields_of,
    message,
    read_message,
    struct_of,
    wire,
)


class Json:
    """Text that is JSON already."""

    def __init__(self, text: str) -> None:
        self.text = text


def json_of(value: Any, version: int = 0) -> str:
    match value:
        case Json():
            return value.text
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(int(value))
        case float():
            return double_text(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case bytes():
            return f'"{b64encode(value).decode()}"'
        case UUID():
            return f'"{uuid_text(value)}"'
        case Message():
            return json_of({camel(name): each for name, each in fields_of(value, version)}, version)
        case dict():
            parts = (f'"{name}":{json_of(each, version)}' for name, each in value.items())
            return "{" + ",".join(parts) + "}"
        case tuple() | list():
            return "[" + ",".join(json_of(each, version) for each in value) + "]"
    raise AssertionError(f"no JSON for {type(value)}")


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def type_name(cls: type[Message]) -> str:
    """`RegisterBrokerRecord` is REGISTER_BROKER_RECORD."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).upper()


# What consumers of the classic protocol send each other through the coordinator, which does not look into it.


@message
class TopicPartitions(Message):
    topic: str = wire(STRING)
    partitions: tuple[int, ...] = wire(array(INT32))


@message
class ConsumerSubscription(Message):
    topics: tuple[str, ...] = wire(array(STRING))
    user_data: bytes | None = wire(NULLABLE_BYTES)
    owned_partitions: tuple[TopicPartitions, ...] = wire(
        array(struct_of(TopicPartitions)), since=1, default=()
    )
    generation_id: int = wire(INT32, since=2, default=-1)
    rack_id: str | None = wire(NULLABLE_STRING, since=3, default=None)


@message
class ConsumerAssignment(Message):
    assigned_partitions: tuple[TopicPartitions, ...] = wire(array(struct_of(TopicPartitions)))
    user_data: bytes | None = wire(NULLABLE_BYTES)


NEWEST = 3


def consumer_json(cls: type[Message], data: bytes) -> bytes | Json:
    """As JSON, or as it is if it is something else."""
    try:
        version = int(INT16.read(Reader(data)))
        reader = Reader(data, 2, version=min(version, NEWEST), flexible=False)
        return Json(json_of(read_message(cls, reader), reader.version))
    except MalformedRecord:
        return data
