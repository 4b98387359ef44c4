"""`ottla reassign` and `ottla balance` against Apache Kafka: it is Kafka's protocol only (P39)."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from support.cluster import OTTLA, ProcessCluster
from support.configs import BROKER, TOPIC, described
from support.kafka_server import kafka_instead

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first one installs Kafka

UNLIMITED = str((1 << 63) - 1)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("kafka"), 3) as cluster:
        cluster.stop(1, 2, 3)
        with kafka_instead(cluster):
            cluster.wait_ready(120)
            yield cluster


def ottla(cluster: ProcessCluster, *words: object) -> list[Any]:
    command: list[str] = [str(OTTLA), *map(str, words), "-b", cluster.bootstrap, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_P39_replicas_move_on_apache_kafka_and_no_throttle_is_left(
    kafka: ProcessCluster, tmp_path: Path
) -> None:
    topic = kafka.create_topic("moving", assignment=[[1]] * 6)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "batch.num.messages": 1})
    for number in range(120):
        producer.produce(topic, random.randbytes(100_000), partition=number % 6)
    assert producer.flush(60) == 0
    to, back = tmp_path / "to.json", tmp_path / "back.json"
    words = ("--topics", topic, "--brokers", "1,2,3", "--to", to, "--rollback", back)
    (plan,) = ottla(kafka, "reassign", "generate", *words)
    assert plan["balanced"], plan["misses"]
    assert 7_000_000 < plan["bytes_bound"] <= plan["bytes_to_move"] <= 1.2 * plan["bytes_bound"]
    *_, last, done = ottla(kafka, "reassign", "execute", to, "--throttle", "3M")
    assert done["event"] == "done"
    assert last["moved"] == last["total"] > 7_000_000
    assert sorted(state.replicas for state in kafka.partitions(topic).values()) == [
        [id] for id in (1, 1, 2, 2, 3, 3)
    ]
    for name in ("leader.replication.throttled", "follower.replication.throttled"):
        assert described(kafka, TOPIC, topic, f"{name}.replicas") == ""
        for node in kafka.nodes:
            assert described(kafka, BROKER, str(node), f"{name}.rate") in ("", UNLIMITED)
    ottla(kafka, "reassign", "execute", back)
    assert {tuple(state.replicas) for state in kafka.partitions(topic).values()} == {(1,)}


def test_P39_a_plan_balances_apache_kafka_without_its_traffic(kafka: ProcessCluster) -> None:
    topic = kafka.create_topic("uneven", assignment=[[1, 2]] * 9)
    *_, done = ottla(kafka, "balance", "apply", "--tolerance", "20", "--throttle", "none")
    assert done["event"] == "done"
    assert {state.leader for state in kafka.partitions(topic).values()} == {1, 2, 3}


def test_P39_a_broker_of_apache_kafka_is_drained_and_gets_nothing_meanwhile(
    kafka: ProcessCluster,
) -> None:
    topic = kafka.create_topic("leaving", assignment=[[1, 3], [3, 2], [2, 1]])
    *_, done = ottla(kafka, "brokers", "drain", 3, "--throttle", "3M")
    assert done == {
        "event": "done",
        "broker": 3,
        "replicas": 0,
        "leaders": 0,
        "cordoned": True,
    }
    assert {tuple(sorted(each.replicas)) for each in kafka.partitions(topic).values()} == {(1, 2)}
    new = kafka.create_topic("meanwhile", 6, 2)
    assert {id for each in kafka.partitions(new).values() for id in each.replicas} == {1, 2}
    (undone,) = ottla(kafka, "brokers", "drain", 3, "--undo")
    assert undone["event"] == "undone"
    *_, last = ottla(kafka, "brokers", "add", "--id", 3, "--throttle", "none")
    assert last == {"event": "done", "broker": 3}
    assert any(3 in each.replicas for each in kafka.partitions(new).values()), "it has its share"
