"""`ottla losses` and `ottla recover` over a real unclean election: what is named is what was lost, and it comes back."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator

import pytest

from ottla.wire.errors import ErrorCode
from support.cluster import OTTLA, ProcessCluster, wait_until
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
from support.wire import write

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
    finding = f"{TOPIC}-0 lost {count} committed record"
    assert finding in said(cluster, "doctor")
    wait_until(
        lambda: "had been committed" in said(cluster, "explain", f"{TOPIC}-0"),
        20,
        "the event log tells of it",
    )
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
    assert finding not in said(cluster, "doctor")
    assert "They were copied to recovered." in said(cluster, "explain", f"{TOPIC}-0")


def said(cluster: ProcessCluster, *words: str) -> str:
    command = [str(OTTLA), *words, "--bootstrap", cluster.bootstrap]
    return subprocess.run(command, capture_output=True, text=True).stdout.replace("\n", " ")


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


def said_beside_losses(*where: str) -> str:
    command = [str(OTTLA), "losses", *where]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr


def test_until_the_old_leader_is_back_the_event_log_says_whose_disk_may_hold_records(
    cluster: ProcessCluster,
) -> None:
    topic = "open"
    cluster.create_topic(topic, assignment=[[4, 5]], config=CONFIG)
    cluster.wait_whole(topic)
    assert write(cluster, topic, "together") is ErrorCode.NONE
    cluster.kill(5)
    wait_until(lambda: cluster.partitions(topic)[0].isr == [4], 20, "4 leads alone")
    assert write(cluster, topic, "alone") is ErrorCode.NONE
    cluster.kill(4)
    cluster.start(5)
    wait_until(lambda: cluster.partitions(topic)[0].leader == 5, 20, "5 leads")

    def kinds() -> list[str]:
        return [each["kind"] for each in ottla(cluster, "losses", "--topic", topic)]

    wait_until(lambda: kinds() == ["open_election"], 20, "the election is open")
    (election,) = ottla(cluster, "losses", "--topic", topic)
    assert (election["first_offset"], election["may_be_held_by"]) == (1, [4])
    wait_until(
        lambda: "broker 4 does not run" in said_beside_losses("--bootstrap", cluster.bootstrap),
        20,
        "every broker knows that 4 is gone",
    )
    assert "broker 4" not in said_beside_losses("--dir", str(cluster.directory)), "it was read"
    cluster.start(4)
    cluster.wait_whole(topic)
    wait_until(lambda: kinds() == ["truncation"], 20, "what it cost is known")
