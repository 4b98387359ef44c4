"""What all questions share: the clients, the clock, the model, and who looks at what."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.cluster_admin import ClusterAdmin
from ottla.console.model.cluster_model import ClusterModel
from ottla.console.model.rows import BrokerStanding, Place
from ottla.runtime.seams import Clock

LINGER_S = 10.0
"""Somebody who goes from page to page comes back."""
AT_ONCE_MAX = 16


class Interest(NamedTuple):
    """What somebody looks at."""

    what: str
    name: str = ""
    partition: int = -1


TOPICS = Interest("topics")
GROUPS = Interest("groups")
MOVES = Interest("moves")
TRANSACTIONS = Interest("transactions")


def partition_of(place: Place) -> Interest:
    return Interest("partition", *place)


def listed(place: Place) -> Interest:
    """A line of a list: less is asked of it, and less often, than of a partition with a page of its own."""
    return Interest("listed", *place)


def topic_of(name: str) -> Interest:
    return Interest("topic", name)


def group_of(id: str) -> Interest:
    return Interest("group", id)


class Interests:
    """Who looks at what. Interest lingers for a while after its end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now: Counter[Interest] = Counter()
        self._until: dict[Interest, float] = {}
        self.on_new: list[Callable[[Interest], None]] = []

    @contextmanager
    def looking(self, interest: Interest) -> Iterator[None]:
        is_new = interest not in self
        self._now[interest] += 1
        if is_new:
            for call in self.on_new:
                call(interest)
        try:
            yield
        finally:
            self._now[interest] -= 1
            if not self._now[interest]:
                del self._now[interest]
            self._until[interest] = self._clock.monotonic() + LINGER_S

    def __contains__(self, interest: Interest) -> bool:
        return interest in self._now or interest in self._lingering()

    def of(self, what: str) -> list[Interest]:
        """All of one kind, in a fixed order."""
        return sorted({each for each in (*self._now, *self._lingering()) if each.what == what})

    def _lingering(self) -> dict[Interest, float]:
        now = self._clock.monotonic()
        self._until = {each: until for each, until in self._until.items() if until > now}
        return self._until


class PlaceTurns:
    """Of more places than are asked at a time, each has its turn: nobody is kept from an answer by those before it."""

    def __init__(self, at_a_time: int) -> None:
        self._at_a_time = at_a_time
        self._last: Place = ("", -1)

    def next(self, wanted: Sequence[Place]) -> list[Place]:
        """Those whose turn it is, of sorted ones."""
        begin = bisect_right(wanted, self._last) if len(wanted) > self._at_a_time else 0
        turn = [*wanted[begin:], *wanted[:begin]][: self._at_a_time]
        if turn:
            self._last = turn[-1]
        return turn


class Asking:
    """Given to each theme. `hurry` is for what others should ask at once."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        model: ClusterModel,
        interests: Interests,
        hurry: Callable[[str], None],
    ) -> None:
        self.client = client
        self.admin = Admin(client)
        self.cluster_admin = ClusterAdmin(client)
        self.clock = clock
        self.model = model
        self.interests = interests
        self.hurry = hurry
        self.known = asyncio.Event()
        """Set when the topics of the cluster are known: most questions are about them."""

    @property
    def now_ms(self) -> int:
        return self.clock.wall_ms()

    def living(self) -> list[int]:
        """Brokers that are up, as far as we know."""
        return sorted(
            id
            for id, row in self.model.brokers.items()
            if row.standing is BrokerStanding.UP and id in self.client.connections.addresses
        )

    def by_leader(self) -> dict[int, list[Place]]:
        """The partitions that living brokers lead."""
        living = set(self.living())
        found: dict[int, list[Place]] = {}
        for place, row in self.model.partitions.items():
            if row.leader in living:
                found.setdefault(row.leader, []).append(place)
        return found
