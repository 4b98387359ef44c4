"""Frames with something wrong with them, for whoever wants to send such."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ottla.wire.apis import APIS, Api, ApiKey

BROKER, CONTROLLER = "PLAINTEXT", "CONTROLLER"


def _is_on(api: Api, listener: str) -> bool:
    return api.on_broker if listener == BROKER else api.on_controller


SERVED: list[tuple[str, ApiKey, int]] = [
    (listener, api.key, version)
    for listener in (BROKER, CONTROLLER)
    for api in APIS.values()
    if _is_on(api, listener)
    for version in range(api.min_version, api.max_version + 1)
]
"""Every (listener, API, version) there is."""


# Damage

Damage = Callable[[bytearray, Random], None]


def damaged(frame: bytes, random: Random) -> bytes:
    """The frame with one to four things wrong with it."""
    data = bytearray(frame)
    for _ in range(random.randrange(1, 5)):
        random.choice(DAMAGES)(data, random)
    return bytes(data)


def _overwrite(data: bytearray, random: Random) -> None:
    """A number somewhere, most often a length or a count, becomes another one."""
    value = random.choice(INTERESTING)
    position = random.randrange(len(data) + 1)
    data[position : position + len(value)] = value


def _flip(data: bytearray, random: Random) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _cut(data: bytearray, random: Random) -> None:
    del data[random.randrange(len(data) + 1) :]


def _extend(data: bytearray, random: Random) -> None:
    data += random.choice((b"\x00", random.randbytes(random.randrange(64)), bytes(100)))


def _insert(data: bytearray, random: Random) -> None:
    position = random.randrange(len(data) + 1)
    data[position:position] = random.choice(INTERESTING)


def _remove(data: bytearray, random: Random) -> None:
    position = random.randrange(len(data) + 1)
    del data[position : position + random.randrange(1, 9)]


def _repeat(data: bytearray, random: Random) -> None:
    position = random.randrange(len(data) + 1)
    piece = data[position : position + random.randrange(1, 40)]
    data[position:position] = piece


DAMAGES: tuple[Damage, ...] = (
    _overwrite,
    _overwrite,
    _flip,
    _cut,
    _extend,
    _insert,
    _remove,
    _repeat,
)
INTERESTING: tuple[bytes, ...] = (
    b"\x00",
    b"\x01",
    b"\x02",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff\xff",
    b"\xff\xfe",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xfe",
    b"\x00\x00\x00\x00",
    b"\x00\x0f\xff\xff",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\x02\x00\x01a\x00\x01b",
    b"\xc3\x28",
    b"\xed\xa0\x80",
)
