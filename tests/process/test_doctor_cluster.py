"""The doctor and the bundle on real clusters: silence when all is well, the right words when not, and no secrets."""

from __future__ import annotations

import gzip
import io
import json
import os
import shlex
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.cli import errors
from ottla.local.ports import free_ports
from support.cluster import OTTLA, ProcessCluster, wait_until

MARKER = "xyzzy-secret"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
OF_THE_MACHINE = {
    "disk-full",
    "disk-will-be-full",
    "inodes-few",
    "open-files-few",
    "kernel-settings",
}
"""Rules about the machine on which the tests run, which need not be healthy."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("doctor") / "cluster", 3, SETTINGS) as running:
        yield running


@pytest.fixture
def whole(cluster: ProcessCluster) -> Iterator[ProcessCluster]:
    yield cluster
    cluster.mend()


def ottla(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [OTTLA, *words], capture_output=True, text=True, check=False, timeout=60, **options
    )


def doctor(cluster: ProcessCluster, *words: str, expected: int = errors.OK) -> dict[str, Any]:
    done = ottla("doctor", *words, "--dir", str(cluster.directory), "--format", "json")
    found: dict[str, Any] = json.loads(done.stdout)
    serious = {each["rule"] for each in found["findings"] if each["severity"] == "serious"}
    if not serious & OF_THE_MACHINE:
        assert done.returncode == expected, done.stderr + done.stdout
    return found


def rules(found: dict[str, Any]) -> set[str]:
    return {each["rule"] for each in found["findings"]} - OF_THE_MACHINE


def test_the_doctor_is_silent_about_a_healthy_cluster(cluster: ProcessCluster) -> None:
    cluster.create_topic("fine", 3)
    produce(cluster, "fine")
    found = doctor(cluster)
    assert rules(found) == set() and not found["serious"] and found["unknown"] == {}
    assert rules(doctor(cluster, "--from-client")) == set()


def test_the_doctor_names_a_dead_broker_and_the_command_that_starts_it(
    whole: ProcessCluster,
) -> None:
    whole.create_topic("hurt", 3)
    whole.kill(3)
    wait_until(lambda: "broker-fenced" in rules(doctor(whole, expected=6)), 20, "it is fenced")
    found = doctor(whole, expected=errors.SERIOUS)
    assert {"broker-fenced", "under-replicated"} <= rules(found)
    (fenced,) = [each for each in found["findings"] if each["rule"] == "broker-fenced"]
    assert "was killed" in fenced["what"]
    assert ottla(*fenced["mend"].split()[1:]).returncode == errors.OK
    whole.wait_whole("hurt")
    # This process knows nothing of that node: back to the one that it knows as killed.
    assert ottla("nodes", "kill", "3", "--dir", str(whole.directory)).returncode == errors.OK


def test_a_cordon_and_a_throttle_that_are_left_are_told_and_end_as_the_doctor_says(
    whole: ProcessCluster,
) -> None:
    whole.create_topic("moved", 3)
    doing = ("--bootstrap-server", whole.bootstrap, "--alter", "--entity-type")
    to_brokers = (*doing, "brokers", "--entity-name", "3", "--add-config")
    for setting in ("cordoned.log.dirs=*", "leader.replication.throttled.rate=1000000"):
        assert ottla("kafka-configs", *to_brokers, setting).returncode == errors.OK
    words = ("moved", "-c", "follower.replication.throttled.replicas=*")
    directory = ("--dir", str(whole.directory))
    assert ottla("topics", "alter", *words, *directory).returncode == errors.OK
    found = {each["rule"]: each for each in doctor(whole)["findings"]}
    assert "settings-differ" not in found
    assert "on topic moved and broker 3" in found["throttles-left"]["what"]
    for command in found["throttles-left"]["mend"].split(" && "):
        assert ottla(*shlex.split(command)[1:]).returncode == errors.OK
    undo = found["brokers-cordoned"]["mend"].partition("; ")[2].removesuffix(" ends it")
    assert ottla(*shlex.split(undo)[1:]).returncode == errors.OK
    assert not {"throttles-left", "brokers-cordoned"} & rules(doctor(whole))


def test_a_setting_that_a_command_made_differ_is_mended_as_the_doctor_says(
    whole: ProcessCluster,
) -> None:
    name = "replica.alter.log.dirs.io.max.bytes.per.second"
    doing = ("--bootstrap-server", whole.bootstrap, "--alter", "--entity-type", "brokers")
    set_it = ("--entity-name", "3", "--add-config", f"{name}=1000000")
    assert ottla("kafka-configs", *doing, *set_it).returncode == errors.OK
    wait_until(lambda: "settings-differ" in rules(doctor(whole)), 10, "broker 3 has it")
    found = {each["rule"]: each for each in doctor(whole)["findings"]}["settings-differ"]
    assert f"{name} differs" in found["what"]
    assert ottla(*shlex.split(found["mend"])[1:]).returncode == errors.OK
    wait_until(lambda: "settings-differ" not in rules(doctor(whole)), 10, "it is mended")


def test_a_cluster_of_which_no_node_runs_is_looked_at_all_the_same(whole: ProcessCluster) -> None:
    whole.stop(1, 2, 3)
    found = doctor(whole, expected=errors.SERIOUS)
    assert rules(found) == {"nobody-answers"}


def test_the_traps_of_a_topic_are_named_before_it_is_created(cluster: ProcessCluster) -> None:
    words = ("topics", "create", "thought", "--dry-run", "--bootstrap", cluster.bootstrap)
    done = ottla(*words, "-r", "2", "-c", "min.insync.replicas=2")
    assert done.stdout == "topic thought could be created\n"
    assert "topic thought: min.insync.replicas=2 is the replication factor" in done.stderr
    assert "replication factor 1" in ottla(*words, "-r", "1").stderr
    assert ottla(*words, "-r", "3", "-c", "min.insync.replicas=2").stderr == ""


def test_the_traps_of_a_new_topic_are_named_and_do_no_harm(cluster: ProcessCluster) -> None:
    where = ("--dir", str(cluster.directory))
    done = ottla("topics", "create", "trapped", "-r", "1", *where)
    assert done.returncode == errors.OK and "replication factor 1" in done.stderr
    done = ottla("topics", "create", "strict", "-c", "min.insync.replicas=3", *where)
    assert done.returncode == errors.OK and "is the replication factor" in done.stderr
    assert ottla("topics", "create", "good", *where).stderr == ""
    logs = "".join((node.directory / "node.log").read_text() for node in cluster.nodes.values())
    assert "settings that are often regretted topic=trapped traps=one-replica" in logs
    assert "topic=good" not in logs
    for name in ("trapped", "strict", "good"):
        assert ottla("topics", "delete", name, *where).returncode == errors.OK


def test_the_bundle_has_what_a_helper_needs_and_no_secret(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    cluster.create_topic("private", 1)
    produce(cluster, "private")
    consumer = read_and_commit(cluster, "private")
    transact(cluster, "private")
    for node in cluster.nodes.values():
        with open(node.config, "a") as file:
            file.write(f"ssl.keystore.password={MARKER}\nmy.token={MARKER}\n")
    out = tmp_path / "bundle.tar.gz"
    try:
        done = ottla("bundle", "--out", str(out), "--dir", str(cluster.directory))
        assert done.returncode == errors.OK, done.stderr
    finally:
        consumer.close()
        for node in cluster.nodes.values():
            text = Path(node.config).read_text()
            Path(node.config).write_text(text.partition("ssl.keystore")[0])
    members = unpacked(out)
    facts = json.loads(members["ottla-bundle/facts.json"])
    assert [each["id"] for each in facts["brokers"]] == [1, 2, 3]
    assert [each["description"]["id"] for each in facts["groups"]] == ["readers"]
    assert b"node is ready" in members["ottla-bundle/node-1/node.log"]
    assert b"data/private-0/00000000000000000000.log" in members["ottla-bundle/node-1/files.txt"]
    machine = json.loads(members["ottla-bundle/machine.json"])
    assert machine["nodes"][0]["settings"]["ssl.keystore.password"] == "(hidden)"
    assert machine["nodes"][0]["settings"]["offsets.topic.num.partitions"] == "1"
    assert "findings.json" in " ".join(members)
    for name, content in members.items():
        assert MARKER.encode() not in content, f"{name} has a secret"
        assert MARKER.encode() not in gunzipped(content), f"{name} has a compressed secret"


def produce(cluster: ProcessCluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "client.id": f"{MARKER}-client"})
    for _ in range(10):
        headers: list[tuple[str, str | bytes | None]] = [("h", MARKER.encode())]
        producer.produce(topic, key=MARKER, value=f"value {MARKER}", headers=headers)
    assert producer.flush(20) == 0


def read_and_commit(cluster: ProcessCluster, topic: str) -> Consumer:
    """A member of a group whose every text has the marker, except the name of the group."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "readers",
            "client.id": f"{MARKER}-member",
            "group.instance.id": f"{MARKER}-instance",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(0.5), 30, "a record")
    consumer.commit(offsets=[TopicPartition(topic, 0, 1, metadata=MARKER)], asynchronous=False)
    return consumer


def transact(cluster: ProcessCluster, topic: str) -> None:
    """A transaction that stays open."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": f"{MARKER}-transaction"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, value=MARKER)
    producer.flush(20)
    producer.abort_transaction(20)
    producer.begin_transaction()
    producer.produce(topic, value=MARKER)
    assert producer.flush(20) == 0


def unpacked(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as archive:
        found = {}
        for member in archive.getmembers():
            opened = archive.extractfile(member)
            assert opened is not None
            found[member.name] = opened.read()
    return found


def gunzipped(content: bytes) -> bytes:
    return gzip.GzipFile(fileobj=io.BytesIO(content)).read() if content[:2] == b"\x1f\x8b" else b""


def test_check_config_names_every_fault_with_what_was_meant(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.id=1\nlog.retention.hour=4\nmin.insync.replicas=many\nnum.io.threads=8\n")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")
    }
    done = ottla("check-config", str(file), env=environment)
    assert done.returncode == errors.USAGE
    assert (
        f"{file}:2: log.retention.hour: no such setting; did you mean log.retention.hours?"
        in done.stdout
    )
    assert f"{file}:3: min.insync.replicas: 'many' is not a whole number" in done.stdout
    assert f"{file}:4: num.io.threads: has no effect here" in done.stdout


def test_check_config_accepts_what_a_node_accepts(cluster: ProcessCluster) -> None:
    done = ottla("check-config", str(cluster.nodes[1].config))
    assert done.returncode == errors.OK and "a node would start" in done.stdout


def test_the_clock_of_a_broker_that_serves_metrics_is_known(tmp_path: Path) -> None:
    settings = {"metrics.listeners": "HTTP://127.0.0.1:0"}
    ports = free_ports(2)
    each = {id: {"metrics.listeners": f"HTTP://127.0.0.1:{ports[id - 1]}"} for id in (1, 2)}
    with ProcessCluster(tmp_path / "clocks", 2, settings, each) as cluster:
        done = ottla("doctor", "-b", cluster.bootstrap, "--format", "json")
        found = json.loads(done.stdout)
        assert found["unknown"] == {} and "clocks-differ" not in rules(found)
        out = tmp_path / "bundle.tar.gz"
        assert ottla("bundle", "-b", cluster.bootstrap, "--out", str(out)).returncode == errors.OK
        assert b"kafka_server" in unpacked(out)["ottla-bundle/metrics/broker-1.txt"]
