"""Moves of replicas between the log directories of their brokers; of any Kafka, since it is Kafka's protocol only.

A broker is asked before its replica comes, too: then it makes the replica where it is wanted. A restart of the broker forgets
that wish, so whoever carries moves out asks again until every replica lies where it shall.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from typing import NamedTuple

from ottla.client.admin import Admin, DescribedTopic, Place
from ottla.client.client import Client
from ottla.client.connections import Unreachable
from ottla.client.reassignment_file import Replica
from ottla.wire.errors import ErrorCode, KafkaError

POLL_S = 0.5
NOT_THERE = (ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""The replica comes later, or its broker does not know of it yet."""


NOT_COMING = KafkaError(
    ErrorCode.REPLICA_NOT_AVAILABLE,
    "the metadata gives it no replica of that partition. Was the topic deleted, or the reassignment cancelled?",
)


TRIES = 3
WHY = "its log says why, and so does ottla events --kind directory_move"
GIVEN_UP = KafkaError(
    ErrorCode.KAFKA_STORAGE_ERROR,
    f"the broker began this move {TRIES} times, and gave it up each time: {WHY}",
)
ENDED = KafkaError(
    ErrorCode.REPLICA_NOT_AVAILABLE, f"the move was cancelled, or the broker gave it up: {WHY}"
)


class LogDirRefused(Exception):
    """A broker does not move a replica there."""

    def __init__(self, replica: Replica, path: str, why: KafkaError) -> None:
        broker, topic, partition = replica
        super().__init__(f"{topic}-{partition} on broker {broker} to {path}: {why}")


class LogDirState(NamedTuple):
    """Where a replica lies, and where it moves to."""

    current: str | None
    future: str | None


class LogDirMoves:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._admin = Admin(client)
        self.unheard: list[int] = []
        """Brokers that did not say, when last asked, where their replicas lie."""

    async def ask(self, moves: Mapping[Replica, str]) -> None:
        """LogDirRefused unless a broker moves the replica, or will make it there."""
        for broker in await self._living(moves):
            targets = {(t, p): path for (id, t, p), path in moves.items() if id == broker}
            try:
                outcomes = await self._admin.move_to_log_dirs(broker, targets)
            except (OSError, Unreachable):
                continue  # it is away for a while
            for place, error in sorted(outcomes.items()):
                if error is not None and error.code not in NOT_THERE:
                    raise LogDirRefused((broker, *place), targets[place], error)

    async def states(self, replicas: Iterable[Replica]) -> dict[Replica, LogDirState]:
        wanted = sorted(set(replicas))
        asked = {b: [(t, p) for broker, t, p in wanted if broker == b] for b, _, _ in wanted}
        found = await self._states_on(asked)
        return {replica: found.get(replica, LogDirState(None, None)) for replica in wanted}

    async def under_way(self) -> dict[Replica, LogDirState]:
        """All replicas that are being moved, of the brokers that answer."""
        registered = (await self._client.describe_cluster()).brokers
        found = await self._states_on({each.id: None for each in registered})
        return {each: state for each, state in sorted(found.items()) if state.future is not None}

    async def _states_on(
        self, asked: Mapping[int, list[Place] | None]
    ) -> dict[Replica, LogDirState]:
        """Of these brokers' replicas at these places. None: of all that a broker has."""
        living = {each.id for each in (await self._client.metadata([])).brokers}
        self.unheard = sorted(asked.keys() - living)
        current: dict[Replica, str] = {}
        future: dict[Replica, str] = {}
        for broker in sorted(asked.keys() & living):
            try:
                directories = await self._admin.log_dirs(broker, asked[broker])
            except (OSError, Unreachable, KafkaError):
                self.unheard.append(broker)
                continue
            for directory in directories:
                for each in directory.replicas:
                    (future if each.future else current)[broker, *each.place] = directory.path
        return {each: LogDirState(current.get(each), future.get(each)) for each in current | future}

    async def _living(self, replicas: Iterable[Replica]) -> list[int]:
        """Their brokers, but for those that are down: a question to them would be waited for in vain."""
        known = {each.id for each in (await self._client.metadata([])).brokers}
        return sorted({broker for broker, _, _ in replicas} & known)

    async def left(self, moves: Mapping[Replica, str]) -> dict[Replica, str]:
        """Those that do not lie where they shall."""
        states = await self.states(moves)
        return {replica: path for replica, path in moves.items() if states[replica] != (path, None)}

    async def run(self, moves: Mapping[Replica, str]) -> AsyncIterator[int]:
        """Until all are done. Says how many are left. A broker that is down is waited for, one that is no part of the cluster
        any more is not. LogDirRefused also if a move that was under way ends elsewhere, as somebody may want it, or if a broker
        gives it up again and again."""
        begun: Counter[Replica] = Counter()
        under_way: set[Replica] = set()
        known = {each.id for each in (await self._client.describe_cluster()).brokers}
        moves = {each: path for each, path in moves.items() if each[0] in known}
        while left := await self.left(moves):
            states = await self.states(left)
            away = [each for each in left if not any(states[each])]
            for replica in await self._not_coming(away):
                raise LogDirRefused(replica, left[replica], NOT_COMING)
            for replica in under_way & left.keys():
                current, future = states[replica]
                if future is None and current not in (None, left[replica]):
                    raise LogDirRefused(replica, left[replica], ENDED)
            still = {each: path for each, path in left.items() if states[each].future != path}
            under_way |= left.keys() - still.keys()
            for replica, path in still.items():
                if begun[replica] >= TRIES:
                    raise LogDirRefused(replica, path, GIVEN_UP)
            await self.ask(still)
            begun.update(still.keys())
            for replica in away:
                del begun[replica]  # a restart forgets what was asked for: that is no failure
            yield len(left)
            await asyncio.sleep(POLL_S)
        yield 0

    async def _not_coming(self, replicas: Collection[Replica]) -> list[Replica]:
        """Those that the metadata does not give to their brokers."""
        try:
            topics = await self._admin.describe_topics({topic for _, topic, _ in replicas})
        except (OSError, Unreachable):
            return []  # next time
        given = {
            (broker, topic.name, each.partition)
            for topic in topics.values()
            if isinstance(topic, DescribedTopic)
            for each in topic.partitions
            for broker in each.replicas
        }
        return [replica for replica in replicas if replica not in given]

    async def cancel(self, replicas: Iterable[Replica] | None) -> list[Replica]:
        """Those that were moving: they stay where they are. None: all of the cluster."""
        states = await (self.under_way() if replicas is None else self.states(replicas))
        back = {
            replica: state.current
            for replica, state in states.items()
            if state.future is not None and state.current is not None
        }
        await self.ask(back)
        return list(back)

    async def directories_of(self, targets: Mapping[Place, Iterable[int]]) -> dict[Replica, str]:
        """Of the replicas of these partitions, as far as their brokers say it."""
        replicas = [(broker, *place) for place, brokers in targets.items() for broker in brokers]
        states = await self.states(replicas)
        return {each: state.current for each, state in states.items() if state.current is not None}
