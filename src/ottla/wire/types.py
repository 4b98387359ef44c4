"""Small values that all packages share: a partition's key and Kafka's text form of ids."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final, NamedTuple
from uuid import UUID

ZERO_UUID: Final = UUID(int=0)


_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_valid_topic_name(name: str) -> bool:
    """Whether this is a valid topic name; it becomes part of a directory name."""
    return _TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def uuid_to_text(value: UUID) -> str:
    """Kafka prints ids as URL-safe base64 without padding: always 22 characters."""
    return base64.urlsafe_b64encode(value.bytes)[:22].decode("ascii")


def uuid_from_text(text: str) -> UUID:
    """The inverse of `uuid_to_text`. ValueError on anything else."""
    if len(text) != 22:
        raise ValueError(f"an id has 22 characters, {text!r} has {len(text)}")
    try:
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not URL-safe base64") from error
    value = UUID(bytes=raw)
    if uuid_to_text(value) != text:
        raise ValueError(f"{text!r} has stray bits after the 128 of an id")
    return value
