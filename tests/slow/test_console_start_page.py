"""The start page alone says which partition lost its leader and why, which group is behind and since when, and which records an
unclean election cost; and one click from each leads to its explanation."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.wire.internal_topics import EVENT_LOG_TOPIC
from support.browsed import SETTINGS, Browsed, commit
from support.chromium import CHROMIUM, Chromium
from support.cluster import ProcessCluster, wait_until
from support.console import ConsoleProcess

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
BEHIND_S = 40


def lose_records(browsed: Browsed, topic: str) -> None:
    """Offsets 10 to 14, which one replica alone had."""
    cluster = browsed.cluster
    cluster.create_topic(topic, config=UNCLEAN, assignment=[[2, 3]])
    browsed.produce(topic, ["kept"] * 10)
    cluster.kill(3)
    wait_until(lambda: cluster.partitions(topic)[0].isr == [2], 20, "one replica in sync")
    browsed.produce(topic, ["lost"] * 5)
    cluster.kill(2)
    cluster.start(3)
    wait_until(lambda: cluster.partitions(topic)[0].leader == 3, 20, "an unclean election")
    cluster.start(2)
    cluster.wait_whole(topic)


def fall_behind(cluster: ProcessCluster, group: str) -> None:
    """It read what there was; what came then is old already."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    stamp_ms = int((time.time() - BEHIND_S) * 1000)
    producer.produce("orders", "unread", partition=0, timestamp=stamp_ms)
    assert producer.flush(30) == 0
    commit(cluster, group, 50)


def test_a_stranger_finds_three_troubles_and_their_reasons_on_the_start_page(
    tmp_path: Path,
) -> None:
    with (
        ProcessCluster(tmp_path / "cluster", 3, SETTINGS) as cluster,
        Chromium(tmp_path / "profile") as browser,
        ConsoleProcess("-b", cluster.bootstrap) as console,
    ):
        wait_until(lambda: cluster.partitions(EVENT_LOG_TOPIC), 20, "an event log")
        browsed = Browsed(cluster, console, browser)
        browsed.fill()
        lose_records(browsed, "ledger")
        fall_behind(cluster, "billing")
        cluster.create_topic("alone", assignment=[[3]])
        with console.page("overview") as watched:
            watched.wait(lambda p: "alone-0" in p.table("partitions"), 20, "the new partition")
        cluster.kill(3)
        page = browsed.visit("/")
        for told in (
            "alone-0 has no leader",
            "Group billing is ",
            "ledger-0 lost 5 committed records: offsets 10 to 14.",
            "Broker 3 is down.",
        ):
            page.wait_for_text(told, 40)
        page.wait_for_text("was the last in sync")
        whys = {
            "alone-0 has no leader": "Broker 3 was the last in sync, and broker 3 is down",
            "Group billing is ": "Nobody reads: the group has no members.",
            "ledger-0 lost": "An unclean election",
        }
        problems = page.value_of(
            "[...document.querySelectorAll('.problem')].map((e) => e.innerText)"
        )
        print("\n\n".join(problems))
        for told, why in whys.items():
            (problem,) = (each for each in problems if told in each)
            assert why.lower() in problem.lower()
            assert "since " in problem and "before this console" not in problem
            # One click leads to the explanation.
            at = problems.index(problem) + 1
            page.click(f".problem:nth-child({at}) .when a")
            page.wait_for("document.querySelector('.explanation .headline')", 30)
            browsed.assert_clean()
            browsed.visit("/")
            page.wait_for("document.querySelector('.problem')")
