"""The console beside a real cluster: what it tells browsers, and how soon."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.console.web.messages import READINGS_MAX
from ottla.wire.internal_topics import EVENT_LOG_TOPIC
from support.cluster import ProcessCluster, wait_until
from support.console import ConsoleProcess, OpenPage


def about(page: OpenPage, id: str) -> Any:
    return page.table("problems").get(id)


@pytest.fixture(scope="module")
def watched(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[ProcessCluster, ConsoleProcess]]:
    with ProcessCluster(tmp_path_factory.mktemp("watched")) as cluster:
        cluster.create_topic("orders", 3)
        with ConsoleProcess("--bootstrap", cluster.bootstrap) as console:
            yield cluster, console
            cluster.mend()


def wait_for_events(cluster: ProcessCluster, page: OpenPage) -> None:
    """Until the event log is there and is read."""
    page.wait(lambda p: p.table("newest").get("all"), 30, "entries of the event log")
    assert EVENT_LOG_TOPIC


def test_a_page_gets_everything_and_then_what_changes(
    watched: tuple[ProcessCluster, ConsoleProcess],
) -> None:
    cluster, console = watched
    with console.page("overview") as page:
        page.wait(lambda p: len(p.table("partitions")) == 3, 10, "the partitions")
        assert set(page.table("brokers")) == {"1", "2", "3"}
        wait_for_events(cluster, page)
        before = page.bytes
        cluster.create_topic("payments", 1)
        page.wait(lambda p: "payments" in p.table("topics"), 10, "a new topic")
        # Only news came, not everything again.
        assert page.bytes - before < before


def test_a_leader_that_is_killed_is_shown_within_a_second_with_what_follows(
    watched: tuple[ProcessCluster, ConsoleProcess],
) -> None:
    cluster, console = watched
    with console.page("overview") as page:
        wait_for_events(cluster, page)
        page.wait(lambda p: not p.table("problems"), 30, "a cluster that is well")
        leader = page.table("partitions")["orders-0"]["leader"]
        cluster.kill(leader)
        killed = time.monotonic()
        page.wait(lambda p: about(p, f"broker:{leader}"), 10, "the broker's end")
        page.wait(
            lambda p: p.table("partitions")["orders-0"]["leader"] not in (leader, -1),
            10,
            "a new leader",
        )
        shown_s = time.monotonic() - killed
        assert shown_s < 1.0, shown_s
        page.wait(lambda p: p.table("brokers")[str(leader)]["standing"] == "fenced", 10, "fencing")
        problem = page.wait(
            lambda p: (found := about(p, f"broker:{leader}")) and found["total"] and found,
            10,
            "what lacks",
        )
        assert problem["text"] == f"Broker {leader} is down."
        assert "a replica fewer" in problem["why"]
        cluster.start(leader)
        page.wait(lambda p: not p.table("problems"), 30, "that all is well again")


def test_a_page_that_comes_back_gets_only_what_it_missed(
    watched: tuple[ProcessCluster, ConsoleProcess],
) -> None:
    _, console = watched
    with console.page("overview") as page:
        page.wait(lambda p: p.table("partitions"), 10, "the partitions")
        id = page.id
    again = OpenPage(console.host, "/api/stream?page=overview", id)
    try:
        again.wait(lambda p: p.events, 10, "an answer")
        assert not again.table("partitions")
    finally:
        again.close()
    other = OpenPage(console.host, "/api/stream?page=overview", "another:1")
    try:
        other.wait(lambda p: p.table("partitions"), 10, "everything, from another process")
    finally:
        other.close()


def test_the_replicas_of_a_partition_that_somebody_looks_at_move(
    watched: tuple[ProcessCluster, ConsoleProcess],
) -> None:
    cluster, console = watched
    with console.page("partition", topic="orders", partition=0) as page:
        page.wait(lambda p: len(p.table("replicas")) == 3, 10, "three replicas")
        assert set(page.table("partitions")) == {"orders-0"}
        before = page.table("replicas")["orders-0/1"]["end"]
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for number in range(10):
            producer.produce("orders", str(number), partition=0)
        assert producer.flush(20) == 0
        page.wait(
            lambda p: all(
                row["end"] == before + 10 and row["high_watermark"] == before + 10
                for row in p.table("replicas").values()
            ),
            5,
            "the records, committed, on all replicas",
        )


def test_the_past_is_what_was_shown_then(watched: tuple[ProcessCluster, ConsoleProcess]) -> None:
    cluster, console = watched
    with console.page("overview") as page:
        wait_for_events(cluster, page)
        page.wait(lambda p: not p.table("problems"), 30, "a cluster that is well")
        leader = page.table("partitions")["orders-1"]["leader"]
        cluster.kill(leader)
        page.wait(lambda p: p.table("brokers")[str(leader)]["standing"] == "fenced", 10, "fencing")
        # Metadata may tell of it a little before the event log does, which says when it was.
        page.wait(
            lambda p: all(
                leader not in row["isr"] and row["cause"] == "fenced"
                for row in p.table("partitions").values()
            ),
            10,
            "that the broker is in no ISR, and why",
        )
        shown = {key: page.table("partitions")[key] for key in page.table("partitions")}
        at_ms = max(row["since_ms"] for row in shown.values())
        cluster.start(leader)
        page.wait(lambda p: not p.table("problems"), 30, "that all is well again")
    past = console.get("past", at=at_ms)
    assert past["complete"]
    then = past["news"]["tables"]
    for name, row in shown.items():
        was = then["partitions"]["new"][name]
        assert (was["leader"], was["epoch"], was["isr"]) == (
            row["leader"],
            row["epoch"],
            row["isr"],
        )
    assert then["brokers"]["new"][str(leader)]["standing"] == "fenced"
    assert f"broker:{leader}" in then["problems"]["new"]
    elections = console.get("events", kind="election", topic="orders", partition=1)["events"]
    assert elections
    assert {each["partition"] for each in elections} == {"orders-1"}


def test_a_problem_can_be_followed_to_its_explanation(
    watched: tuple[ProcessCluster, ConsoleProcess],
) -> None:
    _, console = watched
    (told,) = console.get("explain", about="partition:orders-0")
    assert told["headline"].startswith("orders-0 is healthy")
    (told,) = console.get("explain", about="broker:1")
    assert told["subject"] == "broker 1"
    status, _, body = console.ask("/api/explain?about=partition:nonsense-7")
    assert status == 404
    assert json.loads(body)["error"] == "There is no partition nonsense-7."


def test_all_records_of_many_partitions_are_found_however_large(
    watched: tuple[ProcessCluster, ConsoleProcess],
) -> None:
    """An answer of a leader has room for a few of its partitions only."""
    from confluent_kafka import Producer

    cluster, console = watched
    cluster.create_topic("large", 12)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number in range(120):
        value = f"needle-{number} {'x' * 60_000}"
        producer.produce("large", value, partition=number % 12)
    assert producer.flush(60) == 0
    for question in ("from=earliest", "from=newest", "search=needle-"):
        status, _, body = console.ask(f"/api/messages?topic=large&limit=1000&{question}")
        assert status == 200, body
        lines = [json.loads(line) for line in body.splitlines()]
        places = {(e["record"]["partition"], e["record"]["offset"]) for e in lines if "record" in e}
        assert len(places) == 120, question
        assert lines[-1]["done"]["next"] == {}
    told = console.get("messages/histogram", topic="large")
    assert sum(told["counts"]) == 120


def test_wrong_parameters_are_refused_with_a_reason(
    watched: tuple[ProcessCluster, ConsoleProcess],
) -> None:
    """That no traceback is written is asserted when the console ends."""
    cluster, _ = watched
    digits = "9" * 5000
    with ConsoleProcess("--bootstrap", cluster.bootstrap, "--allow-writes") as console:
        for question in (
            f"messages?topic=orders&from={digits}",
            f"messages?topic=orders&partition={digits}",
            "messages?topic=orders&from=next&next=0",
            f"messages?topic=orders&from=next&next=0:{10**20}",
            f"messages?topic=orders&from=before&next={10**20}:0",
            f"messages?topic=orders&from=time&time={2**63 - 1}",
            f"messages/histogram?topic=orders&from={2**63 - 1}",
            f"messages/whole?topic=orders&partition={2**40}&offset=0",
            f"replicas?topic=orders&partition={digits}",
        ):
            status, _, body = console.ask(f"/api/{question}")
            assert status == 400, (question[:60], status, body)
            assert json.loads(body)["error"]
        far = f"messages?topic=orders&partition=0&from=before&next=0:{2**63 - 1}"
        assert console.ask(f"/api/{far}")[0] == 200, "as far as there is something"
        fine = {"topic": "orders", "partition": 0}
        for name, fields in (
            ("topics/add-partitions", {"topic": "orders", "count": 10**12}),
            ("topics/create", {"name": "x", "partitions": 1, "factor": 10**6, "configs": {}, "validate_only": True}),
            ("topics/delete-records", {**fine, "offset": 10**20}),
            ("moves/cancel", {"places": [1]}),
            ("moves/cancel", {"places": [["orders", 10**12]]}),
            ("moves/start", {"moves": [{**fine, "replicas": [10**12]}], "throttle": "none"}),
            ("moves/start", {"moves": [1], "throttle": "none"}),
            ("moves/start", {"moves": [{**fine, "replicas": [1]}], "throttle": digits}),
            ("moves/elect", {"topic": "orders", "partition": True, "unclean": False}),
            ("transactions/abort-hanging", {"topic": "orders", "partition": 10**12, "producer_id": 1}),
            ("groups/preview-reset", {"group": "nobody", "to": digits, "topics": ["orders"]}),
            ("groups/preview-reset", {"group": "nobody", "to": "0", "topics": [f"orders:{digits}"]}),
        ):  # fmt: skip
            status, told = console.post(name, **fields)
            assert 400 <= status < 500, (name, status, told)


def test_there_are_so_many_live_tails_and_no_more(
    watched: tuple[ProcessCluster, ConsoleProcess],
) -> None:
    _, console = watched

    def tail() -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = http.client.HTTPConnection(console.host, timeout=20)
        connection.request("GET", "/api/messages/tail?topic=orders&partition=0")
        return connection, connection.getresponse()

    opened = [tail() for _ in range(READINGS_MAX)]
    try:
        assert {answer.status for _, answer in opened} == {200}
        status, _, body = console.ask("/api/messages/tail?topic=orders")
        assert status == 503, body
        assert console.ask("/api/messages?topic=orders")[0] == 503
        assert console.ask("/api/messages/histogram?topic=orders")[0] == 200
    finally:
        for connection, answer in opened:
            answer.close()
            connection.close()
    wait_until(lambda: console.ask("/api/messages?topic=orders")[0] == 200, 10, "room again")


def test_a_cluster_that_goes_away_and_returns_is_shown_so(new_cluster: Callable[..., Any]) -> None:
    cluster = new_cluster(3)
    cluster.create_topic("orders", 1)
    with (
        ConsoleProcess("--bootstrap", cluster.bootstrap) as console,
        console.page("overview") as page,
    ):
        page.wait(lambda p: p.table("partitions"), 10, "the partition")
        cluster.kill(1, 2, 3)
        page.wait(lambda p: about(p, "cluster"), 10, "that the cluster does not answer")
        assert page.table("partitions"), "what was known stays"
        cluster.start()
        page.wait(lambda p: not about(p, "cluster"), 30, "that it answers again")
        page.wait(lambda p: not p.table("problems"), 60, "that all is well")


def test_a_browser_that_reads_nothing_makes_nothing_grow(
    watched: tuple[ProcessCluster, ConsoleProcess],
) -> None:
    """Its stream waits; the console writes for it what is new when it reads again."""
    import socket

    _, console = watched
    host, _, port = console.host.partition(":")
    stuck = []
    for _ in range(20):
        connection = socket.create_connection((host, int(port)))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        request = f"GET /api/stream?page=partition&topic=orders&partition=0 HTTP/1.1\r\nhost: {console.host}\r\n\r\n"
        connection.sendall(request.encode())
        stuck.append(connection)
    try:
        with console.page("plain") as page:
            page.wait(lambda p: p.events > 3, 20, "that others are served meanwhile")
    finally:
        for connection in stuck:
            connection.close()
    wait_until(lambda: console.get("session"), 5, "an answer")
