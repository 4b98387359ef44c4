"""What a broker's death, stop and start cost where it has thousands of partitions, on real processes with Kafka's defaults.

Of each time, what the machine did for others while the process waited that it kept waiting longest is not counted; of several
deaths the median counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from support.cluster import ProcessCluster, wait_until
from support.scheduling import run_delay_s

pytestmark = [pytest.mark.slow, pytest.mark.alone]

PER_TOPIC = 5_000
"""A controller makes no more than 10,000 records of one request."""
PREFIX = "many-"
DEATHS = 3


def leaders_seen_by(admin: AdminClient) -> set[int]:
    topics = admin.list_topics(timeout=30).topics
    return {
        each.leader
        for name, topic in topics.items()
        if name.startswith(PREFIX)
        for each in topic.partitions.values()
    }


def led_by_others(admin: AdminClient, than: int) -> bool:
    return leaders_seen_by(admin).isdisjoint((-1, than))


def unhindered(cluster: ProcessCluster, work: Callable[[], object]) -> float:
    """How long it takes, without what any one of the nodes had to wait for a core."""
    pids = [node.pid for node in cluster.up if node.pid is not None]
    before = {pid: run_delay_s(pid) for pid in pids}
    began = time.monotonic()
    work()
    seconds = time.monotonic() - began
    # One that was killed meanwhile has nothing more to say, and waited for nothing.
    return seconds - max(run_delay_s(pid) - before[pid] for pid in pids)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("partitions", "election_s_max", "stop_s_max"), [(1_000, 0.3, 1.0), (10_000, 2.0, 5.0)]
)
def test_P40_what_a_dead_broker_led_is_led_again_soon_and_one_that_stops_is_soon_gone(
    new_cluster: Callable[..., Any], partitions: int, election_s_max: float, stop_s_max: float
) -> None:
    cluster: ProcessCluster = new_cluster()
    topics = [
        cluster.create_topic(f"{PREFIX}{first}", min(PER_TOPIC, partitions - first))
        for first in range(0, partitions, PER_TOPIC)
    ]

    def settled() -> None:
        cluster.wait_ready(120)
        for topic in topics:
            cluster.wait_whole(topic, 120)

    elections = []
    for _ in range(DEATHS):
        settled()
        controller = wait_until(cluster.active_controller, 10, "an active controller")
        leaders = [state.leader for topic in topics for state in cluster.partitions(topic).values()]
        # Leaders do not return at once: of the others, the one that has most of them.
        others = [id for id in cluster.nodes if id != controller]
        victim = max(others, key=leaders.count)
        assert leaders.count(victim) >= partitions // 3
        survivors = [
            AdminClient({"bootstrap.servers": node.address, "log_level": 0})
            for node in cluster.up
            if node.id != victim
        ]
        for admin in survivors:  # connected, before the clock starts
            assert victim in leaders_seen_by(admin)

        def fail_over(victim: int = victim, survivors: list[AdminClient] = survivors) -> None:
            cluster.kill(victim)
            for admin in survivors:
                others_lead = partial(led_by_others, admin, victim)
                wait_until(others_lead, 120, f"others lead what {victim} led", every=0.01)

        elections.append(unhindered(cluster, fail_over))
        cluster.start(victim)
    settled()
    stopped_s = unhindered(cluster, lambda: cluster.stop(victim))
    print(f"{partitions} partitions: elections {elections}, stopped in {stopped_s:.2f} s")
    assert median(elections) < election_s_max, elections
    assert stopped_s < stop_s_max
