"""`ottla brokers add`, `drain`, `replace` and `remove` on real processes, under load, whoever dies meanwhile (P39)."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.local.ports import free_ports
from support.by_commands import CommandedCluster, ReadingAlong
from support.cluster import OTTLA, wait_until
from support.ledger import LedgerProducer, compare

pytestmark = pytest.mark.timeout(300)

QUICK = (
    "-c", "broker.session.timeout.ms=3000",
    "-c", "broker.heartbeat.interval.ms=500",
    "-c", "replica.lag.time.max.ms=3000",
)  # fmt: skip
ROUND = [[1, 2, 3], [2, 3, 4], [3, 4, 1], [4, 1, 2]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[CommandedCluster]:
    with CommandedCluster(tmp_path / "cluster", 4, "--dynamic-voters", *QUICK) as running:
        yield running


@pytest.fixture
def five(tmp_path: Path) -> Iterator[CommandedCluster]:
    with CommandedCluster(tmp_path / "cluster", 5, *QUICK) as running:
        yield running


@pytest.mark.slow
def test_P39_machines_come_and_go_under_load_by_commands_alone(cluster: CommandedCluster) -> None:
    counted = cluster.create("counted", ROUND * 2, min_insync_replicas="2")
    large = cluster.create("large", ROUND * 2)
    cluster.fill(large, 16)
    settings = {path: path.read_bytes() for path in cluster.directory.glob("node-*/*.properties")}
    start = cluster.bootstrap
    with LedgerProducer(start, counted, 8) as ledger, ReadingAlong(start, counted, 8) as reader:
        ledger.wait_for_more(100)

        done = cluster.lines("brokers", "drain", 4)
        assert done[0]["event"] == "plan" and done[0]["bytes_to_move"] > 10_000_000
        assert done[-1] | {"cordoned": None} == {
            "event": "done",
            "broker": 4,
            "replicas": 0,
            "leaders": 0,
            "cordoned": None,
        }
        assert cluster.on(4) == []
        assert {len(each) for each in cluster.partitions(counted).values()} == {3}
        assert cluster.throttles(counted, large) == []
        cluster.last("brokers", "remove", 4)
        assert 4 not in cluster.nodes()
        ledger.wait_for_more(100)

        new = cluster.last("brokers", "add")["broker"]
        assert new in cluster.nodes()
        assert len(cluster.on(new)) >= 8, "it has its share"
        assert cluster.throttles(counted, large) == []
        ledger.wait_for_more(100)

        dead = 2
        cluster.last("nodes", "kill", dead)
        ledger.wait_for_more(100, timeout=60)
        rebuilt = cluster.lines("brokers", "replace", dead)
        assert rebuilt[-1]["event"] == "done"
        wait_until(lambda: cluster.is_whole(large), 30, "all replicas in sync")
        wait_until(
            lambda: dead in [e["id"] for e in voters(cluster, "observer")], 60, "it observes"
        )
        after = cluster.last("controllers", "replace", dead)
        assert sorted(after["voters"]) == [1, 2, 3]
        assert cluster.throttles(counted, large) == []
        ledger.wait_for_more(100)
        ledger.stop()
        ends = dict.fromkeys(range(8), 0)
        for partition, offset in ledger.acknowledged.values():
            assert offset is not None
            ends[partition] = max(ends[partition], offset + 1)
        reader.read_to(ends)
    assert not ledger.failed
    compare(ledger.acknowledged, reader.read).assert_clean()
    ledger.verify().assert_clean()
    for path, before in settings.items():
        assert not path.exists() or path.read_bytes() == before, "no file was edited"


def voters(cluster: CommandedCluster, role: str) -> list[Any]:
    listed = cluster.last("controllers", "list")["replicas"]
    return [each for each in listed if each["role"] == role]


def drain_until_it_copies(cluster: CommandedCluster, id: int, *words: object) -> Any:
    """A drain that has begun to move replicas."""
    running = cluster.begin("brokers", "drain", id, *words)
    assert running.stdout is not None
    for line in running.stdout:
        if json.loads(line)["event"] == "progress":
            return running
    raise AssertionError(f"it moves nothing: {running.communicate()}")


def test_P39_a_drain_that_was_interrupted_goes_on_by_the_same_command(
    cluster: CommandedCluster,
) -> None:
    topic = cluster.create("half", ROUND * 2)
    cluster.fill(topic, 24)
    running = drain_until_it_copies(cluster, 4, "--throttle", "1M", "--at-once", 2)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "ottla brokers drain 4 goes on with it" in errors
    assert cluster.on(4), "it was interrupted in the middle"
    assert cluster.throttles(topic), "the moves that were begun go on under their throttle"
    cluster.last("topics", "create", "late", "-p", 8, "-r", 3)
    done = cluster.last("brokers", "drain", 4)
    assert (done["event"], done["replicas"]) == ("done", 0)
    assert cluster.on(4) == [], "also of what was created meanwhile"
    assert cluster.throttles(topic, "late") == []
    if done["cordoned"]:  # where the cluster has such a thing
        cluster.last("topics", "create", "later", "-p", 8, "-r", 3)
        assert cluster.on(4) == []
    again = cluster.lines("brokers", "drain", 4)
    assert [each["event"] for each in again] == ["done"], "there is nothing left to do"


def test_P39_a_drain_survives_the_death_of_the_active_controller(
    cluster: CommandedCluster,
) -> None:
    counted = cluster.create("counted", ROUND * 2, min_insync_replicas="2")
    topic = cluster.create("copied", ROUND * 2)
    cluster.fill(topic, 16)
    with LedgerProducer(cluster.bootstrap, counted, 8) as ledger:
        running = drain_until_it_copies(cluster, 4, "--throttle", "1M")
        killed = cluster.active_controller()
        cluster.last("nodes", "kill", killed)
        wait_until(lambda: cluster.active_controller() not in (0, killed), 30, "another controller")
        cluster.last("nodes", "start", killed)
        out, errors = running.communicate(timeout=180)
        assert running.returncode == 0, errors
        assert json.loads(out.splitlines()[-1])["event"] == "done"
        ledger.wait_for_more(100)
    assert cluster.on(4) == []
    assert cluster.throttles(topic, counted) == []
    ledger.verify().assert_clean()


def test_P39_what_was_to_go_to_a_broker_that_died_goes_elsewhere(five: CommandedCluster) -> None:
    topic = five.create("rerouted", [[5, 1, 2], [5, 2, 3], [5, 1, 3], [5, 1, 2]])
    besides = five.create("besides", [[5, 4, 1]])  # its throttle is not for the replica that dies
    five.fill(topic, 8)
    running = drain_until_it_copies(five, 5, "--throttle", "1M", "--lost-after", 2)
    assert 4 in {id for each in five.partitions(topic).values() for id in each}
    five.last("nodes", "kill", 4)
    _, errors = running.communicate(timeout=180)
    assert running.returncode == 0, errors
    assert "broker 4 is down: what was to go there goes elsewhere" in errors
    assert five.on(5) == []
    for replicas in five.partitions(topic).values():
        assert sorted(replicas) == [1, 2, 3]
    assert five.throttles(topic, besides) == []


def test_P39_a_dead_broker_is_replaced_by_one_with_another_id(five: CommandedCluster) -> None:
    topic = five.create("inherited", [[4, 1, 2], [1, 4, 5], [3, 5, 4]])
    five.fill(topic, 3)
    assert "broker 4 runs" in five.refused("brokers", "replace", 4, "--with", 6)
    five.last("nodes", "kill", 4)
    wait_until(lambda: five.nodes()[4]["state"] != "running", 20, "it is dead")
    assert "has replicas" in five.refused("brokers", "remove", 4)
    done = five.last("brokers", "replace", 4, "--with", 6)
    assert (done["event"], done["broker"], done["replaced"]) == ("done", 6, 4)
    assert five.partitions(topic) == {0: [6, 1, 2], 1: [1, 6, 5], 2: [3, 5, 6]}
    assert 4 not in five.nodes()
    assert five.throttles(topic) == []


def test_P39_a_machine_of_its_own_joins_with_the_file_that_is_written_for_it(
    five: CommandedCluster, tmp_path: Path
) -> None:
    """As on another machine: only its ports and its disk differ here from those of the others."""
    topic = five.create("joined", [[1, 2], [2, 3], [3, 1], [4, 5], [5, 4]])
    file, (port, metrics) = tmp_path / "server.properties", free_ports(2)
    words = ("brokers", "add", "--id", 8, "--host", "127.0.0.1", "--rack", "west", "--out", file)
    own = (
        "-c", f"listeners=PLAINTEXT://127.0.0.1:{port}",
        "-c", f"log.dirs={tmp_path / 'data'}",
        "-c", f"metrics.listeners=HTTP://127.0.0.1:{metrics}",
    )  # fmt: skip
    running = five.begin(*words, *own, "-b", five.bootstrap)
    assert running.stdout is not None
    assert json.loads(next(running.stdout))["file"] == str(file)
    command = [str(OTTLA), "kafka-storage", "format", "--config", str(file), "--cluster-id"]
    subprocess.run([*command, five.last("status")["cluster_id"]], check=True, timeout=60)
    with (tmp_path / "node.log").open("wb") as log:
        node = subprocess.Popen([str(OTTLA), "node", "--config", str(file)], stdout=log, stderr=log)
    try:
        out, errors = running.communicate(timeout=120)
        assert running.returncode == 0, errors
        assert json.loads(out.splitlines()[-1]) == {"event": "done", "broker": 8}
        assert any(8 in replicas for replicas in five.partitions(topic).values())
        five.last("brokers", "drain", 8, "--share-racks", "-b", five.bootstrap)
        refused = five.refused("brokers", "remove", 8, "-b", five.bootstrap)
        assert "broker 8 runs: stop its process first" in refused
    finally:
        node.terminate()
        node.wait(60)
    removed = five.last("brokers", "remove", 8, "-b", five.bootstrap)
    assert removed == {"event": "removed", "broker": 8}
    assert 8 not in [each["broker"] for each in five.last("brokers")["brokers"]]


@pytest.mark.slow
def test_P39_machines_come_and_go_in_a_secure_cluster(tmp_path: Path) -> None:
    with CommandedCluster(tmp_path / "cluster", 3, "--secure", *QUICK) as cluster:
        cluster.last("topics", "create", "orders", "-p", 6, "-r", 3)
        assert cluster.last("brokers", "add")["event"] == "done"
        assert cluster.nodes()[4]["replicas"] >= 3
        assert cluster.last("security", "check")["findings"] == []
        principals = {each["principal"] for each in cluster.last("acls", "list")}
        assert principals == {"User:CN=node-4"}, "the new node has rights of its own"
        done = cluster.last("brokers", "drain", 4)
        assert (done["event"], done["replicas"]) == ("done", 0)
        cluster.last("brokers", "remove", 4)
        assert cluster.lines("acls", "list") == [[]]
        assert sorted(cluster.nodes()) == [1, 2, 3]


def test_P39_what_cannot_be_said_of_a_broker_is_refused_in_words(
    cluster: CommandedCluster,
) -> None:
    topic = cluster.create("everywhere", [[1, 2, 3, 4], [4, 1, 2, 3]])
    few = cluster.refused("brokers", "drain", 4)
    assert "brokers 1, 2, 3 would be left, and 4 brokers are needed for everywhere-0" in few
    assert "ottla brokers add" in few
    assert "ottla brokers drain 4 moves them away" in cluster.refused("brokers", "remove", 4)
    assert "take its vote away first" in cluster.refused("brokers", "remove", 1)
    assert "there is no broker 9" in cluster.refused("brokers", "drain", 9, code=3)
    shown = cluster.last("brokers", "add", "--dry-run")
    assert (shown["dry_run"], shown["misses"]) == (True, [])
    assert cluster.partitions(topic) == {0: [1, 2, 3, 4], 1: [4, 1, 2, 3]}
    assert len(cluster.nodes()) == 4, "a dry run changes nothing"
    listed = cluster.last("brokers", "list")["brokers"]
    assert [each["broker"] for each in listed] == [1, 2, 3, 4]
    assert [each["broker"] for each in cluster.last("brokers")["brokers"]] == [1, 2, 3, 4]
