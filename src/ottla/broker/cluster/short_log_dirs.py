"""How a heartbeat names the log directories whose disks are nearly full: `<id> scarce`, `<id> full`, joined by commas.

Kafka has no such field. It is one of our own, at the end of the message, which others skip.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from ottla.controller.draft import ShortOfRoom
from ottla.log.room import Level
from ottla.wire.types import uuid_from_text, uuid_to_text

WORDS = {Level.SCARCE: "scarce", Level.NONE: "full"}


def written(levels: Iterable[tuple[UUID, Level]]) -> bytes:
    return ",".join(
        f"{uuid_to_text(id)} {WORDS[level]}" for id, level in levels if level is not Level.AMPLE
    ).encode()


def read(text: bytes) -> ShortOfRoom:
    """Nothing at all if the text is not one of ours: a heartbeat does not fail for it."""
    try:
        named = [each.split(" ") for each in text.decode().split(",") if each]
        return ShortOfRoom(
            frozenset(uuid_from_text(id) for id, _ in named),
            frozenset(uuid_from_text(id) for id, word in named if word == WORDS[Level.NONE]),
        )
    except ValueError:
        return ShortOfRoom()
