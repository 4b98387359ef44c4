"""The hosts of the simulated ZooKeeper: what each operation costs on the wire, and what survives a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from ottla.lab.wire_counts import WireCounts
from ottla.lab.zookeeper.client import ZooKeeperClient
from ottla.lab.zookeeper.ensemble import FOLLOWER, LEADER, ZooKeeperEnsemble
from ottla.lab.zookeeper.errors import ConnectionLoss, NodeExists, SessionExpired
from ottla.lab.zookeeper.model import CreateNode, SessionState, SetData, Stat, WatchEvent
from ottla.lab.zookeeper.txn_log import TxnLog
from ottla.lab.zookeeper.wire import decode_txn
from ottla.sim.engine.world import SimHost, World

TIMEOUT_S = 6.0


class Bench:
    def __init__(self, world: World) -> None:
        self.world = world
        self.wire = WireCounts()
        self.ensemble = ZooKeeperEnsemble(world, self.wire)
        self.ensemble.start()

    def host(self, name: str) -> SimHost:
        host = self.world.node(name)
        if not host.running:
            host.runtime = self.wire.counted(name, host.runtime)
        return host

    def client(self, name: str) -> tuple[SimHost, ZooKeeperClient]:
        host = self.host(name)
        connecting = ZooKeeperClient.connect(
            host.runtime.network, self.ensemble.addresses, name, TIMEOUT_S
        )
        return host, host.complete(connecting)

    def paths(self) -> set[str]:
        assert self.ensemble.server is not None
        return set(self.ensemble.server.tree.nodes)


@pytest.fixture
def seed() -> int:
    return 7


@pytest.fixture
def bench(seed: int) -> Iterator[Bench]:
    with World(seed) as world:
        yield Bench(world)
        assert world.problems() == []


def test_P46_a_write_is_two_rpcs_a_read_one_and_a_watch_event_one_message(bench: Bench) -> None:
    host, client = bench.client("c1")
    _, other = bench.client("c2")
    bench.host("c2").complete(other.exists("/a", lambda event: None))
    before, wire = bench.ensemble.counts.copy(), bench.wire.copy()

    def passed() -> tuple[dict[str, int], dict[str, int], int]:
        """Since the last call, on the wire: requests to the leader, to the follower, events."""
        nonlocal wire
        seen, wire = bench.wire.since(wire), bench.wire.copy()
        assert seen.requests == seen.responses
        servers: dict[str, dict[str, int]] = {LEADER: {}, FOLLOWER: {}}
        for line, number in seen.requests.items():
            servers[line.server][line.api.removeprefix("zookeeper_")] = number
        return servers[LEADER], servers[FOLLOWER], seen.events.total()

    host.complete(client.create("/a"))
    bench.world.run_for(0.1)
    assert passed() == ({"create": 1}, {"propose": 1}, 1)
    host.complete(client.get("/a"))
    assert passed() == ({"get_data": 1}, {}, 0)
    host.complete(client.set("/a", b"x"))
    assert passed() == ({"set_data": 1}, {"propose": 1}, 0)
    with pytest.raises(NodeExists):
        host.complete(client.create("/a"))
    assert passed() == ({"create": 1}, {"propose": 1}, 0), "a write that fails is a write"
    host.complete(client.multi([SetData("/a", b"y"), CreateNode("/b")]))
    assert passed() == ({"multi": 1}, {"propose": 1}, 0)
    counted = bench.ensemble.counts.since(before)
    assert counted.rpcs.total() == counted.operation_rpcs == 4 * 2 + 1 + 1
    assert counted.writes == counted.replications == {"create": 2, "set_data": 1, "multi": 1}
    assert (counted.reads, counted.watch_events) == ({"get_data": 1}, {"created": 1})


def test_P46_the_counts_of_the_server_are_those_of_the_wire(bench: Bench) -> None:
    clients = [bench.client(f"c{number}") for number in range(4)]
    for host, client in clients:
        host.run(_busy(client, bench.world.loop.random_for(host.name)))
    bench.world.run_for(30)
    counts, wire = bench.ensemble.counts, bench.wire
    asked = counts.reads + counts.writes + counts.sessions
    assert asked.total() > 100
    for label, number in asked.items():
        assert wire.number_of(f"zookeeper_{label}") == number
    assert wire.number_of("zookeeper_propose") == (
        counts.replications.total() - counts.replications["follow"]
    )
    assert wire.events.total() == counts.watch_events.total() > 10
    assert wire.messages == 2 * wire.requests.total() + wire.events.total()


async def _busy(client: ZooKeeperClient, random: Random) -> None:
    for _ in range(40):
        path = f"/{random.choice('abc')}"
        try:
            if await client.exists(path, lambda event: None) is None:
                await client.create(path)
            elif random.random() < 0.5:
                await client.delete(path)
        except Exception:
            await asyncio.sleep(0.1)


def test_P50_a_write_is_answered_when_it_is_on_the_disks_of_leader_and_follower(
    bench: Bench,
) -> None:
    host, client = bench.client("c1")
    bench.ensemble.follower.kill()
    writing = host.run(client.create("/a"))
    bench.world.run_for(1.0)
    assert not writing.done() and "/a" not in bench.paths()
    bench.ensemble.start()
    assert bench.world.run_until(writing.done, TIMEOUT_S) and writing.result() == "/a"
    for server in (bench.ensemble.leader, bench.ensemble.follower):
        server.kill(power_loss=True)
        txns = [decode_txn(each) for each in TxnLog(server.disk, lambda: None).txns]
        assert CreateNode("/a") in [each.operation for each in txns]


@pytest.mark.parametrize("seed", range(5))
def test_P50_what_the_leader_lost_with_its_power_is_gone_at_the_follower_too(bench: Bench) -> None:
    ensemble, world = bench.ensemble, bench.world
    host, client = bench.client("c1")
    ensemble.leader.slow_disk(2.0, 2.0)
    writing = [host.run(client.create(f"/{number}")) for number in range(5)]
    world.run_for(0.5)
    ensemble.leader.kill(power_loss=True)
    world.run_for(0.5)
    ensemble.leader.slow_disk(0.0, 0.001)
    ensemble.start()
    host.complete(_until_created(client))
    for each in writing:
        host.started.remove(each)
        assert isinstance(each.exception(), ConnectionLoss)
    for server in (ensemble.leader, ensemble.follower):
        server.kill()
    logs = [TxnLog(each.disk, lambda: None).txns for each in (ensemble.leader, ensemble.follower)]
    assert logs[0] == logs[1]


async def _until_created(client: ZooKeeperClient) -> None:
    while True:
        try:
            await client.create("/last")
            return
        except ConnectionLoss:
            await asyncio.sleep(0.1)
        except NodeExists:
            return


def test_P50_a_connect_that_is_given_up_leaves_nothing_behind(bench: Bench) -> None:
    bench.world.run_for(0.1)
    bench.ensemble.leader.kill()
    host = bench.host("c1")

    async def impatient() -> None:
        async with asyncio.timeout(1.0):
            await ZooKeeperClient.connect(host.runtime.network, bench.ensemble.addresses, "c1")

    with pytest.raises(TimeoutError):
        host.complete(impatient())
    with pytest.raises(ConnectionLoss):
        host.complete(
            ZooKeeperClient.connect(host.runtime.network, bench.ensemble.addresses, "c1", 2.0)
        )
    bench.ensemble.start()
    bench.world.run_for(5.0)
    assert bench.ensemble.counts.sessions["connect"] == 0


def test_P50_the_order_of_a_session_holds_over_its_connections(bench: Bench) -> None:
    """A client that lost its connection asks whether its write was done. The answer must not change afterwards."""
    host, client = bench.client("c1")
    bench.ensemble.follower.slow_disk(2.0, 2.0)
    writing = host.run(client.create("/a"))
    bench.world.run_for(0.1)
    host.reset_connections()
    assert bench.world.run_until(writing.done, 1.0)
    with pytest.raises(ConnectionLoss):
        writing.result()
    host.started.remove(writing)
    assert "/a" not in bench.paths()
    assert host.complete(client.exists("/a")) is not None


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("power_loss", [False, True])
def test_P50_znodes_and_sessions_survive_a_crash_of_both_servers(
    bench: Bench, power_loss: bool
) -> None:
    host, client = bench.client("c1")
    gone, _ = bench.client("c2")
    seen: list[WatchEvent] = []
    host.complete(client.create("/a", b"kept"))
    host.complete(client.create("/mine", ephemeral=True))
    host.complete(client.get("/a", seen.append))
    session = client.session
    bench.ensemble.leader.kill(power_loss=power_loss)
    bench.ensemble.follower.kill(power_loss=power_loss)
    gone.kill()
    bench.world.run_for(2 * TIMEOUT_S)
    assert client.state is SessionState.SUSPENDED
    bench.ensemble.start()
    data, stat = host.complete(_until_connected(client))
    assert (data, stat.version, client.session) == (b"kept", 0, session)
    assert {"/a", "/mine"} <= bench.paths()
    host.complete(client.set("/a", b"new"))
    assert len(seen) == 1, "its watch was set again"
    bench.world.run_for(2 * TIMEOUT_S)
    assert bench.ensemble.counts.expired == 1, "the client that did not come back"
    assert "/mine" in bench.paths()


async def _until_connected(client: ZooKeeperClient) -> tuple[bytes, Stat]:
    while True:
        try:
            return await client.get("/a")
        except ConnectionLoss:
            await asyncio.sleep(0.1)


def test_P50_a_client_that_is_killed_keeps_its_ephemeral_znodes_until_its_session_times_out(
    bench: Bench,
) -> None:
    host, client = bench.client("c1")
    host.complete(client.create("/e", ephemeral=True))
    host.complete(client.exists("/e", lambda event: None))
    assert bench.ensemble.watches == 1
    host.kill()
    bench.world.run_for(TIMEOUT_S / 2)
    assert "/e" in bench.paths()
    assert bench.ensemble.watches == 0, "they belong to the connection"
    bench.world.run_for(TIMEOUT_S / 2 + 0.1)
    assert "/e" not in bench.paths() and bench.ensemble.counts.expired == 1


def test_P50_a_paused_client_believes_in_its_session_until_it_hears_of_its_end(
    bench: Bench,
) -> None:
    host, client = bench.client("c1")
    host.complete(client.create("/e", ephemeral=True))
    states: list[SessionState] = []
    client.on_state.append(states.append)
    host.pause()
    bench.world.run_for(2 * TIMEOUT_S)
    assert "/e" not in bench.paths()
    assert client.state is SessionState.CONNECTED
    host.resume()
    assert bench.world.run_until(lambda: client.is_over, TIMEOUT_S)
    assert states == [SessionState.SUSPENDED, SessionState.EXPIRED]
    with pytest.raises(SessionExpired):
        host.complete(client.get("/"))


@pytest.mark.parametrize("seed", range(3))
def test_P50_no_acknowledged_write_is_lost_whatever_crashes(bench: Bench) -> None:
    world, random = bench.world, bench.world.random
    written: list[list[str]] = [[], [], []]
    for number, acknowledged in enumerate(written):
        host, client = bench.client(f"c{number}")
        host.run(_write(client, number, acknowledged))
    for _ in range(25):
        world.run_for(random.uniform(0.05, 1.0))
        victim = random.choice([bench.ensemble.leader, bench.ensemble.follower])
        if random.random() < 0.3:
            victim.reset_connections()
        else:
            victim.kill(power_loss=random.random() < 0.5)
            world.run_for(random.uniform(0.0, 1.0))
            bench.ensemble.start()
    world.run_for(3 * TIMEOUT_S)
    present = bench.paths()
    for number, acknowledged in enumerate(written):
        assert len(acknowledged) > 50 and present.issuperset(acknowledged)
        order = [int(path.partition("-")[2]) for path in acknowledged]
        assert order == sorted(order)
        # One write in flight may have been done without an answer, never one that was not sent.
        sent = {path for path in present if path.startswith(f"/{number}-")}
        assert len(sent) <= order[-1] + 2


async def _write(client: ZooKeeperClient, number: int, acknowledged: list[str]) -> None:
    for count in range(10_000):
        try:
            acknowledged.append(await client.create(f"/{number}-{count}"))
            await asyncio.sleep(0.05)
        except ConnectionLoss:
            pass


def test_P50_the_same_seed_gives_the_same_run() -> None:
    def digest(seed: int) -> str:
        with World(seed) as world:
            bench = Bench(world)
            for number in range(3):
                host, client = bench.client(f"c{number}")
                host.run(_busy(client, world.loop.random_for(host.name)))
            world.run_for(5)
            return world.digest()

    assert digest(1) == digest(1) != digest(2)


@pytest.mark.parametrize("path", ["a", "/a/", "//a", "/a/../b", "/.", ""])
def test_P50_a_client_refuses_what_is_no_path(bench: Bench, path: str) -> None:
    host, client = bench.client("c1")
    for operation in (client.create(path), client.multi([CreateNode(path)]), client.get(path)):
        with pytest.raises(ValueError, match="not a path"):
            host.complete(operation)
    with pytest.raises(ValueError, match="not a path"):
        host.complete(client.delete("/"))
