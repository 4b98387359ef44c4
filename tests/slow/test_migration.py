"""A cluster of Apache Kafka under load becomes one of ottla, by commands alone, and goes back again: nobody is stopped for it.

50 topics, a producer with acks=all, a group that reads and writes in transactions, and a group that only reads.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.admin import NewTopic

from ottla.cli.errors import CONFLICT
from ottla.local.ports import free_ports
from ottla.wire.types import uuid_to_text
from support.cluster import HOST, OTTLA, wait_until
from support.groups import ConfluentMember
from support.kafka_jars import STORAGE, java_command, run_tool
from support.kafka_server import SERVER
from support.ledger import LedgerProducer
from support.mixed import SMALL_HEAP
from support.pipeline import Feeder, Watcher, Worker, assert_each_once, wait_stable

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

KAFKAS, OTTLAS = (1, 2, 3), (4, 5, 6)
TOPICS = 50
PARTITIONS = 4
ACK_S_MAX = 2.0
"""Nobody is killed, so no producer waits longer for an acknowledgement."""


class Machine:
    """A node with a directory and ports of its own, as on a machine of its own."""

    def __init__(self, directory: Path, id: int) -> None:
        self.id = id
        self.directory = directory / f"node-{id}"
        self.directory.mkdir()
        self.port, self.controller_port = free_ports(2)
        self.file = self.directory / "server.properties"
        self.log = self.directory / "printed.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def at(self) -> str:
        return f"{HOST}:{self.controller_port}"

    @property
    def own(self) -> dict[str, str]:
        """What no other node has."""
        return {
            "node.id": str(self.id),
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{self.at}",
            "log.dirs": str(self.directory / "data"),
        }

    def start(self, *command: str) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)

    def start_kafka(self) -> None:
        command = java_command(SERVER, self.file)
        self.start(*(SMALL_HEAP if word.startswith("-Xmx") else word for word in command))

    def start_ottla(self) -> None:
        self.start(str(OTTLA), "node", "--config", str(self.file))

    def stop(self) -> None:
        """A controlled shutdown."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(90)

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class Migrated:
    """The cluster, as its operator sees it: by commands."""

    def __init__(self, directory: Path) -> None:
        self.machines = {id: Machine(directory, id) for id in (*KAFKAS, *OTTLAS)}
        self.cluster_id = "migrated-cluster-0001A"

    @property
    def bootstrap(self) -> str:
        return ",".join(self.machines[id].address for id in (*KAFKAS, *OTTLAS))

    def said(self, *words: object, exits_with: int = 0) -> list[Any]:
        command = [str(OTTLA), *map(str, words), "-b", self.bootstrap, "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == exits_with, f"{words}: {done.stdout}{done.stderr}{self.report()}"
        return [json.loads(line) for line in done.stdout.splitlines()]

    def begin(self) -> None:
        """As Apache Kafka's documents tell it: three combined nodes, voters that can change."""
        machines = [self.machines[id] for id in KAFKAS]
        voters = ",".join(f"{each.id}@{each.at}:{uuid_to_text(uuid4())}" for each in machines)
        for each in machines:
            settings = {
                **each.own,
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.bootstrap.servers": ",".join(each.at for each in machines),
                "offsets.topic.num.partitions": "6",
                "transaction.state.log.num.partitions": "6",
                "group.initial.rebalance.delay.ms": "0",
                "min.insync.replicas": "2",
                "default.replication.factor": "3",
            }
            each.file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
            run_tool(STORAGE, "format", "-t", self.cluster_id, "-c", each.file, "--initial-controllers", voters)  # fmt: skip
            each.start_kafka()
        self.wait_live(*KAFKAS)

    def wait_live(self, *ids: int) -> None:
        def all_live() -> bool:
            command = [str(OTTLA), "migrate", "status", "-b", self.bootstrap, "--format", "json"]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
            if done.returncode != 0:
                return False
            rows = json.loads(done.stdout)["brokers"]
            return set(ids) <= {row["id"] for row in rows if row["state"] == "live"}

        wait_until(all_live, 120, f"brokers {ids} live{self.report()}", every=1)

    def status(self) -> dict[int, Any]:
        (status,) = self.said("migrate", "status")
        return {row["id"]: row for row in status["brokers"]}

    def join(self, id: int) -> Machine:
        """Write the file of a new machine."""
        machine = self.machines[id]
        own = [word for name, value in machine.own.items() for word in ("-c", f"{name}={value}")]
        self.said("brokers", "add", "--id", id, "--host", HOST, "--no-balance", "--wait", 0, "--out", machine.file, *own)  # fmt: skip
        return machine

    def take_places(self, ids: tuple[int, ...], from_: tuple[int, ...]) -> None:
        """Node by node: a new voter, then the end of an old one, which is in good order while it still votes."""
        for new, old in zip(ids, from_, strict=True):
            wait_until(partial(self._observes, new), 60, f"{new} observes")
            self.said("controllers", "add", new, "--at", self.machines[new].at)
            self.machines[old].stop()
            self.said("migrate", "retire", old)

    def _observes(self, id: int) -> bool:
        (found,) = self.said("controllers", "list")
        return any(each["id"] == id and each["role"] == "observer" for each in found["replicas"])

    def report(self) -> str:
        ends = [
            f"\n--- node {id}\n{each.log.read_text(errors='replace')[-2500:]}"
            for id, each in self.machines.items()
            if each.log.exists()
        ]
        return "".join(ends)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Migrated]:
    made = Migrated(tmp_path)
    try:
        made.begin()
        yield made
    finally:
        for each in made.machines.values():
            each.end()


def create(cluster: Migrated, names: list[str], partitions: int) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    wanted = [NewTopic(name, partitions, 3) for name in names]
    for done in admin.create_topics(wanted, request_timeout=60).values():
        done.result(60)


def reads_on(reader: ConfluentMember) -> bool:
    before = len(reader.read)
    reader.poll()
    return len(reader.read) > before


def test_there_and_back_again_under_load(cluster: Migrated) -> None:
    create(cluster, ["ledger", "source", "target"], PARTITIONS)
    create(cluster, [f"topic-{number}" for number in range(TOPICS - 3)], 1)
    watcher = Watcher(cluster.bootstrap, "pipe")
    waits: dict[str, float] = {}
    with ExitStack() as stack:
        workers = []
        for number in range(2):
            worker = Worker(cluster.bootstrap, "pipe", "source", "target", f"worker-{number}")
            stack.callback(worker.stop)
            workers.append(worker)
        wait_stable(workers, watcher, PARTITIONS, 120)
        reader = ConfluentMember(cluster.bootstrap, "readers", ["ledger"])
        stack.callback(reader.close)
        with (
            Feeder(cluster.bootstrap, "source", PARTITIONS, rate=50) as feeder,
            LedgerProducer(cluster.bootstrap, "ledger", PARTITIONS, rate=100) as ledger,
        ):

            def step(name: str) -> None:
                """Between any two steps everything goes on."""
                ledger.wait_for_more(100, 60)
                wait_until(lambda: reads_on(reader), 60, "the readers read on")
                reader.commit()
                watcher.look()
                waits[name] = ledger.longest_silence(began)

            began = time.monotonic()
            step("before")
            (refused,) = cluster.said("migrate", "check", exits_with=CONFLICT)
            assert [each["what"] for each in refused if each["refused"]] == [
                "brokers of ottla for every replica"
            ]

            began = time.monotonic()
            for id in OTTLAS:
                machine = cluster.join(id)
                format = ("kafka-storage", "format", "--cluster-id", cluster.cluster_id)
                subprocess.run(
                    [OTTLA, *format, "--config", machine.file, "--no-initial-controllers"],
                    check=True,
                )
                machine.start_ottla()
            cluster.wait_live(*OTTLAS)
            step("join")
            (ready,) = cluster.said("migrate", "check")
            assert not any(each["refused"] for each in ready)

            began = time.monotonic()
            *_, done = cluster.said("migrate", "move", "--throttle", "20M")
            assert done == {"event": "done", "to": "ottla", "empty": list(KAFKAS)}
            status = cluster.status()
            assert [status[id]["kind"] for id in sorted(status)] == ["kafka"] * 3 + ["ottla"] * 3
            assert all(status[id]["replicas"] == 0 and status[id]["cordoned"] for id in KAFKAS)
            step("move")

            began = time.monotonic()
            cluster.take_places(OTTLAS, KAFKAS)
            assert sorted(cluster.status()) == list(OTTLAS)
            step("retire")
            wait_stable(workers, watcher, PARTITIONS, 60)

            # And back: new machines of Apache Kafka, which have the old ids.
            began = time.monotonic()
            for id in KAFKAS:
                machine = cluster.machines[id]
                (machine.directory / "data").rename(machine.directory / "retired")
                cluster.join(id)
                run_tool(STORAGE, "format", "-t", cluster.cluster_id, "-c", machine.file, "--no-initial-controllers")  # fmt: skip
                machine.start_kafka()
            cluster.wait_live(*KAFKAS)
            step("join again")
            began = time.monotonic()
            *_, done = cluster.said("migrate", "move", "--to", "kafka", "--throttle", "20M")
            assert done == {"event": "done", "to": "kafka", "empty": list(OTTLAS)}
            step("move back")
            began = time.monotonic()
            cluster.take_places(KAFKAS, OTTLAS)
            assert sorted(cluster.status()) == list(KAFKAS)
            step("retire again")
        wait_stable(workers, watcher, PARTITIONS, 60)

        def all_copied() -> bool:
            watcher.look()
            return sum(watcher.committed.values()) == feeder.sent

        wait_until(all_copied, 120, "every record is copied", every=0.2)
    print(
        f"{len(ledger.acknowledged)} acknowledged, {feeder.sent} copied; longest waits for an acknowledgement, s:"
        f" { {name: round(seconds, 2) for name, seconds in waits.items()} }"
    )
    assert not ledger.failed
    assert not watcher.went_back, watcher.went_back[:5]
    ledger.verify().assert_clean()
    assert_each_once(cluster.bootstrap, "target", PARTITIONS, feeder.sent)
    assert max(waits.values()) < ACK_S_MAX, waits
