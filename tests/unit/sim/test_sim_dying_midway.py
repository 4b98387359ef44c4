"""A process that dies between two changes of its disk: what came before is there, and nothing comes after."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from struct import pack

import pytest

from ottla.runtime import Connection
from ottla.sim import SimHost, World
from ottla.sim.engine.disk import CHANGES
from ottla.sim.engine.process import Died

PORT = 9092


class Machine:
    """A host of which somebody takes note when its process dies."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.host: SimHost = self.world.node("a")
        self.host.disk.make_dirs("/d")
        self.host.disk.flush_dir("/")
        self.died_before: list[str] = []

    def die_before(self, change: str | None, countdown: int, *, power_loss: bool = False) -> None:
        def funeral(change: str, power_loss: bool) -> None:
            self.died_before.append(change)
            self.host.kill(power_loss=power_loss)

        self.host.die_before(change, countdown, lambda: power_loss, funeral)

    def does(self, work: Callable[[], object]) -> None:
        async def run() -> None:
            work()

        self.host.run(run())
        self.world.run_for(1.0)
        assert self.world.problems() == []

    def replaces(self, content: bytes) -> None:
        self.does(lambda: self.host.disk.replace("/d/f", content))

    @property
    def files(self) -> dict[str, bytes]:
        disk = self.host.disk
        return {name: disk.read(f"/d/{name}") for name in disk.list_dir("/d")}


def test_the_changes_before_it_are_there_and_none_after_it() -> None:
    died, left = [], []
    for countdown in range(1, 7):
        machine = Machine()
        machine.replaces(b"old")
        machine.die_before(None, countdown)
        machine.replaces(b"newer")
        assert not machine.host.running or not machine.died_before
        died += machine.died_before
        left.append(machine.files.get("f"))
    assert died == ["create", "write", "flush", "rename", "flush_dir"]
    assert left == [b"old"] * 4 + [b"newer"] * 2


def test_it_dies_before_the_change_that_was_asked_for() -> None:
    machine = Machine()
    machine.die_before("rename", 2)
    machine.replaces(b"first")
    assert machine.died_before == []
    machine.replaces(b"second")
    assert machine.died_before == ["rename"]
    assert machine.files == {"f": b"first", "f.tmp": b"second"}


def test_of_the_last_write_any_first_part_may_be_there() -> None:
    def written(seed: int) -> bytes:
        machine = Machine(seed)
        machine.die_before("write", 1)
        machine.does(lambda: machine.host.disk.open("/d/f", create=True).append(b"abc"))
        return machine.files["f"]

    assert {written(seed) for seed in range(40)} == {b"", b"a", b"ab"}


def test_no_code_of_its_own_does_anything_any_more() -> None:
    machine = Machine()
    disk = machine.host.disk
    went_on: list[str] = []

    def work() -> None:
        file = disk.open("/d/f", create=True)
        try:
            with contextlib.suppress(Exception):
                disk.rename("/d/f", "/d/g")
            went_on.append("after")
        finally:
            attempts: list[Callable[[], object]] = [
                lambda: file.append(b"x"),
                lambda: disk.remove("/d/f"),
                lambda: disk.read("/d/f"),
                lambda: disk.open("/d/h", create=True),
                lambda: disk.make_dirs("/e"),
                lambda: disk.flush_dir("/d"),
            ]
            for attempt in attempts:
                with pytest.raises(Died):
                    attempt()
            asyncio.get_running_loop().call_soon(went_on.append, "later")

    machine.die_before("rename", 1)
    machine.does(work)
    assert machine.died_before == ["rename"]
    assert went_on == []
    assert machine.files == {"f": b""}
    assert not disk.exists("/e")


def test_the_next_process_lives() -> None:
    machine = Machine()
    machine.die_before("flush", 1)
    machine.replaces(b"one")
    machine.replaces(b"two")
    assert machine.died_before == ["flush"]
    assert machine.files["f"] == b"two"


def test_with_its_power_a_machine_loses_what_was_not_flushed() -> None:
    def kept(seed: int) -> bool:
        machine = Machine(seed)
        machine.die_before("flush_dir", 1, power_loss=True)
        machine.replaces(b"new")
        assert not machine.host._host.up
        return "f" in machine.files

    assert {kept(seed) for seed in range(30)} == {False, True}


def test_work_in_a_thread_ends_there_too() -> None:
    machine = Machine()
    told: list[bool] = []

    async def work() -> None:
        try:
            await asyncio.to_thread(machine.host.disk.replace, "/d/f", b"new")
        finally:
            told.append(True)

    machine.die_before("rename", 1)
    machine.host.run(work())
    machine.world.run_for(1.0)
    assert machine.died_before == ["rename"] and told == []
    assert machine.world.problems() == []


class Storing:
    """Writes what it hears, and says so; also when it could not."""

    def __init__(self, machine: Machine, connection: Connection) -> None:
        self.machine = machine
        self.connection = connection

    def frame_received(self, frame: memoryview) -> None:
        try:
            self.connection.send([pack(">i", 5), b"begun"])
            self.machine.host.disk.replace("/d/f", bytes(frame))
        finally:
            self.connection.send([pack(">i", 4), b"done"])

    def connection_lost(self, reason: str) -> None: ...


class Listening:
    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.lost: list[str] = []

    def frame_received(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))

    def connection_lost(self, reason: str) -> None:
        self.lost.append(reason)


@pytest.mark.parametrize("power_loss", [False, True])
def test_nobody_hears_what_it_said_in_its_last_moment(power_loss: bool) -> None:
    machine = Machine()
    client = machine.world.node("client")
    network = machine.host.runtime.network
    machine.host.complete(
        network.listen("a", PORT, lambda c: Storing(machine, c), frame_bytes_max=1 << 20)
    )
    heard = Listening()
    connection = client.complete(
        client.runtime.network.connect("a", PORT, lambda _: heard, frame_bytes_max=1 << 20)
    )
    machine.die_before("rename", 1, power_loss=power_loss)
    connection.send([pack(">i", 1), b"x"])
    machine.world.run_for(1.0)
    assert machine.died_before == ["rename"]
    assert heard.frames == []
    assert bool(heard.lost) is not power_loss
    assert machine.world.problems() == []


@pytest.mark.parametrize("change", CHANGES)
def test_every_kind_of_change_can_be_the_one(change: str) -> None:
    machine = Machine()
    disk = machine.host.disk

    def work() -> None:
        disk.make_dirs("/d/e")
        disk.open("/d/f", create=True).append(b"abc")
        disk.open("/d/f").truncate(1)
        disk.open("/d/f").flush()
        disk.flush_dir("/d")
        disk.rename("/d/f", "/d/g")
        disk.remove("/d/g")

    machine.die_before(change, 1)
    machine.does(work)
    assert machine.died_before == [change]
