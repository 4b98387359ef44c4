"""The connections of one simulated client: it finds brokers and leaders through Metadata, as real clients do."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from ottla.sim.clients.logins import SimUser, log_in
from ottla.sim.engine.world import SimHost
from ottla.wire import fetch
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import RETRIABLE, ErrorCode, InvalidFrame
from ottla.wire.fetch_messages import FetchedPartition, FetchPartition, FetchRequest
from ottla.wire.types import TopicPartition

T = TypeVar("T")

FETCH_VERSION = APIS[ApiKey.FETCH].max_version
SESSIONLESS, NEW_SESSION = -1, 0
REQUEST_TIMEOUT_S = 3.0
CONNECT_TIMEOUT_S = 1.0
BACKOFF_S = 0.1


class PartitionLeader(NamedTuple):
    """The leader of a partition, as Metadata names it."""

    topic_id: UUID
    leader: int
    leader_epoch: int


class ClientConnections:
    """The channels of one client, and what it knows from Metadata."""

    def __init__(
        self,
        host: SimHost,
        bootstrap: Sequence[tuple[str, int]],
        name: str,
        user: SimUser | None = None,
    ) -> None:
        """`user`: as whom it logs in, where the cluster has security."""
        self._network = host.runtime.network
        self._user = user
        self._random = random.Random(f"logins of {name}")
        self._bootstrap = list(bootstrap)
        self.name = name
        self._channels: dict[tuple[str, int], Channel] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._places: dict[TopicPartition, PartitionLeader] = {}
        self._replicas: dict[TopicPartition, list[int]] = {}
        self._newest_epoch: dict[tuple[UUID, TopicPartition], int] = {}
        """By topic id: the epochs of a new topic of the same name begin at 0, and a broker may still return the former
        one long after it was deleted (seed 117)."""
        self._turn = 0

    async def at(self, address: tuple[str, int]) -> Channel:
        channel = self._channels.get(address)
        if channel is None or channel.closed:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                channel = await Channel.open(self._network, *address, self.name)
            if self._user is not None:
                user = self._user
                await log_in(channel, lambda: user.conversation(self._random))
            self._channels[address] = channel
        return channel

    async def any(self) -> Channel:
        """The bootstrap brokers in turn, so that one without an answer is not asked twice in a row."""
        return await self.at(self._next_bootstrap())

    def _next_bootstrap(self) -> tuple[str, int]:
        self._turn += 1
        return self._bootstrap[self._turn % len(self._bootstrap)]

    async def ask(self, key: ApiKey, fields: Mapping[str, Any]) -> Any:
        return await self._ask_at(self._next_bootstrap(), key, fields)

    async def _ask_at(
        self, address: tuple[str, int], key: ApiKey, fields: Mapping[str, Any]
    ) -> Any:
        channel = await self.at(address)
        return await self.answer(channel, channel.request(key, fields, timeout_s=REQUEST_TIMEOUT_S))

    async def answer(self, channel: Channel, request: Coroutine[Any, Any, T]) -> T:
        """A connection whose answer is overdue is closed, as real clients do."""
        try:
            return await request
        except TimeoutError:
            channel.abort()
            raise

    async def leader(self, partition: TopicPartition) -> tuple[PartitionLeader, Channel]:
        """OSError if there is none, or it cannot be reached."""
        place = self._places.get(partition)
        if place is None:
            await self.refresh(partition.topic)
            place = self._places.get(partition)
        if place is None or place.leader not in self._addresses:
            self._places.pop(partition, None)
            raise ConnectionError(f"{partition} has no leader")
        return place, await self.at(self._addresses[place.leader])

    async def follower(self, partition: TopicPartition, leader: int) -> Channel | None:
        """One of the followers, in turn; None if none is known."""
        self._turn += 1
        others = [
            id for id in self._replicas.get(partition, []) if id != leader and id in self._addresses
        ]
        if not others:
            return None
        return await self.at(self._addresses[others[self._turn % len(others)]])

    def forget(self, partition: TopicPartition) -> None:
        """The broker that we took for the leader is not, or does not answer."""
        self._places.pop(partition, None)

    async def refresh(self, topic: str) -> None:
        asked = self._next_bootstrap()
        fields = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        answer = await self._ask_at(asked, ApiKey.METADATA, fields)
        self._addresses = {int(b.node_id): (b.host, int(b.port)) for b in answer.brokers}
        # librdkafka drops a broker that Metadata does not list, also one that has just answered.
        assert asked in self._addresses.values(), f"{asked} does not list itself"
        for found in answer.topics:
            if int(found.error_code) == ErrorCode.NONE:
                for each in found.partitions:
                    key = TopicPartition(topic, int(each.partition_index))
                    epoch = int(each.leader_epoch)
                    # A broker that is cut off may still return a former leader.
                    if epoch >= self._newest_epoch.get((found.topic_id, key), -1):
                        self._newest_epoch[found.topic_id, key] = epoch
                        self._places[key] = PartitionLeader(
                            found.topic_id, int(each.leader_id), epoch
                        )
                        self._replicas[key] = list(each.replica_nodes)

    async def fetch(
        self,
        place: PartitionLeader,
        channel: Channel,
        partition: TopicPartition,
        offset: int,
        epoch: int,
        session_epoch: int = SESSIONLESS,
        isolation: int = 0,
    ) -> tuple[FetchedPartition, bytes]:
        """The response for this partition, and a copy of its records."""
        asked = FetchPartition(
            partition.topic,
            place.topic_id,
            partition.partition,
            place.leader_epoch,
            offset,
            epoch,
            -1,
            1 << 16,
        )
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=isolation,
            session_epoch=session_epoch,
            partitions=[asked],
        )

        def read(frame: memoryview, body: int) -> tuple[FetchedPartition, bytes]:
            response = fetch.read_response(FETCH_VERSION, frame, body)
            found = response.partitions[0]
            assert found.records is None or isinstance(found.records, memoryview)
            return found._replace(records=None), bytes(found.records or b"")

        body = fetch.write_request(FETCH_VERSION, request)
        return await self.call(channel, ApiKey.FETCH, FETCH_VERSION, body, read)

    async def call(
        self,
        channel: Channel,
        key: ApiKey,
        version: int,
        body: bytes,
        read: Callable[[memoryview, int], T],
    ) -> T:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def answered(frame: memoryview, start: int) -> None:
            if not done.done():
                done.set_result(read(frame, start))

        def failed(error: Exception) -> None:
            if not done.done():
                done.set_exception(error)

        channel.call(key, version, body, answered, on_failure=failed)

        async def wait() -> T:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return await done

        return await self.answer(channel, wait())


async def create_topic(
    connections: ClientConnections,
    name: str,
    partitions: int,
    factor: int,
    configs: Mapping[str, str],
) -> None:
    """Retry until it exists."""
    wanted = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }
    fields = {"topics": [wanted], "timeout": 3000, "validate_only": False}
    while True:
        try:
            answer = await connections.ask(ApiKey.CREATE_TOPICS, fields)
            code = int(answer.topics[0].error_code)
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
            # There may be too few registered brokers for the replication factor, for now.
            assert code in RETRIABLE or code == ErrorCode.INVALID_REPLICATION_FACTOR, code
        except (OSError, TimeoutError, InvalidFrame):
            pass
        await asyncio.sleep(BACKOFF_S)


async def delete_topic(connections: ClientConnections, id: UUID) -> None:
    """Retry until it is gone. By its id: a request that was given up may take effect at any later time, and must not
    delete the next topic of the same name."""
    fields = {"topics": [{"name": None, "topic_id": id}], "timeout": 3000}
    while True:
        try:
            answer = await connections.ask(ApiKey.DELETE_TOPICS, fields)
            code = int(answer.responses[0].error_code)
            if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID):
                return
            assert code in RETRIABLE, code
        except (OSError, TimeoutError, InvalidFrame):
            pass
        await asyncio.sleep(BACKOFF_S)
