"""A cluster of real broker processes for a test, which can kill, pause and cut off its nodes."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ottla.local.cluster import HOST, READY_TIMEOUT_S, STOP_PATIENCE_S, LocalCluster
from ottla.local.errors import LocalClusterError
from ottla.local.ports import free_ports
from ottla.local.processes import Starting
from ottla.testing.network import CLIENT, End, ProxyNetwork

if TYPE_CHECKING:
    from ottla.client import Client
    from ottla.client.model import PartitionInfo

__all__ = ["CLIENT", "Cluster", "ClusterNode", "ExistingCluster"]

SETTINGS: Mapping[str, str] = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}
"""What differs from `ottla up`: tests have few groups, and must not wait for them."""

SASL_SSL = "sasl_ssl"
LOG_LINES = 60
ASK_TIMEOUT_S = 30.0
BROKER_PATIENCE_S = 1.0
LOOK_EVERY_S = 0.02
T = TypeVar("T")


class ClusterNode:
    """One of the cluster's nodes: a broker and, if it is one of the first three, a controller too."""

    def __init__(self, cluster: LocalCluster, id: int) -> None:
        self._cluster = cluster
        self.id = id
        self.paused = False

    @property
    def running(self) -> bool:
        return self._cluster.nodes[self.id].running

    @property
    def pid(self) -> int | None:
        return self._cluster.nodes[self.id].pid

    @property
    def port(self) -> int:
        """Where it listens itself. In a proxied cluster it advertises another port."""
        return self._cluster.nodes[self.id].port

    @property
    def address(self) -> str:
        return self._cluster.nodes[self.id].address

    @property
    def controller_port(self) -> int | None:
        return self._cluster.nodes[self.id].controller_port

    @property
    def directory(self) -> Path:
        return self._cluster.node_directory(self.id)

    @property
    def data(self) -> Path:
        """Its log directory, in Kafka's layout."""
        return self.directory / "data"

    @property
    def config(self) -> Path:
        return self._cluster.config_file(self.id)

    @property
    def log(self) -> Path:
        """The file with its output."""
        return self._cluster.log_file(self.id)

    def last_lines(self, count: int = LOG_LINES) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-count:])


class Cluster:
    """`brokers` of them on free ports of this machine, ready when the `with` block begins and gone when it ends.

    settings       Kafka's names and values, for every node, over those of `SETTINGS`
    node_settings  the same for one node, by its id
    seed           decides what `any_broker` picks; drawn if it is not given, and reported when a test fails
    directory      where the nodes keep their files; a temporary one that is removed, unless it is given
    proxied        whether nodes can be cut off (`partition`, `isolate`, `cut`): their traffic then goes through this process
    security       "sasl_ssl": TLS and SCRAM for clients, certificates among nodes, an authorizer, and the user admin, who may do
                   everything. `client_settings` has what a client needs, `add_user` makes other users.
    """

    preset = SETTINGS
    dynamic_voters = False
    """Whether controllers can be added, removed and replaced."""

    def __init__(
        self,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        node_settings: Mapping[int, Mapping[str, str]] | None = None,
        *,
        seed: int | None = None,
        directory: Path | None = None,
        proxied: bool = False,
        security: str | None = None,
    ) -> None:
        if security not in (None, SASL_SSL):
            raise ValueError(f"security={security!r}: there is only {SASL_SSL!r}, and None")
        if security and proxied:
            raise ValueError("a secure cluster cannot be cut: leave out proxied or security")
        self.security = security
        self.brokers = brokers
        self.settings = {**self.preset, **(settings or {})}
        self.node_settings = node_settings or {}
        self.seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
        self.directory = directory
        self.nodes: dict[int, ClusterNode] = {}
        self._chance = random.Random(self.seed)
        self._is_proxied = proxied
        self._network: ProxyNetwork | None = None
        self._advertised: dict[int, int] = {}
        self._is_ours = directory is None
        self._starting: dict[int, Starting] = {}
        self._warden: subprocess.Popen[bytes] | None = None

    # Start and end

    def __enter__(self) -> Self:
        atexit.register(self.close)
        try:
            self.create()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        starting = asyncio.ensure_future(asyncio.to_thread(self.__enter__))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with suppress(Exception):
                await starting
            await asyncio.to_thread(self.close)
            raise

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def create(self) -> None:
        """Create the files that nodes need to start. Entering the cluster does it, if it is not done."""
        if self.nodes:
            return
        if self.directory is None:
            self.directory = Path(tempfile.mkdtemp(prefix="ottla-"))
            self._warden = _watch_over(self.directory)
        self._local = LocalCluster.create(
            self.directory,
            self.brokers,
            0,
            secure=self.security is not None,
            dynamic_voters=self.dynamic_voters,
        )
        self.nodes = {id: ClusterNode(self._local, id) for id in self._local.nodes}
        more = dict(self.settings)
        if self._is_proxied:
            more |= self._wire()
        for node in self.nodes.values():
            own = {**more, **self.node_settings.get(node.id, {})}
            if self._is_proxied:
                own["advertised.listeners"] = f"PLAINTEXT://{HOST}:{self._advertised[node.id]}"
            self._local.configure(node.id, own)

    def _wire(self) -> dict[str, str]:
        """Put proxies before the nodes' ports. Returns the settings that make the nodes use them."""
        self._network = ProxyNetwork(
            lambda: {id: node.pid for id, node in self._local.nodes.items() if node.pid is not None}
        )
        ports = iter(free_ports(2 * self.brokers))
        voters = []
        for id, node in self._local.nodes.items():
            self._advertised[id] = next(ports)
            self._network.add(id, self._advertised[id], node.port)
            if node.controller_port is not None:
                port = next(ports)
                self._network.add(id, port, node.controller_port)
                voters.append(f"{id}@{HOST}:{port}")
        return {"controller.quorum.voters": ",".join(voters)}

    def close(self) -> None:
        """Kill all nodes and remove their files (but not a directory that was given)."""
        atexit.unregister(self.close)
        if self.nodes:
            self._know_what_commands_started()
            self._local.kill()
        if self._network is not None:
            self._network.close()
            self._network = None
        if self._warden is not None:
            self._warden.kill()
            self._warden.wait()
            self._warden = None
        if self._is_ours and self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _know_what_commands_started(self) -> None:
        """A test may have used `ottla up` or `ottla nodes start`, whose processes are in the file only."""
        with suppress(LocalClusterError):
            for id, node in LocalCluster.load(self._local.directory).nodes.items():
                if node.running and id in self._local.nodes:
                    self._local.nodes[id] = node

    # Nodes

    def get_bootstrap_server(self) -> str:
        if self._is_proxied:
            return ",".join(f"{HOST}:{port}" for port in self._advertised.values())
        return self._local.bootstrap

    @property
    def up(self) -> list[ClusterNode]:
        return [node for node in self.nodes.values() if node.running and not node.paused]

    def any_broker(self) -> int:
        """One of those that are up; the seed decides which."""
        return self._chance.choice([node.id for node in self.up])

    def start(self, *ids: int, timeout: float = READY_TIMEOUT_S) -> None:
        """Start these nodes (or all that do not run), and wait until they are ready."""
        waiting = list(ids) or [id for id, node in self.nodes.items() if not node.running]
        self.launch(*waiting)
        self._local.wait_ready({id: self._starting[id] for id in waiting}, timeout)

    def launch(self, *ids: int) -> None:
        """Start these nodes, and wait for nothing."""
        self._require(ids)
        if self._network is not None:
            for id in ids:
                self._network.up(id)
        self._starting |= self._local.launch(list(ids), outlive=False)

    def kill(self, *ids: int) -> None:
        """SIGKILL, like a crash: no shutdown, no flush."""
        self._require(ids)
        self._refuse(ids)
        self._local.kill(list(ids))
        self._are_awake(ids)

    def stop(self, *ids: int) -> list[int | None]:
        """A controlled shutdown: leaderships move first. Returns the exit codes."""
        self._require(ids)
        self.resume(*(id for id in ids if self.nodes[id].paused))
        self._local.stop(list(ids))
        self._refuse(ids)
        return [self._starting[id].exit_code(STOP_PATIENCE_S) for id in ids]

    def restart(self, *ids: int) -> None:
        """Stop and start, one after the other."""
        self._require(ids)
        for id in ids:
            if self.nodes[id].running:
                self.stop(id)
            self.start(id)

    def pause(self, *ids: int) -> None:
        """SIGSTOP: its connections stay, but it sends nothing, as in a long pause for garbage collection."""
        self._signal(ids, signal.SIGSTOP)
        for id in ids:
            self.nodes[id].paused = True

    def resume(self, *ids: int) -> None:
        self._signal(ids, signal.SIGCONT)
        self._are_awake(ids)

    def _are_awake(self, ids: Collection[int]) -> None:
        for id in ids:
            self.nodes[id].paused = False

    def _require(self, ids: Iterable[End]) -> None:
        """ValueError unless they are nodes of this cluster. Otherwise a mistake would do nothing, or only a part."""
        unknown = [id for id in ids if id not in self.nodes and id != CLIENT]
        if unknown:
            known = ", ".join(str(id) for id in self.nodes) or "none before it is started"
            raise ValueError(f"no node {unknown[0]} in this cluster; there are {known}")

    def _signal(self, ids: Collection[int], number: signal.Signals) -> None:
        self._require(ids)
        for id in ids:
            process = self._local.nodes[id].process
            if process is None or not process.signal(number):
                raise RuntimeError(f"node {id} does not run")

    def _refuse(self, ids: Collection[int]) -> None:
        if self._network is not None:
            for id in ids:
                self._network.down(id)

    # Network

    @property
    def _wires(self) -> ProxyNetwork:
        if self._network is None:
            raise RuntimeError("this cluster cannot be cut: make it with proxied=True")
        return self._network

    def partition(self, *groups: Collection[End]) -> None:
        """Nodes reach each other only within a group. Nodes that are not named are one more group. Clients reach all, unless
        a group has CLIENT in it. A partition replaces the former one."""
        named = {end for group in groups for end in group}
        self._require(named)
        rest = [id for id in self.nodes if id not in named]
        parts: list[Collection[End]] = [*groups, rest]
        ways = [
            (source, target)
            for one, other in permutations(parts, 2)
            for source in one
            for target in other
        ]
        self._wires.heal()
        self._wires.cut(ways)

    def isolate(self, id: int) -> None:
        """No other node, and no client, can reach it."""
        self._require([id])
        others: list[End] = [CLIENT, *(other for other in self.nodes if other != id)]
        self.partition([id], others)

    def cut(self, source: End, target: End) -> None:
        """Cut one direction: what the first sends no longer reaches the second."""
        self._require([source, target])
        self._wires.cut([(source, target)])

    def heal(self) -> None:
        """Remove all cuts. Data in flight arrives."""
        self._wires.heal()

    # Users

    def add_user(
        self,
        name: str,
        *,
        produce: Collection[str] = (),
        consume: Collection[str] = (),
        groups: Collection[str] = (),
        transactional: Collection[str] = (),
    ) -> None:
        """Who may log in, and do what these say; a name that ends with `*` is a prefix. The password is a random one, which
        `client_settings` has."""
        from ottla.client.security_admin import SecurityAdmin
        from ottla.local.secure import new_password, write_login
        from ottla.security.principals import user
        from ottla.security.roles import AclRole
        from ottla.security.secrets import Secret

        self._require_security()
        role = AclRole(tuple(produce), tuple(consume), tuple(groups), tuple(transactional))
        password = new_password()

        async def add(client: Client) -> None:
            admin = SecurityAdmin(client)
            await admin.set_password(name, Secret(password))
            if acls := role.acls(user(name)):
                await admin.add_acls(acls)

        self._ask(add)
        write_login(self._local, name, password)

    def client_settings(self, user: str = "admin", *, family: str = "confluent-kafka") -> dict[str, Any]:  # fmt: skip
        """What a client of this family needs: confluent-kafka, kafka-python, aiokafka, java, kafkajs or spark."""
        self._require_security()
        directory = self.client_directory(user)
        if family == "java":
            from ottla.client.command_config import read_command_config

            return dict(read_command_config(str(directory / "java.properties")))
        if family == "aiokafka":
            import runpy

            found: dict[str, Any] = runpy.run_path(str(directory / "aiokafka.py"))["settings"]()
            return found
        file = directory / f"{family}.json"
        if not file.exists():
            raise ValueError(f"no settings for {family!r} of user {user!r} ({directory})")
        settings: dict[str, Any] = json.loads(file.read_text())
        return settings

    def client_directory(self, user: str = "admin") -> Path:
        """Files with settings for all families of clients; ca.crt and password are among them."""
        from ottla.local.client_files import user_directory

        self._require_security()
        return user_directory(self._local.directory, user)

    def _require_security(self) -> None:
        if self.security is None:
            raise RuntimeError("this cluster has no users: make it with security='sasl_ssl'")

    # Topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replicas: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """Returns when each partition has its leader and all its in-sync replicas."""
        factor = min(3, self.brokers) if replicas is None else replicas
        self._ask(lambda client: client.create_topic(name, partitions, factor, dict(config or {})))
        self.wait_in_sync(name)
        return name

    def leader(self, topic: str, partition: int = 0) -> int:
        """The leader of the partition. Waits until there is one."""

        def is_led(partitions: list[PartitionInfo]) -> bool:
            if partition >= len(partitions):
                raise ValueError(
                    f"topic {topic} has no partition {partition}: they are 0 to {len(partitions) - 1}"
                )
            return _is_led(partitions[partition])

        found = self._until(is_led, topic, f"{topic}-{partition} has a leader")
        return found[partition].leader

    def wait_in_sync(self, topic: str, timeout: float = ASK_TIMEOUT_S) -> None:
        """Wait until every partition has a leader, and every replica is in the ISR."""
        self._until(
            lambda partitions: all(_is_led(p) and not p.out_of_sync for p in partitions),
            topic,
            f"all replicas of {topic} are in sync",
            timeout,
        )

    def _until(
        self,
        good: Callable[[list[PartitionInfo]], bool],
        topic: str,
        what: str,
        timeout: float = ASK_TIMEOUT_S,
    ) -> list[PartitionInfo]:
        from ottla.client.all_brokers import newest_view

        deadline = time.monotonic() + timeout

        async def ask(client: Client) -> list[PartitionInfo]:
            while True:
                awake = [self._addresses[node.id] for node in self.up]
                found = await newest_view(client, awake, topic, BROKER_PATIENCE_S)
                if found and good(found):
                    return found
                if time.monotonic() > deadline:
                    last = found or "no broker answers"
                    raise TimeoutError(f"not within {timeout:g} s: {what} (last: {last})")
                await asyncio.sleep(LOOK_EVERY_S)

        return self._ask(ask)

    @property
    def _addresses(self) -> dict[int, tuple[str, int]]:
        """Where clients reach each node."""
        return {
            id: (HOST, self._advertised[id] if self._is_proxied else node.port)
            for id, node in self.nodes.items()
        }

    def _ask(self, question: Callable[[Client], Awaitable[T]]) -> T:
        """Run in another thread, because an event loop may be running in this one."""
        from ottla.client.command_config import client_from

        settings = {} if self.security is None else self.client_settings(family="java")
        result: list[T] = []
        failure: list[BaseException] = []

        def work() -> None:
            try:
                addresses = list(self._addresses.values())
                with client_from(addresses, settings, timeout_s=ASK_TIMEOUT_S) as blocking:

                    async def asked() -> T:
                        return await question(blocking.client)

                    result.append(blocking.run(asked()))
            except BaseException as error:
                failure.append(error)

        thread = threading.Thread(target=work, name="ottla question")
        thread.start()
        thread.join()
        if failure:
            raise failure[0]
        return result[0]

    # For a failed test

    def report(self, lines: int = LOG_LINES) -> str:
        """The state of each node, the seed, and the end of each node's output."""
        noun = "broker" if self.brokers == 1 else "brokers"
        parts = [f"{self.brokers} {noun}, seed {self.seed}"]
        for node in self.nodes.values():
            state = "paused" if node.paused else "running" if node.running else "down"
            parts.append(f"--- node {node.id} ({state})\n{node.last_lines(lines)}")
        return "\n".join(parts)


@dataclass(frozen=True)
class ExistingCluster:
    """A cluster that was started elsewhere. It can be used, but its nodes cannot be killed or cut off."""

    bootstrap: str

    def get_bootstrap_server(self) -> str:
        return self.bootstrap


def _watch_over(directory: Path) -> subprocess.Popen[bytes]:
    """Start the process that removes the directory when this process dies."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "ottla.testing.warden", str(os.getpid()), str(directory)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C must not end it
    )


def _is_led(partition: PartitionInfo) -> bool:
    return bool(partition.leader >= 0)
