"""The client's producer for throughput: order, once, and whole transactions, also while brokers die."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.client import BlockingClient
from ottla.client.pipelined import PipelinedProducer, Section
from ottla.records.batch import HEADER_BYTES
from ottla.records.compression import Codec
from ottla.records.record import Record, build
from ottla.wire.errors import ErrorCode, KafkaError
from support.cluster import ProcessCluster
from support.transactions import read

VERSIONS = pytest.mark.parametrize("version", [0, 2], ids=["add, then send", "epochs"])


def section(values: list[str], codec: int = 0) -> Section:
    batch = build(
        (Record(i, 1000, None, value.encode()) for i, value in enumerate(values)), codec=codec
    )
    return Section(memoryview(batch)[HEADER_BYTES:], len(values), 1000, codec)


def run(cluster: ProcessCluster, work: Callable[[BlockingClient], Awaitable[None]]) -> None:
    addresses = [("127.0.0.1", node.port) for node in cluster.nodes.values()]
    with BlockingClient(addresses) as blocking:

        async def limited() -> None:
            async with asyncio.timeout(60):
                await work(blocking)

        blocking.run(limited())


async def started(
    blocking: BlockingClient, transactional_id: str | None, version: int = 2
) -> PipelinedProducer:
    producer = PipelinedProducer(blocking.client, transactional_id)
    identity = await producer.start()
    producer.identity = identity._replace(version=min(identity.version, version))
    return producer


@pytest.mark.parametrize(("version", "codec"), [(0, Codec.NONE), (2, Codec.ZSTD)])
def test_transactions_one_after_the_other_are_read_if_they_were_committed(
    cluster: ProcessCluster, new_topic: Callable[..., str], version: int, codec: Codec
) -> None:
    topic = new_topic(partitions=2)

    async def work(blocking: BlockingClient) -> None:
        producer = await started(blocking, f"{topic} {version}", version)
        for round in range(4):
            for number in range(20):
                for partition in range(2):
                    values = [f"{round} {number} a", f"{round} {number} b"]
                    await producer.send(topic, partition, section(values, codec))
            await producer.flush()
            assert set(producer.first_offsets) == {(topic, 0), (topic, 1)}
            await producer.end(commit=round % 2 == 0)
        await producer.close()

    run(cluster, work)
    wanted = [f"{round} {n} {x}" for round in (0, 2) for n in range(20) for x in "ab"]
    for partition in range(2):
        assert read(cluster.bootstrap, topic, partition) == wanted


@VERSIONS
def test_what_is_sent_while_leaders_die_is_in_the_log_once_and_in_order(
    new_cluster: Callable[..., ProcessCluster], version: int
) -> None:
    three = new_cluster(3, broker_session_timeout_ms="3000", broker_heartbeat_interval_ms="500")
    topic = three.create_topic("t", partitions=3)

    async def work(blocking: BlockingClient) -> None:
        producer = await started(blocking, "id", version)
        for number in range(600):
            if number in (200, 400):
                victim = three.leader(topic, number // 200)
                three.kill(victim)
            if number == 300:
                await asyncio.to_thread(
                    three.start, *(i for i, n in three.nodes.items() if not n.running)
                )
            await producer.send(topic, number % 3, section([str(number), f"{number} too"]))
        await producer.flush()
        await producer.end(commit=True)
        await producer.close()

    run(three, work)
    for partition in range(3):
        numbers = range(partition, 600, 3)
        wanted = [value for n in numbers for value in (str(n), f"{n} too")]
        assert read(three.bootstrap, topic, partition) == wanted


@VERSIONS
@pytest.mark.parametrize("is_under_way", [True, False], ids=["under way", "not begun"])
def test_an_abort_of_what_is_not_written_yet_leaves_nothing_open(
    cluster: ProcessCluster, new_topic: Callable[..., str], version: int, is_under_way: bool
) -> None:
    """Where leaders do not fence by epochs, a batch that leaves after the end would begin a transaction anew."""
    topic = new_topic(partitions=2)
    id = f"{topic} given up"

    async def work(blocking: BlockingClient) -> None:
        producer = await started(blocking, id, version)
        for number in range(120):
            await producer.send(topic, number % 2, section(["x" * 16_000]))
        while is_under_way and not producer.first_offsets:  # noqa: ASYNC110  # a broker's doing
            await asyncio.sleep(0)
        await producer.end(commit=False)
        with pytest.raises(KafkaError, match="given up"):
            await producer.send(topic, 0, section(["late"]))
        transactions = producer.transactions
        for partition in range(2):
            while await transactions.open_in(topic, partition):  # noqa: ASYNC110  # a broker's doing
                await asyncio.sleep(0.05)
        assert (await transactions.describe(id)).state in ("PrepareAbort", "CompleteAbort", "Empty")
        await producer.close()

    run(cluster, work)
    assert [read(cluster.bootstrap, topic, partition) for partition in range(2)] == [[], []]


def test_a_new_producer_of_the_same_id_fences_the_old_one(
    cluster: ProcessCluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()

    async def work(blocking: BlockingClient) -> None:
        old = await started(blocking, f"{topic} fenced")
        await old.send(topic, 0, section(["old"]))
        await old.flush()
        new = await started(blocking, f"{topic} fenced")
        with pytest.raises(KafkaError) as error:
            await old.send(topic, 0, section(["late"]))
            await old.flush()
        assert error.value.code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
        with pytest.raises(KafkaError):
            await old.end(commit=False)
        await new.send(topic, 0, section(["new"]))
        await new.flush()
        await new.end(commit=True)
        for producer in (old, new):
            await producer.close()

    run(cluster, work)
    assert read(cluster.bootstrap, topic) == ["new"]


def test_without_a_transactional_id_it_is_idempotent(
    cluster: ProcessCluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()

    async def work(blocking: BlockingClient) -> None:
        producer = await started(blocking, None)
        for number in range(50):
            await producer.send(topic, 0, section([str(number)]))
        await producer.flush()
        await producer.close()

    run(cluster, work)
    assert read(cluster.bootstrap, topic) == [str(number) for number in range(50)]


def test_a_topic_that_does_not_exist_is_named(cluster: ProcessCluster) -> None:
    async def work(blocking: BlockingClient) -> None:
        producer = await started(blocking, None)
        await producer.send("nowhere", 0, section(["x"]))
        with pytest.raises(KafkaError, match="nowhere"):
            await producer.flush()
        await producer.close()

    run(cluster, work)
