"""The planner with 100,000 partitions on 1,000 brokers: in under 10 s of processor time and 1 GB."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS, MEMORY_KB = 10.0, 1_000_000


@pytest.mark.slow
@pytest.mark.alone
def test_P39_a_plan_for_100_000_partitions_on_1_000_brokers_takes_seconds() -> None:
    """In a process of its own, whose memory and time are only the planner's."""
    done = subprocess.run(
        [sys.executable, Path(__file__)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    seconds, memory_kb, moved, bound, misses_before, misses = map(float, done.stdout.split())
    assert seconds < SECONDS
    assert memory_kb < MEMORY_KB
    assert misses_before > 100
    assert misses == 0, "everybody is in balance"
    assert moved <= 1.2 * bound


def _main() -> None:
    from ottla.balance.model import BalancedBroker, BalancedPartition
    from ottla.balance.planner import plan

    chance = random.Random(1)
    brokers = [BalancedBroker(id, f"rack-{id % 10}") for id in range(1000)]
    old = [broker.id for broker in brokers[:980]]
    partitions = []
    for number in range(100_000):
        start = chance.randrange(len(old))
        replicas = tuple(old[(start + j) % len(old)] for j in range(3))
        size = int(1e9 * chance.lognormvariate(0, 1))
        rate = 1e5 * chance.lognormvariate(0, 1)
        partitions.append(
            BalancedPartition(
                f"topic-{number % 500:03}", number // 500, replicas, replicas[0], size, rate
            )
        )
    before = resource.getrusage(resource.RUSAGE_SELF)
    made = plan(brokers, partitions)
    after = resource.getrusage(resource.RUSAGE_SELF)
    print(
        after.ru_utime - before.ru_utime,
        after.ru_maxrss,
        made.bytes_moved,
        made.bytes_bound,
        len(made.misses_before),
        len(made.misses),
    )


if __name__ == "__main__":
    _main()
