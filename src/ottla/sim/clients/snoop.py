"""A user without rights who wants to know what there is: rule A4.

It asks the same about a thing that exists and about one that does not, whose name is as long. But for the name, both answers
must be the same bytes. Otherwise what it may not see changes what it gets. How long the answers take is not compared: the
lines of a simulated network are too restless for that.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from ottla.metadata.image import MetadataImage
from ottla.sim.clients.access import (
    FETCH_VERSION,
    REQUEST_S_MAX,
    TOPICS,
    Attempt,
    attempts,
    codes,
    produce_call,
    stored_as,
)
from ottla.sim.clients.connections import CONNECT_TIMEOUT_S
from ottla.sim.clients.group_workload import COMMITTERS, PROCESSORS
from ottla.sim.clients.logins import LOGIN_S_MAX, ScramConversation, SimUser, log_in
from ottla.sim.cluster.nodes import BROKER_PORT
from ottla.sim.engine.world import SimHost
from ottla.sim.oracle.access_checker import AccessChecker
from ottla.sim.oracle.coverage import mark
from ottla.wire import fetch
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode, InvalidFrame
from ottla.wire.fetch_messages import FetchPartition, FetchRequest
from ottla.wire.messages import read_response, write_request

PAUSE_S = 0.3
PROCESSED = "id0"
"""A transactional id, which exists in runs with groups."""
TRIES = 3
"""Between two answers a broker may have died, and is not in the second one. What tells a thing does so each time."""
REFUSAL_S_MAX = 15.0
"""A failed login is told late."""
NO_CONTROLLER = frozenset((ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER))
"""What a broker says of a request that it could not pass on."""


class HiddenNames(NamedTuple):
    topic: str
    group: str
    transaction: str

    def absent(self) -> HiddenNames:
        """As long, and nobody has them."""
        return HiddenNames(*(f"{name[:-1]}-" for name in self))


class Query(NamedTuple):
    key: ApiKey
    version: int
    body: bytes
    by_controller: bool = False


def queries(names: HiddenNames, host: SimHost) -> list[Query]:
    """The same of each for any names."""
    topic, group, transaction = names
    partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    deleted = {"partition_index": 0, "offset": 0}
    grown = {"name": topic, "count": 50, "assignments": None}
    also = [
        Attempt(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            {"replica_id": -1, "topics": [{"topic": topic, "partitions": [partition]}]},
            (),
        ),
        Attempt(ApiKey.DESCRIBE_TOPIC_PARTITIONS, {"topics": [{"name": topic}]}, ()),
        Attempt(
            ApiKey.DESCRIBE_PRODUCERS, {"topics": [{"name": topic, "partition_indexes": [0]}]}, ()
        ),
        Attempt(
            ApiKey.DELETE_RECORDS,
            {"topics": [{"name": topic, "partitions": [deleted]}], "timeout": 1000},
            (),
        ),
        Attempt(
            ApiKey.CREATE_PARTITIONS,
            {"topics": [grown], "timeout": 1000, "validate_only": True},
            (),
            by_controller=True,
        ),
        Attempt(ApiKey.CONSUMER_GROUP_DESCRIBE, {"group_ids": [group]}, ()),
        Attempt(ApiKey.OFFSET_FETCH, {"groups": [{"group_id": group, "topics": None}]}, (), 8),
        Attempt(ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": [transaction]}, ()),
    ]
    found = [_query(each) for each in [*attempts(*names), *also]]
    version, body, _ = produce_call(topic, host, "snoop")
    found.append(Query(ApiKey.PRODUCE, version, body))
    wanted = FetchPartition(topic, None, 0, -1, 0, -1, -1, 1 << 16)
    body = fetch.write_request(FETCH_VERSION, FetchRequest(max_wait_ms=0, partitions=[wanted]))
    found.append(Query(ApiKey.FETCH, FETCH_VERSION, body))
    return found


def _query(attempt: Attempt) -> Query:
    version = APIS[attempt.key].max_version if attempt.version is None else attempt.version
    body = write_request(attempt.key, version, attempt.fields)
    return Query(attempt.key, version, body, attempt.by_controller)


def _is_told(query: Query, answers: Iterable[bytes]) -> bool:
    """Not if no controller has answered."""
    key, version, _, by_controller = query
    if not by_controller:
        return True
    found = (codes(read_response(key, version, memoryview(each), 0)) for each in answers)
    return not any(NO_CONTROLLER & set(each) for each in found)


def tells_apart(there: bytes, absent: bytes, names: HiddenNames) -> bool:
    """Whether two answers differ in anything but the names that were asked for, which differ in their last characters."""
    if len(there) != len(absent):
        return True
    pairs = [
        (each.encode(), other.encode()) for each, other in zip(names, names.absent(), strict=True)
    ]
    return any(
        not any(
            there.endswith(name, 0, end) and absent.endswith(other, 0, end) for name, other in pairs
        )
        for end, (one, another) in enumerate(zip(there, absent, strict=True), 1)
        if one != another
    )


def shape(challenge: bytes) -> list[tuple[str, int | str]]:
    """What a SCRAM challenge shows of a user. Nonce and salt are random: only their lengths count."""
    parts = challenge.decode().split(",")
    return [(part[:2], len(part) if part[:2] in ("r=", "s=") else part[2:]) for part in parts]


class Snoop:
    def __init__(
        self,
        host: SimHost,
        nodes: Sequence[int],
        checker: AccessChecker,
        users: tuple[SimUser, SimUser],
        image: Callable[[], MetadataImage],
        chance: random.Random,
    ) -> None:
        """`users`: two that exist. The second has no rights, and is the one that it is."""
        self.is_stopping = False
        self._host = host
        self._nodes = nodes
        self._checker = checker
        self._users = users
        self._image = image
        self._random = chance
        self._channels: dict[int, Channel] = {}

    async def run(self) -> None:
        while not self.is_stopping:
            await asyncio.sleep(self._random.expovariate(1 / PAUSE_S))
            node = self._random.choice(self._nodes)
            with suppress(OSError, TimeoutError, InvalidFrame):
                if self._random.random() < 0.2:
                    await self._ask_for_a_user(node)
                else:
                    await self._ask_for_a_thing(node)

    async def _open(self, node: int) -> Channel:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            return await Channel.open(self._host.runtime.network, f"n{node}", BROKER_PORT, "snoop")

    async def _channel(self, node: int) -> Channel:
        channel = self._channels.get(node)
        if channel is None or channel.closed:
            channel = await self._open(node)
            await log_in(channel, lambda: self._users[1].conversation(self._random))
            self._channels[node] = channel
        return channel

    async def _ask_for_a_thing(self, node: int) -> None:
        # Never of the private topics: everybody may be allowed something there.
        topics = [name for name in self._image().topics if name not in TOPICS and name[0] != "_"]
        if not topics:
            return
        channel = await self._channel(node)
        group = self._random.choice((PROCESSORS, COMMITTERS))
        there = HiddenNames(self._random.choice(topics), group, PROCESSED)
        pairs = zip(queries(there, self._host), queries(there.absent(), self._host), strict=True)
        pair = self._random.choice(list(pairs))
        turns = [0, 1] if self._random.random() < 0.5 else [1, 0]
        for _ in range(TRIES):
            answers = {turn: await self._answer(channel, pair[turn]) for turn in turns}
            if not _is_told(pair[0], answers.values()):
                return
            mark("things that exist and do not")
            if not tells_apart(answers[0], answers[1], there):
                return
        key = pair[0].key.name
        self._checker.report(
            "A4", node, f"who has no rights learns from {key} what exists: {there}"
        )

    async def _answer(self, channel: Channel, query: Query) -> bytes:
        try:
            return await channel.answer(
                query.key,
                query.version,
                query.body,
                lambda frame, start: bytes(frame[start:]),
                timeout_s=REQUEST_S_MAX,
            )
        except TimeoutError:
            channel.abort()
            raise

    async def _ask_for_a_user(self, node: int) -> None:
        """By the first message of a login."""
        there = stored_as(self._random.choice(self._users))
        absent = there._replace(name=f"{there.name[:-1]}-")
        told = [await self._told(node, each) for each in (there, absent)]
        mark("users that exist and do not")
        if told[0] != told[1]:
            self._checker.report(
                "A4", node, f"who has not logged in learns who exists: {there.name} by {told}"
            )

    async def _told(self, node: int, user: SimUser) -> list[tuple[str, int | str]]:
        channel = await self._open(node)
        try:
            handshake = {"mechanism": user.mechanism}
            await channel.request(
                ApiKey.SASL_HANDSHAKE, handshake, version=1, timeout_s=LOGIN_S_MAX
            )
            first = ScramConversation(user, f"{self._random.getrandbits(128):032x}").first()
            answer = await channel.request(
                ApiKey.SASL_AUTHENTICATE,
                {"auth_bytes": first},
                version=1,
                timeout_s=REFUSAL_S_MAX,
            )
        finally:
            channel.abort()
        if answer.error_code != ErrorCode.NONE:
            return [(answer.error_message or "", int(answer.error_code))]
        return shape(bytes(answer.auth_bytes))
