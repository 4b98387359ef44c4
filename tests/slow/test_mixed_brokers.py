"""Brokers of ottla and of Apache Kafka in one cluster, with controllers of either kind: they lead each other's replicas, die and return.

Every test ends as all tests of failures do: nothing that was acknowledged is lost, doubled or moved, and all replicas hold the same
bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.cluster import byte_identical, paused, wait_until
from support.ledger import LedgerProducer
from support.mixed import Kind, MixedCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CONTROLLERS = pytest.mark.parametrize("controllers", list(Kind), ids=lambda kind: kind.name)
NEW = 4
"""The broker of the other kind: no controller."""
TOPIC = "ledger"
ASSIGNMENT = [[NEW, 1, 2], [1, NEW, 2], [2, 3, NEW], [NEW, 2, 3]]


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[MixedCluster]:
    """Three nodes of the one kind, which are the controllers, and a broker of the other."""
    controllers: Kind = request.getfixturevalue("controllers")
    kinds = [controllers, controllers, controllers, controllers.other]
    with MixedCluster(tmp_path / "cluster", kinds) as running:
        yield running


@contextmanager
def surviving(
    cluster: MixedCluster, assignment: list[list[int]] = ASSIGNMENT
) -> Iterator[LedgerProducer]:
    cluster.create_topic(TOPIC, config={"min.insync.replicas": "2"}, assignment=assignment)
    with LedgerProducer(cluster.bootstrap, TOPIC, len(assignment)) as ledger:
        ledger.wait_for_more(200)
        yield ledger
        cluster.wait_ready(90)
        cluster.wait_whole(TOPIC, 90)
        ledger.wait_for_more(200)
    assert not ledger.failed
    byte_identical(cluster, TOPIC, 60)
    ledger.verify().assert_clean()


@CONTROLLERS
def test_a_broker_of_the_other_kind_dies_freezes_and_restarts(
    cluster: MixedCluster, controllers: Kind
) -> None:
    """It leads two partitions and follows in two: its ISRs shrink and grow by proposals of both kinds."""
    with surviving(cluster) as ledger:
        for fault in ("kill", "pause", "restart"):
            if fault == "kill":
                cluster.kill(NEW)
                wait_until(lambda: cluster.leader(TOPIC, 0) != NEW, 30, "another leader")
                ledger.wait_for_more(400, 60)
                cluster.start(NEW)
            elif fault == "pause":
                with paused(cluster, NEW):
                    wait_until(
                        lambda: all(
                            NEW not in each.isr for each in cluster.partitions(TOPIC).values()
                        ),
                        60,
                        "it has left every ISR",
                    )
                    ledger.wait_for_more(400, 60)
            else:
                cluster.restart(NEW)
            cluster.wait_ready(90)
            cluster.wait_whole(TOPIC, 90)
            cluster.ottla("topics", "elect", TOPIC)
            wait_until(lambda: cluster.leader(TOPIC, 0) == NEW, 30, "its preferred leadership")


@CONTROLLERS
def test_leaders_and_the_active_controller_die_one_after_the_other(
    cluster: MixedCluster, controllers: Kind
) -> None:
    with surviving(cluster) as ledger:
        for _ in range(2):
            victim = wait_until(cluster.active_controller, 60, "an active controller")
            cluster.kill(victim)
            ledger.wait_for_more(400, 90)
            cluster.start(victim)
            cluster.wait_ready(90)
            cluster.wait_whole(TOPIC, 90)
