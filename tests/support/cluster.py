"""A cluster of real node processes that a test may kill, pause and start again.

Nodes are started with `ottla node --config FILE`, as an operator would. Everything a node prints is kept
in its directory, and shown when a test fails. Whatever was started is ended with the test process, each
by its own pid.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli.ports import free_ports
from ottla.records.batch import CorruptBatch, batches
from ottla.wire.apis import ApiKey
from ottla.wire.headers import read_response_header, request_frame
from ottla.wire.messages import read_response, write_request

HOST = "127.0.0.1"
CONTROLLERS_MAX = 3
OTTLA = Path(sys.executable).with_name("ottla")
T = TypeVar("T")


def wait_until(condition: Callable[[], T], timeout: float, what: str, *, every: float = 0.05) -> T:
    """The first true value of `condition`, asked again and again; AssertionError naming `what` after
    `timeout` seconds. A condition may fail with what a cluster in trouble answers."""
    deadline = time.monotonic() + timeout
    last: object = None
    while True:
        try:
            value = condition()
            if value:
                return value
            last = value
        except (OSError, ClusterNotReady) as error:
            last = error
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what} (last: {last!r})")
        time.sleep(every)


class ClusterNotReady(Exception):
    """A question that nobody could answer just now."""


@dataclass
class PartitionState:
    leader: int
    replicas: list[int]
    isr: list[int]

    @property
    def whole(self) -> bool:
        return self.leader >= 0 and sorted(self.isr) == sorted(self.replicas)


@dataclass
class NodeProcess:
    """One node: its files and addresses for good, and its process while it runs."""

    id: int
    directory: Path
    port: int
    controller_port: int
    is_controller: bool
    process: subprocess.Popen[bytes] | None = None
    paused: bool = False

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def config(self) -> Path:
        return self.directory / "server.properties"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def log(self) -> Path:
        return self.directory / "node.log"

    @property
    def pid(self) -> int:
        assert self.process is not None, f"node {self.id} was not started"
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None


@dataclass
class ProcessCluster:
    """`brokers` nodes on free ports of this machine, the first three of them controllers too.

    `overrides` are settings for every node, `node_overrides` for one. Use as a context manager, or call
    `start_all` and `close`.
    """

    directory: Path
    brokers: int = 3
    overrides: Mapping[str, str] = field(default_factory=dict)
    node_overrides: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    nodes: dict[int, NodeProcess] = field(init=False)

    def __post_init__(self) -> None:
        ports = iter(free_ports(2 * self.brokers))
        self.nodes = {
            i: NodeProcess(
                i, self.directory / f"node-{i}", next(ports), next(ports), i <= CONTROLLERS_MAX
            )
            for i in range(1, self.brokers + 1)
        }
        for node in self.nodes.values():
            node.directory.mkdir(parents=True, exist_ok=True)
            lines = [f"{name}={value}\n" for name, value in self._settings(node).items()]
            node.config.write_text("".join(lines))
        self._admin: AdminClient | None = None
        atexit.register(self.close)

    def _settings(self, node: NodeProcess) -> dict[str, str]:
        voters = [each for each in self.nodes.values() if each.is_controller]
        listeners = [f"PLAINTEXT://{node.address}"]
        if node.is_controller:
            listeners.append(f"CONTROLLER://{HOST}:{node.controller_port}")
        copies = str(min(3, self.brokers))
        return {
            "node.id": str(node.id),
            "process.roles": "broker,controller" if node.is_controller else "broker",
            "listeners": ",".join(listeners),
            "advertised.listeners": listeners[0],
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(
                f"{v.id}@{HOST}:{v.controller_port}" for v in voters
            ),
            "log.dirs": str(node.data),
            "default.replication.factor": copies,
            "min.insync.replicas": str(min(2, self.brokers)),
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            **self.overrides,
            **self.node_overrides.get(node.id, {}),
        }

    # -- life and death ---------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self.start_all()
            self.wait_ready()
        except AssertionError as error:
            error.add_note(self.report())
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start_all(self) -> None:
        for node_id in self.nodes:
            self.start(node_id)

    def start(self, node_id: int) -> None:
        """Start the node; does not wait until it serves."""
        node = self.nodes[node_id]
        assert not node.running, f"node {node_id} runs already"
        with node.log.open("ab") as log:
            log.write(f"--- start of node {node_id}\n".encode())
            log.flush()
            node.process = subprocess.Popen(
                [OTTLA, "node", "--config", node.config],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        node.paused = False

    def kill(self, *node_ids: int) -> None:
        """SIGKILL, all before waiting for any, so that several die at the same moment."""
        for node_id in node_ids:
            os.kill(self.nodes[node_id].pid, signal.SIGKILL)
        for node_id in node_ids:
            process = self.nodes[node_id].process
            assert process is not None
            process.wait(10)

    def stop(self, node_id: int, timeout: float = 30) -> int:
        """SIGTERM: a controlled shutdown. The exit code."""
        process = self.nodes[node_id].process
        assert process is not None
        process.terminate()
        return process.wait(timeout)

    def pause(self, node_id: int) -> None:
        os.kill(self.nodes[node_id].pid, signal.SIGSTOP)
        self.nodes[node_id].paused = True

    def resume(self, node_id: int) -> None:
        os.kill(self.nodes[node_id].pid, signal.SIGCONT)
        self.nodes[node_id].paused = False

    def mend(self) -> None:
        """Everybody runs again, whatever a test did to them."""
        for node in self.nodes.values():
            if not node.running:
                self.start(node.id)
            elif node.paused:
                self.resume(node.id)
        self.wait_ready()

    def close(self) -> None:
        self._admin = None
        self.kill(*(node.id for node in self.nodes.values() if node.running))
        atexit.unregister(self.close)

    # -- what it looks like -----------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes.values())

    @property
    def up(self) -> list[NodeProcess]:
        return [node for node in self.nodes.values() if node.running and not node.paused]

    def wait_ready(self, timeout: float = 30) -> None:
        """Until every node that runs sees every other one unfenced."""
        expected = {node.id for node in self.up}

        def all_see_all() -> bool:
            for node in self.nodes.values():
                if node.id in expected and not node.running:
                    raise AssertionError(f"node {node.id} died:\n{self.logs(node.id)}")
            return all(self.alive_as_seen_by(node) == expected for node in self.up)

        wait_until(all_see_all, timeout, f"brokers {sorted(expected)} ready", every=0.01)

    def alive_as_seen_by(self, node: NodeProcess) -> set[int]:
        answer = self.ask(node, ApiKey.METADATA, 12, {"topics": []})
        return {broker.node_id for broker in answer.brokers}

    def active_controller(self) -> int:
        """The leader of the metadata quorum. (The controller that Metadata names is any broker that
        forwards.)"""
        fields = {
            "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        }
        for node in self.up:
            try:
                answer = self.ask(node, ApiKey.DESCRIBE_QUORUM, 1, fields)
                leader = answer.topics[0].partitions[0].leader_id
            except (OSError, IndexError):
                continue
            if leader > 0:
                return int(leader)
        raise ClusterNotReady("no node knows the active controller")

    def ask(self, node: NodeProcess, key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
        """One request on a connection of its own; OSError if the node does not answer."""
        response, body = self.exchange(node, key, version, write_request(key, version, fields))
        return read_response(key, version, response, body)

    def exchange(
        self, node: NodeProcess, key: ApiKey, version: int, body: bytes
    ) -> tuple[memoryview, int]:
        """The same for a request that is encoded already: the frame of the answer, and where its body
        begins."""
        with socket.create_connection((HOST, node.port), 2) as connection:
            connection.settimeout(5)
            connection.sendall(request_frame(key, version, 1, "test", body))
            size = int.from_bytes(receive(connection, 4), "big")
            response = memoryview(bytearray(receive(connection, size)))
        return response, read_response_header(key, version, response)[1]

    def ottla(self, *words: str) -> Any:
        """What a command of the command line answers, as JSON. The first node must be up."""
        done = subprocess.run(
            [OTTLA, *words, "--bootstrap", self.nodes[1].address, "--format", "json"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self._admin

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replicas: int | None = None,
        config: Mapping[str, str] | None = None,
        assignment: list[list[int]] | None = None,
    ) -> str:
        """A new topic, led and in sync, and known to every live broker. `assignment` names the brokers of
        each partition, leader first."""
        config = dict(config or {})
        if assignment is None:
            topic = NewTopic(name, partitions, replicas or min(3, self.brokers), config=config)
        else:
            partitions = len(assignment)
            topic = NewTopic(name, partitions, replica_assignment=assignment, config=config)
        self.admin.create_topics([topic], request_timeout=30)[name].result(30)
        wait_until(
            lambda: all(
                len(states := self.partitions_as_seen_by(node, name)) == partitions
                and all(state.whole for state in states.values())
                for node in self.up
            ),
            20,
            f"topic {name} led and in sync",
        )
        return name

    def partitions(self, topic: str) -> dict[int, PartitionState]:
        """Leader, replicas and ISR of each partition, as one of the live brokers knows them."""
        for node in self.up:
            try:
                return self.partitions_as_seen_by(node, topic)
            except OSError:
                continue
        raise ClusterNotReady("no broker answers")

    def partitions_as_seen_by(self, node: NodeProcess, topic: str) -> dict[int, PartitionState]:
        fields = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        (answer,) = self.ask(node, ApiKey.METADATA, 12, fields).topics
        return {
            p.partition_index: PartitionState(p.leader_id, list(p.replica_nodes), list(p.isr_nodes))
            for p in answer.partitions
        }

    def leader(self, topic: str, partition: int = 0) -> int:
        def known() -> int:
            return max(self.partitions(topic)[partition].leader, 0)

        return wait_until(known, 20, f"a leader of {topic}-{partition}")

    def wait_whole(self, topic: str, timeout: float = 30) -> None:
        """Until every partition has a leader and every replica in its ISR."""

        def whole() -> bool:
            states = self.partitions(topic)
            if not states or not all(state.whole for state in states.values()):
                raise ClusterNotReady(f"{states}")
            return True

        wait_until(whole, timeout, f"ISR of {topic} whole")

    # -- what lies on its disks ---------------------------------------------------------------------

    def log_bytes(self, node_id: int, topic: str, partition: int) -> bytes:
        """All .log segments of one replica, one after the other."""
        directory = self.nodes[node_id].data / f"{topic}-{partition}"
        return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))

    def proportional_bytes(self, node_id: int) -> int:
        """Memory of the node's process, shared pages counted by their share (PSS)."""
        rollup = Path(f"/proc/{self.nodes[node_id].pid}/smaps_rollup").read_text()
        (line,) = (line for line in rollup.splitlines() if line.startswith("Pss:"))
        return int(line.split()[1]) * 1024

    def logs(self, node_id: int, lines: int = 60) -> str:
        path = self.nodes[node_id].log
        text = path.read_text(errors="replace") if path.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def report(self) -> str:
        """For a failed test: who runs, and the end of each node's output."""
        parts = []
        for node in self.nodes.values():
            code = node.process.poll() if node.process else None
            state = "paused" if node.paused else "running" if node.running else f"exit {code}"
            parts.append(f"--- node {node.id} ({node.address}, {state})\n{self.logs(node.id)}")
        return "\n".join(parts)


def byte_identical(cluster: ProcessCluster, topic: str, timeout: float = 30) -> None:
    """Assert that, once the ISR is whole, all replicas of each partition hold the same bytes. Nobody may be
    producing meanwhile."""
    cluster.wait_whole(topic, timeout)
    for partition, state in cluster.partitions(topic).items():

        def same(partition: int = partition, state: PartitionState = state) -> bool:
            logs = {r: cluster.log_bytes(r, topic, partition) for r in state.replicas}
            leader = logs[state.leader]
            for replica, log in logs.items():
                if log != leader:
                    difference = _first_difference(leader, log)
                    raise ClusterNotReady(
                        f"{topic}-{partition}: replica {replica} differs from leader "
                        f"{state.leader}: {difference}"
                    )
            return True

        wait_until(same, timeout, f"replicas of {topic}-{partition} byte-identical")


@contextmanager
def paused(cluster: ProcessCluster, node_id: int) -> Iterator[None]:
    cluster.pause(node_id)
    try:
        yield
    finally:
        cluster.resume(node_id)


def _first_difference(leader: bytes, other: bytes) -> str:
    ours, theirs = _described(leader), _described(other)
    for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return f"batch {i} is {a} on the leader, {b} there"
    return (
        f"{len(ours)} batches ({len(leader)} B) on the leader, {len(theirs)} ({len(other)} B) there"
    )


def _described(log: bytes) -> list[str]:
    result = []
    try:
        for batch in batches(log):
            result.append(
                f"[{batch.base_offset}..{batch.last_offset} e{batch.leader_epoch} "
                f"pid {batch.producer_id} seq {batch.base_sequence} crc {batch.crc:#x}]"
            )
    except CorruptBatch as error:
        result.append(f"[{error}]")
    return result


def receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise ConnectionError("closed before the answer was whole")
        received += piece
    return received
