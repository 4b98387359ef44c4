"""A small cluster to try the simulator on: servers that write down what they are told, flush, and echo it.

Each client keeps telling one server numbered lines, over new connections whenever the old one is lost. What was
echoed had been flushed, so it must be on that server's disk at the end, whatever happened in between.
Run as a program with a seed it prints the hash of the trace.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from struct import pack

from ottla.runtime import Connection, Runtime
from ottla.sim import SimHost, World

PORT = 7
SERVERS = ("s1", "s2", "s3")
CLIENTS = ("c1", "c2", "c3")


class Server:
    def __init__(self, runtime: Runtime) -> None:
        disk = runtime.disk
        disk.make_dirs("/log")
        disk.flush_dir("/")
        self.lock = disk.lock("/log/.lock")
        self.log = disk.open("/log/lines", create=True)
        disk.flush_dir("/log")
        # A torn line at the end was never acknowledged.
        whole = self.log.read_at(0, self.log.size).rstrip(b"\0").rfind(b"\n") + 1
        self.log.truncate(whole)
        self.waiting: list[tuple[Connection, bytes]] = []
        self.wake = asyncio.Event()

    async def serve(self, runtime: Runtime) -> None:
        await runtime.network.listen("", PORT, lambda c: Session(self, c), frame_bytes_max=1000)
        while True:
            await self.wake.wait()
            self.wake.clear()
            told, self.waiting = self.waiting, []
            self.log.append(*[line for _, line in told])
            await asyncio.to_thread(self.log.flush)
            for connection, line in told:
                connection.send([pack(">i", len(line)), line])


class Session:
    def __init__(self, server: Server, connection: Connection) -> None:
        self.server = server
        self.connection = connection

    def frame_received(self, frame: memoryview) -> None:
        self.server.waiting.append((self.connection, bytes(frame)))
        self.server.wake.set()

    def connection_lost(self, reason: str) -> None:
        self.server.waiting = [entry for entry in self.server.waiting if entry[0].closed is False]


class Client:
    def __init__(self, name: str, server: str) -> None:
        self.name = name
        self.server = server
        self.number = 0
        self.acknowledged: list[bytes] = []
        self.lost: asyncio.Event

    def frame_received(self, frame: memoryview) -> None:
        self.acknowledged.append(bytes(frame))

    def connection_lost(self, reason: str) -> None:
        self.lost.set()

    async def talk(self, runtime: Runtime) -> None:
        while True:
            self.lost = asyncio.Event()
            try:
                async with asyncio.timeout(3):
                    connection = await runtime.network.connect(self.server, PORT, lambda _c: self)
            except OSError:
                await asyncio.sleep(runtime.random.uniform(0.01, 0.2))
                continue
            while not self.lost.is_set():
                self.number += 1
                line = b"%s %d\n" % (self.name.encode(), self.number)
                connection.send([pack(">i", len(line)), line])
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.lost.wait(), runtime.random.uniform(0.01, 0.1))
                if connection.queued_bytes > 100_000:
                    connection.abort()


async def nemesis(world: World, servers: list[SimHost]) -> None:
    """Do something bad to somebody, a hundred times."""

    async def start(host: SimHost) -> None:
        await Server(host.runtime).serve(host.runtime)

    chance, network = world.random, world.network
    for host in servers:
        host.run(start(host))
    for _ in range(100):
        await asyncio.sleep(chance.uniform(0.01, 0.5))
        victim = chance.choice(servers)
        match chance.choice(("kill", "power", "pause", "isolate", "one way", "reset", "heal")):
            case "kill" | "power" as how:
                victim.kill(power_loss=how == "power")
                await asyncio.sleep(chance.uniform(0.001, 0.3))
                victim.run(start(victim))
            case "pause":
                victim.pause()
                await asyncio.sleep(chance.uniform(0.1, 3))
                victim.resume()
            case "isolate":
                network.isolate(victim.name)
            case "one way":
                network.block(victim.name, chance.choice(CLIENTS))
            case "reset":
                victim.reset_connections()
            case "heal":
                network.heal()
    network.heal()


def run(seed: int, *, keep_trace: bool = False) -> tuple[World, list[Client]]:
    with World(seed, keep_trace=keep_trace) as world:
        conditions = world.network.conditions
        conditions.spike_rate, conditions.reset_rate, conditions.refuse_rate = 0.02, 0.002, 0.05
        servers = [world.node(name) for name in SERVERS]
        clients = [Client(name, server) for name, server in zip(CLIENTS, SERVERS, strict=True)]
        for client in clients:
            host = world.node(client.name)
            host.run(client.talk(host.runtime))
        troubles = world.script(nemesis(world, servers))
        assert world.run_until(troubles.done, 600), "the script ends"
        troubles.result()
        before = [len(client.acknowledged) for client in clients]

        def all_progress() -> bool:
            return all(
                len(client.acknowledged) > count + 10
                for client, count in zip(clients, before, strict=True)
            )

        assert world.run_until(all_progress, 60), "after the last fault everybody is served"
        for server in servers:
            server.kill(power_loss=True)
        for client in clients:
            found = set(world.node(client.server).disk.read("/log/lines").split(b"\n"))
            missing = [line for line in client.acknowledged if line[:-1] not in found]
            assert not missing, f"seed {seed}: acknowledged and gone: {missing[:3]}"
        assert world.loop.unhandled == []
        return world, clients


if __name__ == "__main__":
    finished, _clients = run(int(sys.argv[1]))
    print(finished.digest(), finished.loop.events)
