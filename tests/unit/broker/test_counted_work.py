"""What the hot path does for one request, counted in calls of functions and of the system.

Seconds depend on the machine's mood, calls do not: these tests fail when a change adds work for each record, each
partition or each request, and say which functions are called most. A budget stands beside the code that it
guards; whoever makes that code cheaper lowers it, whoever must raise it says why there. Each leaves some room for
what a node does by the clock, which may come between. The rules of a connection (`runtime.framed_connection`) are
counted, the simulated socket below them is not.
"""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator
from math import inf
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from one_node import alone, create

from ottla.broker.apis import fetch as fetch_handler
from ottla.broker.apis import produce as produce_handler
from ottla.broker.observability import request_metrics
from ottla.broker.replication import fetchers, housekeeping
from ottla.config.values import STANDARD_AUTHORIZER
from ottla.log.config import LogConfig
from ottla.log.log import CALLS_PER_COPIED_BATCH_MAX, Log
from ottla.log.resources import LogResources
from ottla.records.record import Record, build
from ottla.replica.sessions import FINAL_EPOCH, INITIAL_EPOCH
from ottla.runtime import framed_connection
from ottla.sim.cluster.nodes import BROKER_PORT, SimCluster
from ottla.sim.engine.world import WALL_START_MS, World
from ottla.wire import fetch, produce
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.fetch_messages import FetchPartition, FetchRequest, FetchResponse
from ottla.wire.headers import request_frame
from support.counting import Calls, counted

ROUNDS = 20
COMPARED_ROUNDS = 100
"""Where two runs are compared, one may have a heartbeat more, which is a hundred calls."""
MANY = 200
TOGETHER = 100
EVENT_LOG_CALLS_MAX = 2
OTHERS = 6
"""Calls of the system for what else a node has to do meanwhile."""
IDLE_S = 15
"""A multiple of every interval at which a node looks after its partitions, but for retention's."""
LEADER, FOLLOWERS = "n1", ("n2", "n3")
PRODUCE_VERSION, FETCH_VERSION = 9, 12
ID = UUID(int=1)


def produce_body(topic: str, *, partition: int = 0, records: int = 1, size: int = 100) -> bytes:
    made = [Record(offset, WALL_START_MS, None, b"x" * size) for offset in range(records)]
    data = produce.PartitionData(topic, None, partition, memoryview(build(made)))
    return produce.write_request(PRODUCE_VERSION, produce.ProduceRequest(None, -1, 30_000, [data]))


async def produced(channel: Channel, body: bytes, requests: int = 1) -> None:
    """So many acks=all requests at once, until the last is answered."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    errors: list[int] = []

    def answered(frame: memoryview, at: int) -> None:
        errors.append(produce.read_response(PRODUCE_VERSION, frame, at).results[0].error)
        if len(errors) == requests:
            done.set_result(None)

    for _ in range(requests):
        channel.call(ApiKey.PRODUCE, PRODUCE_VERSION, body, answered)
    await done
    assert errors == [0] * requests


class Rig:
    """Three whole nodes in a simulated world, of which the first leads everything, and a client's connection
    to it. One thing happens at a time."""

    def __init__(self, world: World, *, event_log: bool = True) -> None:
        world.network.conditions.jitter_s = 0.0
        world.network.conditions.cut_rate = 0.0
        self.world = world
        overrides = {"ottla.event.log.enable": str(event_log).lower()}
        self.cluster = SimCluster(world, overrides=overrides)
        self.cluster.start()
        assert self.cluster.wait_ready(30)
        self.host = world.node("client")
        self.idle_with_few = Calls()
        self.channel = self.host.complete(
            Channel.open(self.host.runtime.network, LEADER, BROKER_PORT, "client")
        )

    def create(self, topic: str, partitions: int) -> None:
        self.host.complete(create(self.channel, topic, [[1, 2, 3]] * partitions))
        self.world.run_for(20)  # until the leader knows its followers, and files are on disk

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        answer: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()
        self.channel.call(
            ApiKey.FETCH,
            FETCH_VERSION,
            fetch.write_request(FETCH_VERSION, request),
            lambda frame, at: answer.set_result(
                fetch.read_response(FETCH_VERSION, memoryview(bytes(frame)), at)
            ),
        )
        return await answer

    def calls_while_idle(self) -> Calls:
        with counted() as calls:
            self.world.run_for(IDLE_S)
        return calls

    def calls_of(self, work: Coroutine[Any, Any, None]) -> Calls:
        async def measured() -> Calls:
            with counted() as calls:
                await work
            return calls

        return self.host.complete(measured(), 600)


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with World(1) as world:
        made = Rig(world)
        made.create("few", 1)
        made.idle_with_few = made.calls_while_idle()
        made.create("many", MANY)
        yield made
        assert world.problems() == []


def asked(topic: str, partition: int, offset: int) -> FetchPartition:
    return FetchPartition(
        topic=topic,
        topic_id=None,
        partition=partition,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        max_bytes=1 << 20,
    )


def consumer_fetch(
    partitions: list[FetchPartition], session_id: int, epoch: int, wait_ms: int = 0
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=50 << 20,
        session_id=session_id,
        session_epoch=epoch,
        partitions=partitions,
    )


def assert_within(calls: Calls, host: str | None, rounds: int, budget: int) -> None:
    each = calls.of(host) / rounds
    assert each <= budget, f"{each} calls on {host}, the budget is {budget}:\n{calls.most(host)}"


@pytest.mark.parametrize("records", [1, 1000])
def test_an_acknowledged_request_costs_the_same_however_many_records_are_in_it(
    rig: Rig, records: int
) -> None:
    body = produce_body("few", records=records)

    async def work() -> None:
        for _ in range(ROUNDS):
            await produced(rig.channel, body)

    calls = rig.calls_of(work())
    assert_within(calls, LEADER, ROUNDS, produce_handler.CALLS_MAX)
    for follower in FOLLOWERS:
        assert_within(calls, follower, ROUNDS, fetchers.CALLS_MAX)


def test_the_event_log_adds_next_to_nothing_to_a_request() -> None:
    def calls(event_log: bool) -> dict[str, float]:
        with World(1) as world:
            rig = Rig(world, event_log=event_log)
            rig.create("few", 1)
            body = produce_body("few")

            async def work() -> None:
                for _ in range(MANY):
                    await produced(rig.channel, body)

            counted = rig.calls_of(work())
            return {host: counted.of(host) / MANY for host in (LEADER, *FOLLOWERS)}

    with_it, without = calls(True), calls(False)
    for host in with_it:
        assert with_it[host] - without[host] <= EVENT_LOG_CALLS_MAX, host


def test_a_fetch_costs_the_same_however_many_batches_it_brings(rig: Rig) -> None:
    async def fill() -> None:
        for _ in range(10):
            await produced(rig.channel, produce_body("few"), ROUNDS)

    async def work() -> None:
        first = await rig.fetch(consumer_fetch([asked("few", 0, 0)], 0, INITIAL_EPOCH))
        for round in range(ROUNDS):
            answer = await rig.fetch(
                consumer_fetch([asked("few", 0, round)], first.session_id, 1 + round)
            )
            records = answer.partitions[0].records
            assert isinstance(records, memoryview) and len(records) > 100 * ROUNDS * 10

    rig.host.complete(fill(), 600)
    assert_within(rig.calls_of(work()), LEADER, ROUNDS, fetch_handler.CALLS_MAX)


def test_a_fetch_of_a_session_costs_what_changed_and_not_what_it_has(rig: Rig) -> None:
    body = produce_body("many", partition=7)
    everything = [asked("many", number, 0) for number in range(MANY)]
    begun = rig.host.complete(rig.fetch(consumer_fetch(everything, 0, INITIAL_EPOCH)))
    session_id, epoch = begun.session_id, 1
    assert session_id and len(begun.partitions) == MANY

    async def idle() -> None:
        nonlocal epoch
        for _ in range(ROUNDS):
            answer = await rig.fetch(consumer_fetch([], session_id, epoch, wait_ms=1))
            assert answer.partitions == []
            epoch += 1

    async def one_of_many_changes() -> None:
        nonlocal epoch
        for _ in range(ROUNDS):
            await produced(rig.channel, body)
            answer = await rig.fetch(consumer_fetch([], session_id, epoch, wait_ms=1))
            assert len(answer.partitions) == 1
            epoch += 1

    assert_within(rig.calls_of(idle()), LEADER, ROUNDS, fetch_handler.IDLE_CALLS_MAX)
    both = produce_handler.CALLS_MAX + fetch_handler.CALLS_MAX
    assert_within(rig.calls_of(one_of_many_changes()), LEADER, ROUNDS, both)
    rig.host.complete(rig.fetch(consumer_fetch([], session_id, FINAL_EPOCH)))


def test_a_partition_that_rests_costs_next_to_nothing(rig: Rig) -> None:
    calls = rig.calls_while_idle()
    for host in (LEADER, *FOLLOWERS):
        each = (calls.of(host) - rig.idle_with_few.of(host)) / IDLE_S / MANY
        assert each <= housekeeping.CALLS_PER_PARTITION_AND_S_MAX, (
            f"{each} calls on {host} for each partition and second:\n{calls.most(host)}"
        )


def test_a_copied_batch_is_checked_and_nothing_else() -> None:
    """Of a follower that catches up: an answer holds as many batches as fit."""
    batches = 200
    with World(1) as world:
        log = Log.create(
            LogResources(world.node("a").disk),
            "/data",
            "t",
            0,
            LogConfig(),
            topic_id=ID,
            now_ms=WALL_START_MS,
        )
        copied = bytearray()
        for offset in range(batches):
            record = Record(offset, WALL_START_MS, None, b"x" * 100)
            copied += build([record], base_offset=offset, leader_epoch=0)
        with counted() as calls:
            log.append_as_follower(memoryview(copied), 0)
    assert log.log_end == batches
    assert_within(calls, None, batches, CALLS_PER_COPIED_BATCH_MAX)


# -- on a real machine ----------------------------------------------------------------------------


def test_requests_that_come_together_are_answered_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call of the system receives them, one writes each batch, one sends all answers."""
    # On a busy machine, and while calls are counted, their turn would be over before all are served.
    monkeypatch.setattr(framed_connection, "TURN_S", inf)

    async def run() -> Calls:
        node, channel = await alone(tmp_path)
        try:
            await create(channel, "t", [[1]])
            body = produce_body("t")
            await produced(channel, body)
            with counted() as calls:
                await produced(channel, body, TOGETHER)
            return calls
        finally:
            channel.close()
            await node.stop()

    calls = asyncio.run(run())
    assert calls.named("pwritev") <= TOGETHER + OTHERS, calls.most(None)
    # The client is in the same process: two on each side, where all do not fit into one buffer.
    assert calls.named("recv_into") <= 4 + OTHERS, calls.most(None)
    assert calls.named("sendmsg") <= 4 + OTHERS, calls.most(None)


def test_records_are_not_copied_on_their_way_to_the_disk(tmp_path: Path) -> None:
    async def run() -> int:
        node, channel = await alone(tmp_path)
        try:
            await create(channel, "t", [[1]])
            body = produce_body("t", size=900_000)
            await produced(channel, body)
            (connection,) = [
                each
                for each in node.servers["PLAINTEXT"].connections
                if each.peer.endswith(f":{channel.local[1]}")
            ]
            frame = bytearray(request_frame(ApiKey.PRODUCE, PRODUCE_VERSION, 0, "client", body))
            view = memoryview(frame)[4:]
            tracemalloc.start()
            connection.frame_received(view)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            channel.abort()
            await node.stop()

    assert asyncio.run(run()) < produce_handler.BYTES_MAX


# -- what is measured ------------------------------------------------------------------------------


def calls_of_a_produce(overrides: dict[str, str]) -> float:
    """Calls of the leader for one acks=all request, with the readings of its connections' clocks, which a simulated clock
    would hide."""
    readings = 0
    with World(1) as world:
        world.network.conditions.jitter_s = 0.0
        world.network.conditions.cut_rate = 0.0
        cluster = SimCluster(world, overrides=overrides)
        cluster.start()
        assert cluster.wait_ready(30)
        host = world.node("client")
        channel = host.complete(Channel.open(host.runtime.network, LEADER, BROKER_PORT, "client"))
        host.complete(create(channel, "few", [[1, 2, 3]]))
        body = produce_body("few")
        host.complete(produced(channel, body))
        world.run_for(20)
        leader = cluster.nodes[1].node
        assert leader is not None

        def counting(read: Callable[[], float]) -> Callable[[], float]:
            def now() -> float:
                nonlocal readings
                readings += 1
                return read()

            return now

        for server in leader.servers.values():
            for connection in server.connections:
                framed: Any = connection._connection
                framed.now = counting(framed.now)

        async def measured() -> Calls:
            nonlocal readings
            readings = 0
            with counted() as calls:
                for _ in range(COMPARED_ROUNDS):
                    await produced(channel, body)
            return calls

        calls = host.complete(measured(), 600)
        assert world.problems() == []
    return (calls.of(LEADER) + readings) / COMPARED_ROUNDS


def test_rights_cost_a_produce_request_few_calls() -> None:
    """With the fetches of its two followers."""
    without = calls_of_a_produce({})
    guarded = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    more = calls_of_a_produce(guarded) - without
    assert 0 < more <= produce_handler.RIGHTS_CALLS_MAX, f"{more} more calls"


def test_metrics_cost_a_produce_request_few_calls() -> None:
    """With the fetches of its two followers."""
    without = calls_of_a_produce({})
    more = calls_of_a_produce({"metrics.listeners": "HTTP://:9404"}) - without
    assert 0 < more <= request_metrics.CALLS_MAX, f"{more} more calls"
