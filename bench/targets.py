"""What is measured: three brokers of ottla, and three of Apache Kafka with the same settings.

Both read the same properties files. Kafka's JVM gets what its own start script gives it: one gigabyte of heap and G1.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from bench.clients import COMMON
from bench.secured import AUTHORIZER, Access, add_acls
from ottla.client.command_config import client_from
from ottla.local.cluster import LocalCluster
from support import kafka_jars

READY_TIMEOUT_S = 90.0
PARTITIONS_AT_ONCE = 5_000
"""A controller makes no more than 10,000 records of one request, Kafka's and ours."""
DELETED_S = 2.0
"""How long files of a deleted topic may still be there."""
SETTLE_S = 5.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

SETTINGS = {
    # What a case has written is gone soon after it: no case pays for the disk and memory of those before.
    "log.segment.delete.delay.ms": "1000",
    "log.retention.check.interval.ms": "5000",
}

KAFKA_JVM = (
    *("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    *("-XX:MaxInlineLevel=15", "-Djava.awt.headless=true"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


class Target(ABC):
    """Three brokers that run, and what the system says about their processes."""

    name: str
    settings: ClassVar[dict[str, str]]
    access: ClassVar[Access | None] = None
    """Set for all, if clients come by TLS, or log in."""

    def __init__(self, brokers: int = 3, per_machine: int | None = None) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"bench-{self.name}-"))
        self.cluster = LocalCluster.create(
            self.directory / "cluster", brokers, 0, per_machine=per_machine
        )
        self.bootstrap = self.cluster.bootstrap
        self.ready_s = float("nan")
        for id in self.cluster.nodes:
            with self.cluster.config_file(id).open("a") as file:
                file.writelines(f"{name}={value}\n" for name, value in self.settings.items())
            if self.access is not None:
                self.access.configure(self.cluster.config_file(id), id)
        self._topics: list[str] = []

    def __enter__(self) -> Self:
        try:
            began = time.monotonic()
            self.start_all()
            self.wait_ready()
            self.ready_s = time.monotonic() - began
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for id in list(self.pids):
            self.kill(id)
        shutil.rmtree(self.directory, ignore_errors=True)

    # -- processes: what differs

    @property
    @abstractmethod
    def pids(self) -> dict[int, int]:
        """Of the brokers that run, by their ids."""

    def start_all(self) -> None:
        for id in self.cluster.nodes:
            self.start(id)

    @abstractmethod
    def start(self, id: int) -> None:
        """Does not wait until it serves."""

    @abstractmethod
    def kill(self, id: int) -> None:
        """kill -9; returns when it is gone."""

    @abstractmethod
    def stop(self, id: int) -> None:
        """Controlled shutdown; returns when it is gone."""

    # -- what is the same

    def wait_ready(self) -> None:
        """Until a client that asks any of them is told of all that run."""
        for id in self.pids:
            what = f"{self.name}: node {id} sees all brokers"
            wait_until(partial(self._sees_all_brokers, id), READY_TIMEOUT_S, what)

    def _sees_all_brokers(self, id: int) -> bool:
        return brokers_seen_by(self.cluster.nodes[id].address) == set(self.pids)

    def create_topic(self, name: str, partitions: int, config: dict[str, str] | None = None) -> str:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **COMMON})
        first = min(partitions, PARTITIONS_AT_ONCE)
        machines = len({self.cluster.machine_of(id) for id in self.cluster.nodes})
        topic = NewTopic(name, first, min(3, machines), config=config or {})
        try:
            admin.create_topics([topic])[name].result(60)
        except KafkaException as error:
            # The name is ours alone: on a busy machine the client asked twice.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        self._topics.append(name)
        for made in range(first, partitions, PARTITIONS_AT_ONCE):
            self.wait_in_sync(admin, name, made)
            wanted = NewPartitions(name, min(made + PARTITIONS_AT_ONCE, partitions))
            admin.create_partitions([wanted])[name].result(60)
        self.wait_in_sync(admin, name, partitions)
        return name

    def settle(self) -> None:
        """Until what came before is over: files of deleted topics are gone, and what was written is on the disk."""
        os.sync()
        time.sleep(SETTLE_S)

    def delete_topics(self, *names: str) -> None:
        """These, or all that it was given."""
        topics = list(names) or self._topics
        self._topics = [each for each in self._topics if each not in topics]
        if topics:
            admin = AdminClient({"bootstrap.servers": self.bootstrap, **COMMON})
            for deleted in admin.delete_topics(topics, operation_timeout=60).values():
                deleted.result(60)
            time.sleep(DELETED_S)

    def active_controller(self) -> int:
        """A client is told of any broker as the controller; the quorum knows who it is."""
        nodes = [("127.0.0.1", self.cluster.nodes[id].port) for id in self.pids]
        with client_from(nodes, self.java_client()) as blocking:
            return blocking.run(blocking.client.describe_quorum()).leader

    def java_client(self) -> dict[str, str]:
        """What a client needs to reach it, in the words of Kafka's own."""
        return {} if self.access is None else self.access.java_client()

    def wait_in_sync(self, admin: AdminClient, topic: str, partitions: int) -> None:
        def whole() -> bool:
            found = admin.list_topics(topic, timeout=10).topics[topic].partitions.values()
            return len(found) == partitions and all(
                p.leader >= 0 and len(p.isrs) == len(p.replicas) for p in found
            )

        wait_until(whole, READY_TIMEOUT_S, f"{self.name}: {topic} is in sync")

    def leader(self, topic: str, partition: int = 0) -> int:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **COMMON})
        found: list[int] = []

        def is_known() -> bool:
            """Any broker may be asked, also one that has not heard of the topic yet."""
            partitions = admin.list_topics(topic, timeout=10).topics[topic].partitions
            found[:] = [each.leader for each in partitions.values() if each.id == partition]
            return found not in ([], [-1])

        wait_until(is_known, READY_TIMEOUT_S, f"{self.name}: somebody leads {topic}")
        return found[0]

    def cpu_s(self) -> float:
        """Of all its processes together, since they began."""
        return sum(_cpu_s(pid) for pid in self.pids.values())

    def all_memory(self) -> float:
        """PSS of all its processes together, in MB."""
        return sum(_memory_mb(pid)["PSS"] for pid in self.pids.values())

    def memory(self, when: str = "per broker") -> dict[str, float]:
        """Of the largest of them, in MB. PSS is what it has for itself and its share of what it shares, which is less
        the more nodes one machine runs: ottla's are forked from one process. RSS is what one would have alone."""
        each = [_memory_mb(pid) for pid in self.pids.values()]
        return {f"{kind} {when}": max(mb[kind] for mb in each) for kind in ("PSS", "RSS")}


class Ottla(Target):
    name = "ottla"
    settings = SETTINGS

    @property
    def pids(self) -> dict[int, int]:
        return {node.id: node.pid for node in self.cluster.running if node.pid is not None}

    def start_all(self) -> None:
        """By the command that users type, import and all. It knows nothing of other listeners."""
        if self.access is not None:
            super().start_all()
            return
        ottla, directory = Path(sys.executable).with_name("ottla"), self.cluster.directory
        up = [str(ottla), "up", "--detach", "--dir", str(directory)]
        subprocess.run(up, check=True, stdout=subprocess.DEVNULL)
        self.cluster = LocalCluster.load(directory)

    def start(self, id: int) -> None:
        self.cluster.launch([id])

    def kill(self, id: int) -> None:
        self.cluster.kill([id])

    def stop(self, id: int) -> None:
        self.cluster.stop([id], patience_s=READY_TIMEOUT_S)


class Guarded(Ottla):
    """The same with an authorizer, and as many ACLs as it is told."""

    name = "guarded"
    acls: ClassVar[int] = 0

    def __init__(self, brokers: int = 3) -> None:
        super().__init__(brokers)
        for id in self.cluster.nodes:
            with self.cluster.config_file(id).open("a") as file:
                file.writelines(f"{name}={value}\n" for name, value in AUTHORIZER.items())

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            add_acls(self.bootstrap, self.acls)
        except BaseException:
            self.close()
            raise
        return self


class Kafka(Target):
    name = "Kafka"
    settings = SETTINGS

    def __init__(self, brokers: int = 3) -> None:
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._jars = f"{kafka_jars.installed()}/*"
        super().__init__(brokers)
        for id in self.cluster.nodes:  # once, and not part of a start
            words = ("format", "-t", self.cluster.cluster_id, "-c", self.cluster.config_file(id))
            kafka_jars.run_tool(kafka_jars.STORAGE, *words)

    @property
    def pids(self) -> dict[int, int]:
        return {id: each.pid for id, each in self._processes.items() if each.poll() is None}

    def start(self, id: int) -> None:
        with self.cluster.log_file(id).open("ab") as log:
            self._processes[id] = subprocess.Popen(
                [
                    *("java", *KAFKA_JVM, "-cp", self._jars, "kafka.Kafka"),
                    self.cluster.config_file(id),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, id: int) -> None:
        self._processes[id].kill()
        self._processes[id].wait()

    def stop(self, id: int) -> None:
        self._processes[id].send_signal(signal.SIGTERM)
        self._processes[id].wait(READY_TIMEOUT_S)


def brokers_seen_by(address: str) -> set[int]:
    admin = AdminClient({"bootstrap.servers": address, **COMMON})
    try:
        return set(admin.list_topics(timeout=1).brokers)
    except Exception:  # not there yet, in whatever way
        return set()


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        asked = time.monotonic()
        if condition():
            return
        now = time.monotonic()
        if now > deadline:
            raise TimeoutError(f"not within {timeout_s:g} s: {what}")
        # An answer about 10,000 partitions takes a broker a while, in which it does nothing of what is waited for.
        time.sleep(max(0.02, now - asked))


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def _memory_mb(pid: int) -> dict[str, float]:
    _, *lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    kilobytes = {words[0]: int(words[1]) for words in map(str.split, lines)}
    return {"PSS": kilobytes["Pss:"] / 1024, "RSS": kilobytes["Rss:"] / 1024}
