"""Controllers that are added, removed and replaced while producers write (KIP-853), on real processes.

No file of any other node is touched: the voters are in the metadata log.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.local.ports import free_ports
from support.cluster import HOST, OTTLA, ProcessCluster, wait_until
from support.ledger import LedgerProducer

pytestmark = pytest.mark.timeout(300)

SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "2000",
}
NEW_CONTROLLER = 9


class ChangingCluster(ProcessCluster):
    dynamic_voters = True

    def controllers(self) -> dict[str, Any]:
        listed = self.ottla("controllers", "list")
        assert isinstance(listed, dict)
        return listed

    def ids_of(self, *roles: str) -> list[int]:
        return [each["id"] for each in self.controllers()["replicas"] if each["role"] in roles]

    def voters(self) -> list[int]:
        return self.ids_of("voter", "leader")

    def bootstrap_controllers(self) -> str:
        text = self._local.config_file(1).read_text()
        name = "controller.quorum.bootstrap.servers="
        return next(line for line in text.splitlines() if line.startswith(name)).partition("=")[2]

    def lose_disk(self, id: int) -> None:
        self.kill(id)
        shutil.rmtree(self._local.node_directory(id) / "data")
        self.start(id)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ChangingCluster]:
    with ChangingCluster(tmp_path / "cluster", 3, SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def new_controller(
    cluster: ChangingCluster, tmp_path: Path
) -> Iterator[Callable[[], tuple[int, str]]]:
    """Starts a controller that nobody has heard of. Returns its id, and where it listens."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*more: str) -> tuple[int, str]:
        (port,) = free_ports(1)
        settings = {
            "node.id": NEW_CONTROLLER,
            "process.roles": "controller",
            "cluster.id": cluster._local.cluster_id,
            "listeners": f"CONTROLLER://{HOST}:{port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": cluster.bootstrap_controllers(),
            "log.dirs": tmp_path / "new",
        }
        lines = [f"{name}={value}" for name, value in settings.items()]
        file = tmp_path / "new.properties"
        file.write_text("\n".join([*lines, *more]))
        with (tmp_path / "new.log").open("wb") as log:
            command = [str(OTTLA), "node", "--config", str(file)]
            started.append(subprocess.Popen(command, stdout=log, stderr=log))
        return NEW_CONTROLLER, f"{HOST}:{port}"

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_controllers_are_added_removed_and_replaced_under_load(
    cluster: ChangingCluster, new_controller: Callable[..., tuple[int, str]]
) -> None:
    topic = cluster.create_topic("ledger", 3, config={"min.insync.replicas": "2"})
    with LedgerProducer(cluster.bootstrap, topic, 3) as producer:
        producer.wait_for_more(100)
        assert cluster.voters() == [1, 2, 3]

        new, at = new_controller()
        wait_until(lambda: new in cluster.ids_of("observer"), 30, "the new controller observes")
        assert cluster.ottla("controllers", "add", str(new), "--at", at)["voters"] == [1, 2, 3, new]
        producer.wait_for_more(100)

        leader = cluster.controllers()["leader"]
        after = cluster.ottla("controllers", "remove", str(leader))
        assert leader not in after["voters"] and len(after["voters"]) == 3
        wait_until(lambda: cluster.controllers()["leader"] != leader, 30, "another leader")
        producer.wait_for_more(100)

        lost = next(id for id in cluster.voters() if id != new)
        cluster.lose_disk(lost)
        wait_until(lambda: lost in cluster.ids_of("observer"), 30, "the new disk observes")
        after = cluster.ottla("controllers", "replace", str(lost))
        assert lost in after["voters"] and len(after["voters"]) == 3
        cluster.wait_whole(topic)
        producer.wait_for_more(100)

        # The replaced voter counts: without one of the others there is still a majority.
        other = next(id for id in cluster.voters() if id not in (lost, new))
        cluster.kill(other)
        producer.wait_for_more(100, timeout=60)
        cluster.start(other)
        cluster.wait_whole(topic)
    assert not producer.failed
    producer.verify().assert_clean()


def test_a_controller_that_may_join_votes_without_being_added(
    cluster: ChangingCluster, new_controller: Callable[..., tuple[int, str]]
) -> None:
    new, _ = new_controller("controller.quorum.auto.join.enable=true")
    wait_until(lambda: new in cluster.voters(), 60, "the new controller votes")
