"""Exactly once for minutes, while brokers die all the time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from support.cluster import ProcessCluster, wait_until
from support.pipeline import Feeder, Watcher, Worker, assert_each_once, wait_stable

PARTITIONS = 6
WORKERS = 3


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_C3_each_input_has_one_output_while_brokers_are_killed_for_two_minutes(
    new_cluster: Callable[..., Any], protocol: str
) -> None:
    endure(new_cluster(3), protocol, seconds=120, every=(2.0, 6.0), seed=5)


def endure(
    cluster: ProcessCluster, protocol: str, seconds: float, every: tuple[float, float], seed: int
) -> None:
    source = cluster.create_topic("source", PARTITIONS)
    target = cluster.create_topic("target", PARTITIONS)
    chance = random.Random(seed)
    watcher = Watcher(cluster.bootstrap, "pipe")
    kills = 0
    with ExitStack() as stack:
        workers = []
        for number in range(WORKERS):
            worker = Worker(
                cluster.bootstrap,
                "pipe",
                source,
                target,
                f"worker-{number}",
                {"group.protocol": protocol},
            )
            stack.callback(worker.stop)
            workers.append(worker)
        wait_stable(workers, watcher, PARTITIONS, 60)
        with Feeder(cluster.bootstrap, source, PARTITIONS, rate=300) as feeder:
            ends = time.monotonic() + seconds
            while time.monotonic() < ends:
                victim = chance.choice(sorted(cluster.nodes))
                cluster.kill(victim)
                kills += 1
                killed_at = time.monotonic()
                cluster.start(victim)
                cluster.wait_ready()
                cluster.wait_whole(source)
                next_at = killed_at + chance.uniform(*every)
                while time.monotonic() < next_at:
                    watcher.look()
                    time.sleep(0.05)
                print(
                    f"{kills} kills, {feeder.sent} sent, {sum(watcher.committed.values())} committed,"
                    f" commits {[w.commits for w in workers]}",
                    flush=True,
                )
            cluster.kill(victim := chance.choice(sorted(cluster.nodes)))
            stable_s = wait_stable(workers, watcher, PARTITIONS, 60)
        cluster.start(victim)
        cluster.wait_ready()

        def all_copied() -> bool:
            watcher.look()
            # The source has no transactions: as many offsets as records.
            return sum(watcher.committed.values()) == feeder.sent

        began = time.monotonic()
        wait_until(all_copied, 90, "every record is copied")
        copied_s = time.monotonic() - began
    slowest = {
        call: round(max(worker.slowest.get(call, 0) for worker in workers), 2)
        for call in sorted({call for worker in workers for call in worker.slowest})
    }
    failures = {worker.name: dict(worker.failures) for worker in workers}
    print(
        f"{kills} kills, {feeder.sent} records, {sum(w.commits for w in workers)} transactions;"
        f" stable {stable_s:.1f} s after the last kill, all copied {copied_s:.1f} s after the last record;"
        f" slowest calls, s: {slowest}; failures: {failures}; {watcher.looks} looks at offsets"
    )
    assert not watcher.went_back, watcher.went_back[:5]
    assert_each_once(cluster.bootstrap, target, PARTITIONS, feeder.sent)
    assert stable_s < 5, stable_s
