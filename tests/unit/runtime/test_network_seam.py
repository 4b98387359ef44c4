"""The same conversations on every network: asyncio's loop, uvloop, and the simulated one."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from struct import pack
from typing import cast

import pytest
import uvloop

from ottla.runtime import (
    QUEUED_BYTES_MAX,
    AcceptedConnection,
    Chunk,
    Connection,
    Disk,
    FileRange,
    Listener,
    Network,
    Tls,
    framed_connection,
)
from ottla.runtime.files import RealDisk
from ottla.runtime.sockets import RealNetwork
from ottla.runtime.tls import RealTls
from ottla.sim import World
from support.certificates import certified

FRAME_MAX = 64 << 20


@dataclass
class Peer:
    """A receiver that remembers, and does what the test asks at a certain frame."""

    connection: Connection
    on_frame: Callable[[Peer, memoryview], None] | None = None
    frames: list[bytes] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def frame_received(self, frame: memoryview) -> None:
        assert not frame.readonly
        self.frames.append(bytes(frame))
        if self.on_frame is not None:
            self.on_frame(self, frame)

    def connection_lost(self, reason: str) -> None:
        self.lost.append(reason)


@dataclass
class Stage:
    server: Network
    client: Network
    host: str
    disk: Disk
    root: str
    accepted: list[Peer] = field(default_factory=list)
    connected: list[Peer] = field(default_factory=list)
    listeners: list[Listener] = field(default_factory=list)
    on_frame: Callable[[Peer, memoryview], None] | None = None
    tls: Tls | None = None

    async def listen(
        self,
        frame_bytes_max: int = FRAME_MAX,
        accept: Callable[[Connection], Peer] | None = None,
    ) -> Listener:
        listener = await self.server.listen(
            self.host, 0, accept or self.accept, frame_bytes_max=frame_bytes_max, tls=self.tls
        )
        self.listeners.append(listener)
        return listener

    async def clear(self) -> None:
        for listener in self.listeners:
            listener.close()
        for peer in self.accepted + self.connected:
            peer.connection.abort()
        await asyncio.sleep(0)

    def accept(self, connection: Connection) -> Peer:
        peer = Peer(connection, self.on_frame)
        self.accepted.append(peer)
        return peer

    async def connect(self, listener: Listener) -> Peer:
        made: list[Peer] = []

        def receiver(connection: Connection) -> Peer:
            made.append(Peer(connection))
            self.connected.append(made[0])
            return made[0]

        connection = await self.client.connect(
            self.host, listener.address[1], receiver, tls=self.tls
        )
        assert made[0].connection is connection
        return made[0]

    async def pair(self) -> tuple[Peer, Peer, Listener]:
        listener = await self.listen()
        client = await self.connect(listener)
        await until(lambda: len(self.accepted) > 0)
        return client, self.accepted[-1], listener


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not condition():
        assert loop.time() < deadline, "it did not come to that in time"
        await asyncio.sleep(0.001)


async def turns(count: int = 20) -> None:
    """Give everything that could still happen the time to happen."""
    for _ in range(count):
        await asyncio.sleep(0.001)


def framed(*bodies: bytes) -> list[Chunk]:
    return [chunk for body in bodies for chunk in (pack(">i", len(body)), body)]


Scenario = Callable[[Stage], Awaitable[None]]


@pytest.fixture(params=["asyncio", "uvloop", "near", "sim", "tls", "tls on asyncio"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scenario], None]:
    def on_real(scenario: Scenario) -> None:
        on_asyncio = "asyncio" in request.param
        factory = asyncio.SelectorEventLoop if on_asyncio else uvloop.new_event_loop

        async def main() -> None:
            network = RealNetwork(asyncio.get_running_loop(), near=request.param == "near")
            problems: list[object] = []
            asyncio.get_running_loop().set_exception_handler(
                lambda _loop, context: problems.append(context)
            )
            stage = Stage(network, network, "127.0.0.1", RealDisk(), str(tmp_path))
            if "tls" in request.param:
                stage.tls = RealTls(certified().options("nodes"))
            try:
                await scenario(stage)
            finally:
                await stage.clear()
            assert problems == []

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())

    def on_sim(scenario: Scenario) -> None:
        for seed in range(3):
            with World(seed) as world:
                world.network.conditions.cut_rate = 0.5
                server, client = world.node("server"), world.node("client")
                stage = Stage(
                    server.runtime.network, client.runtime.network, "server", client.disk, "/"
                )
                client.complete(_as_coroutine(scenario, stage), timeout_s=300)
                unexpected = [
                    problem
                    for problem in world.loop.unhandled
                    if not isinstance(problem.exception, ValueError)  # raised by the tests
                ]
                assert unexpected == []

    return on_sim if request.param == "sim" else on_real


async def _as_coroutine(scenario: Scenario, stage: Stage) -> None:
    await scenario(stage)


Play = Callable[[Scenario], None]


@pytest.mark.parametrize("is_slow", [False, True])
def test_a_connection_with_many_frames_leaves_turns_to_others(play: Play, is_slow: bool) -> None:
    """However many requests came together, and however long each takes."""
    many = [b"%d" % number for number in range(20 if is_slow else 1000)]

    async def scenario(stage: Stage) -> None:
        loop = asyncio.get_running_loop()
        turns: list[int] = []
        is_over = True

        def end_turn() -> None:
            nonlocal is_over
            is_over = True

        def on_frame(peer: Peer, frame: memoryview) -> None:
            nonlocal is_over
            if is_over:
                is_over = False
                turns.append(0)
                loop.call_soon(end_turn)
            turns[-1] += 1
            if is_slow:
                time.sleep(framed_connection.TURN_S / 2)

        stage.on_frame = on_frame
        client, server, _listener = await stage.pair()
        client.connection.send(framed(*many))
        client.connection.close()
        await until(lambda: bool(server.lost))
        assert server.frames == many
        if not is_slow:
            # The simulated loop shuffles what it calls, so two turns may follow each other.
            assert max(turns) <= 2 * framed_connection.FRAMES_PER_TURN
        elif isinstance(stage.server, RealNetwork):
            assert max(turns) <= 3

    play(scenario)


def test_frames_of_every_size_arrive_whole_and_in_order_both_ways(play: Play) -> None:
    sizes = [0, 1, 3, 4, 100, 16_384, 16_385, 65_531, 65_532, 65_533, 65_536, 200_000, 3_000_000]
    bodies = [random.Random(size).randbytes(size) for size in sizes]

    async def scenario(stage: Stage) -> None:
        client, server, _listener = await stage.pair()
        for body in bodies:
            client.connection.send(framed(body))
        server.connection.send(framed(*reversed(bodies)))
        await until(lambda: len(server.frames) == len(client.frames) == len(bodies))
        assert server.frames == bodies
        assert client.frames == bodies[::-1]
        assert client.connection.queued_bytes == server.connection.queued_bytes == 0
        client.connection.abort()

    play(scenario)


def test_thousands_of_small_frames_sent_at_once_arrive_in_order(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        client, server, _listener = await stage.pair()
        bodies = [b"%d" % i * (i % 9) for i in range(5000)]
        client.connection.send(framed(*bodies))
        client.connection.send([])
        client.connection.send([b"", bytearray(), memoryview(b"")])
        await until(lambda: len(server.frames) == len(bodies))
        assert server.frames == bodies
        client.connection.abort()

    play(scenario)


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_a_frame_of_refused_size_loses_the_connection_and_no_other(play: Play, size: int) -> None:
    async def scenario(stage: Stage) -> None:
        listener = await stage.listen(frame_bytes_max=1000)
        good = await stage.connect(listener)
        bad = await stage.connect(listener)
        await until(lambda: len(stage.accepted) == 2)
        bad.connection.send([*framed(b"before"), pack(">i", size), b"x" * 50, *framed(b"after")])
        await until(lambda: len(bad.lost) == 1 and any(peer.lost for peer in stage.accepted))
        victim = next(peer for peer in stage.accepted if peer.lost)
        assert victim.frames == [b"before"]
        assert victim.lost == [f"frame of {size} bytes refused, the limit is 1000"]
        other = next(peer for peer in stage.accepted if not peer.lost)
        good.connection.send(framed(b"y" * 1000))
        await until(lambda: other.frames == [b"y" * 1000])
        good.connection.abort()

    play(scenario)


def test_closing_sends_what_is_queued_first_and_both_sides_hear_once(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        client, server, _listener = await stage.pair()
        body = random.Random(1).randbytes(2_000_000)
        server.connection.send(framed(body, b"last"))
        server.connection.close()
        assert server.connection.closed
        server.connection.send(framed(b"too late"))
        server.connection.close()
        await until(lambda: bool(client.lost) and bool(server.lost))
        server.connection.abort()
        await turns()
        assert client.frames == [body, b"last"]
        assert client.lost == ["closed by the peer"]
        assert server.lost == ["closed"]

    play(scenario)


def test_aborting_loses_the_connection_at_once_on_both_sides(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        client, server, _listener = await stage.pair()
        server.connection.send(framed(b"never"))
        server.connection.abort()
        assert server.connection.closed
        assert server.connection.queued_bytes == 0
        assert server.lost == []  # told on a turn of its own
        await until(lambda: bool(client.lost) and bool(server.lost))
        assert client.frames == []
        assert server.lost == ["aborted"]

    play(scenario)


def test_connecting_where_nobody_listens_is_refused(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        listener = await stage.listen()
        client = await stage.connect(listener)
        await until(lambda: len(stage.accepted) == 1)
        listener.close()
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            await stage.connect(listener)
        client.connection.send(framed(b"what was connected lives on"))
        await until(lambda: len(stage.accepted[0].frames) == 1)
        client.connection.abort()

    play(scenario)


def test_a_port_in_use_cannot_be_listened_on(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        listener = await stage.listen()
        with pytest.raises(OSError):
            await stage.server.listen(
                stage.host, listener.address[1], stage.accept, frame_bytes_max=1
            )
        listener.close()

    play(scenario)


def test_addresses_of_the_two_ends_mirror_each_other(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        client, server, listener = await stage.pair()
        assert client.connection.peer == server.connection.local == listener.address
        assert client.connection.local == server.connection.peer
        client.connection.abort()

    play(scenario)


def test_ranges_of_files_and_buffers_leave_in_the_order_they_were_queued(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        client, server, _listener = await stage.pair()
        content = random.Random(2).randbytes(3_000_000)
        file = stage.disk.open(stage.root + "/f", create=True)
        file.append(content)
        ranges = [(0, 10), (5, 0), (100, 16_383), (7, 16_384), (1000, 2_500_000), (2_999_999, 1)]
        chunks: list[Chunk] = [pack(">i", sum(size for _, size in ranges) + len(ranges))]
        expected = b""
        for position, size in ranges:
            chunks += [FileRange(file, position, size), b"|"]
            expected += content[position : position + size] + b"|"
        stage.disk.remove(stage.root + "/f")
        del file
        server.connection.send(chunks)
        del chunks
        await until(lambda: len(client.frames) == 1)
        assert client.frames == [expected]
        assert server.connection.queued_bytes == 0
        client.connection.abort()

    play(scenario)


@pytest.mark.parametrize("size", [1000, 100_000])
def test_a_file_that_became_too_short_loses_the_connection(play: Play, size: int) -> None:
    async def scenario(stage: Stage) -> None:
        client, server, _listener = await stage.pair()
        file = stage.disk.open(stage.root + "/f", create=True)
        file.append(bytes(size))
        server.connection.send([pack(">i", size), FileRange(file, 0, size)])
        file.truncate(size // 2)
        await until(lambda: bool(client.lost) and bool(server.lost))
        assert client.frames == []
        assert "truncated" in server.lost[0]

    play(scenario)


def test_a_reader_that_pauses_fills_the_queue_of_the_sender_and_loses_nothing(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        client, server, _listener = await stage.pair()
        client.connection.pause_reading()
        body = random.Random(3).randbytes(1_000_000)
        server.connection.send(framed(*[body] * 20))
        await turns()
        assert server.connection.queued_bytes > 1_000_000
        assert client.frames == []
        client.connection.resume_reading()
        await until(lambda: len(client.frames) == 20)
        assert client.frames == [body] * 20
        assert server.connection.queued_bytes == 0
        client.connection.abort()

    play(scenario)


def test_who_does_not_take_what_it_asked_for_is_not_read_until_it_does(play: Play) -> None:
    body = bytes(1_000_000)

    async def scenario(stage: Stage) -> None:
        stage.on_frame = lambda peer, _frame: peer.connection.send(framed(body))
        client, server, _listener = await stage.pair()
        client.connection.pause_reading()
        # What the systems on both sides take is not queued.
        asked = 60
        client.connection.send(framed(*[b"ask"] * asked))
        await until(lambda: server.connection.queued_bytes > QUEUED_BYTES_MAX)
        await turns()
        assert server.connection.queued_bytes <= QUEUED_BYTES_MAX + len(body) + 4
        assert len(server.frames) < asked
        client.connection.resume_reading()
        await until(lambda: len(client.frames) == asked)
        client.connection.send(framed(b"ask"))
        await until(lambda: len(client.frames) == asked + 1)
        client.connection.abort()

    play(scenario)


def test_a_connection_that_we_opened_is_read_though_the_other_side_is_not_reading(
    play: Play,
) -> None:
    async def scenario(stage: Stage) -> None:
        client, server, _listener = await stage.pair()
        server.connection.pause_reading()
        client.connection.send(framed(*[bytes(1_000_000)] * 60))
        await until(lambda: 0 < client.connection.queued_bytes < 60_000_000)
        assert client.connection.queued_bytes > QUEUED_BYTES_MAX
        server.connection.send(framed(b"news"))
        await until(lambda: client.frames == [b"news"])
        client.connection.abort()

    play(scenario)


def test_idle_is_who_neither_takes_anything_nor_says_anything_whole(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        client, server, _listener = await stage.pair()
        accepted = cast(AcceptedConnection, server.connection)
        idle = 0.5
        await until(lambda: accepted.idle_s > idle)
        client.connection.send(framed(b"a frame"))
        await until(lambda: accepted.idle_s < idle)
        client.connection.send([pack(">i", 1_000_000)])

        def is_idle_though_it_goes_on() -> bool:
            client.connection.send([b"x"])
            return accepted.idle_s > idle

        await until(is_idle_though_it_goes_on)
        server.connection.send(framed(b"to somebody who listens"))
        await until(lambda: accepted.idle_s < idle)
        client.connection.pause_reading()
        server.connection.send(framed(bytes(60_000_000)))
        await until(lambda: accepted.idle_s > idle)
        assert server.connection.queued_bytes > 0
        client.connection.resume_reading()
        await until(lambda: accepted.idle_s < idle)
        client.connection.abort()

    play(scenario)


def test_closing_waits_for_who_takes_and_not_for_who_does_not(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(framed_connection, "CLOSE_PATIENCE_S", 2.0)

    async def scenario(stage: Stage) -> None:
        listener = await stage.listen()
        deaf, slow = await stage.connect(listener), await stage.connect(listener)
        await until(lambda: len(stage.accepted) == 2)
        body = bytes(1_000_000)
        for peer in stage.accepted:
            peer.connection.send(framed(*[body] * 20))
            peer.connection.close()
        for peer in (deaf, slow):
            peer.connection.pause_reading()
        slow.on_frame = lambda peer, _frame: peer.connection.pause_reading()
        while len(slow.frames) < 20 and not slow.lost:
            await asyncio.sleep(0.03)
            slow.connection.resume_reading()
        await until(lambda: all(peer.lost for peer in stage.accepted))
        assert slow.frames == [body] * 20
        told = sorted(peer.lost[0] for peer in stage.accepted)
        assert told == ["closed", "closed, though the peer had not taken everything"]
        deaf.connection.abort()
        slow.connection.abort()

    play(scenario)


def test_pausing_within_a_frame_holds_back_the_ones_already_there(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.on_frame = lambda peer, _frame: peer.connection.pause_reading()
        client, server, _listener = await stage.pair()
        bodies = [b"a" * i for i in range(0, 30_000, 3_000)] + [b"b" * 100_000, b"c"]
        client.connection.send(framed(*bodies))
        for count in range(1, len(bodies) + 1):
            await until(lambda count=count: len(server.frames) == count)  # type: ignore[misc]
            await turns(3)
            assert server.frames == bodies[:count]
            server.connection.resume_reading()
            server.connection.resume_reading()
        assert server.lost == []
        client.connection.abort()
        await until(lambda: len(server.lost) == 1)

    play(scenario)


def test_pausing_and_resuming_within_a_frame_changes_nothing(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        def pause_and_resume(peer: Peer, _frame: memoryview) -> None:
            peer.connection.pause_reading()
            peer.connection.resume_reading()

        stage.on_frame = pause_and_resume
        client, server, _listener = await stage.pair()
        bodies = [b"%d" % i * 50 for i in range(2000)]
        client.connection.send(framed(*bodies))
        await until(lambda: len(server.frames) == len(bodies))
        assert server.frames == bodies
        client.connection.abort()

    play(scenario)


def test_a_receiver_that_raises_loses_its_connection_only(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        def refuse(_peer: Peer, frame: memoryview) -> None:
            if bytes(frame) == b"bad":
                raise ValueError("cannot bear it")

        stage.on_frame = refuse
        listener = await stage.listen()
        good, bad = await stage.connect(listener), await stage.connect(listener)
        await until(lambda: len(stage.accepted) == 2)
        bad.connection.send(framed(b"fine", b"bad", b"unseen"))
        await until(lambda: bool(bad.lost))
        good.connection.send(framed(b"still here"))
        await until(lambda: sum(len(peer.frames) for peer in stage.accepted) == 3)
        assert sorted(peer.lost for peer in stage.accepted) == [[], ["the receiver failed"]]
        good.connection.abort()

    play(scenario)


def test_a_receiver_that_raises_on_loss_harms_nobody(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        class Sour(Peer):
            def connection_lost(self, reason: str) -> None:
                super().connection_lost(reason)
                raise ValueError("and now this")

        sour: list[Sour] = []

        def receiver(connection: Connection) -> Sour:
            sour.append(Sour(connection))
            return sour[0]

        listener = await stage.listen()
        connection = await stage.client.connect(stage.host, listener.address[1], receiver)
        connection.abort()
        await until(lambda: len(sour[0].lost) == 1)
        again = await stage.connect(listener)
        again.connection.abort()

    play(scenario)


def test_an_accept_that_raises_closes_that_connection_and_listens_on(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        refused: list[Connection] = []

        def accept(connection: Connection) -> Peer:
            if not refused:
                refused.append(connection)
                raise ValueError("not you")
            return stage.accept(connection)

        listener = await stage.listen(100, accept)
        first = await stage.connect(listener)
        await until(lambda: bool(first.lost))
        second = await stage.connect(listener)
        second.connection.send(framed(b"hello"))
        await until(lambda: len(stage.accepted) == 1 and stage.accepted[0].frames == [b"hello"])
        second.connection.abort()

    play(scenario)


def test_a_connection_aborted_while_it_is_accepted_is_still_told_its_end(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        def accept(connection: Connection) -> Peer:
            connection.send(framed(b"x"))
            connection.abort()
            return stage.accept(connection)

        listener = await stage.listen(100, accept)
        client = await stage.connect(listener)
        await until(lambda: bool(client.lost) and bool(stage.accepted[0].lost))
        assert stage.accepted[0].lost == ["aborted"]

    play(scenario)


def test_closing_within_a_frame_delivers_no_further_one(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        def answer_and_close(peer: Peer, frame: memoryview) -> None:
            peer.connection.send(framed(b"bye " + bytes(frame)))
            peer.connection.close()

        stage.on_frame = answer_and_close
        client, server, _listener = await stage.pair()
        client.connection.send(framed(b"one", b"two", b"three"))
        await until(lambda: bool(client.lost) and bool(server.lost))
        assert server.frames == [b"one"]
        assert client.frames == [b"bye one"]

    play(scenario)


def test_a_peer_that_leaves_within_a_frame_delivers_no_part_of_it(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        client, server, _listener = await stage.pair()
        client.connection.send([*framed(b"whole"), pack(">i", 500_000), bytes(300_000)])
        client.connection.close()
        await until(lambda: bool(server.lost))
        assert server.frames == [b"whole"]
        assert server.lost == ["closed by the peer within a frame"]

    play(scenario)


def test_a_busy_connection_lets_the_others_speak(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        listener = await stage.listen()
        busy, quiet = await stage.connect(listener), await stage.connect(listener)
        await until(lambda: len(stage.accepted) == 2)
        seen_by_then: list[int] = []
        loud = 0

        def count(peer: Peer, frame: memoryview) -> None:
            nonlocal loud
            if bytes(frame[:1]) == b"q":
                seen_by_then.append(loud)
            else:
                loud += 1

        for peer in stage.accepted:
            peer.on_frame = count
        busy.connection.send(framed(*[b"b" * 1000] * 20_000))
        quiet.connection.send(framed(b"q"))
        await until(lambda: loud == 20_000)
        assert seen_by_then and seen_by_then[0] < 20_000
        busy.connection.abort()
        quiet.connection.abort()

    play(scenario)


def test_a_cancelled_connect_leaves_nothing_behind(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        listener = await stage.listen()
        attempt = asyncio.ensure_future(stage.connect(listener))
        await asyncio.sleep(0)
        if attempt.done():  # a socket of the machine is there at once
            attempt.result().connection.abort()
        else:
            attempt.cancel()
            with pytest.raises(asyncio.CancelledError):
                await attempt
        await turns()
        assert all(peer.lost for peer in stage.accepted)
        client = await stage.connect(listener)
        client.connection.abort()

    play(scenario)
