"""The start page alone says which partition lost its leader and why, which group is behind and since when, and which records an
unclean election cost; and one click from each leads to its explanation."""

from __future__ import annotations

import re
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


def explanation(browsed: Browsed, path: str) -> str:
    page = browsed.visit(path)
    page.wait_for("document.querySelector('.explanation .headline')", 30)
    return str(page.value_of("document.querySelector('.explanation').innerText"))


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
        (late,) = (each for each in problems if "Group billing is " in each)
        assert "It has been more than 10 s behind since then" in late
        # One of three controllers is silent: no other may fail.
        page.wait_for_text("Controller 3 does not follow the metadata log.", 30)
        page.wait_for_text("silent for", 30)
        assert page.text().count("If another controller fails, nothing can be decided") == 2
        told = explanation(browsed, "/topics/alone/0")
        assert "This is the only copy of alone-0." in told
        assert "It catches up" not in told
        told = explanation(browsed, "/topics/ledger/0")
        print(told)
        assert told.index("ottla recover") < told.index("Start broker 3")
        assert "Broker 2 leads now" in told
        told = explanation(browsed, "/brokers/3")
        print(told)
        assert "Broker 3 alone has all records of alone-0" in told
        assert "The same process is a controller, too: what brings it back repairs both." in told
        page.wait_for("document.querySelectorAll('.events time').length > 3", 30)
        times = page.value_of(
            "[...document.querySelectorAll('.events time')].map((e) => e.dateTime)"
        )
        assert times == sorted(times, reverse=True)
        told = explanation(browsed, "/brokers/1")
        leads, replicas = re.findall(r"leads (\d+)\s*(\d+) replicas?", page.text())[0]
        assert f"leads {leads} of its {replicas} replica" in told
        page = browsed.visit("/messages/alone?partition=0")
        page.wait_for_text("Partition 0 has no leader and cannot be read now.", 30)
        page.wait_for_text("Without a leader nothing can be read.")
        for wrong in ("There are no records", "Nothing was found", "0 records of 0 read"):
            assert wrong not in page.text()
        page = browsed.visit("/topics/alone")
        page.wait_for_text("No partition has a leader: nothing can be written now.")
        page.wait_for_text("No partition has a leader, who would know its producers.", 30)
        page = browsed.visit("/groups/billing")
        page.wait_for_text("Preview a move of its offsets")
        browsed.assert_clean()
