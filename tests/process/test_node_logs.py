"""What nodes of a real cluster write into their logs, and what the commands say of nodes that ended."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from ottla.cli import errors
from support.cluster import HOST, OTTLA, ProcessCluster, wait_until
from support.groups import ConfluentMember, ConfluentNew, produce, read_until

MEMBERS = {"classic": ConfluentMember, "consumer": ConfluentNew}
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "8",
    "ottla.event.log.enable": "false",  # its partition would count among those that move
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("logs") / "cluster", 3, SETTINGS) as running:
        yield running


@pytest.fixture
def whole(cluster: ProcessCluster) -> Iterator[ProcessCluster]:
    yield cluster
    for node in cluster.nodes.values():
        if not node.running:  # perhaps ended by a command, of which this process knows nothing
            cluster._local.kill([node.id])
    cluster.mend()


def ottla(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([OTTLA, *words], capture_output=True, text=True, check=False, timeout=60)


def log_of(cluster: ProcessCluster, node: int) -> str:
    return (cluster.nodes[node].directory / "node.log").read_text()


def status_of(cluster: ProcessCluster, node: int) -> dict[str, Any]:
    told = json.loads(ottla("status", "--dir", str(cluster.directory), "--format", "json").stdout)
    (found,) = [each for each in told["nodes"] if each["id"] == node]
    return dict(found)


def test_survivors_say_in_one_line_who_is_gone_and_what_moved(whole: ProcessCluster) -> None:
    cluster = whole
    cluster.create_topic("moved", 12)
    before = {node: len(log_of(cluster, node)) for node in (1, 2, 3)}
    cluster.kill(3)
    cluster.wait_ready()

    def after(node: int) -> list[str]:
        return log_of(cluster, node)[before[node] :].splitlines()

    wait_until(lambda: any("broker left" in line for line in after(1)), 20, "node 1 says so")
    wait_until(lambda: any("broker left" in line for line in after(2)), 20, "node 2 says so")
    fenced = [line for node in (1, 2) for line in after(node) if "broker is fenced" in line]
    (line,) = fenced
    assert re.search(r"WARNING broker is fenced broker=3 .*cause=\S.* leaders_moved=4 ", line)
    assert "partitions_offline=0 isr_shrunk=12" in line
    taken = 0
    for node in (1, 2):
        (line,) = [line for line in after(node) if "broker left" in line]
        found = re.search(r"WARNING .* broker=3 cause=fenced leaders_taken=(\d+) .*moved:", line)
        assert found is not None, line
        taken += int(found[1])
        assert sum("role changed partition=moved" in each for each in after(node)) == 0
        assert sum("roles changed topic=moved" in each for each in after(node)) == 1
    assert taken == 4


def test_a_failover_of_many_small_topics_is_a_few_lines_too(whole: ProcessCluster) -> None:
    cluster = whole
    names = [f"small-{number}" for number in range(30)]
    made = cluster.admin.create_topics([NewTopic(name, 1, 3) for name in names])
    for future in made.values():
        future.result()
    for name in names:
        cluster.wait_whole(name, 20)
    before = {node: len(log_of(cluster, node)) for node in (1, 2)}

    def about_partitions(node: int) -> list[str]:
        lines = log_of(cluster, node)[before[node] :].splitlines()
        return [line for line in lines if " changed " in line]

    cluster.kill(3)
    wait_until(
        lambda: all("roles changed topics=" in str(about_partitions(node)) for node in (1, 2)),
        20,
        "both say so",
    )
    for node in (1, 2):
        assert len(about_partitions(node)) == 1, "\n".join(about_partitions(node))


def test_status_and_down_tell_a_killed_node_from_one_that_died(whole: ProcessCluster) -> None:
    cluster = whole
    where = ("--dir", str(cluster.directory))
    assert status_of(cluster, 2)["state"] == "running"
    pid = cluster.nodes[2].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: status_of(cluster, 2)["state"] == "died", 10, "it died")
    assert status_of(cluster, 2)["since"] is None, "nobody saw when"
    assert "node 2 died; see" in ottla("status", *where).stdout
    cluster.kill(3)
    assert status_of(cluster, 3)["state"] == "killed"
    assert re.search(
        r"stopped 1 of 3 nodes; not running before: node 2 \(died\), node 3 \(killed, ",
        ottla("down", *where).stdout,
    )
    assert {status_of(cluster, node)["state"] for node in (1, 2, 3)} == {
        "stopped",
        "died",
        "killed",
    }


def test_a_frame_of_another_protocol_is_named_with_its_first_bytes(cluster: ProcessCluster) -> None:
    sent = {
        b"GET / HTTP/1.1\r\n\r\n": "looks_like=HTTP first_bytes=474554202f",
        bytes.fromhex("16030102000100"): 'looks_like="TLS ClientHello on a plaintext listener"',
        b"SSH-2.0-OpenSSH\r\n": "looks_like=SSH",
        b"\x7f\xff\xff\xff\x00\x01": "looks_like=unknown first_bytes=7fffffff0001",
    }
    for data, told in sent.items():
        with socket.create_connection((HOST, cluster.nodes[1].port), 5) as connection:
            connection.sendall(data)
            connection.settimeout(5)
            assert connection.recv(1) == b""
            peer = "{}:{}".format(*connection.getsockname())
        pattern = f"WARNING closing connection, .* peer={peer} listener=PLAINTEXT {re.escape(told)}"
        wait_until(partial(matches, cluster, pattern), 5, told)


def matches(cluster: ProcessCluster, pattern: str) -> bool:
    return re.search(pattern, log_of(cluster, 1)) is not None


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_tells_joins_leaves_and_rebalances_with_their_causes(
    cluster: ProcessCluster, protocol: str
) -> None:
    group, topic = f"told-{protocol}", f"told-{protocol}"
    cluster.create_topic(topic, 2)
    produce(cluster.bootstrap, topic, 4, 2)
    member = MEMBERS[protocol](cluster.bootstrap, group, [topic])
    try:
        read_until([member], 4)
    finally:
        member.close()

    def lines() -> list[str]:
        everything = "\n".join(log_of(cluster, node) for node in (1, 2, 3))
        return [line for line in everything.splitlines() if f"group={group} " in line + " "]

    wait_until(lambda: any("group is empty" in line for line in lines()), 10, "it left")
    told = [re.sub(r".* INFO (.*?) group=.*", r"\1", line) for line in sorted(lines())]
    for text in ("member joined", "group rebalances", "group is stable", "member left"):
        assert text in told, told
    assert all(re.search(r"cause=\S", line) for line in lines() if "group rebalances" in line)


def test_a_process_shows_which_node_it_is(cluster: ProcessCluster) -> None:
    for id, node in cluster.nodes.items():
        words = Path(f"/proc/{node.pid}/cmdline").read_bytes().split(b"\0")
        assert words[:3] == [b"ottla", b"node", str(id).encode()]
        assert Path(f"/proc/{node.pid}/comm").read_text() == f"ottla-node-{id}\n"


def test_a_refused_up_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "new"
    done = ottla("up", "--dir", str(path), "-c", "no.such.setting=1", "--detach")
    assert done.returncode == errors.USAGE
    assert not path.exists()
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "letter").touch()
    assert ottla("up", "--dir", str(foreign), "--detach").returncode == errors.CONFLICT
    assert [each.name for each in foreign.iterdir()] == ["letter"]


def test_a_node_rotates_its_log_and_writes_json_on_demand(tmp_path: Path) -> None:
    settings = {
        "ottla.log.format": "json",
        "ottla.log.file.max.bytes": "2000",
        "ottla.log.file.backups": "3",
    }
    with ProcessCluster(tmp_path / "json", 1, settings) as cluster:
        for number in range(20):
            cluster.create_topic(f"t{number}")
        files = sorted(cluster.nodes[1].directory.glob("node.log*"))
        assert [each.name for each in files] == [
            "node.log",
            "node.log.1",
            "node.log.2",
            "node.log.3",
        ]
        lines = [json.loads(line) for each in files for line in each.read_text().splitlines()]
        changed = [line for line in lines if line["text"] == "role changed"]
        assert changed and all(line["fields"]["role"] == "leader" for line in changed)
        assert changed[0]["logger"] == "ottla.broker.replication.change_log"
        assert cluster.stop(1) == [0]


def test_a_produce_without_enough_replicas_points_to_status(cluster: ProcessCluster) -> None:
    cluster.create_topic("lonely", 1, config={"min.insync.replicas": "3"})
    cluster.kill(3)
    try:
        done = subprocess.run(
            [OTTLA, "produce", "lonely", "--dir", str(cluster.directory), "--timeout", "3"],
            input="a\n",
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode != 0
        assert "ottla status shows which nodes run" in done.stderr
    finally:
        cluster.mend()
