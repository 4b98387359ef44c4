"""Real processes killed and paused under a producer with acks=all. Each time: nothing that was acknowledged
is lost, doubled, moved or out of order, every replica returns to the ISR, and all hold the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support.cluster import ProcessCluster, byte_identical, paused, wait_until
from support.ledger import LedgerProducer

pytestmark = pytest.mark.timeout(180)

PARTITIONS = 3
QUICK = {
    "broker_session_timeout_ms": "3000",
    "broker_heartbeat_interval_ms": "500",
    "replica_lag_time_max_ms": "2000",
}
"""Kafka's timeouts, shortened: the tests wait for them to pass."""


@contextmanager
def surviving(
    cluster: ProcessCluster, assignment: list[list[int]] | None = None
) -> Iterator[LedgerProducer]:
    """Produce while the body does its worst, then hold the cluster to the contract."""
    topic = cluster.create_topic(
        "ledger", PARTITIONS, config={"min.insync.replicas": "2"}, assignment=assignment
    )
    count = len(assignment) if assignment else PARTITIONS
    with LedgerProducer(cluster.bootstrap, topic, count) as producer:
        producer.wait_for_more(100)
        yield producer
        cluster.wait_ready()
        cluster.wait_whole(topic)
        producer.wait_for_more(100)
    assert not producer.failed
    byte_identical(cluster, topic)
    producer.verify().assert_clean()


@pytest.fixture
def cluster(new_cluster: Callable[..., Any]) -> ProcessCluster:
    return new_cluster(**QUICK)


def test_P26_a_killed_leader_is_replaced_from_the_isr_and_returns(cluster: ProcessCluster) -> None:
    with surviving(cluster) as producer:
        leader = cluster.leader("ledger", 0)
        cluster.kill(leader)
        wait_until(lambda: cluster.leader("ledger", 0) != leader, 20, "another leader")
        producer.wait_for_more(300)
        cluster.start(leader)


def test_P15_a_killed_follower_is_not_waited_for_and_returns(cluster: ProcessCluster) -> None:
    with surviving(cluster) as producer:
        state = cluster.partitions("ledger")[0]
        follower = next(r for r in state.replicas if r != state.leader)
        cluster.kill(follower)
        producer.wait_for_more(300)
        assert follower not in cluster.partitions("ledger")[0].isr
        cluster.start(follower)


def test_P35_a_killed_active_controller_is_replaced_and_no_decision_is_lost(
    cluster: ProcessCluster,
) -> None:
    with surviving(cluster) as producer:
        controller = wait_until(cluster.active_controller, 10, "an active controller")
        cluster.create_topic("decided-before")
        cluster.kill(controller)
        wait_until(lambda: cluster.active_controller() != controller, 20, "another controller")
        producer.wait_for_more(300)
        assert cluster.partitions("decided-before")
        cluster.start(controller)


def test_P18_with_two_of_three_killed_at_once_nothing_is_acknowledged_until_they_return(
    cluster: ProcessCluster,
) -> None:
    """The quorum's majority is gone as well: the survivor can neither shrink the ISR nor acknowledge."""
    with surviving(cluster) as producer:
        cluster.kill(1, 2)
        _nothing_is_acknowledged(producer)
        cluster.start(1)
        producer.wait_for_more(100, timeout=60)
        cluster.start(2)


def test_P18_an_isr_of_one_takes_no_acks_all_while_the_quorum_lives(
    new_cluster: Callable[..., Any],
) -> None:
    """Five nodes, so that two brokers can die at once and leave the controllers whole."""
    cluster = new_cluster(5, **QUICK)
    with surviving(cluster, assignment=[[4, 5, 1]]) as producer:
        cluster.kill(4, 5)
        wait_until(lambda: cluster.partitions("ledger")[0].isr == [1], 20, "an ISR of one")
        _nothing_is_acknowledged(producer)
        cluster.start(4)
        producer.wait_for_more(100, timeout=60)
        cluster.start(5)


def test_P09_all_three_killed_at_once_come_back_with_everything_acknowledged(
    cluster: ProcessCluster,
) -> None:
    with surviving(cluster):
        cluster.kill(1, 2, 3)
        cluster.start()


def test_P15_brokers_killed_one_after_the_other_lose_nothing(cluster: ProcessCluster) -> None:
    with surviving(cluster) as producer:
        for victim in (1, 2, 3):
            cluster.kill(victim)
            producer.wait_for_more(100)
            cluster.start(victim)
            cluster.wait_ready()
            cluster.wait_whole("ledger")


def test_P12_a_follower_paused_past_the_lag_limit_leaves_the_isr_and_returns(
    new_cluster: Callable[..., Any],
) -> None:
    """Its session would last much longer: it is the leader that removes it."""
    cluster = new_cluster(
        broker_session_timeout_ms="60000",
        broker_heartbeat_interval_ms="2000",
        replica_lag_time_max_ms="2000",
    )
    with surviving(cluster) as producer:
        controller = wait_until(cluster.active_controller, 10, "an active controller")
        states = cluster.partitions("ledger")
        follower = next(r for r in states[0].replicas if r != controller)
        led_by_others = [p for p, state in states.items() if state.leader != follower]
        with paused(cluster, follower):
            wait_until(
                lambda: all(
                    follower not in cluster.partitions("ledger")[p].isr for p in led_by_others
                ),
                20,
                f"follower {follower} out of the ISR",
            )
            assert follower in cluster.alive_as_seen_by(cluster.up[0])
            producer.wait_for_more(100)


def test_P10_a_leader_paused_past_its_session_is_fenced_and_returns(
    cluster: ProcessCluster,
) -> None:
    with surviving(cluster) as producer:
        leader = cluster.leader("ledger", 0)
        with paused(cluster, leader):
            wait_until(lambda: cluster.leader("ledger", 0) != leader, 30, "another leader")
            wait_until(
                lambda: leader not in cluster.alive_as_seen_by(cluster.up[0]), 10, "it is fenced"
            )
            producer.wait_for_more(300)


def test_P28_a_stopped_broker_hands_over_first_and_returns(cluster: ProcessCluster) -> None:
    with surviving(cluster) as producer:
        leader = cluster.leader("ledger", 0)
        assert cluster.stop(leader) == [0]
        producer.wait_for_more(100)
        cluster.start(leader)


def _nothing_is_acknowledged(producer: LedgerProducer) -> None:
    """What was on the way may still be reported; after it, hundreds of attempts get no acknowledgement."""

    def sent(count: int) -> None:
        goal = producer.sent + count
        wait_until(lambda: producer.sent >= goal, 20, f"{count} values sent")

    sent(200)
    before = len(producer.acknowledged)
    sent(600)
    assert len(producer.acknowledged) == before
