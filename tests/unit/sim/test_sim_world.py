"""Hosts that die, sleep and lose sight of each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import pack

import pytest

from ottla.runtime import Connection, Runtime
from ottla.sim import SimHost, World

PORT = 9092


class Peer:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.frames: list[bytes] = []
        self.lost: list[str] = []

    def frame_received(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))

    def connection_lost(self, reason: str) -> None:
        self.lost.append(reason)

    def say(self, text: bytes) -> None:
        self.connection.send([pack(">i", len(text)), text])


class Echo(Peer):
    def frame_received(self, frame: memoryview) -> None:
        super().frame_received(frame)
        self.say(bytes(frame))


class Pair:
    """A server that echoes on one host, a client connected to it on another."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.a, self.b = world.node("a"), world.node("b")
        self.accepted: list[Echo] = []
        self.serve()
        self.client = self.connect()

    def serve(self) -> None:
        self.b.complete(
            self.b.runtime.network.listen("b", PORT, self.accept, frame_bytes_max=1 << 20)
        )

    def accept(self, connection: Connection) -> Echo:
        self.accepted.append(Echo(connection))
        return self.accepted[-1]

    def connect(self) -> Peer:
        return self.a.complete(connected(self.a.runtime))

    def is_answered(self, text: bytes, within_s: float = 5) -> bool:
        self.client.say(text)
        return self.world.run_until(lambda: text in self.client.frames, within_s)


async def connected(runtime: Runtime, host: str = "b") -> Peer:
    made: list[Peer] = []

    def receiver(connection: Connection) -> Peer:
        made.append(Peer(connection))
        return made[0]

    await runtime.network.connect(host, PORT, receiver)
    return made[0]


@pytest.fixture
def pair() -> Pair:
    return Pair(World(5))


def told(peer: Peer) -> Callable[[], bool]:
    return lambda: len(peer.lost) == 1


def test_a_conversation_takes_virtual_time_and_no_more(pair: Pair) -> None:
    begun = pair.world.loop.time()
    assert pair.is_answered(b"hello")
    assert 0.0004 < pair.world.loop.time() - begun < 0.1


def test_a_partition_stalls_a_connection_and_healing_delivers_what_was_said(pair: Pair) -> None:
    pair.world.network.partition(["a"], ["b"])
    assert not pair.is_answered(b"one", within_s=60)
    pair.client.say(b"two")
    pair.world.run_for(5)
    assert pair.client.lost == []
    pair.world.network.heal()
    assert pair.world.run_until(lambda: pair.client.frames == [b"one", b"two"], 5)


def test_a_one_way_block_lets_the_other_direction_through(pair: Pair) -> None:
    pair.world.network.block("b", "a")
    assert not pair.is_answered(b"question", within_s=30)
    assert pair.accepted[0].frames == [b"question"]
    pair.world.network.unblock([("b", "a")])
    assert pair.world.run_until(lambda: pair.client.frames == [b"question"], 5)


def test_a_partition_that_lasts_ends_connections_with_unsent_data_and_no_idle_ones(
    pair: Pair,
) -> None:
    pair.world.network.conditions.give_up_s = 100
    pair.world.network.isolate("b")
    pair.client.say(b"anybody?")
    pair.world.run_for(99)
    assert pair.client.lost == []
    assert pair.world.run_until(told(pair.client), 5)
    assert "TimeoutError" in pair.client.lost[0]
    assert pair.accepted[0].lost == []


def test_a_way_is_free_when_nobody_blocks_it_any_more(pair: Pair) -> None:
    first = pair.world.network.partition(["a"], ["b"])
    pair.world.network.block("a", "b")
    pair.world.network.unblock(first)
    assert not pair.is_answered(b"still one way")
    pair.world.network.unblock([("a", "b")])
    assert pair.world.run_until(lambda: pair.client.frames == [b"still one way"], 5)


def test_a_frozen_connection_stalls_while_another_of_the_same_hosts_goes_on(pair: Pair) -> None:
    assert pair.a.process is not None
    (end,) = pair.a.process.sockets.values()
    frozen = pair.client
    pair.world.network.freeze(end)
    pair.world.network.freeze(end)
    assert not pair.is_answered(b"one", within_s=60)
    pair.client = pair.connect()
    assert pair.is_answered(b"beside it")
    pair.world.network.thaw(end)
    pair.world.run_for(5)
    assert frozen.frames == [] == pair.accepted[0].frames
    assert frozen.lost == []
    pair.world.network.thaw(end)
    assert pair.world.run_until(lambda: frozen.frames == [b"one"], 5)


def test_the_end_of_a_frozen_connection_is_heard_when_it_is_healed(pair: Pair) -> None:
    assert pair.a.process is not None
    (end,) = pair.a.process.sockets.values()
    pair.world.network.freeze(end)
    pair.client.connection.close()
    pair.world.run_for(60)
    assert pair.accepted[0].lost == []
    pair.world.network.heal()
    assert pair.world.run_until(told(pair.accepted[0]), 5)


def test_a_bridge_reaches_both_sides_that_do_not_reach_each_other() -> None:
    world = World(1)
    hosts = [world.node(name) for name in "xyz"]
    for host in hosts:
        host.complete(host.runtime.network.listen(host.name, PORT, Echo, frame_bytes_max=100))
    world.network.partition(["x"], ["z"])
    reached = {}
    for host in hosts:
        for other in hosts:
            if other is not host:
                task = host.run(connected(host.runtime, other.name))
                reached[host.name + other.name] = world.run_until(task.done, 2)
    assert reached == {"xy": True, "yx": True, "yz": True, "zy": True, "xz": False, "zx": False}


def test_connecting_through_a_partition_waits_then_succeeds_or_times_out(pair: Pair) -> None:
    for blocked in (("a", "b"), ("b", "a")):
        pair.world.network.block(*blocked)
        attempt = pair.a.run(connected(pair.a.runtime))
        pair.world.run_for(10)
        assert not attempt.done()
        pair.world.network.heal()
        assert pair.world.run_until(attempt.done, 10)
        assert attempt.exception() is None
    pair.world.network.isolate("b")
    begun = pair.world.loop.time()
    with pytest.raises(TimeoutError):
        pair.a.complete(connected(pair.a.runtime), timeout_s=200)
    assert 120 < pair.world.loop.time() - begun < 135


def test_a_killed_process_is_noticed_at_once_and_its_port_refuses(pair: Pair) -> None:
    pair.b.kill()
    begun = pair.world.loop.time()
    assert pair.world.run_until(told(pair.client), 5)
    assert pair.world.loop.time() - begun < 0.02
    assert pair.client.lost == ["closed by the peer"]
    assert pair.accepted[0].lost == []
    with pytest.raises(ConnectionRefusedError):
        pair.connect()


def test_a_host_without_power_is_silence_until_it_is_back(pair: Pair) -> None:
    pair.b.kill(power_loss=True)
    assert not pair.is_answered(b"still there?", within_s=60)
    assert pair.client.lost == []
    idle = pair.a.run(connected(pair.a.runtime))
    pair.world.run_for(1)
    assert not idle.done()
    pair.serve()
    assert pair.world.run_until(told(pair.client), 5)
    assert "Reset" in pair.client.lost[0]
    assert pair.world.run_until(idle.done, 10)


def test_a_half_open_connection_is_discovered_only_by_speaking(pair: Pair) -> None:
    pair.b.kill(power_loss=True)
    pair.serve()
    pair.world.run_for(1000)
    assert pair.client.lost == []
    pair.client.say(b"hello?")
    assert pair.world.run_until(told(pair.client), 5)


def test_nothing_of_a_killed_process_runs_again(pair: Pair) -> None:
    seen: list[str] = []

    async def live() -> None:
        try:
            asyncio.get_running_loop().call_later(1, seen.append, "timer")
            asyncio.create_task(sleeper())  # noqa: RUF006
            await asyncio.get_running_loop().run_in_executor(None, seen.append, "thread")
            await asyncio.sleep(100)
        finally:
            seen.append("finally")

    async def sleeper() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            seen.append("child")

    pair.b.run(live())
    pair.world.run_for(0.5)
    assert seen == ["thread"]
    pair.b.kill()
    import gc

    gc.collect()
    pair.world.run_for(1000)
    assert seen == ["thread"]
    assert pair.world.loop.unhandled == []
    pair.world.close()


def test_a_disk_outlives_the_process_and_a_new_one_finds_it(pair: Pair) -> None:
    disk = pair.b.disk
    disk.open("/f", create=True).append(b"unflushed")
    disk.lock("/lock")
    pair.b.kill()
    assert disk.read("/f") == b"unflushed"

    async def again() -> bytes:
        pair.b.runtime.disk.lock("/lock")
        return pair.b.runtime.disk.read("/f")

    assert pair.b.complete(again()) == b"unflushed"
    disk.flush_dir("/")
    pair.b.kill(power_loss=True)
    assert b"unflushed".startswith(disk.read("/f").rstrip(b"\0"))


def test_a_paused_process_hears_everything_late_and_in_order(pair: Pair) -> None:
    seen: list[float] = []

    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            seen.append(pair.world.loop.time())

    pair.b.run(tick())
    pair.world.run_for(2.5)
    pair.b.pause()
    paused_at = pair.world.loop.time()
    for text in (b"one", b"two", b"three"):
        pair.client.say(text)
    waiting = pair.a.run(connected(pair.a.runtime))
    pair.world.run_for(30)
    assert waiting.done(), "its system accepts connections on its behalf"
    assert pair.client.frames == [] and pair.client.lost == []
    assert len(seen) == 2
    pair.b.resume()
    assert pair.world.run_until(lambda: pair.client.frames == [b"one", b"two", b"three"], 5)
    pair.world.run_for(0.1)
    assert len(pair.accepted) == 2
    assert len(seen) == 3 and seen[2] >= paused_at + 30


def test_a_paused_process_can_be_killed(pair: Pair) -> None:
    pair.b.pause()
    pair.client.say(b"unread")
    pair.world.run_for(1)
    pair.b.kill()
    assert pair.world.run_until(told(pair.client), 5)
    assert "Reset" in pair.client.lost[0], "what it had not read is answered by a reset"


def test_resets_are_heard_by_both_sides(pair: Pair) -> None:
    assert pair.a.reset_connections("nobody") == 0
    assert pair.a.reset_connections("b") == 1
    assert pair.world.run_until(lambda: bool(pair.client.lost and pair.accepted[0].lost), 1)


def test_random_resets_and_refusals_happen_at_their_rates() -> None:
    world = World(2)
    pair = Pair(world)
    world.network.conditions.reset_rate = 0.2
    world.network.conditions.refuse_rate = 0.3
    refused = resets = 0
    for number in range(100):
        try:
            pair.client = pair.connect()
        except ConnectionRefusedError:
            refused += 1
            continue
        if not pair.is_answered(b"%d" % number, within_s=3):
            assert len(pair.client.lost) == 1
            resets += 1
    assert 15 < refused < 50
    assert 10 < resets < 50


def test_slow_links_and_slow_disks_are_slow(pair: Pair) -> None:
    pair.world.network.conditions.slow_links["a", "b"] = 0.5
    begun = pair.world.loop.time()
    assert pair.is_answered(b"hello")
    assert 0.5 < pair.world.loop.time() - begun < 0.6
    pair.b.slow_disk(2.0, 3.0)

    async def flush(host: SimHost) -> float:
        file = host.disk.open("/f", create=True)
        begun = host.clock.monotonic()
        await asyncio.to_thread(file.flush)
        return host.clock.monotonic() - begun

    assert 2 <= pair.b.complete(flush(pair.b)) <= 3.01
    assert pair.a.complete(flush(pair.a)) < 0.01


def test_a_flush_in_a_thread_may_take_effect_or_not_when_its_process_is_killed() -> None:
    def kept(seed: int) -> tuple[bool, bool]:
        world = World(seed)
        host = world.node("a")
        host.slow_disk(0.0, 1.0)
        host.disk.flush_dir("/")
        told: list[bool] = []

        async def work() -> None:
            file = host.disk.open("/f", create=True)
            host.disk.flush_dir("/")
            file.append(b"x" * 100)
            await asyncio.to_thread(file.flush)
            told.append(True)

        host.run(work())
        world.run_for(0.3)
        flushed = not host.disk._inode("/f").pending
        host.kill()
        return flushed, bool(told)

    assert {kept(seed) for seed in range(30)} == {(False, False), (True, False), (True, True)}


def test_code_outside_every_host_has_no_network() -> None:
    world = World(1)

    async def lost_soul() -> None:
        await asyncio.open_connection("a", 1)

    task = world.script(lost_soul())
    world.run_until(task.done, 1)
    assert isinstance(task.exception(), RuntimeError)


def test_work_that_does_not_finish_in_time_is_an_error(pair: Pair) -> None:
    with pytest.raises(TimeoutError):
        pair.a.complete(asyncio.sleep(100), timeout_s=5)


def test_keeping_a_frame_beyond_its_call_reads_nonsense(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(1)
    pair = Pair(world)
    kept: list[memoryview] = []
    monkeypatch.setattr(pair.accepted[0], "frame_received", kept.append)
    pair.client.say(b"precious")
    world.run_for(1)
    assert bytes(kept[0]) != b"precious"


def test_problems_that_nobody_saw_are_listed() -> None:
    with World(1) as world:
        host = world.node("a")

        async def crash() -> None:
            raise ValueError("at the start")

        host.run(crash(), name="main")
        world.run_for(1)
        assert world.problems() == ["a: main failed: ValueError('at the start')"]
        host.kill()
        assert world.problems() == []
