"""Controllers that are added, removed and replaced while producers write (KIP-853), on real processes.

No file of any other node is touched: the voters are in the metadata log.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.changing_controllers import ChangingCluster, new_controller
from support.cluster import wait_until
from support.ledger import LedgerProducer

pytestmark = pytest.mark.timeout(300)

SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "2000",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ChangingCluster]:
    with ChangingCluster(tmp_path / "cluster", 3, SETTINGS) as cluster:
        yield cluster


def test_controllers_are_added_removed_and_replaced_under_load(
    cluster: ChangingCluster, tmp_path: Path
) -> None:
    topic = cluster.create_topic("ledger", 3, config={"min.insync.replicas": "2"})
    with (
        new_controller(cluster, tmp_path) as new,
        LedgerProducer(cluster.bootstrap, topic, 3) as producer,
    ):
        producer.wait_for_more(100)
        assert cluster.voters() == [1, 2, 3]

        wait_until(lambda: new.id in cluster.ids_of("observer"), 60, "the new controller observes")
        added = cluster.ottla("controllers", "add", str(new.id), "--at", new.at)
        assert added["voters"] == [1, 2, 3, new.id]
        producer.wait_for_more(100)

        leader = cluster.controllers()["leader"]
        after = cluster.ottla("controllers", "remove", str(leader))
        assert leader not in after["voters"] and len(after["voters"]) == 3
        wait_until(lambda: cluster.controllers()["leader"] != leader, 30, "another leader")
        producer.wait_for_more(100)

        lost = next(id for id in cluster.voters() if id != new.id)
        cluster.lose_disk(lost)
        wait_until(lambda: lost in cluster.ids_of("observer"), 60, "the new disk observes")
        after = cluster.ottla("controllers", "replace", str(lost))
        assert lost in after["voters"] and len(after["voters"]) == 3
        again = cluster.refused("controllers", "replace", str(lost))
        assert f"controller {lost} fetches with directory" in again
        cluster.wait_whole(topic)
        producer.wait_for_more(100)

        # The replaced voter counts: without one of the others there is still a majority.
        other = next(id for id in cluster.voters() if id not in (lost, new.id))
        cluster.kill(other)
        producer.wait_for_more(100, timeout=60)
        cluster.start(other)
        cluster.wait_whole(topic)
    assert not producer.failed
    producer.verify().assert_clean()


def test_a_controller_that_may_join_votes_without_being_added(
    cluster: ChangingCluster, tmp_path: Path
) -> None:
    joins = {"controller_quorum_auto_join_enable": "true"}
    with new_controller(cluster, tmp_path, **joins) as new:
        wait_until(lambda: new.id in cluster.voters(), 60, "the new controller votes")
