"""`ottla brokers` and `ottla balance` on real processes: loads are measured, kept and evened out (P38, P39)."""

from __future__ import annotations

import json
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from support.cluster import OTTLA, ProcessCluster, wait_until
from support.interrupts import take_sigint
from support.skewed import check_that_a_skewed_cluster_is_balanced

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    racks = {id: {"broker.rack": f"rack-{id % 2}"} for id in (1, 2, 3, 4)}
    with ProcessCluster(tmp_path_factory.mktemp("balance"), 4, node_overrides=racks) as running:
        yield running


@pytest.fixture(autouse=True)
def whole(cluster: ProcessCluster) -> Iterator[None]:
    yield
    cluster.mend()


def fill(cluster: ProcessCluster, topic: str, partitions: int, records: int = 200) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "batch.num.messages": 1})
    for number in range(records):
        producer.produce(topic, random.randbytes(100_000), partition=number % partitions)
    assert producer.flush(60) == 0


def command(cluster: ProcessCluster, *words: str) -> list[str]:
    bootstrap = ",".join(node.address for node in cluster.nodes.values())
    return [str(OTTLA), *words, "-b", bootstrap, "--format", "json"]


def answered(cluster: ProcessCluster, *words: str) -> list[Any]:
    done = subprocess.run(
        command(cluster, *words), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def loads(cluster: ProcessCluster) -> dict[int, dict[str, Any]]:
    (told,) = answered(cluster, "brokers")
    return {each["broker"]: each for each in told["brokers"]}


def test_P38_the_loads_of_all_brokers_are_known_also_after_a_failover(
    cluster: ProcessCluster,
) -> None:
    topic = cluster.create_topic("measured", assignment=[[1, 2]] * 4)
    fill(cluster, topic, 4)
    wait_until(
        lambda: loads(cluster)[1].get("disk_bytes", 0) > 10_000_000,
        90,
        "the controller has heard of what broker 1 got",
        every=1.0,
    )
    before = loads(cluster)
    assert before[1]["leaders"] >= 4
    assert before[2]["hour"]["copied_in"] > 10_000
    assert before[1]["hour"]["bytes_in"] > 10_000
    assert before[1]["score"] > 1.5
    (told,) = answered(cluster, "brokers")
    assert {rack["rack"] for rack in told["racks"]} == {"rack-0", "rack-1"}
    killed = cluster.active_controller()
    cluster.kill(killed)
    wait_until(lambda: cluster.active_controller() != killed, 30, "another controller")
    other = 2 if killed == 1 else 1
    figure = "copied_in" if other == 2 else "bytes_in"
    wait_until(
        lambda: loads(cluster)[other].get("hour", {}).get(figure, 0) > 5_000,
        30,
        "the new controller knows the hour",
        every=0.5,
    )


def test_P39_a_skewed_cluster_is_balanced_and_nothing_is_left_to_do(
    cluster: ProcessCluster,
) -> None:
    topic = cluster.create_topic("skewed", assignment=[[1, 2]] * 12)
    fill(cluster, topic, 12, 240)
    (plan,) = answered(cluster, "balance", "plan", "--tolerance", "25")
    assert plan["balanced"], plan["misses"]
    assert plan["bytes_to_move"] <= 1.2 * plan["bytes_bound"]
    *_, done = answered(cluster, "balance", "apply", "--tolerance", "25", "--at-once", "4")
    assert done["event"] == "done"
    states = cluster.partitions(topic)
    racks = [{replica % 2 for replica in state.replicas} for state in states.values()]
    assert all(len(each) == 2 for each in racks), "no partition in one rack only"
    assert len({state.leader for state in states.values()}) >= 3
    (again,) = answered(cluster, "balance", "plan", "--tolerance", "30")
    assert again["bytes_to_move"] == 0


@pytest.mark.slow
def test_P39_a_topic_with_80_percent_of_the_bytes_on_one_broker_is_spread(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path / "skewed", 4) as skewed:
        check_that_a_skewed_cluster_is_balanced(skewed, 4_000_000, 15)


def test_P39_continuous_balance_waits_before_it_acts(cluster: ProcessCluster) -> None:
    """Few at a time, and only what stays out of balance."""
    topic = cluster.create_topic("drifting", assignment=[[1, 2]] * 40)
    words = ("balance", "apply", "--tolerance", "25", "--continuous", "--after", "3")
    running = subprocess.Popen(
        command(cluster, *words, "--every", "1", "--at-once", "5"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=take_sigint,
    )
    assert running.stdout is not None
    told = []
    for line in running.stdout:
        told.append(json.loads(line))
        if told[-1]["event"] == "done":
            break
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)
    looks = [each for each in told if each["event"] == "look"]
    assert [each["acts"] for each in looks] == [False] * (len(looks) - 1) + [True]
    assert len(looks) >= 3
    moving = [len(each["moving"]) for each in told if each["event"] == "progress"]
    assert moving[-1] == 0
    leaders = [state.leader for state in cluster.partitions(topic).values()]
    assert len(set(leaders)) == 4
