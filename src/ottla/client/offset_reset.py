"""Where a group shall read from, in the words that people use: what would change, and doing it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from ottla.client.client import EARLIEST, LATEST, Client
from ottla.client.group_admin import GroupAdmin
from ottla.client.group_lag import Place
from ottla.wire.errors import ErrorCode, KafkaError

DIGITS_MAX = 19
"""No offset has more."""


class WhyNot(Enum):
    WRONG_WORD = "it is not understood"
    ABSENT = "there is no such thing"
    HAS_MEMBERS = "its members would overwrite it"


class ResetRefused(Exception):
    def __init__(self, why: WhyNot, text: str) -> None:
        super().__init__(text)
        self.why = why


class OffsetReset(NamedTuple):
    """Of one partition."""

    topic: str
    partition: int
    before: int | None
    after: int
    limited: tuple[int, int, int] | None = None
    """What was wanted instead, and the offsets that the partition holds."""


async def planned_resets(
    client: Client, group: str, to: str, topics: Sequence[str] = ()
) -> list[OffsetReset]:
    """`to`: earliest, latest, an offset, +N or -N (records from where it is), or a time (ISO 8601, local unless it says
    otherwise). `topics`: TOPIC or TOPIC:PARTITION; none of them: all that the group has committed. ResetRefused if the group
    has members, or a word is wrong."""
    groups = GroupAdmin(client)
    try:
        if members := (await groups.describe(group)).members:
            number = f"{len(members)} member{'' if len(members) == 1 else 's'}"
            raise ResetRefused(WhyNot.HAS_MEMBERS, f"group {group} has {number}; stop them first")
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        if not topics:  # with one, the group begins with these offsets, as in Kafka
            raise ResetRefused(
                WhyNot.ABSENT,
                f"there is no group {group} (ottla groups list); to begin one, name a --topic",
            ) from None
    before = await groups.offsets(group)
    places = await _places(client, topics) if topics else sorted(before)
    if not places:
        raise ResetRefused(WhyNot.ABSENT, f"group {group} has committed nothing; name a --topic")
    return [await _planned(client, to, place, before.get(place)) for place in places]


async def reset_offsets(client: Client, group: str, resets: Sequence[OffsetReset]) -> None:
    after = {(each.topic, each.partition): each.after for each in resets}
    await GroupAdmin(client).commit(group, after)


async def _places(client: Client, words: Sequence[str]) -> list[Place]:
    places: list[Place] = []
    for word in words:
        name, colon, number = word.partition(":")
        described = await client.topic(name)
        if not colon:
            places.extend((name, each.partition) for each in described.partitions)
        elif _is_number(number) and int(number) < len(described.partitions):
            places.append((name, int(number)))
        else:
            raise ResetRefused(
                WhyNot.ABSENT, f"--topic {word}: topic {name} has no partition {number}"
            )
    return places


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= DIGITS_MAX


async def _planned(client: Client, to: str, place: Place, current: int | None) -> OffsetReset:
    """Limited to what the partition holds."""
    start = await client.offset(*place, EARLIEST)
    end = await client.offset(*place, LATEST)
    if to == "earliest":
        return OffsetReset(*place, current, start)
    if to == "latest":
        return OffsetReset(*place, current, end)
    if to[:1] in ("+", "-") and _is_number(to[1:]):
        wanted = (start if current is None else current) + int(to)
    elif _is_number(to):
        wanted = int(to)
    else:
        try:
            moment_ms = round(datetime.fromisoformat(to).timestamp() * 1000)
        except (ValueError, OverflowError):
            raise ResetRefused(
                WhyNot.WRONG_WORD,
                f"--to {to}: is not earliest, latest, an offset, +N, -N or a time",
            ) from None
        found = await client.offset(*place, max(0, moment_ms))
        return OffsetReset(*place, current, found)
    taken = min(max(wanted, start), end)
    limited = None if taken == wanted else (wanted, start, end)
    return OffsetReset(*place, current, taken, limited)
