"""`ottla losses` and `ottla recover` over a real unclean election: what is named is what was lost, and it comes back."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from support.cluster import ProcessCluster
from support.unclean import (
    CONFIG,
    TOPIC,
    Ledger,
    assert_exact,
    named,
    one_unclean_election,
    ottla,
    read_back,
)

SETTINGS = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "200"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("losses"), 5, SETTINGS) as running:
        running.create_topic(TOPIC, assignment=[[4, 5]], config=CONFIG)
        running.create_topic("recovered", assignment=[[1, 2]])
        yield running


@pytest.fixture(scope="module")
def ledger(cluster: ProcessCluster) -> Ledger:
    return one_unclean_election(cluster, 1, random.Random(1))


def test_what_is_named_is_what_was_lost(cluster: ProcessCluster, ledger: Ledger) -> None:
    (loss,) = named(cluster)
    assert_exact(ledger, loss, read_back(cluster, TOPIC))
    assert loss["partition"] == f"{TOPIC}-0"
    assert "unclean election" in loss["cause"]
    (held,) = loss["held_by"]
    assert held["broker"] in (4, 5) and held["bytes"] == loss["bytes"] > 0


def test_lost_records_come_back_once_with_headers_that_say_from_where(
    cluster: ProcessCluster, ledger: Ledger
) -> None:
    (loss,) = named(cluster)
    count = loss["end_offset"] - loss["first_offset"]
    recover = ("recover", "--topic", f"{TOPIC}-0", "--to", "recovered")
    (dry,) = ottla(cluster, *recover, "--dry-run")
    assert (dry["would_copy"], dry["copied"], read_back(cluster, "recovered")) == (count, 0, [])
    (done,) = ottla(cluster, *recover)
    assert (done["copied"], done["were_there"]) == (count, 0)
    (again,) = ottla(cluster, *recover)
    assert (again["copied"], again["were_there"]) == (0, count)
    back = read_back(cluster, "recovered")
    assert len(back) == len(set(back)) == count
    in_the_log = set(read_back(cluster, TOPIC))
    assert {value for value in ledger.acknowledged.values() if value not in in_the_log} <= set(back)
    (marked,) = named(cluster)
    assert marked["recovered"] == "recovered"


def test_the_topic_that_lost_records_does_not_take_them_by_accident(
    cluster: ProcessCluster, ledger: Ledger
) -> None:
    with pytest.raises(AssertionError, match="--force"):
        ottla(cluster, "recover", "--all", "--to", TOPIC)


def test_a_stopped_cluster_says_the_same(cluster: ProcessCluster, ledger: Ledger) -> None:
    running = named(cluster)
    cluster.stop()
    try:
        assert named(cluster, "--dir", str(cluster.directory)) == running
        (broker,) = {held["broker"] for held in running[0]["held_by"]}
        directory = cluster.nodes[broker].data
        assert named(cluster, "--dir", str(directory)) == running
    finally:
        cluster.mend()
    assert named(cluster) == running
