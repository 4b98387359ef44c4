"""The console of Apache Kafka: every page that needs no event log works, and the others say that there is none."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from support.browsed import PAGES, SETTINGS, Browsed
from support.chromium import CHROMIUM, Chromium
from support.cluster import ProcessCluster
from support.console import ConsoleProcess
from support.kafka_server import kafka_instead
from support.transactions import ConfluentTransactions

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
    pytest.mark.timeout(900),  # the first one installs Kafka
]

QUICK = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


@pytest.fixture(scope="module")
def browsed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsed]:
    directory = tmp_path_factory.mktemp("kafka")
    with ProcessCluster(directory / "cluster", 3, {**SETTINGS, **QUICK}) as cluster:
        cluster.stop(1, 2, 3)
        with (
            kafka_instead(cluster),
            Chromium(directory / "profile") as browser,
            ConsoleProcess("-b", cluster.bootstrap, "--allow-writes") as console,
        ):
            made = Browsed(cluster, console, browser)
            made.fill()
            yield made


@pytest.fixture(autouse=True)
def _no_complaints(browsed: Browsed) -> Iterator[None]:
    yield
    browsed.assert_clean()


def test_every_page_is_shown(browsed: Browsed) -> None:
    for path in PAGES:
        page = browsed.visit(path)
        page.wait_for("document.querySelector('main h1')")
        page.wait_for("!document.querySelector('[aria-busy=true]')", 60)
        assert "This page failed" not in page.text(), path
        browsed.assert_clean()


def test_the_overview_has_brokers_rates_groups_and_controllers(browsed: Browsed) -> None:
    page = browsed.visit("/")
    page.wait_for("document.querySelectorAll('a.c.leader').length >= 3")
    page.wait_for("document.querySelectorAll('.voters li').length === 3")
    page.wait_for_text("billing")
    page.wait_for_text("There is no event log")
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        browsed.produce("orders", ["x"] * 50, partition=1)
        if page.value_of("document.querySelector('.tiles dd').textContent") not in ("–", "0/s"):
            return
    raise AssertionError(f"no rate: {page.text()[:1000]}")


def test_a_partition_shows_all_replicas_as_they_move(browsed: Browsed) -> None:
    page = browsed.visit("/topics/orders/2")
    page.wait_for("document.querySelectorAll('.log').length === 3")
    browsed.produce("orders", ["x"] * 20, partition=2)
    for mark in ("leo", "hw"):
        page.wait_for(
            f"(() => {{ const all = [...document.querySelectorAll('.mark.{mark}')]; return all.length === 3 && all.every((e) => e.textContent.endsWith(' 20')); }})()"
        )
    page.wait_for_text("orders-2 is healthy")


def test_the_timeline_says_that_there_is_no_event_log(browsed: Browsed) -> None:
    page = browsed.visit("/timeline")
    page.wait_for_text("event log")


def test_a_group_a_topic_messages_and_transactions(browsed: Browsed) -> None:
    browsed.produce("orders", ["unread"] * 5)
    page = browsed.visit("/groups/billing")
    page.wait_for_text("5 records", 20)
    page = browsed.visit("/messages/orders?partition=0")
    page.wait_for("document.querySelectorAll('.records tbody tr').length >= 50")
    page = browsed.visit("/topics/orders")
    page.wait_for_text("3 partitions")
    page.wait_for_text("billing")
    writer = ConfluentTransactions(browsed.cluster.bootstrap, "till")
    writer.begin()
    writer.send("orders", "unfinished")
    page = browsed.visit("/transactions")
    page.wait_for_text("till", 20)
    page.click("td button.danger")
    page.click("dialog[open] button.danger")
    page.wait_for_text("Nothing is open.", 20)


def test_a_plan_is_made(browsed: Browsed) -> None:
    browsed.cluster.create_topic("lopsided", assignment=[[1, 2, 3]] * 12)
    page = browsed.visit("/moves")
    page.click("section .fields button")
    page.wait_for("document.querySelector('.ba')", 30)
    assert "would change" in page.text()


def test_an_open_cluster_says_that_it_is_open(browsed: Browsed) -> None:
    page = browsed.visit("/security")
    page.wait_for_text("whoever can connect may do everything")


def test_a_killed_broker_is_shown_and_explained(browsed: Browsed) -> None:
    """Apache Kafka fences it after its session; that its address refuses connections is shown at once."""
    page = browsed.visit("/")
    page.wait_for_text("All is well", 30)
    killed = browsed.cluster.leader("orders")
    began = time.monotonic()
    browsed.cluster.kill(killed)
    page.wait_for_text(f"Broker {killed} ", 20)
    print(f"shown after {time.monotonic() - began:.2f} s")
    page.wait_for_text(f"Broker {killed} is down.", 30)
    page.wait_for("[...document.querySelectorAll('.c.offline')].length >= 3")
    page.click(".problem a.button")
    page.wait_for_text(f"broker {killed}", 20)
    page.wait_for("document.querySelector('.explanation .headline')", 30)
