"""`ottla migrate` in a cluster that is ottla's already: it says so, refuses what cannot be, and leaves nothing behind."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.cli.errors import CONFLICT, UNREACHABLE, USAGE
from support.cluster import OTTLA, ProcessCluster, wait_until
from support.configs import TOPIC, described

pytestmark = pytest.mark.timeout(120)


def run(cluster: ProcessCluster, *words: object) -> subprocess.CompletedProcess[str]:
    command = [str(OTTLA), "migrate", *map(str, words), "-b", cluster.bootstrap, "--format", "json"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def lines(cluster: ProcessCluster, *words: object) -> list[Any]:
    done = run(cluster, *words)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_brokers_are_ottlas_and_vote(cluster: ProcessCluster) -> None:
    (status,) = lines(cluster, "status")
    assert {(row["id"], row["kind"], row["votes"]) for row in status["brokers"]} == {
        (id, "ottla", True) for id in (1, 2, 3)
    }
    assert not any(row["cordoned"] for row in status["brokers"])


def test_an_address_where_nobody_listens_is_told_at_once() -> None:
    command = [str(OTTLA), "migrate", "status", "-b", "127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert done.returncode == UNREACHABLE and "no broker answers" in done.stderr


def test_there_is_nothing_left_to_move(cluster: ProcessCluster) -> None:
    cluster.wait_whole(cluster.create_topic("stays"))
    done = lines(cluster, "move")[-1]
    assert (done["event"], done["to"], done["empty"]) == ("done", "ottla", [])


def test_the_move_goes_on_though_the_last_old_broker_died(tmp_path: Path) -> None:
    """Nobody can say then of which kind it was."""
    with ProcessCluster(tmp_path / "cluster", 3) as own:
        topic = own.create_topic("leaving", assignment=[[3, 1]])
        producer = Producer({"bootstrap.servers": own.bootstrap})
        for _ in range(20):
            producer.produce(topic, random.randbytes(100_000))
        assert producer.flush(60) == 0
        plan = tmp_path / "plan.json"
        wanted = {"topic": topic, "partition": 0, "replicas": [1, 2]}
        plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
        command = [str(OTTLA), "reassign", "execute", str(plan), "--throttle", "1000"]
        begun = subprocess.Popen([*command, "-b", own.bootstrap], stdout=subprocess.DEVNULL)
        wait_until(lambda: len(own.partitions(topic)[0].replicas) == 3, 30, "it has begun")
        begun.kill()
        begun.wait(10)
        own.kill(3)
        done = lines(own, "move")[-1]
        assert (done["event"], done["empty"]) == ("done", [])
        assert own.partitions(topic)[0].replicas == [1, 2]
        assert described(own, TOPIC, topic, "leader.replication.throttled.replicas") == ""


def test_a_move_to_brokers_that_are_not_there_is_refused_and_changes_nothing(
    cluster: ProcessCluster,
) -> None:
    cluster.wait_whole(cluster.create_topic("refused"))
    checked = run(cluster, "check", "--to", "kafka")
    assert checked.returncode == CONFLICT
    refused = [each for each in json.loads(checked.stdout) if each["refused"]]
    assert [each["what"] for each in refused] == ["brokers of kafka for every replica"]
    moved = run(cluster, "move", "--to", "kafka")
    assert moved.returncode == CONFLICT and "0 live" in moved.stderr
    (status,) = lines(cluster, "status")
    assert not any(row["cordoned"] for row in status["brokers"])


def test_a_node_with_replicas_does_not_retire(cluster: ProcessCluster) -> None:
    cluster.wait_whole(cluster.create_topic("kept"))
    done = run(cluster, "retire", 3)
    assert done.returncode == CONFLICT and "ottla brokers drain 3 first" in done.stderr


def test_who_joins_with_an_id_that_was_there_before_is_told_of_its_cordon(
    cluster: ProcessCluster,
) -> None:
    command = [str(OTTLA), "brokers", "add", "--id", "7", "--host", "seven", "--no-balance"]
    done = subprocess.run(
        [*command, "--wait", "0", "-b", cluster.bootstrap],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and "node.id=7" in done.stdout
    assert "if a broker 7 was cordoned when it left, ottla brokers add --id 7" in done.stderr


def test_an_unknown_kind_is_named(cluster: ProcessCluster) -> None:
    done = run(cluster, "check", "--to", "redpanda")
    assert done.returncode == USAGE and "give ottla or kafka" in done.stderr
