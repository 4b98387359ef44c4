"""`ottla migrate retire`: a node leaves only once it is stopped, and only if the metadata quorum goes on without it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.errors import NOT_FOUND
from ottla.client.migration import SILENT_S
from support.changing_controllers import ChangingCluster, UpgradedCluster, new_controller
from support.cluster import OTTLA, wait_until

pytestmark = pytest.mark.timeout(180)

SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "ottla.event.log.enable": "false",  # its topic would have replicas everywhere
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ChangingCluster]:
    with ChangingCluster(tmp_path / "cluster", 3, SETTINGS) as cluster:
        yield cluster


def begin(cluster: ChangingCluster, *words: object) -> subprocess.Popen[str]:
    command = [str(OTTLA), "migrate", "retire", *map(str, words), "-b", cluster.bootstrap]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def silent_s(cluster: ChangingCluster, id: int) -> float:
    (found,) = [each for each in cluster.controllers()["replicas"] if each["id"] == id]
    return float(found["seen_ms_ago"]) / 1000


def told_to_stop(running: subprocess.Popen[str]) -> bool:
    assert running.stderr is not None
    return any("stop node" in line for line in running.stderr)


def test_a_controller_that_is_no_broker_leaves_when_it_is_stopped(
    cluster: ChangingCluster, tmp_path: Path
) -> None:
    joins = {"controller_quorum_auto_join_enable": "true"}
    with new_controller(cluster, tmp_path, **joins) as new:
        wait_until(lambda: new.id in cluster.voters(), 60, "the new controller votes")
        assert f"node {new.id} still runs" in cluster.refused("migrate", "retire", str(new.id), "--wait", "0")  # fmt: skip
        assert new.id in cluster.voters()
        waits = begin(cluster, new.id)
        assert told_to_stop(waits)
    out, said = waits.communicate(timeout=60)
    assert waits.returncode == 0, said
    assert f"node {new.id} is no part of the cluster any more" in out
    assert cluster.voters() == [1, 2, 3]


def test_a_node_that_is_about_to_leave_gets_no_replica_any_more(cluster: ChangingCluster) -> None:
    id = next(id for id in cluster.voters() if id != cluster.controllers()["leader"])
    waits = begin(cluster, id)
    assert told_to_stop(waits)
    topic = cluster.create_topic("later", 6, 1)
    assert not any(id in each.replicas for each in cluster.partitions(topic).values())
    cluster.stop(id)
    assert waits.wait(60) == 0
    assert id not in cluster.voters()


def test_a_node_without_which_there_is_no_majority_stays(cluster: ChangingCluster) -> None:
    leader = cluster.controllers()["leader"]
    dead, *_ = (id for id in cluster.voters() if id != leader)
    cluster.kill(dead)
    wait_until(lambda: silent_s(cluster, dead) > SILENT_S, 30, "the leader misses the dead one")
    said = cluster.refused("migrate", "retire", str(leader))
    assert f"controller {leader} is one of 3 voters" in said and "no majority" in said
    assert "stop node" not in said


def test_a_node_that_does_not_exist_is_not_taken_out(cluster: ChangingCluster) -> None:
    none = begin(cluster, 99)
    _, said = none.communicate(timeout=60)
    assert none.returncode == NOT_FOUND and "there is no node 99" in said


def test_a_static_voter_stays_also_if_it_leads(tmp_path: Path) -> None:
    with UpgradedCluster(tmp_path / "cluster", 3, SETTINGS) as cluster:
        leader = cluster.controllers()["leader"]
        said = cluster.refused("migrate", "retire", str(leader))
        assert "the voters of this cluster are static" in said and "stop node" not in said
