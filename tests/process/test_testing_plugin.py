"""`ottla.testing` as others use it: small suites of their own, in pytest processes of their own."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from select import select
from typing import Any

import pytest

from ottla.local.processes import Process, started_at
from ottla.testing import CLIENT, Cluster
from ottla.wire.apis import ApiKey
from ottla.wire.headers import request_frame
from support.cluster import OTTLA, wait_until
from support.interrupts import take_sigint

pytest_plugins = ["pytester"]

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "TESTING.md"
IMPORT_S_MAX = 0.05

NOTES = """
import json, os
from pathlib import Path

def note(cluster, name):
    Path(__file__).with_name(name + ".json").write_text(json.dumps({
        "bootstrap": cluster.get_bootstrap_server(),
        "directory": str(cluster.directory),
        "pids": [node.pid for node in cluster.nodes.values()],
    }))
"""


@pytest.fixture(autouse=True)
def no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTTLA_TEST_BOOTSTRAP", raising=False)


def noted(pytester: pytest.Pytester, name: str) -> Any:
    return json.loads((pytester.path / f"{name}.json").read_text())


def assert_gone(noted: Any) -> None:
    wait_until(lambda: not Path(noted["directory"]).exists(), 10, "the directory is removed")
    assert [pid for pid in noted["pids"] if started_at(pid) is not None] == []


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments, timeout=110)


def test_every_example_of_the_document_runs(pytester: pytest.Pytester) -> None:
    examples = dict(
        re.findall(r"```python\n# (test_\w+\.py)\n(.*?)```", DOCUMENT.read_text(), re.S)
    )
    assert len(examples) >= 5
    for name, text in examples.items():
        (pytester.path / name).write_text(text)
    run(pytester).assert_outcomes(passed=len(examples))


def test_each_worker_has_its_own_cluster_and_leaves_nothing(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(NOTES)
    pytester.makepyfile(
        """
        import os
        import pytest
        from conftest import note

        @pytest.mark.parametrize("number", range(2))
        def test_it(kafka_cluster, number):
            note(kafka_cluster, os.environ["PYTEST_XDIST_WORKER"])
            assert len(kafka_cluster.nodes) == 3
        """
    )
    run(pytester, "-n", "2", "--dist", "each").assert_outcomes(passed=4)
    one, other = noted(pytester, "gw0"), noted(pytester, "gw1")
    assert set(one["bootstrap"].split(",")).isdisjoint(other["bootstrap"].split(","))
    assert_gone(one)
    assert_gone(other)


def test_a_failed_test_shows_the_brokers_logs_and_the_seed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_own(kafka_cluster_factory):
            kafka_cluster_factory(1, seed=4711)
            assert False

        def test_without(unique_topic, unique_group):
            assert unique_topic != unique_group
            assert False
        """
    )
    result = run(pytester)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["*Kafka brokers*", "1 broker, seed 4711", "*node is ready node=1*"]
    )
    assert str(result.stdout).count("Kafka brokers") == 1


def test_an_existing_cluster_is_used_where_one_is_named(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_TEST_BOOTSTRAP", "kafka.example:9092")
    pytester.makepyfile(
        """
        def test_it(kafka_cluster, kafka_bootstrap):
            assert kafka_bootstrap == kafka_cluster.get_bootstrap_server() == "kafka.example:9092"
        """
    )
    run(pytester).assert_outcomes(passed=1)


@pytest.mark.parametrize("end", ["raise KeyboardInterrupt", "os.kill(os.getpid(), 9)"])
def test_nothing_is_left_when_the_tests_are_interrupted_or_killed(
    pytester: pytest.Pytester, end: str
) -> None:
    pytester.makeconftest(NOTES)
    pytester.makepyfile(
        f"""
        import os
        from conftest import note

        def test_it(kafka_cluster_factory):
            note(kafka_cluster_factory(2, proxied=True), "noted")
            {end}
        """
    )
    assert run(pytester).ret != 0
    assert_gone(noted(pytester, "noted"))


def test_nothing_is_left_when_the_start_is_interrupted(tmp_path: Path) -> None:
    """Ctrl-C goes to the whole group of processes; the nodes are in others."""
    program = "from ottla.testing import Cluster\nwith Cluster(3): print('ready')"
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=take_sigint,
    )
    wait_until(lambda: list(tmp_path.glob("*/cluster.json")), 20, "the nodes are on their way")
    (file,) = tmp_path.glob("*/cluster.json")
    nodes = wait_until(
        lambda: [n for n in json.loads(file.read_text())["nodes"] if n["pid"]], 20, "pids"
    )
    os.killpg(child.pid, signal.SIGINT)
    output, errors = child.communicate(timeout=30)
    assert "KeyboardInterrupt" in errors and "ready" not in output
    assert list(tmp_path.iterdir()) == []
    assert not any(Process(node["pid"], node["started"]).alive for node in nodes)


def test_nothing_is_left_of_what_a_command_started(tmp_path: Path) -> None:
    with Cluster(1, directory=tmp_path / "cluster") as cluster:
        cluster.kill(1)
        command = [str(OTTLA), "nodes", "start", "1", "--dir", str(tmp_path / "cluster")]
        subprocess.run(command, check=True, capture_output=True)
        (node,) = json.loads((tmp_path / "cluster" / "cluster.json").read_text())["nodes"]
        started = Process(node["pid"], node["started"])
        assert started.alive
    assert not started.alive


def test_the_plugin_costs_nothing_where_it_is_not_used() -> None:
    """The best of three, as this machine does other things too."""
    program = (
        "import pytest, time; began = time.perf_counter(); import ottla.testing.plugin;"
        "print(time.perf_counter() - began)"
    )
    taken = [float(subprocess.check_output([sys.executable, "-c", program])) for _ in range(3)]
    assert min(taken) < IMPORT_S_MAX, taken


def test_a_partition_is_silence_that_ends() -> None:
    """Produced to a leader that hears nobody: not acknowledged, not refused, and acknowledged once healed."""
    from confluent_kafka import Producer

    quick = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    with Cluster(3, quick, proxied=True) as cluster:
        topic = cluster.create_topic("t")
        leader = cluster.leader(topic)
        acknowledged: list[object] = []
        producer = Producer(
            {
                "bootstrap.servers": cluster.get_bootstrap_server(),
                "socket.timeout.ms": 2000,  # a minute, by default, for an answer that never comes
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 0,
            }
        )

        def send() -> None:
            producer.produce(topic, b"x", on_delivery=lambda error, _: acknowledged.append(error))
            producer.poll(0)

        send()
        assert producer.flush(20) == 0 and acknowledged == [None]
        for other in cluster.nodes:
            if other != leader:
                cluster.cut(leader, other)  # they no longer get what they fetch
        send()
        assert producer.flush(1) == 1
        cluster.heal()
        assert producer.flush(20) == 0 and acknowledged == [None, None]

        cluster.isolate(leader)
        wait_until(lambda: cluster.leader(topic) != leader, 60, "another leads")
        send()
        assert producer.flush(60) == 0 and acknowledged == [None] * 3
        cluster.heal()
        cluster.wait_in_sync(topic, 60)


def test_clients_can_be_put_on_one_side() -> None:
    """Who can be asked is told by who answers: a question that does not pass is answered when it does."""
    with Cluster(2, proxied=True) as cluster:
        first, second = (
            socket.create_connection((host, int(port)), 5)
            for host, port in (
                address.split(":") for address in cluster.get_bootstrap_server().split(",")
            )
        )
        question = request_frame(ApiKey.API_VERSIONS, 0, 1, "test", b"")
        with first, second:
            cluster.partition([1, CLIENT])
            for connection in (first, second):
                connection.sendall(question)
            assert select([first], [], [], 5)[0]
            assert not select([second], [], [], 0.5)[0]
            cluster.heal()
            assert select([second], [], [], 5)[0]


def test_the_new_leader_is_known_though_the_old_one_still_believes_in_itself() -> None:
    quick = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    with Cluster(3, quick, proxied=True) as cluster:
        topic = cluster.create_topic("t")
        old = cluster.leader(topic)
        cluster.partition([old])  # clients reach all three
        wait_until(lambda: cluster.leader(topic) != old, 30, "another leads")
        assert {cluster.leader(topic) for _ in range(5)}.isdisjoint([old])
        with pytest.raises(TimeoutError, match="all replicas of t are in sync"):
            cluster.wait_in_sync(topic, 0.5)
        cluster.heal()
        cluster.wait_in_sync(topic)


def test_what_a_cluster_does_not_have_is_said_at_once() -> None:
    with Cluster(1) as cluster:
        topic = cluster.create_topic("t", partitions=2)
        with pytest.raises(ValueError, match="no node 9 in this cluster; there are 1"):
            cluster.kill(9)
        with pytest.raises(ValueError, match="topic t has no partition 4: they are 0 to 1"):
            cluster.leader(topic, 4)


def test_a_cluster_that_is_not_proxied_says_so() -> None:
    with pytest.raises(RuntimeError, match="proxied=True"):
        Cluster(1).heal()
