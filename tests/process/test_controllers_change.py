"""Controllers that are added, removed and replaced while producers write (KIP-853), on real processes.

No file of any other node is touched: the voters are in the metadata log.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.by_commands import CommandedCluster
from support.changing_controllers import ChangingCluster, UpgradedCluster, new_controller
from support.cluster import OTTLA, wait_until
from support.ledger import LedgerProducer

pytestmark = pytest.mark.timeout(300)

SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "2000",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ChangingCluster]:
    with ChangingCluster(tmp_path / "cluster", 3, SETTINGS) as cluster:
        yield cluster


def test_controllers_are_added_removed_and_replaced_under_load(
    cluster: ChangingCluster, tmp_path: Path
) -> None:
    topic = cluster.create_topic("ledger", 3, config={"min.insync.replicas": "2"})
    with (
        new_controller(cluster, tmp_path) as new,
        LedgerProducer(cluster.bootstrap, topic, 3) as producer,
    ):
        producer.wait_for_more(100)
        assert cluster.voters() == [1, 2, 3]

        wait_until(lambda: new.id in cluster.ids_of("observer"), 60, "the new controller observes")
        added = cluster.ottla("controllers", "add", str(new.id), "--at", new.at)
        assert added["voters"] == [1, 2, 3, new.id]
        producer.wait_for_more(100)

        leader = cluster.controllers()["leader"]
        after = cluster.ottla("controllers", "remove", str(leader))
        assert leader not in after["voters"] and len(after["voters"]) == 3
        wait_until(lambda: cluster.controllers()["leader"] != leader, 30, "another leader")
        producer.wait_for_more(100)

        lost = next(id for id in cluster.voters() if id != new.id)
        cluster.lose_disk(lost)
        wait_until(lambda: lost in cluster.ids_of("observer"), 60, "the new disk observes")
        wait_until(lambda: lost_vote(cluster) == f"ottla controllers replace {lost}", 60, "told")
        after = cluster.ottla("controllers", "replace", str(lost))
        assert lost in after["voters"] and len(after["voters"]) == 3
        assert lost_vote(cluster) is None
        again = cluster.refused("controllers", "replace", str(lost))
        assert f"controller {lost} fetches with directory" in again
        cluster.wait_whole(topic)
        producer.wait_for_more(100)

        # The replaced voter counts: without one of the others there is still a majority.
        other = next(id for id in cluster.voters() if id not in (lost, new.id))
        cluster.kill(other)
        producer.wait_for_more(100, timeout=60)
        cluster.start(other)
        cluster.wait_whole(topic)
    assert not producer.failed
    producer.verify().assert_clean()


def test_a_controller_that_may_join_votes_without_being_added(
    cluster: ChangingCluster, tmp_path: Path
) -> None:
    joins = {"controller_quorum_auto_join_enable": "true"}
    with new_controller(cluster, tmp_path, **joins) as new:
        wait_until(lambda: new.id in cluster.voters(), 60, "the new controller votes")


def test_static_voters_are_upgraded_under_load_and_change_then(tmp_path: Path) -> None:
    """kraft.version 0 to 1: no node is restarted, and their files still name static voters."""
    with (
        UpgradedCluster(tmp_path / "cluster", 3, SETTINGS) as cluster,
        new_controller(cluster, tmp_path) as new,
    ):
        topic = cluster.create_topic("ledger", 3, config={"min.insync.replicas": "2"})
        with LedgerProducer(cluster.bootstrap, topic, 3) as producer:
            producer.wait_for_more(100)
            wait_until(lambda: new.id in cluster.ids_of("observer"), 60, "it observes")
            said = cluster.refused("controllers", "add", str(new.id), "--at", new.at)
            assert "kafka-features upgrade --feature kraft.version=1" in said

            upgrade = ("upgrade", "--feature", "kraft.version=1")
            wait_until(
                lambda: cluster.features(*upgrade, "--dry-run")[0] == 0,
                60,
                "all voters have told their leader of themselves",
            )
            code, said = cluster.features(*upgrade)
            assert (code, said) == (0, "kraft.version was upgraded to 1.\n")
            wait_until(
                lambda: _kraft_version(cluster.features("describe")[1]) == "1",
                10,
                "a broker says so",
            )
            code, said = cluster.features("downgrade", "--feature", "kraft.version=0")
            assert code == 1 and "Can't downgrade the version of this feature." in said
            producer.wait_for_more(100)

            added = cluster.ottla("controllers", "add", str(new.id), "--at", new.at)
            assert added["voters"] == [1, 2, 3, new.id]
            leader = cluster.controllers()["leader"]
            after = cluster.ottla("controllers", "remove", str(leader))
            assert leader not in after["voters"]
            wait_until(lambda: cluster.controllers()["leader"] != leader, 30, "another leader")

            lost = next(id for id in cluster.voters() if id != new.id)
            cluster.lose_disk(lost)
            wait_until(lambda: lost in cluster.ids_of("observer"), 60, "the new disk observes")
            after = cluster.ottla("controllers", "replace", str(lost))
            assert lost in after["voters"] and len(after["voters"]) == 3
            cluster.wait_whole(topic)
            producer.wait_for_more(100)

            for id in (1, 2, 3):
                cluster.restart(id)
                cluster.wait_whole(topic)
            assert cluster.voters() == sorted(after["voters"]), "the log says who votes"
        assert not producer.failed
        producer.verify().assert_clean()


def test_what_an_upgrade_of_static_voters_allows_is_known_to_the_commands_for_brokers(
    tmp_path: Path,
) -> None:
    with CommandedCluster(tmp_path / "cluster", 3) as cluster:
        assert cluster.last("brokers", "add", "--id", 4)["event"] == "done"
        assert "nothing; ottla brokers remove 4 takes it out" in drained(cluster, 4)
        assert "it stays a controller, for the voters are static" in drained(cluster, 3)
        cluster.last("nodes", "kill", 2)
        assert "the voters of this cluster are static" in cluster.refused("brokers", "replace", 2)
        cluster.last("nodes", "start", 2)
        tool = [sys.executable, "-m", "ottla.kafka_tools", "kafka-features"]
        upgrade = [*tool, "--bootstrap-server", cluster.bootstrap, "upgrade", "--feature"]
        wait_until(
            lambda: run([*upgrade, "kraft.version=1"]).returncode == 0, 60, "all voters are heard"
        )
        cluster.last("nodes", "kill", 2)
        assert cluster.last("brokers", "replace", 2)["event"] == "done"
        wait_until(
            lambda: lost_vote(cluster) == "ottla controllers replace 2", 60, "the doctor says so"
        )
        assert sorted(cluster.last("controllers", "replace", 2)["voters"]) == [1, 2, 3]
        assert "ottla migrate retire 3 takes it out, with its vote" in drained(cluster, 3)


def drained(cluster: CommandedCluster, id: int) -> str:
    """What people read."""
    where = ["--dir", str(cluster.directory)]
    said = run([str(OTTLA), "brokers", "drain", str(id), *where]).stdout
    cluster.ran("brokers", "drain", id, "--undo")
    return said


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def lost_vote(cluster: ChangingCluster | CommandedCluster) -> str | None:
    """What the doctor says that gives a controller its vote."""
    command = [str(OTTLA), "doctor", "--bootstrap", cluster.bootstrap, "--format", "json"]
    mends = {each["rule"]: each["mend"] for each in json.loads(run(command).stdout)["findings"]}
    found: str | None = mends.get("controller-without-vote")
    return None if found is None else found.partition(" -b")[0]


def _kraft_version(described: str) -> str:
    line = next(line for line in described.splitlines() if "Feature: kraft.version" in line)
    return line.split("FinalizedVersionLevel:")[1].split()[0]


def test_a_broker_and_a_new_node_become_controllers_by_one_command_each(tmp_path: Path) -> None:
    with CommandedCluster(tmp_path / "cluster", 1, "--dynamic-voters") as cluster:
        assert cluster.last("brokers", "add", "--id", 2)["event"] == "done"
        topic = cluster.create("kept", [[2]])
        cluster.fill(topic, 1)
        first = (cluster.directory / "node-1" / "server.properties").read_bytes()
        assert cluster.last("controllers", "add", 2)["voters"] == [1, 2]
        assert cluster.last("controllers", "add", 3)["voters"] == [1, 2, 3]
        assert cluster.nodes()[2]["controller"] in ("standby", "active")
        assert (cluster.directory / "node-1" / "server.properties").read_bytes() == first
        cluster.last("nodes", "kill", 1)
        wait_until(lambda: cluster.active_controller() in (2, 3), 30, "another controller leads")
        wait_until(lambda: cluster.is_whole(topic), 30, "the broker has kept its records")
        listed = cluster.last("controllers", "list")["replicas"]
        assert all(each["seen_ms_ago"] is not None for each in listed if each["id"] != 1)


def test_a_cluster_with_static_voters_says_how_they_become_others(tmp_path: Path) -> None:
    with CommandedCluster(tmp_path / "cluster", 1) as cluster:
        refused = cluster.refused("controllers", "add", 2)
        assert "kafka-features upgrade --feature kraft.version=1" in refused
        assert sorted(cluster.nodes()) == [1]
