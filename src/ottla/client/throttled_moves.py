"""The throttle of moves (KIP-73), from its first setting to its removal.

A throttle is two lists of replicas on each topic and two rates on each broker, in the cluster's metadata. Whoever sets
them must remove them: a throttle that is left over slows down every later catching up of these replicas. A command may
die, so every command that moves something also removes what is left over.

Several commands may move replicas at a time, so none owns the lists. One rule serves all: a list names what is being
copied. Each command adds what it begins, and whoever ends removes the names of what is copied no more; the rates go with
the last name. A topic with "*" is throttled by somebody's own wish: it stays, and so do the rates of all brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from ottla.client.admin import BROKER, TOPIC, Admin, Edit, Place
from ottla.client.client import Client
from ottla.client.connections import Unreachable
from ottla.client.model import Reassignment
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.internal_topics import UNLISTED_TOPICS

LEADER_RATE, FOLLOWER_RATE = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
)
DIRECTORY_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
LISTS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
ALL_REPLICAS = "*"
BROKER_PATIENCE_S = 5.0
"""For one broker, which may have died a moment ago."""
SET_ON_TOPIC, SET_ON_BROKER = 1, 2
"""Kafka's sources of settings: of this topic, of this broker at run time."""


class Copying(NamedTuple):
    """From where to where the records of a partition are copied."""

    sources: set[int]
    destinations: set[int]


def copying(
    targets: Mapping[Place, Sequence[int]],
    active: Mapping[Place, Reassignment],
    current: Mapping[Place, Sequence[int]],
) -> dict[Place, Copying]:
    """What these reassignments will copy, with what goes on already."""
    found = {
        place: Copying(set(change.start), set(change.adding)) for place, change in active.items()
    }
    for place, replicas in targets.items():
        sources = found[place].sources if place in found else set(current[place])
        found[place] = Copying(sources, set(replicas) - sources)
    return found


class NamedReplicas(NamedTuple):
    """The two lists of a topic: pairs of partition and broker, as Kafka writes them (`0:1`)."""

    leaders: frozenset[str]
    followers: frozenset[str]

    @property
    def has_all(self) -> bool:
        return ALL_REPLICAS in self.leaders | self.followers

    @staticmethod
    def of(topic: str, moves: Mapping[Place, Copying]) -> NamedReplicas:
        mine = [(p, move) for (name, p), move in moves.items() if name == topic]
        return NamedReplicas(
            frozenset(f"{p}:{b}" for p, move in mine for b in move.sources),
            frozenset(f"{p}:{b}" for p, move in mine for b in move.destinations),
        )

    def without(self, other: NamedReplicas) -> NamedReplicas:
        return NamedReplicas(self.leaders - other.leaders, self.followers - other.followers)

    def destinations(self, number: int) -> set[int]:
        """Brokers to which a partition is copied."""
        pairs = (each.split(":") for each in self.followers)
        return {int(broker) for partition, broker in pairs if partition == str(number)}

    def of_partitions(self, numbers: Collection[int]) -> NamedReplicas:
        wanted = {str(number) for number in numbers}
        return NamedReplicas(
            *(frozenset(each for each in names if each.split(":")[0] in wanted) for names in self)
        )

    def __bool__(self) -> bool:
        return bool(self.leaders or self.followers)


class LeftOver(NamedTuple):
    """Throttles of what is not being copied."""

    replicas: Mapping[str, NamedReplicas]
    """By topic: names to take from its lists."""
    brokers: tuple[int, ...]
    """Rates that are for nothing any more."""
    is_in_part: bool = False
    """Other replicas are still copied: whoever copies them will remove this, too."""
    waits_for: tuple[int, ...] = ()
    """Brokers that are down, to which something would be copied under a throttle when they are back."""
    stays_on: tuple[int, ...] = ()
    """Brokers that are down, and keep rates that should have been removed."""

    def __bool__(self) -> bool:
        return bool(self.replicas or self.brokers)

    @property
    def topics(self) -> list[str]:
        return sorted(self.replicas)

    def __str__(self) -> str:
        topics = f"topics {','.join(self.topics)}" if self.topics else ""
        brokers = f"brokers {','.join(map(str, self.brokers))}" if self.brokers else ""
        return " and ".join(filter(None, (topics, brokers)))


NOTHING = NamedReplicas(frozenset(), frozenset())


class MoveThrottle:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._admin = Admin(client)

    async def name_replicas(self, moves: Mapping[Place, Copying]) -> None:
        """Say which replicas the rates are for, and no others, as Kafka's own tool does."""
        for topic in sorted({topic for topic, _ in moves}):
            names = NamedReplicas.of(topic, moves)
            changes = [
                (name, ",".join(sorted(members)))
                for name, members in zip(LISTS, names, strict=True)
            ]
            await self._admin.alter_configs({(TOPIC, topic): changes})

    async def add_replicas(self, moves: Mapping[Place, Copying]) -> None:
        """The rates are for these, too. Topics that are gone have nothing to throttle."""
        topics = {topic for topic, _ in moves}
        known = await self.named(topics)
        for topic in sorted(topics & known.keys()):
            if not known[topic].has_all:
                missing = NamedReplicas.of(topic, moves).without(known[topic])
                await self._edit(topic, Edit.APPEND, missing)

    async def _edit(self, topic: str, edit: Edit, names: NamedReplicas) -> None:
        changes = {
            name: sorted(members) for name, members in zip(LISTS, names, strict=True) if members
        }
        try:
            if changes:
                await self._admin.edit_lists((TOPIC, topic), edit, changes)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise

    async def limit(
        self,
        brokers: Iterable[int],
        rate: int | None,
        names: Sequence[str] = (LEADER_RATE, FOLLOWER_RATE),
    ) -> None:
        """Bytes per second; None removes the limit. Each broker is asked itself, so this fails with one that is down."""
        text = None if rate is None else str(rate)
        changes = [(name, text) for name in names]
        await self._admin.alter_configs({(BROKER, str(id)): changes for id in sorted(brokers)})

    async def clear(
        self,
        brokers: Iterable[int],
        topics: Iterable[str],
        names: Sequence[str] = (LEADER_RATE, FOLLOWER_RATE),
    ) -> None:
        await self.limit(brokers, None, names)
        changes = [(LEADER_REPLICAS, None), (FOLLOWER_REPLICAS, None)]
        await self._admin.alter_configs({(TOPIC, topic): changes for topic in topics})

    async def limit_living(self, brokers: Iterable[int], rate: int | None) -> list[int]:
        """As `limit`, for those that answer. Returns the others: they copy nothing, and are looked at again later."""
        living = {each.id for each in (await self._client.metadata([])).brokers}
        missed = []
        for broker in sorted(set(brokers)):
            try:
                if broker not in living:
                    raise ConnectionError(f"broker {broker} is down")
                async with asyncio.timeout(BROKER_PATIENCE_S):
                    await self.limit([broker], rate)
            except (OSError, Unreachable):
                missed.append(broker)
        return missed

    async def unlimit(self, brokers: Iterable[int]) -> list[int]:
        """Also brokers that are down. Returns those that keep their rates."""
        down = await self.limit_living(brokers, None)
        return [id for id in down if not await self._unlimit_through_others(id)]

    async def _unlimit_through_others(self, broker: int) -> bool:
        """Any broker of ottla passes it on to the controller. Apache Kafka's let nobody else change their settings."""
        changes = [(name, None) for name in (LEADER_RATE, FOLLOWER_RATE)]
        try:
            await self._admin.alter_configs({(BROKER, str(broker)): changes}, through_others=True)
        except KafkaError as error:
            if error.code is ErrorCode.INVALID_REQUEST:
                return False
            if error.code is not ErrorCode.BROKER_ID_NOT_REGISTERED:
                raise
        return True

    async def named(self, topics: Collection[str] | None = None) -> dict[str, NamedReplicas]:
        """The lists of these topics, or of all that have one. Topics that are gone are left out."""
        wanted = topics
        if wanted is None:
            wanted = {each.name for each in await self._admin.list_topics()} | UNLISTED_TOPICS
        fields = {
            "resources": [
                {"resource_type": TOPIC, "resource_name": name, "configuration_keys": LISTS}
                for name in sorted(wanted)
            ],
            "include_synonyms": False,
            "include_documentation": False,
        }
        answer = await self._admin.ask(ApiKey.DESCRIBE_CONFIGS, fields)
        found = {}
        for each in answer.results:
            if int(each.error_code) == ErrorCode.NONE:
                values = {entry.name: entry.value or "" for entry in each.configs}
                names = NamedReplicas(
                    *(frozenset(filter(None, values.get(name, "").split(","))) for name in LISTS)
                )
                if names or topics is not None:
                    found[each.resource_name] = names
        return found

    async def left_over(
        self,
        named: Mapping[str, NamedReplicas],
        copied: Collection[Place],
        limited: Collection[int] = (),
    ) -> LeftOver:
        """Of these lists, what names no partition that is being copied; and the rates, if nothing else is named. `limited`:
        the caller has given these brokers a rate."""
        gone = {}
        for topic, names in named.items():
            here = [number for name, number in copied if name == topic]
            if not names.has_all and (old := names.without(names.of_partitions(here))):
                gone[topic] = old
        in_use = any(names.without(gone.get(topic, NOTHING)) for topic, names in named.items())
        brokers = [] if in_use else await self.limited_brokers(limited)
        return LeftOver(gone, tuple(brokers), in_use)

    async def lift(self, moves: Mapping[Place, Copying]) -> None:
        """The rates are not for these any more, whoever has named them."""
        named = await self.named({topic for topic, _ in moves})
        ours = {
            topic: names.without(names.without(NamedReplicas.of(topic, moves)))
            for topic, names in named.items()
            if not names.has_all
        }
        await self.remove(LeftOver({topic: names for topic, names in ours.items() if names}, ()))

    async def remove(self, found: LeftOver) -> list[int]:
        """Also where a topic was deleted, or a broker died, in between. The rates stay if somebody has begun something.
        Returns the brokers that are down and keep theirs."""
        known = await self.named(found.replicas)
        for topic, old in sorted(found.replicas.items()):
            if topic not in known:
                continue
            if known[topic].without(old):
                await self._edit(topic, Edit.SUBTRACT, old)
            else:
                with suppress(KafkaError):
                    await self.clear((), [topic])
        if not found.brokers:
            return []
        # The broker that is asked may not know of the removal yet.
        now = (await self.named()).items()
        if any(names.without(found.replicas.get(topic, NOTHING)) for topic, names in now):
            return []
        return await self.unlimit(found.brokers)

    async def limited_brokers(self, limited: Collection[int] = ()) -> list[int]:
        """Those that have a rate; of those that do not answer, the ones of which the caller knows it."""
        living = {each.id for each in (await self._client.metadata([])).brokers}
        found = []
        for id in sorted(living | set(limited)):
            has_rate = await self._has_rate(id) if id in living else None
            if has_rate or (has_rate is None and id in limited):
                found.append(id)
        return found

    async def _has_rate(self, broker: int) -> bool | None:
        """None: it does not answer."""
        resource = (BROKER, str(broker))
        try:
            async with asyncio.timeout(BROKER_PATIENCE_S):
                entries = await self._admin.describe_configs(
                    [resource], keys=[LEADER_RATE, FOLLOWER_RATE]
                )
        except (OSError, Unreachable):
            return None  # it has just died
        return any(
            entry.source == SET_ON_BROKER and entry.name in (LEADER_RATE, FOLLOWER_RATE)
            for entry in entries[resource]
        )
