"""A cluster in which one topic has 80 % of all bytes, and one broker leads all of it; and what each broker leads."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from contextlib import ExitStack
from typing import Any

import pytest

from support.cluster import OTTLA, ProcessCluster, wait_until
from support.loaded import VALUE_BYTES, Load

TOPICS = {"big": (24, 0.8), "small": (12, 0.2)}
"""Partitions, and the share of the bytes."""
LED_BY_FIRST = 0.8 + 0.2 / 4
MEASURED_S = 10.0


def command(cluster: ProcessCluster, *words: str) -> list[Any]:
    """What a command of ottla answers, line by line."""
    bootstrap = ",".join(node.address for node in cluster.nodes.values())
    done = subprocess.run(
        [str(OTTLA), *words, "-b", bootstrap, "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def write(cluster: ProcessCluster, bytes_per_s: int, seconds: float) -> dict[int, int]:
    """Producers and consumers for so long. Returns the bytes that were written to each leader."""
    with ExitStack() as stack:
        loads = {
            topic: stack.enter_context(
                Load(cluster.bootstrap, topic, partitions, int(share * bytes_per_s))
            )
            for topic, (partitions, share) in TOPICS.items()
        }
        for load in loads.values():
            load.wait_for_s(2.0)
        began = time.monotonic()
        for load in loads.values():
            load.wait_for_s(seconds + began - time.monotonic())
        written: Counter[int] = Counter(dict.fromkeys(cluster.nodes, 0))
        for topic, load in loads.items():
            leaders = {number: each.leader for number, each in cluster.partitions(topic).items()}
            written.update(leaders[ack.partition] for ack in load.acks[:] if ack.at >= began)
    return {id: count * VALUE_BYTES for id, count in written.items()}


def check_that_a_skewed_cluster_is_balanced(
    cluster: ProcessCluster, bytes_per_s: int, seconds: float
) -> None:
    """Broker 1 leads 80 % of the bytes, broker 2 has the other replicas of them; the rest is spread evenly. After
    `ottla balance apply` every broker leads its share within 10 %, and the bytes moved are at most 1.2 times the lower
    bound."""
    big, small = (partitions for partitions, _ in TOPICS.values())
    cluster.create_topic("big", assignment=[[1, 2]] * big)
    spread = [[1 + n % 4, 1 + (n + 1) % 4] for n in range(small)]
    cluster.create_topic("small", assignment=spread)
    command(
        cluster, "balance", "plan"
    )  # brokers look at their counters: from here on traffic counts
    skewed = write(cluster, bytes_per_s, seconds)
    assert _shares(skewed)[1] == pytest.approx(4 * LED_BY_FIRST, rel=0.1), skewed
    wait_until(lambda: _is_measured(cluster), 90, "the brokers have measured it", every=1.0)
    told = command(cluster, "balance", "apply")
    plan = next(each for each in told if each["event"] == "plan")
    moved = max((each["moved"] for each in told if each["event"] == "progress"), default=0)
    shares = _shares(write(cluster, bytes_per_s, MEASURED_S))
    bound = plan["bytes_bound"]
    print(
        f"moved {moved / 1e6:.1f} MB, planned {plan['bytes_to_move'] / 1e6:.1f} MB, lower bound"
        f" {bound / 1e6:.1f} MB ({moved / bound:.2f} times); leader bytes in shares of the mean: {shares}"
    )
    assert plan["balanced"], plan["misses"]
    assert 0 < bound <= moved <= 1.2 * bound
    assert all(0.9 <= share <= 1.1 for share in shares.values()), shares


def _shares(bytes_of: dict[int, int]) -> dict[int, float]:
    """In shares of the mean."""
    mean = sum(bytes_of.values()) / len(bytes_of)
    return {id: round(each / mean, 3) for id, each in bytes_of.items()}


def _is_measured(cluster: ProcessCluster) -> bool:
    """Brokers look at their counters now and then: until all have, the shares are others."""
    (plan,) = command(cluster, "balance", "plan")
    rates = {each["broker"]: each["before"]["rate"] for each in plan["brokers"]}
    total = sum(rates.values())
    return total > 0 and abs(rates[1] / total - LED_BY_FIRST) < 0.01
