"""`ottla metrics`, `ottla status --wait ready`, health and sd_notify with real nodes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer
from test_cli_cluster import OTTLA, command, fails

from ottla.cli import errors
from ottla.local.ports import free_ports
from support import exposition as reader
from support.cluster import wait_until

Run = Callable[..., str]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("metrics") / "cluster"
    done = command("up", "--dir", str(path), "--port", "0", "--detach")
    assert done.returncode == errors.OK, done.stderr
    try:
        yield path
    finally:
        command("purge", "--dir", str(path))


@pytest.fixture(scope="module")
def run(directory: Path) -> Run:
    def call(*words: str, stdin: str = "") -> str:
        done = command(*words, "--dir", str(directory), stdin=stdin)
        assert done.returncode == errors.OK, done.stderr
        return done.stdout

    return call


def figures(text: str, name: str, **labels: str) -> dict[str, float]:
    """Of one metric with just these labels, by node."""
    found = {}
    for told in json.loads(text)["nodes"]:
        for family in told["families"]:
            if family["name"] == name:
                (sample,) = [each for each in family["samples"] if each["labels"] == labels]
                found[told["node"]] = sample["value"]
    return found


def test_the_nodes_say_what_was_written(run: Run, directory: Path) -> None:
    run("topics", "create", "orders", "-p", "3")
    run("produce", "orders", stdin="".join(f"{number}\n" for number in range(300)))
    run("consume", "orders", "--exit")
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    written = figures(run("metrics", "--format", "json"), name, topic="orders")
    assert set(written) == {"1", "2", "3"}
    assert sum(written.values()) == 300
    active = "kafka_controller_kafkacontroller_activecontrollercount"
    assert sorted(figures(run("metrics", active, "--format", "json"), active).values()) == [0, 0, 1]
    table = run("metrics", "brokertopicmetrics_messagesin").splitlines()
    assert table[0].split() == ["metric", "labels", "node", "1", "node", "2", "node", "3"]
    (row,) = [line for line in table if "topic=orders" in line]
    assert sum(map(int, row.split()[2:])) == 300


def test_an_open_transaction_has_an_age(run: Run, directory: Path) -> None:
    bootstrap = json.loads(run("status", "--format", "json"))["bootstrap"]
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "slow"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"later")
    producer.flush(30)

    def open_and_old() -> bool:
        told = run("metrics", "transaction", "--format", "json")
        return (
            sum(figures(told, "ottla_open_transactions").values()) == 1
            and max(figures(told, "ottla_open_transaction_age_seconds").values()) > 0
            and sum(figures(told, "ottla_partition_transactions_open").values()) == 1
        )

    wait_until(open_and_old, 30, "the transaction is seen")
    producer.commit_transaction(30)
    wait_until(
        lambda: (
            not sum(
                figures(
                    run("metrics", "open_transactions", "--format", "json"),
                    "ottla_open_transactions",
                ).values()
            )
        ),
        30,
        "no transaction is open",
    )


def test_status_and_cluster_json_name_the_addresses(run: Run, directory: Path) -> None:
    known = json.loads((directory / "cluster.json").read_text())["nodes"]
    for node in known:
        text = urlopen(f"http://127.0.0.1:{node['metrics_port']}/metrics").read().decode()
        info = reader.read(text)["ottla_build_info"]
        assert info.samples[0][1]["node"] == str(node["id"])
    urls = [f"--url=http://127.0.0.1:{node['metrics_port']}" for node in known[:2]]
    asked = json.loads(run("metrics", "ottla_ready", "--format", "json", *urls))["nodes"]
    assert [each["families"][0]["samples"][0]["value"] for each in asked] == [1, 1]


def test_waiting_for_ready_says_which_node_is_not(run: Run, directory: Path) -> None:
    assert "running" in run("status", "--wait", "ready")
    run("nodes", "kill", "3")
    why = fails(directory, errors.FAILED, "status", "--wait", "ready", "--timeout", "0")
    assert "node 3: killed" in why
    waiting = subprocess.Popen(
        [str(OTTLA), "status", "--wait", "ready", "--dir", str(directory)],
        stdout=subprocess.PIPE,
        text=True,
    )
    run("nodes", "start", "3")
    out, _ = waiting.communicate(timeout=60)
    assert waiting.returncode == errors.OK and out.count("running") == 3


def test_files_for_prometheus_and_grafana_are_written(
    run: Run, directory: Path, tmp_path: Path
) -> None:
    run("metrics", "--to", str(tmp_path / "out"))
    ports = [
        str(node["metrics_port"])
        for node in json.loads((directory / "cluster.json").read_text())["nodes"]
    ]
    configuration = (tmp_path / "out" / "prometheus.yml").read_text()
    assert all(f"127.0.0.1:{port}" in configuration for port in ports)
    assert configuration == run("metrics", "--prometheus")
    dashboard = json.loads(run("metrics", "--dashboard"))
    assert dashboard == json.loads((tmp_path / "out" / "grafana-dashboard.json").read_text())
    assert run("metrics", "--alerts") == (tmp_path / "out" / "alerts.yml").read_text()


def test_a_cluster_without_metrics_says_what_to_set(tmp_path: Path) -> None:
    from ottla.local.cluster import LocalCluster

    LocalCluster.create(tmp_path / "without", 1, 0)
    why = fails(tmp_path / "without", errors.NOT_FOUND, "metrics")
    assert "metrics.listeners" in why


# -- one node, as systemd starts it ----------------------------------------------------------------


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """Of a node that is broker and controller."""
    port, controller, metrics = free_ports(3)
    path = tmp_path / "server.properties"
    path.write_text(
        "node.id=1\nprocess.roles=broker,controller\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
        "controller.listener.names=CONTROLLER\n"
        f"controller.quorum.voters=1@127.0.0.1:{controller}\n"
        f"log.dirs={tmp_path}/data\n"
        f"metrics.listeners=HTTP://127.0.0.1:{metrics}\n"
    )
    return path


def test_systemd_is_told_when_the_node_is_ready_lives_and_stops(settings: Path) -> None:
    address = str(settings.parent / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(address)
        heard.settimeout(30)
        # WATCHDOG_PID is unset: systemd sets it to the process that it started, which this node is.
        environment = {**os.environ, "NOTIFY_SOCKET": address, "WATCHDOG_USEC": "300000"}
        with subprocess.Popen(
            [str(OTTLA), "node", "--config", str(settings)],
            env=environment,
            stderr=subprocess.DEVNULL,
        ) as node:
            told: list[str] = []

            def until(text: str) -> None:
                while not any(text in each for each in told):
                    told.append(heard.recv(4096).decode())

            try:
                until("READY=1")
                assert any("STATUS=not ready: " in each for each in told[:-1]), told
                assert "STATUS=ready" in told[-1]
                told.clear()
                until("WATCHDOG=1")
                node.send_signal(signal.SIGTERM)
                until("STOPPING=1")
                assert node.wait(30) == errors.OK
            finally:
                node.kill()


def test_a_broker_without_controllers_says_what_it_waits_for(tmp_path: Path) -> None:
    port, metrics = free_ports(2)
    path = tmp_path / "server.properties"
    path.write_text(
        "node.id=1\nprocess.roles=broker\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port}\n"
        "controller.listener.names=CONTROLLER\n"
        f"controller.quorum.voters=2@127.0.0.1:{free_ports(1)[0]}\n"
        f"log.dirs={tmp_path}/data\nmetrics.listeners=HTTP://127.0.0.1:{metrics}\n"
    )
    with subprocess.Popen(
        [sys.executable, "-m", "ottla.local.node", "--config", str(path)], stderr=subprocess.DEVNULL
    ) as node:
        try:

            def why_not() -> str:
                try:
                    urlopen(f"http://127.0.0.1:{metrics}/readyz")
                except HTTPError as error:
                    return str(error.read().decode())
                return ""

            reason = "not ready: registering, and catching up with the metadata\n"
            wait_until(lambda: why_not() == reason, 30, reason)
            assert urlopen(f"http://127.0.0.1:{metrics}/livez").status == 200
        finally:
            node.kill()
