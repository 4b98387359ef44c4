"""A crowd: thousands of connections, members of groups and producers in one process, each a few bytes of state.

A thousand real clients would need more of a machine than the brokers that they load. Here one event loop holds them all,
each with a connection of its own (`wire.channel`), and the frames that are sent often are made once. It runs in the
process of the benchmark itself, which does nothing else meanwhile, so that a case can look at the brokers' processor time and
memory between two steps.

Latency is measured from when a request was sent. No request waits for the answer to another one, so a broker that stalls
cannot hide it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from struct import Struct
from typing import Any, NamedTuple, TypeVar
from uuid import UUID, uuid4

import uvloop

from bench.targets import Target
from ottla.client import Client
from ottla.client.secured import SecuredNetwork
from ottla.client.security import Security
from ottla.coordinators.groups.subscription import write_assignment
from ottla.records.record import Record, build
from ottla.runtime.seams import Network
from ottla.runtime.sockets import RealNetwork
from ottla.wire import messages, produce
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode

T = TypeVar("T")

AT_ONCE = 50
"""So many connect at the same time."""
PATIENCE_S = 60.0
LOOK_AGAIN_S = 0.1
JOINED = Struct(">hih")  # error, generation, length of the protocol's name
SESSION_MS, REBALANCE_MS = 45_000, 60_000
NOT_READY = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
PRODUCE, METADATA, JOIN, SYNC, HEARTBEAT, CONSUMER_HEARTBEAT, INIT = 9, 12, 5, 3, 3, 1, 4
"""Versions that both sides serve."""


def run(work: Callable[[Crowd], Coroutine[Any, Any, T]], target: Target) -> T:
    async def inside() -> T:
        async with Crowd(target) as crowd:
            return await work(crowd)

    # TLS goes through asyncio's own transports (`client.secured`).
    factory = asyncio.new_event_loop if target.java_client() else uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(inside())


async def all_of(work: Iterable[Callable[[], Awaitable[T]]], at_once: int = AT_ONCE) -> list[T]:
    turn = asyncio.Semaphore(at_once)

    async def one(do: Callable[[], Awaitable[T]]) -> T:
        async with turn:
            return await do()

    return await asyncio.gather(*map(one, work))


class Crowd:
    """`async with`; closes all that it opened."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._channels: list[Channel] = []

    async def __aenter__(self) -> Crowd:
        loop = asyncio.get_running_loop()
        settings = self._target.java_client()
        self._network: Network = (
            SecuredNetwork(loop, Security.of(settings)) if settings else RealNetwork(loop)
        )
        nodes = [node.address.split(":") for node in self._target.cluster.nodes.values()]
        self.client = Client(self._network, [(host, int(port)) for host, port in nodes])
        await self.client.metadata([])
        return self

    async def __aexit__(self, *_: object) -> None:
        for channel in self._channels:
            channel.close()
        self.client.connections.close()

    async def connect(self, broker: int) -> Channel:
        """As clients do: the first thing is to ask for versions."""
        host, port = self.client.connections.addresses[broker]
        channel = await Channel.open(self._network, host, port, "crowd")
        self._channels.append(channel)
        await channel.negotiate(PATIENCE_S)
        return channel

    async def leaders(self, topic: str, partitions: int) -> list[int]:
        known = {each.partition: each for each in (await self.client.topic(topic)).partitions}
        return [known[index].leader for index in range(partitions)]

    async def coordinators(self, groups: Sequence[str]) -> dict[str, int]:
        """Of each group, when its coordinator is there."""
        while True:
            fields = {"key_type": 0, "coordinator_keys": list(groups)}
            answer = await self.client.connections.ask(ApiKey.FIND_COORDINATOR, fields)
            if all(int(each.error_code) == 0 for each in answer.coordinators):
                return {each.key: int(each.node_id) for each in answer.coordinators}
            await asyncio.sleep(LOOK_AGAIN_S)


async def ask(channel: Channel, key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
    """Again while a coordinator is not ready."""
    while True:
        answer = await channel.request(key, fields, version=version, timeout_s=PATIENCE_S)
        if ErrorCode(int(answer.error_code)) not in NOT_READY:
            return answer
        await asyncio.sleep(LOOK_AGAIN_S)


def answered(channel: Channel, key: ApiKey, version: int, body: bytes) -> asyncio.Future[bytes]:
    """The body of the answer, without a time limit of its own."""
    done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def answer(frame: memoryview, start: int) -> None:
        if not done.done():  # nobody waits any more
            done.set_result(bytes(frame[start:]))

    def fail(error: Exception) -> None:
        if not done.done():
            done.set_exception(error)

    channel.call(key, version, body, answer, on_failure=fail)
    return done


# -- an open loop -----------------------------------------------------------------------------------


class Beat:
    """A request that is sent again and again on a connection of its own; its frame is made once."""

    def __init__(
        self, channel: Channel, key: ApiKey, version: int, body: bytes, error_at: int | None
    ) -> None:
        """`error_at`: where the answer's body has its error code; None for an answer to Produce."""
        self._channel = channel
        self._what = key, version, body
        self._error_at = error_at

    def send(self, done: Callable[[float, int], None]) -> None:
        sent = time.perf_counter()

        def answered(frame: memoryview, start: int) -> None:
            if self._error_at is None:
                (result,) = produce.read_response(self._what[1], frame, start).results
                error = int(result.error)
            else:
                at = start + self._error_at
                error = int.from_bytes(frame[at : at + 2], "big", signed=True)
            done(time.perf_counter() - sent, error)

        self._channel.call(*self._what, answered, on_failure=lambda _: done(0.0, -1))


async def paced(beats: Sequence[Beat], rate: float, total: int) -> list[float]:
    """`total` requests in all, `rate` a second, by one after the other; the seconds that each answer took."""
    latencies: list[float] = []
    errors: list[int] = []
    all_answered = asyncio.Event()

    def done(seconds: float, error: int) -> None:
        latencies.append(seconds)
        if error:
            errors.append(error)
        if len(latencies) == total:
            all_answered.set()

    began = time.perf_counter()
    for number in range(total):
        early = began + number / rate - time.perf_counter()
        if early > 0:
            await asyncio.sleep(early)
        beats[number % len(beats)].send(done)
    async with asyncio.timeout(PATIENCE_S):
        await all_answered.wait()
    if errors:
        raise RuntimeError(f"{len(errors)} of {total} requests were refused: {set(errors)}")
    return latencies


# -- producers --------------------------------------------------------------------------------------


def one_record(topic: str, partition: int, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    """The body of a Produce with acks=all. `producer`: its id, epoch and next sequence."""
    id, epoch, sequence = producer
    record = Record(0, int(time.time() * 1000), None, b"x" * 100)
    batch = build([record], producer_id=id, producer_epoch=epoch, base_sequence=sequence)
    data = produce.PartitionData(topic, None, partition, memoryview(batch))
    return produce.write_request(PRODUCE, produce.ProduceRequest(None, -1, 30_000, [data]))


def writer(channel: Channel, body: bytes) -> Beat:
    return Beat(channel, ApiKey.PRODUCE, PRODUCE, body, None)


async def opened(crowd: Crowd, broker: int, topic: str) -> Channel:
    """A connection whose client knows where the topic's partitions are."""
    channel = await crowd.connect(broker)
    fields = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    await channel.request(ApiKey.METADATA, fields, version=METADATA, timeout_s=PATIENCE_S)
    return channel


async def idempotent(crowd: Crowd, broker: int, topic: str) -> tuple[Channel, int, int]:
    """And one whose client has an id and an epoch as a producer."""
    channel = await opened(crowd, broker, topic)
    fields = {"transactional_id": None, "transaction_timeout": 60_000}
    known = await ask(channel, ApiKey.INIT_PRODUCER_ID, INIT, fields)
    return channel, int(known.producer_id), int(known.producer_epoch)


# -- members of groups ------------------------------------------------------------------------------


def _text(value: str) -> bytes:
    raw = value.encode()
    return len(raw).to_bytes(2, "big") + raw


def _blob(value: bytes) -> bytes:
    return len(value).to_bytes(4, "big") + value


def _int32(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


NO_TEXT = b"\xff\xff"


class Joined(NamedTuple):
    """What a JoinGroup answer of version 5 begins with."""

    error: int
    generation: int
    leader: str
    member: str

    @classmethod
    def read(cls, body: memoryview) -> Joined:
        error, generation, length = JOINED.unpack_from(body, 4)
        at, texts = 4 + JOINED.size + max(0, length), []
        for _ in range(2):
            length = int.from_bytes(body[at : at + 2], "big")
            texts.append(str(body[at + 2 : at + 2 + length], "utf-8"))
            at += 2 + length
        return cls(error, generation, *texts)


class Member:
    """Of the classic protocol. It leads its group if it is told so, and then assigns. What it sends is made by hand, and
    of what it is told only the leader reads more than the beginning: hundreds of them join at the same moment, and the
    last one must not wait for the others' client."""

    def __init__(self, channel: Channel, group: str, topic: str, partitions: int) -> None:
        self._channel = channel
        self._group = group
        self._topic = topic
        self._partitions = partitions
        self._changes = 0
        self._next = b""
        self.id = ""
        self.generation = -1

    def prepare(self) -> None:
        """Its next JoinGroup. What it adds to its subscription differs each time, so that the group has to rebalance."""
        self._changes += 1
        subscription = b"\0\0" + _int32(1) + _text(self._topic) + _blob(_int32(self._changes))
        self._next = b"".join(
            (
                _text(self._group),
                _int32(SESSION_MS),
                _int32(REBALANCE_MS),
                _text(self.id),
                NO_TEXT,
                _text("consumer"),
                _int32(1),
                _text("range"),
                _blob(subscription),
            )
        )

    async def join(self) -> float:
        """Until it has its assignment. The seconds that its last attempt took."""
        while True:
            if not self._next:
                self.prepare()
            body, self._next = self._next, b""
            began = time.perf_counter()
            answer = await answered(self._channel, ApiKey.JOIN_GROUP, JOIN, body)
            joined = Joined.read(memoryview(answer))
            if joined.error:  # it was given an id, is late for a rebalance, or nobody is ready yet
                if ErrorCode(joined.error) in NOT_READY:
                    await asyncio.sleep(LOOK_AGAIN_S)
                elif joined.member:
                    self.id = joined.member
                continue
            assignments = self._assignments(answer) if joined.leader == self.id else ()
            body = b"".join(
                (
                    _text(self._group),
                    _int32(joined.generation),
                    _text(self.id),
                    NO_TEXT,
                    _int32(len(assignments)),
                    *assignments,
                )
            )
            synced = await answered(self._channel, ApiKey.SYNC_GROUP, SYNC, body)
            if synced[4:6] == b"\0\0":
                self.generation = joined.generation
                return time.perf_counter() - began

    def _assignments(self, answer: bytes) -> tuple[bytes, ...]:
        joined = messages.read_response(ApiKey.JOIN_GROUP, JOIN, memoryview(answer), 0)
        ids = sorted(each.member_id for each in joined.members)
        shares = [frozenset(range(at, self._partitions, len(ids))) for at in range(len(ids))]
        return tuple(
            _text(id) + _blob(write_assignment(0, {self._topic: share} if share else {}))
            for id, share in zip(ids, shares, strict=True)
        )

    def beat(self) -> Beat:
        fields = {
            "group_id": self._group,
            "generation_id": self.generation,
            "member_id": self.id,
        }
        body = messages.write_request(ApiKey.HEARTBEAT, HEARTBEAT, fields)
        return Beat(self._channel, ApiKey.HEARTBEAT, HEARTBEAT, body, 4)


class NewMember:
    """Of the consumer protocol (KIP-848): says what it owns, and takes what it is given."""

    def __init__(self, channel: Channel, group: str, topic: str) -> None:
        self._channel = channel
        self._group = group
        self._topic = topic
        self.id = ""
        self.epoch = 0
        self.owned: dict[UUID, tuple[int, ...]] = {}

    async def join(self) -> float:
        """The seconds until its first answer."""
        self.id, self.epoch, self.owned = str(uuid4()), 0, {}
        began = time.perf_counter()
        await self.report()
        return time.perf_counter() - began

    async def report(self) -> None:
        """A heartbeat with all that it is."""
        self._take(await ask(self._channel, *self._what(), self._fields(self.epoch)))

    async def leave(self) -> None:
        await ask(self._channel, *self._what(), self._fields(-1))

    def _what(self) -> tuple[ApiKey, int]:
        return ApiKey.CONSUMER_GROUP_HEARTBEAT, CONSUMER_HEARTBEAT

    def _fields(self, epoch: int) -> dict[str, Any]:
        return {
            "group_id": self._group,
            "member_id": self.id,
            "member_epoch": epoch,
            "rebalance_timeout": REBALANCE_MS,
            "subscribed_topic_names": [self._topic],
            "topic_partitions": [
                {"topic_id": topic, "partitions": list(numbers)}
                for topic, numbers in self.owned.items()
            ],
        }

    def _take(self, answer: Any) -> None:
        if int(answer.error_code):
            raise RuntimeError(f"a member was refused: {answer}")
        self.epoch = int(answer.member_epoch)
        if answer.assignment is not None:
            assigned = answer.assignment.topic_partitions
            self.owned = {each.topic_id: tuple(each.partitions) for each in assigned}

    @property
    def size(self) -> int:
        return sum(map(len, self.owned.values()))

    def beat(self) -> Beat:
        """One that says that nothing has changed."""
        key, version = self._what()
        unsaid = {"topic_partitions": None, "subscribed_topic_names": None, "rebalance_timeout": -1}
        body = messages.write_request(key, version, self._fields(self.epoch) | unsaid)
        return Beat(self._channel, key, version, body, 4)


async def members_of(
    crowd: Crowd, groups: Sequence[str], each: int, make: Callable[[Channel, str], T]
) -> list[T]:
    """`each` members of every group, with a connection of its own to the group's coordinator."""
    at = await crowd.coordinators(groups)

    async def one(group: str) -> T:
        return make(await crowd.connect(at[group]), group)

    return await all_of(partial(one, group) for group in groups for _ in range(each))


async def until_assigned(members: Sequence[NewMember], partitions: int, every_s: float) -> float:
    """All of them report until each partition is theirs and nobody waits for a newer epoch. The seconds it took."""
    began = time.perf_counter()
    while True:
        await asyncio.gather(*(member.report() for member in members))
        epochs = {member.epoch for member in members}
        if len(epochs) == 1 and sum(member.size for member in members) == partitions:
            return time.perf_counter() - began
        if time.perf_counter() - began > PATIENCE_S:
            raise RuntimeError(f"the members do not agree: epochs {sorted(epochs)}")
        await asyncio.sleep(every_s)
