"""The server-side assignors of KIP-848, as pure functions.

Both assign every partition of every subscribed topic to exactly one subscriber. `range` assigns the same partition numbers
of several topics to the same member, so that it can join them. `uniform` spreads partitions evenly and moves as few as it
can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

Assignment = dict[UUID, frozenset[int]]
"""Partitions by topic; no topic without partitions."""


class Subscriber(NamedTuple):
    instance_id: str | None
    topics: frozenset[UUID]
    """Only topics that exist."""
    target: Assignment
    """Its target assignment so far."""


Assignor = Callable[[Mapping[str, Subscriber], Mapping[UUID, int]], dict[str, Assignment]]
"""(members, partitions of each topic) -> the assignment of each member."""

_Slot = tuple[UUID, int]


def assign_ranges(
    members: Mapping[str, Subscriber], partitions: Mapping[UUID, int]
) -> dict[str, Assignment]:
    """Each topic is cut into as many ranges as it has subscribers, in the order of their names: static
    members by their instance ids, then the others by their member ids."""
    order = sorted(members, key=lambda id: _rank(id, members[id]))
    shares: dict[str, Assignment] = {id: {} for id in order}
    for topic, count in sorted(partitions.items()):
        subscribers = [id for id in order if topic in members[id].topics]
        if not subscribers:
            continue
        least, extra = divmod(count, len(subscribers))
        start = 0
        for index, id in enumerate(subscribers):
            end = start + least + (index < extra)
            if end > start:
                shares[id][topic] = frozenset(range(start, end))
            start = end
    return shares


def _rank(id: str, member: Subscriber) -> tuple[bool, str]:
    return member.instance_id is None, member.instance_id or id


def assign_uniformly(
    members: Mapping[str, Subscriber], partitions: Mapping[UUID, int]
) -> dict[str, Assignment]:
    """If all members subscribe to the same topics, their loads differ by one partition at most. Otherwise no partition
    could move to a subscriber that has at least two fewer. Within that, members keep what they had."""
    order = sorted(members)
    owned: dict[str, dict[_Slot, None]] = {id: {} for id in order}
    taken: dict[_Slot, None] = {}
    for id in order:
        for topic, numbers in sorted(members[id].target.items()):
            for number in sorted(numbers):
                slot = (topic, number)
                is_there = topic in members[id].topics and number < partitions.get(topic, 0)
                if is_there and slot not in taken:
                    taken[slot] = None
                    owned[id][slot] = None
    wanted = frozenset().union(*(member.topics for member in members.values()))
    free = [
        (topic, number)
        for topic in sorted(wanted)
        for number in range(partitions[topic])
        if (topic, number) not in taken
    ]
    if all(member.topics == wanted for member in members.values()):
        _even_out(owned, free)
    else:
        _balance(members, owned, free)
    return {id: _by_topic(owned[id]) for id in order}


def _even_out(owned: dict[str, dict[_Slot, None]], free: list[_Slot]) -> None:
    """All subscribe to the same topics: each gets its quota. The extra partitions go to those that have the most."""
    least, extra = divmod(len(free) + sum(map(len, owned.values())), max(len(owned), 1))
    quota = dict.fromkeys(owned, least)
    for id in sorted(owned, key=lambda id: -len(owned[id]))[:extra]:
        quota[id] += 1
    for id, slots in owned.items():
        while len(slots) > quota[id]:
            free.append(slots.popitem()[0])
    waiting = iter(sorted(free))
    for id, slots in owned.items():
        while len(slots) < quota[id]:
            slots[next(waiting)] = None


def _balance(
    members: Mapping[str, Subscriber], owned: dict[str, dict[_Slot, None]], free: list[_Slot]
) -> None:
    subscribers: dict[UUID, list[str]] = {}
    for id in owned:
        for topic in sorted(members[id].topics):
            subscribers.setdefault(topic, []).append(id)
    # Partitions with few subscribers come first: there is more choice for the others.
    for slot in sorted(free, key=lambda slot: (len(subscribers[slot[0]]), slot)):
        least = min(subscribers[slot[0]], key=lambda id: len(owned[id]))
        owned[least][slot] = None
    moved = True
    while moved:  # each move makes the loads more equal, so this ends
        moved = False
        for slots in owned.values():
            for slot in list(slots):
                least = min(subscribers[slot[0]], key=lambda other: len(owned[other]))
                if len(slots) - len(owned[least]) > 1:
                    del slots[slot]
                    owned[least][slot] = None
                    moved = True


def _by_topic(slots: Mapping[_Slot, None]) -> Assignment:
    topics: dict[UUID, list[int]] = {}
    for topic, number in sorted(slots):
        topics.setdefault(topic, []).append(number)
    return {topic: frozenset(numbers) for topic, numbers in topics.items()}


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}
