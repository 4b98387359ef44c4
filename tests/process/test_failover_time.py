"""What the project claims in seconds and megabytes, on real processes with Kafka's default settings."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from confluent_kafka import Producer

from support.cluster import OTTLA, ProcessCluster, wait_until
from support.ledger import LedgerProducer
from support.scheduling import run_delay_s, timed

pytestmark = pytest.mark.alone

READY_S_MAX = 1.5
SILENCE_S_MAX = 0.3
PSS_BYTES_MAX = 90 << 20
ROUNDS = 5

DEFAULTS = {"acks": "all", "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
"""librdkafka's own retry and reconnect settings: what an ordinary producer sees."""


@pytest.mark.parametrize("role", ["standby controller", "active controller"])
def test_P16_a_killed_leader_costs_a_producer_less_than_300_ms(
    new_cluster: Callable[..., Any], role: str
) -> None:
    """The longest time without an acknowledgement around the kill; the median of five kills, as this
    machine does other things too."""
    cluster: ProcessCluster = new_cluster()
    silences = []
    for round_number in range(ROUNDS):
        controller = wait_until(cluster.active_controller, 10, "an active controller")
        others = [node_id for node_id in cluster.nodes if node_id != controller]
        victim = controller if role == "active controller" else others[0]
        assignment = [[victim, *(n for n in cluster.nodes if n != victim)]]
        topic = cluster.create_topic(f"failover-{round_number}", assignment=assignment)
        producer = LedgerProducer(cluster.bootstrap, topic, rate=250, config=DEFAULTS)
        with producer:
            producer.wait_for_more(100)
            killed_at = time.monotonic()
            cluster.kill(victim)
            producer.wait_for_more(250)
            silences.append(producer.longest_silence(killed_at))
        cluster.start(victim)
        cluster.wait_ready()
        cluster.wait_whole(topic)
        producer.verify().assert_clean()
    print("without an acknowledgement, ms:", [round(1000 * each) for each in silences])
    assert median(silences) < SILENCE_S_MAX, silences


def test_three_brokers_are_ready_within_a_second_and_a_half_of_the_command(tmp_path: Path) -> None:
    """From the shell to its next prompt; the best of three, as this machine does other things too. What it did instead
    of running the one process that it kept waiting longest is not counted: the command, or a node."""
    taken = []
    for attempt in range(3):
        directory = tmp_path / str(attempt)
        up = timed([str(OTTLA), "up", "--detach", "--port", "0", "--dir", str(directory)])
        nodes = json.loads((directory / "cluster.json").read_text())["nodes"]
        delayed_s = max(up.delayed_s, *(run_delay_s(node["pid"]) for node in nodes))
        taken.append(up.seconds - delayed_s)
        print(f"three brokers ready: {up.seconds:.2f} s, of which {delayed_s:.2f} without a core")
        subprocess.run([OTTLA, "purge", "--dir", directory], check=True, stdout=subprocess.DEVNULL)
        if taken[-1] <= READY_S_MAX:
            break
    assert min(taken) <= READY_S_MAX, taken


def test_a_broker_stays_small_after_a_load(new_cluster: Callable[..., Any]) -> None:
    """64 MiB in 1 KiB records to three partitions with three replicas each."""
    cluster: ProcessCluster = new_cluster()
    topic = cluster.create_topic("load", 3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 5})
    errors = []
    value = bytes(range(256)) * 4
    for number in range(64 << 10):
        while True:
            try:
                producer.produce(
                    topic,
                    value,
                    partition=number % 3,
                    on_delivery=lambda error, _: errors.append(error) if error else None,
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not errors
    sizes = {node_id: cluster.proportional_bytes(node_id) for node_id in cluster.nodes}
    print("PSS, MiB:", {node_id: size >> 20 for node_id, size in sizes.items()})
    assert max(sizes.values()) <= PSS_BYTES_MAX, sizes
