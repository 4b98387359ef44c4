"""Many members of groups and many transactional producers in one process: each a connection and a few requests.

Real clients would measure themselves: a hundred of them need more of this machine than the brokers do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol, TypeVar
from uuid import UUID, uuid4

from ottla.client import Client
from ottla.coordinators.groups.subscription import read_assignment, write_assignment
from ottla.records.record import Record, build
from ottla.runtime.sockets import RealNetwork
from ottla.wire import produce
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode

T = TypeVar("T")
AT_ONCE = 50
WAIT = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


def addresses(bootstrap: str) -> list[tuple[str, int]]:
    return [(host, int(port)) for host, port in (a.split(":") for a in bootstrap.split(","))]


class Crowd:
    """`async with`; all that it opened is closed at the end."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._channels: list[Channel] = []

    async def __aenter__(self) -> Crowd:
        self._network = RealNetwork(asyncio.get_running_loop())
        self.client = Client(self._network, addresses(self._bootstrap))
        await self.client.metadata([])
        return self

    async def __aexit__(self, *_: object) -> None:
        for channel in self._channels:
            channel.close()
        self.client.connections.close()

    async def coordinators(self, kind: int, keys: list[str]) -> dict[str, int]:
        """The broker of each group (kind 0) or transactional id (1)."""
        while True:
            fields = {"key_type": kind, "coordinator_keys": keys}
            answer = await self.client.connections.ask(ApiKey.FIND_COORDINATOR, fields)
            if all(int(each.error_code) == 0 for each in answer.coordinators):
                return {each.key: int(each.node_id) for each in answer.coordinators}
            await asyncio.sleep(0.1)

    async def connect(self, broker: int) -> Channel:
        channel = await Channel.open(
            self._network, *self.client.connections.addresses[broker], "crowd"
        )
        self._channels.append(channel)
        return channel

    async def ask(self, channel: Channel, key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
        """Again while the coordinator is not ready."""
        while True:
            answer = await channel.request(key, fields, version=version, timeout_s=60)
            if int(getattr(answer, "error_code", 0)) not in WAIT:
                return answer
            await asyncio.sleep(0.1)


async def all_of(work: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
    """Some at a time."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(do: Callable[[], Awaitable[T]]) -> T:
        async with turn:
            return await do()

    return await asyncio.gather(*(one(do) for do in work))


class Member(Protocol):
    generation: int

    async def live(self) -> None:
        """Until cancelled."""


def subscription(topic: str) -> bytes:
    name = topic.encode()
    return b"\x00\x00\x00\x00\x00\x01" + len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff"


class ClassicMember:
    """Joins, syncs (and assigns, if it leads), sends heartbeats."""

    def __init__(
        self, crowd: Crowd, channel: Channel, group: str, topic: str, partitions: int, every: float
    ) -> None:
        self._crowd = crowd
        self._channel = channel
        self._group = group
        self._topic = topic
        self._partitions = partitions
        self._every = every
        self.id = ""
        self.generation = -1
        """Of its last SyncGroup."""
        self.owned: frozenset[int] = frozenset()

    async def live(self) -> None:
        while True:
            if not await self.join():
                continue
            while True:
                await asyncio.sleep(self._every)
                fields = self._fields() | {"generation_id": self.generation}
                answer = await self._crowd.ask(self._channel, ApiKey.HEARTBEAT, 4, fields)
                if int(answer.error_code):
                    break

    def _fields(self) -> dict[str, Any]:
        return {"group_id": self._group, "member_id": self.id}

    async def join(self) -> bool:
        protocols = [{"name": "range", "metadata": subscription(self._topic)}]
        fields = self._fields() | {
            "session_timeout": 30_000,
            "rebalance_timeout": 60_000,
            "protocol_type": "consumer",
            "protocols": protocols,
        }
        joined = await self._crowd.ask(self._channel, ApiKey.JOIN_GROUP, 5, fields)
        self.id = joined.member_id
        if int(joined.error_code):
            return False
        assignments = []
        if joined.leader == self.id:
            ids = sorted(each.member_id for each in joined.members)
            for index, id in enumerate(ids):
                share = frozenset(range(index, self._partitions, len(ids)))
                assignment = write_assignment(0, {self._topic: share} if share else {})
                assignments.append({"member_id": id, "assignment": assignment})
        fields = self._fields() | {
            "generation_id": joined.generation_id,
            "assignments": assignments,
        }
        synced = await self._crowd.ask(self._channel, ApiKey.SYNC_GROUP, 3, fields)
        if int(synced.error_code):
            return False
        places = read_assignment(bytes(synced.assignment))
        assert places is not None
        self.owned = places.get(self._topic, frozenset())
        self.generation = joined.generation_id
        return True

    async def commit(self, offsets: dict[int, int]) -> None:
        partitions = [
            {
                "partition_index": number,
                "committed_offset": offset,
                "committed_leader_epoch": -1,
                "committed_metadata": "",
            }
            for number, offset in offsets.items()
        ]
        fields = self._fields() | {
            "generation_id_or_member_epoch": self.generation,
            "topics": [{"name": self._topic, "partitions": partitions}],
        }
        answer = await self._channel.request(ApiKey.OFFSET_COMMIT, fields, version=8)
        assert all(int(each.error_code) == 0 for each in answer.topics[0].partitions)


class NewMember:
    """Of the consumer protocol: says what it owns, takes what it is given."""

    def __init__(
        self, crowd: Crowd, channel: Channel, group: str, topic: str, every: float
    ) -> None:
        self._crowd = crowd
        self._channel = channel
        self._group = group
        self._topic = topic
        self._every = every
        self.id = str(uuid4())
        self.generation = 0
        """Its epoch."""
        self.owned: dict[UUID, list[int]] = {}

    async def live(self) -> None:
        while True:
            is_new = self.generation == 0
            fields: dict[str, Any] = {
                "group_id": self._group,
                "member_id": self.id,
                "member_epoch": self.generation,
                "rebalance_timeout": 60_000 if is_new else -1,
                "subscribed_topic_names": [self._topic] if is_new else None,
                "topic_partitions": [
                    {"topic_id": topic, "partitions": numbers}
                    for topic, numbers in self.owned.items()
                ],
            }
            answer = await self._crowd.ask(
                self._channel, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, fields
            )
            assert int(answer.error_code) == 0, answer
            self.generation = int(answer.member_epoch)
            if answer.assignment is not None:
                self.owned = {
                    each.topic_id: list(each.partitions)
                    for each in answer.assignment.topic_partitions
                }
                continue  # what it gave up is told at once
            await asyncio.sleep(self._every)


async def until(condition: Callable[[], bool], patience_s: float, what: str) -> float:
    """The seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < patience_s, f"not within {patience_s} s: {what}"
        await asyncio.sleep(0.01)
    return time.monotonic() - began


async def stop(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task


class TransactionalProducer:
    """Gets a producer id, writes one record in a transaction, commits."""

    def __init__(self, crowd: Crowd, coordinator: Channel, leader: Channel, id: str) -> None:
        self._crowd = crowd
        self._coordinator = coordinator
        self._leader = leader
        self.id = id

    async def run(self, topic: str, partition: int) -> None:
        fields: dict[str, Any] = {
            "transactional_id": self.id,
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        known = await self._crowd.ask(self._coordinator, ApiKey.INIT_PRODUCER_ID, 5, fields)
        assert int(known.error_code) == 0, known
        batch = build(
            [Record(0, int(time.time() * 1000), None, b"x")],
            producer_id=known.producer_id,
            producer_epoch=known.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        while True:
            error = await self._write(topic, partition, batch)
            if error not in WAIT:
                break
            await asyncio.sleep(0.05)
        assert error is ErrorCode.NONE, error
        fields = {
            "transactional_id": self.id,
            "producer_id": known.producer_id,
            "producer_epoch": known.producer_epoch,
            "committed": True,
        }
        ended = await self._crowd.ask(self._coordinator, ApiKey.END_TXN, 5, fields)
        assert int(ended.error_code) == 0, ended

    async def _write(self, topic: str, partition: int, batch: bytearray) -> ErrorCode:
        data = produce.PartitionData(topic, None, partition, memoryview(bytearray(batch)))
        body = produce.write_request(12, produce.ProduceRequest(self.id, -1, 30_000, [data]))

        def read(frame: memoryview, start: int) -> ErrorCode:
            (result,) = produce.read_response(12, frame, start).results
            return ErrorCode(result.error)

        connections = self._crowd.client.connections
        return await connections.call(self._leader, ApiKey.PRODUCE, 12, body, read)
