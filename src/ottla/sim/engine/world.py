"""A cluster in one process: hosts with clocks, disks and a network between them, all driven by one seed.

    with World(seed=7) as world:
        node = world.node("b1")
        node.run(serve(node.runtime))
        world.network.isolate("b1")
        assert world.run_until(lambda: ..., timeout_s=30)

A host's code starts with `run` and dies with `kill`. Its disk survives. Code outside every host (the script) sees
everything and is not part of the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from ottla.runtime import Runtime
from ottla.sim.engine.disk import SimDisk
from ottla.sim.engine.loop import SimLoop
from ottla.sim.engine.network import SimNetwork
from ottla.sim.engine.process import SimProcess, current_process
from ottla.sim.engine.tcp import TcpNetwork
from ottla.sim.engine.toy_tls import ToyTls

T = TypeVar("T")

WALL_START_MS = 1_767_225_600_000
"""2026-01-01, so that timestamps look real."""


class SimClock:
    """A host's clock. Its wall time may be wrong, and may change at any time."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._started_ns = loop.now_ns
        self.wall_error_ms = 0

    def monotonic(self) -> float:
        return self._loop.time()

    def wall_ms(self) -> int:
        passed_ms = (self._loop.now_ns - self._started_ns) // 1_000_000
        return WALL_START_MS + passed_ms + self.wall_error_ms


class SimHost:
    """One machine. Processes start and die, the disk survives."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self._world = world
        self._loop = world.loop
        self._host = world.network.host(name)
        self.address = self._host.address
        self.disk = SimDisk(
            world.loop.random_for(f"disk of {name}"),
            lambda label, *values: world.loop.trace(label, name, *values),
        )
        self.disk.cold_chance = world.loop.random_for(f"memory of {name}")
        self.clock = SimClock(world.loop)
        self.runtime = Runtime(
            clock=self.clock,
            disk=self.disk,
            network=SimNetwork(world.loop, self._host),
            random=world.loop.random_for(f"node {name}"),
            make_tls=lambda options: ToyTls(options, self.clock),
        )
        self.process: SimProcess | None = None
        self.started: list[asyncio.Task[Any]] = []
        """The tasks that `run` started in the present process."""

    def __repr__(self) -> str:
        return f"<host {self.name}: {self.process or 'nothing running'}>"

    @property
    def running(self) -> bool:
        return self.process is not None

    def run(self, work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Start `work` on this host, in the running process or in a new one."""
        if self.process is None:
            self.process = SimProcess(self.name, self._loop.next_number())
            self._loop.trace("start", self.name, self.process.number)
            if not self._host.up:
                self._host.up = True
                self._world.network.release_stalled()
        context = copy_context()
        context.run(current_process.set, self.process)
        task: asyncio.Task[T] = self._loop.create_task(work, name=name, context=context)
        self.started.append(task)
        return task

    def complete(self, work: Coroutine[Any, Any, T], timeout_s: float = 60.0) -> T:
        """Run `work` on this host to its end, while the other hosts run too. Returns its result."""
        task = self.run(work)
        self.started.remove(task)  # its failure is raised here
        if not self._world.run_until(task.done, timeout_s):
            task.cancel()
            raise TimeoutError(f"{self.name} did not finish within {timeout_s} virtual seconds")
        return task.result()

    def kill(self, *, power_loss: bool = False) -> None:
        """kill -9; with `power_loss` the machine loses its power, and unflushed data may be lost.

        The system closes the connections of a killed process. The connections of a machine without power stop
        answering, until it is started again.
        """
        process = self.process
        if process is not None:
            assert current_process.get() is not process, "a process cannot watch its own death"
            self._loop.trace("power loss" if power_loss else "kill", self.name, process.number)
            self._loop.bury(process)
            _disconnect(process, power_loss)
            self._world.keep_dead(process)
            self.process = None
            self.started.clear()
        if power_loss:
            self._host.up = False
            self.disk.lose_power()
        else:
            self.disk.forget_process()

    def die_before(
        self,
        change: str | None,
        countdown: int,
        is_power_loss: Callable[[], bool],
        funeral: Callable[[str, bool], None],
    ) -> None:
        """Make the process die before the `countdown`th change of its disk from now on.

        `is_power_loss` is called then, and returns whether the machine loses its power too. The process's code ends
        there. After that `funeral` is called, with the change that was not done and whether it was a power loss. It
        must call `kill`.
        """

        def dies(change: str) -> None:
            process = self.process
            assert process is not None and current_process.get() is process
            power_loss = is_power_loss()
            process.alive = False
            process.funeral = partial(funeral, change, power_loss)
            # At once: nothing that it sends while it unwinds may arrive.
            _disconnect(process, power_loss)

        self.disk.die_before(change, countdown, dies)

    def pause(self) -> None:
        """Stop the process where it is, like SIGSTOP or a long garbage collection. The operating system continues."""
        assert self.process is not None
        self._loop.trace("pause", self.name)
        self.process.paused = True

    def resume(self) -> None:
        assert self.process is not None and self.process.paused
        self._loop.trace("resume", self.name)
        self._loop.resume(self.process)

    def slow_disk(self, shortest_s: float, longest_s: float) -> None:
        """Set how long work in threads (fsync, recovery) takes on this host."""
        assert 0 <= shortest_s <= longest_s
        self._loop.executor_delays_s[self.name] = (shortest_s, longest_s)

    def reset_connections(self, peer: str | None = None) -> int:
        """Reset every open connection of this host, or those to `peer`. Returns how many."""
        processes = [self.process] if self.process is not None else []
        return self._world.network.reset_connections(processes, peer)


def _disconnect(process: SimProcess, power_loss: bool) -> None:
    for _port, listener in sorted(process.listeners.items()):
        listener.close()
    for _number, connection in sorted(process.sockets.items()):
        if power_loss:
            connection.vanish()
        else:
            connection.close()


class World:
    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.seed = seed
        self.loop = SimLoop(seed, keep_trace=keep_trace)  # type: ignore[abstract]
        self.random = self.loop.random_for("workload")
        """The script's generator: what it does, to which host, and when."""
        self._hosts: dict[str, SimHost] = {}
        self._dead: list[SimProcess] = []

    @property
    def network(self) -> TcpNetwork:
        return self.loop.network

    @property
    def hosts(self) -> list[SimHost]:
        return list(self._hosts.values())

    def node(self, name: str) -> SimHost:
        """The host of that name, created by the first call."""
        found = self._hosts.get(name)
        if found is None:
            found = self._hosts[name] = SimHost(self, name)
        return found

    def script(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `work` outside every host: a nemesis, a checker."""
        task: asyncio.Task[T] = self.loop.create_task(work)
        return task

    def run_until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Let virtual time pass until `condition` holds; False if it did not within `timeout_s`."""
        return self.loop.run_until(condition, timeout_s)

    def run_for(self, seconds: float) -> None:
        self.loop.run_until(lambda: False, seconds)

    def problems(self) -> list[str]:
        """Failures that nothing reported: main tasks that failed, exceptions that were not handled."""
        found = [
            f"{host.name}: {task.get_name()} failed: {task.exception()!r}"
            for host in self.hosts
            for task in host.started
            if task.done() and not task.cancelled() and task.exception() is not None
        ]
        found += [
            f"{host or 'outside'}: {message}: {exception!r}"
            for host, message, exception in self.loop.unhandled
        ]
        return found

    def digest(self) -> str:
        """The hash of everything that happened so far."""
        return self.loop.trace.digest()

    def keep_dead(self, process: SimProcess) -> None:
        self._dead.append(process)

    def close(self) -> None:
        self.loop.close()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
