"""What the pipelined producer does when something goes wrong that it was not told about: it fails, and does not wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, cast

import pytest

from ottla.client.client import Client
from ottla.client.pipelined import PipelinedProducer, Section
from ottla.client.transaction_admin import ProducerIdentity
from ottla.wire import produce
from ottla.wire.errors import ErrorCode, KafkaError

ROW = Section(b"x" * 10, 1, 0)
UNKNOWN_TO_US = 9999


class NotAKafkaError(Exception):
    pass


class _Topic(NamedTuple):
    id: None = None
    name: str = "t"


class _Channel:
    def version_for(self, key: int) -> int:
        return 9


class Brokers:
    """Partition N is led by broker N. Answers are futures that the test sets."""

    timeout_s = 30.0

    def __init__(self) -> None:
        self.calls: list[asyncio.Future[list[produce.PartitionResult]]] = []
        self.busy: dict[int, asyncio.Event] = {}
        self.refuses: Exception | None = None

    @property
    def connections(self) -> Brokers:
        return self

    async def leader(self, topic: str, partition: int) -> int:
        return partition

    async def topic(self, name: str, *, fresh: bool = False) -> _Topic:
        return _Topic()

    async def to(self, broker: int) -> _Channel:
        if self.refuses is not None:
            raise self.refuses
        if broker in self.busy:
            await self.busy[broker].wait()
        return _Channel()

    def call(self, *request: Any) -> Awaitable[list[produce.PartitionResult]]:
        answer: asyncio.Future[list[produce.PartitionResult]] = (
            asyncio.get_running_loop().create_future()
        )
        self.calls.append(answer)
        return answer


def told(partition: int, error: int = 0, base_offset: int = 0) -> list[produce.PartitionResult]:
    return [
        produce.PartitionResult(
            topic="t", topic_id=None, partition=partition, error=error, base_offset=base_offset
        )
    ]


def run(
    work: Callable[[Brokers, PipelinedProducer], Awaitable[None]], delivery_timeout_s: float = 60
) -> None:
    async def limited() -> None:
        brokers = Brokers()
        producer = PipelinedProducer(cast(Client, brokers), delivery_timeout_s=delivery_timeout_s)
        producer.identity = ProducerIdentity("", 1, 0, 0)
        async with asyncio.timeout(20):
            await work(brokers, producer)
        await producer.close()

    asyncio.run(limited())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # nobody tells: it is the producer's own doing
        await asyncio.sleep(0)


def test_whatever_a_connection_raises_fails_the_producer() -> None:
    """The login may be refused by an error of whoever made the connection safe."""

    async def work(brokers: Brokers, producer: PipelinedProducer) -> None:
        brokers.refuses = NotAKafkaError("the broker does not let us in")
        await producer.send("t", 0, ROW)
        with pytest.raises(NotAKafkaError):
            await producer.flush()

    run(work)


def test_an_error_that_nobody_knows_fails_the_producer() -> None:
    async def work(brokers: Brokers, producer: PipelinedProducer) -> None:
        await producer.send("t", 0, ROW)
        await until(lambda: len(brokers.calls) == 1)
        brokers.calls[0].set_result(told(0, UNKNOWN_TO_US))
        with pytest.raises(KafkaError, match=f"error {UNKNOWN_TO_US}"):
            await producer.flush()

    run(work)


def test_an_answer_that_never_comes_is_overdue_some_day() -> None:
    async def work(brokers: Brokers, producer: PipelinedProducer) -> None:
        await producer.send("t", 0, ROW)
        with pytest.raises(KafkaError, match=r"t-0 is not acknowledged after 0\.2 s"):
            await producer.flush()

    run(work, delivery_timeout_s=0.2)


def test_a_partition_that_fails_while_another_leader_is_connected_to_is_not_sent_twice() -> None:
    """Its next batch was chosen before the failure; sent all the same, one batch would be under way two times."""

    async def work(brokers: Brokers, producer: PipelinedProducer) -> None:
        calls = brokers.calls
        await producer.send("t", 1, ROW)
        await until(lambda: len(calls) == 1)
        calls[0].set_result(told(1))
        await producer.flush()
        await producer.send("t", 2, ROW)
        await until(lambda: len(calls) == 2)
        await producer.send("t", 2, ROW)
        await until(lambda: len(calls) == 3)
        brokers.busy[1] = asyncio.Event()
        await asyncio.gather(producer.send("t", 1, ROW), producer.send("t", 2, ROW))
        for _ in range(20):
            await asyncio.sleep(0)
        calls[1].set_result(told(2, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
        for _ in range(20):
            await asyncio.sleep(0)
        brokers.busy.pop(1).set()
        await until(
            lambda: len(calls) == 4
        )  # to broker 1, and nothing to broker 2 before it is calm
        calls[2].set_result(told(2, 0, 1))
        calls[3].set_result(told(1, 0, 1))
        flushed = asyncio.ensure_future(producer.flush())
        answered = 4
        while not flushed.done():
            for answer in calls[answered:]:
                answer.set_result(told(2, 0, 2))
            answered = len(calls)
            await asyncio.sleep(0.01)
        await flushed
        assert answered == 6  # the first again, and the third

    run(work)
