"""The command line against a cluster of its own: what the README shows, done and checked."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from ottla.cli import errors
from support.interrupts import take_sigint

ROOT = Path(__file__).resolve().parents[2]
OTTLA = Path(sys.executable).with_name("ottla")

Run = Callable[..., str]


def command(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(OTTLA), *words],
        input=stdin,
        capture_output=True,
        text=True,
        env={name: text for name, text in os.environ.items() if not name.startswith("OTTLA")},
        check=False,
        timeout=60,
    )


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("cli") / "cluster"
    done = command("up", "--dir", str(path), "--port", "0", "--detach", "--format", "json")
    assert done.returncode == errors.OK, done.stderr
    try:
        yield path
    finally:
        command("purge", "--dir", str(path))


@pytest.fixture(scope="module")
def run(directory: Path) -> Run:
    """A command on that cluster that is expected to succeed; its output."""

    def call(*words: str, stdin: str = "") -> str:
        done = command(*words, "--dir", str(directory), stdin=stdin)
        assert done.returncode == errors.OK, done.stderr
        return done.stdout

    return call


def fails(directory: Path, code: int, *words: str) -> str:
    done = command(*words, "--dir", str(directory))
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def as_json(text: str) -> Any:
    return json.loads(text)


def test_up_reports_addresses_and_processes_as_json(tmp_path: Path) -> None:
    path = tmp_path / "one"
    done = command(
        "up", "-n", "1", "--dir", str(path), "--port", "0", "--detach", "--format", "json"
    )
    assert done.returncode == errors.OK, done.stderr
    try:
        told = as_json(done.stdout)
        assert sorted(told) == ["bootstrap", "cluster_id", "nodes"]
        (node,) = told["nodes"]
        assert sorted(node) == ["address", "dir", "id", "metrics", "pid"]
        with urlopen(node["metrics"]) as answer:
            assert b"ottla_ready 1\n" in answer.read()
        assert node["address"] == told["bootstrap"]
        assert node["dir"] == str(path / "node-1")
        assert (path / "node-1" / "data" / "meta.properties").exists()
    finally:
        assert command("purge", "--dir", str(path)).returncode == errors.OK
    assert not path.exists()


def test_up_gives_every_node_a_setting(tmp_path: Path) -> None:
    path = tmp_path / "two"
    words = ("up", "-n", "2", "--port", "0", "--detach", "-c", "num.partitions=5")
    done = command(*words, "--dir", str(path))
    assert done.returncode == errors.OK, done.stderr
    try:
        told = command("topics", "create", "t", "--dir", str(path)).stdout
        assert told == "created topic t: 5 partitions, 2 replicas each\n"
        assert command("down", "--dir", str(path)).returncode == errors.OK
        line = fails(path, errors.CONFLICT, "up", "--detach", "-c", "num.partitions=6")
        assert "its settings are in node-*/server.properties" in line
    finally:
        assert command("purge", "--dir", str(path)).returncode == errors.OK


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        (
            "num.partition=5",
            "--config: num.partition: no such setting; did you mean num.partitions?",
        ),
        ("num.partitions=x", "--config: num.partitions: "),
        ("node.id=7", "--config: node.id: every node gets its own"),
        ("broker.id=7", "--config: broker.id: every node gets its own"),
        ("broker.rack=a\nb", "is not NAME=VALUE"),
        ("nonsense", "--config 'nonsense': is not NAME=VALUE"),
    ],
)
def test_up_refuses_a_wrong_setting_and_makes_nothing(
    tmp_path: Path, word: str, reason: str
) -> None:
    assert reason in fails(tmp_path, errors.USAGE, "up", "--port", "0", "--detach", "-c", word)
    assert list(tmp_path.iterdir()) == []


def test_settings_are_listed_with_their_defaults() -> None:
    (row,) = as_json(command("settings", "ottla.local", "--format", "json").stdout)
    assert (row["name"], row["default"]) == ("ottla.local.sockets.enable", "true")
    assert "Unix sockets" in row["doc"]
    assert "num.partitions" in command("settings").stdout
    done = command("settings", "no.such")
    assert done.returncode == errors.NOT_FOUND and "no.such" in done.stderr


def test_status_names_every_node_and_one_active_controller(run: Run) -> None:
    told = as_json(run("status", "--format", "json"))
    assert [node["id"] for node in told["nodes"]] == [1, 2, 3]
    assert {node["state"] for node in told["nodes"]} == {"running"}
    assert sorted(node["controller"] for node in told["nodes"]) == ["active", "standby", "standby"]
    assert "running" in run("status")


def test_a_second_up_on_a_directory_in_use_is_refused(directory: Path) -> None:
    assert "nodes 1, 2, 3 run" in fails(directory, errors.CONFLICT, "up", "--detach")


def test_P06_replicas_shows_ar_isr_osr_leo_and_hw(run: Run) -> None:
    run("topics", "create", "vocabulary", "-p", "2")
    run("produce", "vocabulary", "-p", "0", "a", "b", "c")

    def partitions() -> list[Any]:
        return list(as_json(run("replicas", "vocabulary", "--format", "json"))["partitions"])

    deadline = time.monotonic() + 10
    while not all(each["hw"] == 3 for each in partitions()[0]["replicas"]):
        assert time.monotonic() < deadline, partitions()
    first, second = partitions()
    assert sorted(first["ar"]) == sorted(first["isr"]) == [1, 2, 3]
    assert first["osr"] == []
    assert [(each["leo"], each["hw"], each["lag"]) for each in first["replicas"]] == [(3, 3, 0)] * 3
    assert [(each["leo"], each["hw"], each["lag"]) for each in second["replicas"]] == [
        (0, 0, 0)
    ] * 3
    heads = run("replicas", "vocabulary").splitlines()[0].split()
    assert heads == ["partition", "broker", "role", "set", "start", "LEO", "HW", "lag"]


def test_topics_are_created_listed_altered_and_deleted(run: Run, directory: Path) -> None:
    run("topics", "create", "life", "-p", "2", "-r", "3", "-c", "retention.ms=1000")
    told = as_json(run("topics", "describe", "life", "--format", "json"))
    assert told["configs"] == {"retention.ms": "1000"}
    assert [len(each["ar"]) for each in told["partitions"]] == [3, 3]
    assert "life" in [
        topic["topic"] for topic in as_json(run("topics", "list", "--format", "json"))
    ]
    assert "already exists" in fails(directory, errors.CONFLICT, "topics", "create", "life")
    run(
        "topics",
        "alter",
        "life",
        "-p",
        "3",
        "--unset",
        "retention.ms",
        "-c",
        "segment.bytes=1048576",
    )
    deadline = time.monotonic() + 10
    while (told := as_json(run("topics", "describe", "life", "--format", "json")))["configs"] != {
        "segment.bytes": "1048576"
    } or len(told["partitions"]) != 3:
        assert time.monotonic() < deadline, told
    run("topics", "delete", "life")
    fails(directory, errors.NOT_FOUND, "topics", "delete", "life")


def test_wrong_wishes_are_refused_with_their_reason(run: Run, directory: Path) -> None:
    line = fails(directory, errors.USAGE, "topics", "create", "x", "-c", "retention.m=1")
    assert "did you mean retention.ms?" in line
    fails(directory, errors.USAGE, "topics", "create", "x", "-r", "9")
    fails(directory, errors.USAGE, "topics", "create", "a/b")
    fails(directory, errors.NOT_FOUND, "topics", "describe", "nowhere")
    run("topics", "create", "wishes")
    for words in (("topics", "describe"), ("topics", "delete"), ("topics", "elect"), ("replicas",)):
        line = fails(directory, errors.NOT_FOUND, *words, "wishs")
        assert "no topic wishs; did you mean wishes? (ottla topics list)" in line
    line = fails(directory, errors.NOT_FOUND, "topics", "elect", "wishes", "--unclean", "-p", "7")
    assert "topic wishes has no partition 7" in line
    assert "no topic wishs" in fails(directory, errors.NOT_FOUND, "consume", "wishs", "-e")
    assert "no topic wishs" in fails(directory, errors.NOT_FOUND, "produce", "wishs", "x")
    line = fails(directory, errors.USAGE, "topics", "alter", "wishes", "--unset", "retention.m")
    assert "did you mean retention.ms?" in line
    assert as_json(run("topics", "list", "--format", "json")) is not None


def test_an_election_is_about_the_partitions_that_are_named(run: Run) -> None:
    run("topics", "create", "offices", "-p", "3")
    told = run("topics", "elect", "offices", "-p", "2", "-p", "0")
    assert told == "offices: 0 of 2 partitions have another leader now\n"
    assert "0 of 3" in run("topics", "elect", "offices")


def test_what_is_accepted_and_has_no_effect_is_said_beside_the_output(
    run: Run, directory: Path
) -> None:
    words = ("--dir", str(directory))
    run("topics", "create", "tables")
    assert run("produce", "tables", "-k", "a", "x") == "1 record written (tables-0: 1)\n"
    done = command("consume", "tables", "-o", "999999999", "--exit", *words)
    assert (done.returncode, done.stdout) == (errors.OK, "")
    assert "--offset 999999999 is beyond the end: tables-0 ends at 1" in done.stderr


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_produced_is_consumed(run: Run, codec: str) -> None:
    topic = f"lines-{codec}"
    run("topics", "create", topic, "-p", "3")
    lines = [f"line {number}" for number in range(2000)]
    assert run("produce", topic, "-z", codec, stdin="\n".join(lines)).startswith("2000 records")
    assert sorted(run("consume", topic, "--exit").splitlines()) == sorted(lines)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_P17_every_kind_of_acknowledgement_writes(run: Run, acks: str) -> None:
    topic = f"acks-{acks}"
    run("topics", "create", topic, "-p", "1")
    told = as_json(run("produce", topic, "--acks", acks, "--format", "json", "x"))
    assert told["offset"] == (None if acks == "0" else 0)
    assert run("consume", topic, "-n", "1") == "x\n"


def test_records_are_shown_whole_as_json(run: Run) -> None:
    run("topics", "create", "whole", "-p", "1")
    run("produce", "whole", "-K", ":", "key:value", "other:thing")
    first, second = run("consume", "whole", "--exit", "--format", "json").splitlines()
    told = as_json(first)
    assert (told["key"], told["value"], told["offset"]) == ("key", "value", 0)
    assert as_json(second)["offset"] == 1
    assert run("consume", "whole", "--keys", "-o", "-1", "--exit") == "other\tthing\n"
    assert run("consume", "whole", "-o", "1", "--exit") == "thing\n"
    assert run("consume", "whole", "-o", "end", "--exit") == ""


def test_an_empty_value_is_null_where_that_is_asked_for(run: Run) -> None:
    run("topics", "create", "nulls", "-p", "1")
    run("produce", "nulls", "-K", ":", stdin="kept:\n")
    run("produce", "nulls", "-K", ":", "-Z", stdin="deleted:\nchanged:x\n")
    read = run("consume", "nulls", "--exit", "--format", "json").splitlines()
    values = {told["key"]: told["value"] for told in map(as_json, read)}
    assert values == {"kept": "", "deleted": None, "changed": "x"}


def test_a_list_without_entries_says_so_beside_the_output(directory: Path) -> None:
    done = command("groups", "list", "--dir", str(directory))
    assert done.returncode == errors.OK
    assert (done.stdout.split()[0], done.stderr) == ("group", "ottla: no group to show\n")


def test_a_node_is_killed_and_comes_back(run: Run, directory: Path) -> None:
    run("topics", "create", "survivor", "-p", "1", "-r", "3")
    leader = as_json(run("topics", "describe", "survivor", "--format", "json"))["partitions"][0][
        "leader"
    ]
    run("produce", "survivor", "before")
    run("nodes", "kill", str(leader))
    fails(directory, errors.CONFLICT, "nodes", "kill", str(leader))
    run("produce", "survivor", "meanwhile")
    status = as_json(run("status", "--format", "json"))["nodes"]
    assert [node["id"] for node in status if node["state"] == "killed"] == [leader]
    assert [node["id"] for node in status if node["controller"] is None] == [leader]
    run("nodes", "start", str(leader))
    run("nodes", "stop", str(leader))
    run("nodes", "start", str(leader))
    assert run("consume", "survivor", "--exit").split() == ["before", "meanwhile"]
    deadline = time.monotonic() + 20
    while as_json(run("topics", "describe", "survivor", "--format", "json"))["partitions"][0][
        "osr"
    ]:
        assert time.monotonic() < deadline, "the node did not come back into the ISR"
    assert "no node 9" in fails(directory, errors.NOT_FOUND, "nodes", "kill", "9")


def high_watermarks(directory: str, topic: str) -> dict[int, int]:
    done = command("checkpoints", topic, "--dir", directory, "--format", "json")
    return {row["node"]: row["hw"] for row in as_json(done.stdout or "[]")}


def test_P08_high_watermarks_are_kept_across_restarts_and_can_be_read(tmp_path: Path) -> None:
    path = str(tmp_path / "kept")
    assert command("up", "--dir", path, "--port", "0", "--detach").returncode == errors.OK
    try:
        assert command("topics", "create", "kept", "--dir", path).returncode == errors.OK
        assert command("produce", "kept", "still here", "--dir", path).returncode == errors.OK
        produced = command("produce", "kept", "and here", "--dir", path)
        assert produced.returncode == errors.OK, produced.stderr
        # A follower hears of the high watermark with its next fetch, and each node writes its own
        # down every five seconds.
        deadline = time.monotonic() + 20
        while (kept := high_watermarks(path, "kept")) != {1: 2, 2: 2, 3: 2}:
            assert time.monotonic() < deadline, kept
            time.sleep(0.2)
        down = as_json(command("down", "--dir", path, "--format", "json").stdout)
        assert down == {"stopped": [1, 2, 3], "killed": []}
        assert all(
            node["state"] == "stopped"
            for node in as_json(command("status", "--dir", path, "--format", "json").stdout)[
                "nodes"
            ]
        )
        assert high_watermarks(path, "kept") == {1: 2, 2: 2, 3: 2}
        for node in (1, 2, 3):
            file = Path(path) / f"node-{node}" / "data" / "replication-offset-checkpoint"
            assert "kept 0 2" in file.read_text().splitlines()
        again = command("up", "--dir", path, "--detach")
        assert again.returncode == errors.OK, again.stderr
        assert (
            command("consume", "kept", "--exit", "--dir", path).stdout == "still here\nand here\n"
        )
    finally:
        command("purge", "--dir", path)


def test_who_does_not_stop_in_time_is_killed_and_the_command_says_so(tmp_path: Path) -> None:
    words = ("--dir", str(tmp_path / "stuck"))
    up = command("up", "-n", "1", "--port", "0", "--detach", "--format", "json", *words)
    try:
        os.kill(as_json(up.stdout)["nodes"][0]["pid"], signal.SIGSTOP)
        stopped = command("nodes", "stop", "1", "--timeout", "0.2", *words)
        assert stopped.returncode == errors.FAILED
        assert "killed, because not stopped after 0.2 s: node 1" in stopped.stderr
    finally:
        command("purge", *words)


def test_up_in_the_foreground_stops_its_nodes_when_it_is_told_to(tmp_path: Path) -> None:
    path = tmp_path / "front"
    up = subprocess.Popen(
        [str(OTTLA), "up", "-n", "1", "--dir", str(path), "--port", "0", "--format", "json"],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=take_sigint,
    )
    try:
        assert up.stdout is not None
        pid = as_json(up.stdout.readline())["nodes"][0]["pid"]
        os.kill(pid, 0)
        up.send_signal(signal.SIGINT)
        assert up.wait(timeout=30) == errors.OK
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    finally:
        up.kill()
        command("purge", "--dir", str(path))


# -- nodes that must not start: one line, a code, nothing written


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """The directory of a cluster of one node that ran and was stopped."""
    path = tmp_path / "stopped"
    words = ("--dir", str(path))
    assert command("up", "-n", "1", "--port", "0", "--detach", *words).returncode == errors.OK
    assert command("down", *words).returncode == errors.OK
    return path


def snapshot(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def node_fails(path: Path, code: int, *expected: str) -> None:
    data = path / "node-1" / "data"
    before = snapshot(data)
    done = command("node", "--config", str(path / "node-1" / "server.properties"))
    assert done.returncode == code, done.stderr
    line = done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr, done.stderr
    for part in expected:
        assert part in line, done.stderr
    assert snapshot(data) == before


def test_a_directory_of_another_cluster_is_refused(stopped: Path) -> None:
    config = stopped / "node-1" / "server.properties"
    lines = [
        "cluster.id=AAAAAAAAAAAAAAAAAAAAAA" if line.startswith("cluster.id=") else line
        for line in config.read_text().splitlines()
    ]
    config.write_text("\n".join(lines))
    data = str(stopped / "node-1" / "data")
    node_fails(stopped, errors.CONFLICT, "cluster", "AAAAAAAAAAAAAAAAAAAAAA", data)


def test_a_corrupted_checkpoint_is_refused(stopped: Path) -> None:
    checkpoint = stopped / "node-1" / "data" / "recovery-point-offset-checkpoint"
    checkpoint.write_text("0\nnonsense\n")
    node_fails(stopped, errors.FAILED, str(checkpoint), "line 2")


def test_a_used_port_is_refused(stopped: Path) -> None:
    port = json.loads((stopped / "cluster.json").read_text())["nodes"][0]["port"]
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        node_fails(stopped, errors.CONFLICT, f"127.0.0.1:{port}", "in use")


def test_a_directory_that_another_process_uses_is_refused(stopped: Path) -> None:
    with open(stopped / "node-1" / "data" / ".lock", "a") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        node_fails(stopped, errors.CONFLICT, "another process uses it")


# -- a majority of the controllers is down


def test_without_a_majority_of_controllers_every_command_says_so(tmp_path: Path) -> None:
    path = tmp_path / "lame"
    words = ("--dir", str(path))
    assert command("up", "--port", "0", "--detach", *words).returncode == errors.OK
    try:
        for id in ("2", "3"):
            assert command("nodes", "kill", id, *words).returncode == errors.OK
        status = command("status", *words)
        lack = "1 of 3 controllers runs, 2 are needed"
        assert f"no active controller: {lack}" in status.stdout
        assert "standby" not in status.stdout
        line = fails(path, errors.UNREACHABLE, "topics", "create", "q", "--timeout", "1")
        assert "no active controller answered" in line
        assert "may still be carried out" in line
        assert command("down", *words).returncode == errors.OK
        # One alone is started and left waiting; the rest of the cluster makes it ready.
        alone = command("nodes", "start", "1", "--format", "json", *words)
        assert alone.returncode == errors.OK, alone.stderr
        assert lack in alone.stderr
        assert (as_json(alone.stdout)["ready"], as_json(alone.stdout)["running"]) == (False, 1)
        rest = command("up", "--detach", "--format", "json", *words)
        assert rest.returncode == errors.OK, rest.stderr
        pids = {node["id"]: node["pid"] for node in as_json(rest.stdout)["nodes"]}
        assert pids[1] == as_json(alone.stdout)["pid"]
        assert None not in pids.values()
        assert "no active controller" not in command("status", *words).stdout
    finally:
        command("purge", *words)


def test_P15_the_demo_loses_nothing() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "demo.py"), "--seconds", "5", "--no-spark"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [" ".join(line.replace("│", " ").split()) for line in done.stdout.splitlines()]
    assert "lost 0" in rows
    assert "duplicated 0" in rows
