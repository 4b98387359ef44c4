"""The throttle of moves (KIP-73), from its first setting to its removal.

A throttle is two lists of replicas on each topic and two rates on each broker, in the cluster's metadata. Whoever sets
them must remove them: a throttle that is left over slows down every later catching up of these replicas. A command may
die, so every command about moves looks for left-over ones and removes them when nothing is being moved. What people set
by hand for all replicas ("*") is theirs, and stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from ottla.client.admin import BROKER, TOPIC, Admin, Place
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
ALL_REPLICAS = "*"
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
        place: Copying(set(change.replicas) - set(change.adding), set(change.adding))
        for place, change in active.items()
    }
    for place, replicas in targets.items():
        sources = found[place].sources if place in found else set(current[place])
        found[place] = Copying(sources, set(replicas) - sources)
    return found


class LeftOver(NamedTuple):
    """Throttles that somebody set and did not remove."""

    topics: tuple[str, ...]
    brokers: tuple[int, ...]

    def __bool__(self) -> bool:
        return bool(self.topics or self.brokers)

    def __str__(self) -> str:
        topics = f"topics {','.join(self.topics)}" if self.topics else ""
        brokers = f"brokers {','.join(map(str, self.brokers))}" if self.brokers else ""
        return " and ".join(filter(None, (topics, brokers)))


class MoveThrottle:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._admin = Admin(client)

    async def name_replicas(self, moves: Mapping[Place, Copying]) -> None:
        """Say which replicas the rates are for."""
        for topic in sorted({topic for topic, _ in moves}):
            of_topic = {p: move for (name, p), move in moves.items() if name == topic}
            leaders = {f"{p}:{b}" for p, move in of_topic.items() for b in move.sources}
            followers = {f"{p}:{b}" for p, move in of_topic.items() for b in move.destinations}
            changes = [
                (LEADER_REPLICAS, ",".join(sorted(leaders))),
                (FOLLOWER_REPLICAS, ",".join(sorted(followers))),
            ]
            await self._admin.alter_configs({(TOPIC, topic): changes})

    async def limit(
        self,
        brokers: Iterable[int],
        rate: int | None,
        names: Sequence[str] = (LEADER_RATE, FOLLOWER_RATE),
    ) -> None:
        """Bytes per second; None removes the limit. Kafka lets only a broker itself change its settings, so with brokers
        that are down this fails there."""
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
                await self.limit([broker], rate)
            except (OSError, Unreachable):
                missed.append(broker)
        return missed

    async def left_over(self) -> LeftOver:
        """What is set. It is left over if nothing is being moved, which the caller must know."""
        topics, has_all = await self._throttled_topics()
        brokers = [] if has_all else await self._throttled_brokers()
        return LeftOver(tuple(topics), tuple(brokers))

    async def remove(self, found: LeftOver) -> None:
        """Also where a topic was deleted, or a broker died, in between."""
        await self.limit_living(found.brokers, None)
        for topic in found.topics:
            with suppress(KafkaError):
                await self.clear((), [topic])

    async def _throttled_topics(self) -> tuple[list[str], bool]:
        """Topics with a list of replicas, and whether some topic throttles all of its replicas."""
        names = {each.name for each in await self._admin.list_topics()} | UNLISTED_TOPICS
        topics, has_all = [], False
        for name, values in (await self._topic_settings(sorted(names))).items():
            if ALL_REPLICAS in values:
                has_all = True
            elif any(values):
                topics.append(name)
        return topics, has_all

    async def _topic_settings(self, names: Collection[str]) -> dict[str, list[str]]:
        """Topics that are gone are left out."""
        keys = [LEADER_REPLICAS, FOLLOWER_REPLICAS]
        fields = {
            "resources": [
                {"resource_type": TOPIC, "resource_name": name, "configuration_keys": keys}
                for name in names
            ],
            "include_synonyms": False,
            "include_documentation": False,
        }
        answer = await self._admin.ask(ApiKey.DESCRIBE_CONFIGS, fields)
        return {
            each.resource_name: [entry.value or "" for entry in each.configs if entry.name in keys]
            for each in answer.results
            if int(each.error_code) == ErrorCode.NONE
        }

    async def _throttled_brokers(self) -> list[int]:
        found = []
        for each in (await self._client.metadata([])).brokers:
            resource = (BROKER, str(each.id))
            try:
                entries = await self._admin.describe_configs(
                    [resource], keys=[LEADER_RATE, FOLLOWER_RATE]
                )
            except (OSError, Unreachable):
                continue  # it has just died
            if any(
                entry.source == SET_ON_BROKER and entry.name in (LEADER_RATE, FOLLOWER_RATE)
                for entry in entries[resource]
            ):
                found.append(each.id)
        return found
