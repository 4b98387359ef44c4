"""Fetches of records that only the disk has: they wait, and nobody waits with them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from one_node import create

from ottla.broker.replication.cold_reads import AT_ONCE_MAX, PER_OWNER_MAX, ColdReads
from ottla.records.batch import batches
from ottla.records.record import Record, build
from ottla.replica.sessions import FINAL_EPOCH, INITIAL_EPOCH
from ottla.runtime import FileRange
from ottla.sim.cluster.nodes import BROKER_PORT, SimCluster
from ottla.sim.engine.disk import SimFile
from ottla.sim.engine.world import WALL_START_MS, World
from ottla.wire import fetch, produce
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.fetch_messages import FetchPartition, FetchRequest, FetchResponse

BATCHES = 12
DISK_S = 1.0
PRODUCE_VERSION, FETCH_VERSION = 9, 12


class Rig:
    """Three nodes, of which the first leads; each batch of its topic has a segment of its own. The records of all but
    the last are to come from a disk that takes a second."""

    def __init__(self, world: World) -> None:
        world.network.conditions.jitter_s = 0.0
        world.network.conditions.cut_rate = 0.0
        self.world = world
        self.cluster = SimCluster(world, 3)
        self.cluster.start()
        assert self.cluster.wait_ready(30)
        self.host = world.node("client")
        self.channel = self.open()
        self.host.complete(create(self.channel, "t", [[1, 2, 3]], internal_segment_bytes="1200"))
        for _ in range(BATCHES):
            self.host.complete(self.produce())
        self.world.run_for(5)
        self.leader = self.cluster.nodes[1].host
        self.leader.slow_disk(DISK_S, DISK_S)

    def open(self) -> Channel:
        opened = Channel.open(self.host.runtime.network, "n1", BROKER_PORT, "client")
        channel: Channel = self.host.complete(opened)
        return channel

    async def produce(self) -> float:
        """Seconds until all replicas had it."""
        records = memoryview(build([Record(0, WALL_START_MS, None, b"x" * 1000)]))
        data = produce.PartitionData("t", None, 0, records)
        request = produce.ProduceRequest(None, -1, 30_000, [data])
        body = produce.write_request(PRODUCE_VERSION, request)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[int] = loop.create_future()
        began = loop.time()
        self.channel.call(
            ApiKey.PRODUCE,
            PRODUCE_VERSION,
            body,
            lambda frame, at: done.set_result(
                produce.read_response(PRODUCE_VERSION, frame, at).results[0].error
            ),
        )
        assert await done == 0
        return loop.time() - began

    async def fetch(
        self,
        offset: int,
        wait_ms: int,
        channel: Channel | None = None,
        min_bytes: int = 1,
        session_id: int = 0,
        session_epoch: int = FINAL_EPOCH,
    ) -> tuple[list[int], float, FetchResponse]:
        """The offsets of the batches that came, and after how many seconds."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[FetchResponse] = loop.create_future()
        asked = FetchPartition(
            topic="t",
            topic_id=None,
            partition=0,
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            max_bytes=1 << 20,
        )
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=50 << 20,
            partitions=[asked],
            session_id=session_id,
            session_epoch=session_epoch,
        )
        began = loop.time()
        (channel or self.channel).call(
            ApiKey.FETCH,
            FETCH_VERSION,
            fetch.write_request(FETCH_VERSION, request),
            lambda frame, at: answer.set_result(
                fetch.read_response(FETCH_VERSION, memoryview(bytes(frame)), at)
            ),
        )
        response = await answer
        (partition,) = response.partitions
        assert partition.error == 0 and partition.high_watermark >= BATCHES
        records: Any = partition.records or b""
        return [batch.base_offset for batch in batches(records)], loop.time() - began, response


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were brought. What is not among them is not in memory."""
    brought: list[str] = []

    def in_memory(self: SimFile, _position: int, size: int) -> int:
        return size if self.path in brought else 0

    monkeypatch.setattr(SimFile, "in_memory", in_memory)
    monkeypatch.setattr(SimFile, "bring", lambda self, *_: brought.append(self.path))
    return brought


@pytest.fixture
def rig(reads: list[str]) -> Iterator[Rig]:
    with World(1) as world:
        made = Rig(world)
        reads.clear()
        yield made
        assert world.problems() == []


def test_it_is_answered_when_the_disk_has_read_and_others_meanwhile(rig: Rig) -> None:
    other = rig.open()

    async def both() -> None:
        cold = asyncio.ensure_future(rig.fetch(3, 30_000, other))
        acknowledged_s = await rig.produce()
        assert not cold.done() and acknowledged_s < DISK_S / 2
        offsets, took_s, _ = await cold
        assert offsets == [3] and DISK_S <= took_s < 2 * DISK_S

    rig.host.complete(both())


def test_what_is_new_is_never_looked_for_on_the_disk(rig: Rig, reads: list[str]) -> None:
    offsets, took_s, _ = rig.host.complete(rig.fetch(BATCHES - 1, 30_000))
    assert offsets == [BATCHES - 1] and took_s < DISK_S / 2 and not reads


def test_when_its_time_is_up_it_is_answered_without_records_and_gets_them_when_it_asks_again(
    rig: Rig, reads: list[str]
) -> None:
    """Without a session the next request begins anew; but what the first began to read is in memory by then."""

    async def twice() -> None:
        offsets, took_s, _ = await rig.fetch(3, 300)
        assert offsets == [] and took_s < DISK_S / 2
        while not offsets:
            offsets, _, _ = await rig.fetch(3, 300)
        assert offsets == [3] and len(reads) == 1

    rig.host.complete(twice())


def test_a_session_gets_what_came_after_its_request_had_been_answered_without_it(rig: Rig) -> None:
    async def twice() -> None:
        offsets, _, first = await rig.fetch(3, 300, session_epoch=INITIAL_EPOCH)
        assert offsets == [] and first.session_id
        await asyncio.sleep(DISK_S)
        offsets, took_s, _ = await rig.fetch(3, 300, session_id=first.session_id, session_epoch=1)
        assert offsets == [3] and took_s < 0.1

    rig.host.complete(twice())


def test_who_goes_elsewhere_meanwhile_gets_what_is_there(rig: Rig, reads: list[str]) -> None:
    async def seeks() -> None:
        offsets, _, first = await rig.fetch(3, 300, session_epoch=INITIAL_EPOCH)
        assert offsets == []
        offsets, took_s, _ = await rig.fetch(
            7, 30_000, session_id=first.session_id, session_epoch=1
        )
        assert offsets == [7] and took_s >= DISK_S

    rig.host.complete(seeks())
    assert len(reads) == 2


def test_who_would_not_wait_at_all_is_answered_at_once(rig: Rig, reads: list[str]) -> None:
    offsets, took_s, _ = rig.host.complete(rig.fetch(3, 0))
    assert offsets == [3] and took_s < DISK_S / 2 and not reads


def test_nothing_is_read_for_who_has_left(rig: Rig, reads: list[str]) -> None:
    others = [rig.open() for _ in range(AT_ONCE_MAX + 2)]

    async def leave() -> None:
        fetches = [asyncio.ensure_future(rig.fetch(3 + n, 30_000, c)) for n, c in enumerate(others)]
        await asyncio.sleep(DISK_S / 2)
        for task, channel in zip(fetches, others, strict=True):
            channel.abort()
            task.cancel()
        await asyncio.sleep(5 * DISK_S)

    rig.host.complete(leave())
    assert len(reads) == AT_ONCE_MAX
    reads.clear()
    assert rig.host.complete(rig.fetch(3, 30_000))[0] == [3]


def test_a_session_is_served_though_the_connection_that_asked_has_gone_meanwhile(rig: Rig) -> None:
    """Another may go on with it."""
    other = rig.open()

    async def change_horses() -> None:
        _, _, first = await rig.fetch(BATCHES - 1, 300, session_epoch=INITIAL_EPOCH)
        id = first.session_id
        asking = asyncio.ensure_future(rig.fetch(3, 30_000, other, session_id=id, session_epoch=1))
        await asyncio.sleep(DISK_S / 2)
        other.abort()
        asking.cancel()
        await asyncio.sleep(DISK_S)
        offsets, took_s, _ = await rig.fetch(3, 30_000, session_id=id, session_epoch=2)
        assert offsets == [3] and took_s < 2 * DISK_S

    rig.host.complete(change_horses())


def test_a_follower_that_has_lost_everything_catches_up_from_a_cold_leader(rig: Rig) -> None:
    rig.leader.slow_disk(0.0, 0.2)
    follower = rig.cluster.nodes[3]
    follower.kill()
    follower.host.disk.remove_tree("/data")
    follower.start()
    partition = rig.cluster.nodes[1].node.broker.replicas.partitions  # type: ignore[union-attr]
    (leads,) = [each for key, each in partition.items() if each.topic == "t"]
    deadline = rig.world.loop.time() + 120
    while leads.leading().followers[3].log_end < BATCHES or 3 not in leads.isr:
        assert rig.world.loop.time() < deadline, leads
        rig.world.run_for(0.5)


def test_who_wants_much_at_once_without_a_session_has_few_files_open_and_gets_it_all(
    rig: Rig, reads: list[str]
) -> None:
    """Each request begins anew, and what the last one asked for still comes."""

    async def ask_often() -> None:
        for offset in range(BATCHES - 1):
            for _ in range(20):
                await rig.fetch(offset, 1)
        node: Any = rig.cluster.nodes[1].node
        cold = node.servers["PLAINTEXT"].handlers[ApiKey.FETCH].cold_reads
        assert len(cold._reads) <= PER_OWNER_MAX
        assert all(len(read.waiters) == 1 for read in cold._reads.values())
        await asyncio.sleep(BATCHES * DISK_S)
        assert not cold._reads and not cold._of_owner and len(reads) == len(set(reads))
        for offset in range(BATCHES - 1):
            assert (await rig.fetch(offset, 30_000))[0] == [offset]

    rig.host.complete(ask_often(), 600)


def test_what_came_is_sent_though_more_was_asked_for(rig: Rig) -> None:
    """Nobody brings the rest before the request is answered."""
    offsets, took_s, _ = rig.host.complete(rig.fetch(3, 30_000, min_bytes=1 << 20))
    assert offsets == [3] and took_s < 2 * DISK_S


def test_a_disk_that_fails_is_told_by_whoever_reads_next(rig: Rig) -> None:
    waiter: Any = SimpleNamespace(is_wanted=True, came=asyncio.Event(), supersede=lambda: None)
    waiter.brought = waiter.came.set

    def fail(*_: int) -> None:
        raise OSError("unreadable")

    async def bring() -> None:
        file: Any = SimpleNamespace(bring=fail, path="/file")
        reads = ColdReads()
        for _ in range(AT_ONCE_MAX + 1):  # it gives its place back
            waiter.came.clear()
            assert reads.bring(FileRange(file, 0, 1), waiter, "owner")
            await waiter.came.wait()
        assert (reads.count, reads.bytes) == (AT_ONCE_MAX + 1, AT_ONCE_MAX + 1)

    rig.host.complete(bring())
