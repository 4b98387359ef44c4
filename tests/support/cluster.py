"""A cluster of `ottla.testing` for our own tests, and what they ask of it: byte by byte, broker by broker."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from confluent_kafka.admin import AdminClient, NewTopic

from ottla.local.processes import started_at
from ottla.records.batch import CorruptBatch, batches
from ottla.testing.cluster import Cluster
from ottla.testing.cluster import ClusterNode as NodeProcess
from ottla.wire.apis import ApiKey
from ottla.wire.headers import read_response_header, request_frame
from ottla.wire.messages import read_response, write_request

HOST = "127.0.0.1"
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


class ProcessCluster(Cluster):
    """A cluster of Kafka's own defaults, in a directory that stays, with many questions to ask of it.

    `overrides` are settings for every node, `node_overrides` for one. Its files are there before it is entered.
    """

    preset: Mapping[str, str] = {}

    def __init__(
        self,
        directory: Path,
        brokers: int = 3,
        overrides: Mapping[str, str] | None = None,
        node_overrides: Mapping[int, Mapping[str, str]] | None = None,
    ) -> None:
        super().__init__(brokers, overrides, node_overrides, directory=directory)
        self._admin: AdminClient | None = None
        self.create()

    # -- life and death ---------------------------------------------------------------------------

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self.wait_ready()
        except AssertionError as error:
            error.add_note(self.report())
            self.close()
            raise
        return self

    def mend(self) -> None:
        """Everybody runs again, whatever a test did to them."""
        self.resume(*(node.id for node in self.nodes.values() if node.paused))
        self.start()
        self.wait_ready()

    def adopt(self, node_id: int, process: subprocess.Popen[bytes]) -> None:
        """Another programme runs in the place of the node."""
        known = self._local.nodes[node_id]
        self._local.nodes[node_id] = replace(
            known, pid=process.pid, started=started_at(process.pid) or ""
        )

    def close(self) -> None:
        self._admin = None
        super().close()

    @property
    def bootstrap(self) -> str:
        return self.get_bootstrap_server()

    # -- what it looks like -----------------------------------------------------------------------

    def wait_ready(self, timeout: float = 30) -> None:
        """Until every node that runs sees every other one unfenced."""
        expected = {node.id for node in self.up}

        def all_see_all() -> bool:
            for node in self.nodes.values():
                if node.id in expected and not node.running:
                    raise AssertionError(f"node {node.id} died:\n{node.last_lines()}")
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
        """What a command of the command line answers, as JSON."""
        done = subprocess.run(
            [OTTLA, *words, "--bootstrap", self.bootstrap, "--format", "json"],
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
            self._admin = self.new_admin()
        return self._admin

    def new_admin(self) -> AdminClient:
        """A client that knows no node yet. The next request of another would go to the node that it last took for the
        controller, perhaps one that was killed since."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

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

    def leader_logs(self, topic: str) -> Callable[[int], bytes]:
        """What `log_bytes` says of the leader of a partition."""

        def log_of(partition: int) -> bytes:
            return self.log_bytes(self.partitions(topic)[partition].leader, topic, partition)

        return log_of

    def proportional_bytes(self, node_id: int) -> int:
        """Memory of the node's process, shared pages counted by their share (PSS)."""
        rollup = Path(f"/proc/{self.nodes[node_id].pid}/smaps_rollup").read_text()
        (line,) = (line for line in rollup.splitlines() if line.startswith("Pss:"))
        return int(line.split()[1]) * 1024


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
