"""The command line without a cluster: help, refusals, exit codes, and what `up` would write."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.cli import errors
from ottla.cli.output import print_json, print_table, say, warn
from ottla.config import Settings
from ottla.local.cluster import LocalCluster, default_directory, locked
from ottla.local.errors import LocalClusterError
from ottla.local.processes import Launcher, Process, Starting, started_at

OTTLA = Path(sys.executable).with_name("ottla")


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def ottla(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(OTTLA), *words],
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("OTTLA")} | environment,
        check=False,
    )


def refused(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The one line on stderr."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_help_answers_within_three_tenths_of_a_second() -> None:
    def seconds() -> float:
        """Of a processor: what else runs on the machine is not its fault."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert ottla("--help").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(5)) < 0.3


def test_a_node_process_imports_no_command_line_library() -> None:
    code = "import sys, ottla.local.node; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    for name in ("typer", "rich", "kio", "ottla.client", "json", "uvloop"):
        assert name not in loaded


def test_a_node_without_logins_imports_nothing_of_them() -> None:
    code = "import sys, ottla.broker.node; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "ottla.broker.node" in loaded
    assert not {"ottla.security.sasl", "ottla.security.scram", "ottla.security.jaas"} & {*loaded}
    assert not {"ottla.broker.server.gate", "ottla.broker.server.logins", "hmac"} & {*loaded}


@pytest.mark.parametrize(
    "command",
    [
        (),
        *((name,) for name in ("up", "status", "down", "purge", "node", "produce", "consume")),
        ("replicas",),
        ("checkpoints",),
        *(("nodes", name) for name in ("start", "stop", "kill")),
        *(("topics", name) for name in ("create", "list", "describe", "delete", "alter")),
        *(("topics", name) for name in ("elect", "reassign")),
        ("sim",),
        *(("groups", name) for name in ("list", "describe", "explain", "reset-offsets", "delete")),
    ],
)
def test_every_command_explains_itself(command: tuple[str, ...]) -> None:
    done = ottla(*command, "--help")
    assert done.returncode == errors.OK
    assert "usage" in done.stdout.lower()


def test_nobody_at_the_address_is_unreachable() -> None:
    line = refused(ottla("topics", "list", "-b", "127.0.0.1:1"), errors.UNREACHABLE)
    assert "127.0.0.1:1 (connection refused)" in line


def test_a_wrong_address_is_wrong_usage() -> None:
    line = refused(ottla("topics", "list", "-b", "nonsense"), errors.USAGE)
    assert "'nonsense' is not host:port" in line


@pytest.mark.parametrize(
    "command", [("status",), ("checkpoints",), ("down",), ("purge",), ("nodes", "kill", "1")]
)
def test_a_directory_without_a_cluster_is_not_found(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    line = refused(ottla(*command, "--dir", str(tmp_path / "none")), errors.NOT_FOUND)
    assert "no cluster here" in line
    assert not (tmp_path / "none").exists()


def test_a_used_port_is_named_and_nothing_is_written(tmp_path: Path, busy_port: int) -> None:
    directory = tmp_path / "cluster"
    line = refused(ottla("up", "--dir", str(directory), "--port", str(busy_port)), errors.CONFLICT)
    assert f"127.0.0.1:{busy_port}: Address already in use" in line
    assert not directory.exists()


def test_a_directory_with_other_things_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    line = refused(ottla("up", "--dir", str(tmp_path), "--port", "0"), errors.CONFLICT)
    assert "is not empty" in line
    line = refused(ottla("purge", "--dir", str(tmp_path)), errors.NOT_FOUND)
    assert (tmp_path / "thesis.txt").exists()


def test_a_second_command_on_a_directory_is_refused(tmp_path: Path) -> None:
    with locked(tmp_path):
        line = refused(ottla("up", "--dir", str(tmp_path), "--port", "0"), errors.CONFLICT)
    assert "another ottla command is at work here" in line


def test_a_stopped_cluster_keeps_its_size_and_ports(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path / "c", 3, 0)
    line = refused(ottla("up", "-n", "5", "--dir", str(cluster.directory)), errors.CONFLICT)
    assert "has 3 nodes, not 5; leave out --nodes" in line
    line = refused(ottla("up", "--port", "1", "--dir", str(cluster.directory)), errors.CONFLICT)
    assert "its ports are fixed" in line
    assert "leave out --port" in line


def test_a_node_with_a_bad_setting_says_where(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.id=1\nprocess.rules=broker\n")
    line = refused(ottla("node", "--config", str(file)), errors.USAGE)
    assert f"{file}:2: process.rules: no such setting; did you mean process.roles?" in line
    assert list(tmp_path.iterdir()) == [file]


def test_words_in_a_settings_file_are_not_taken_for_a_setting(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.id 1\nprocess.roles broker\njust words\n")
    line = refused(ottla("node", "--config", str(file)), errors.USAGE)
    assert f"{file}:3: 'just words' is not NAME=VALUE" in line


def test_a_cluster_says_how_many_controllers_it_lacks(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path / "c", 5, 0)
    assert cluster.lack_of_controllers == "0 of 3 controllers run, 2 are needed"
    pid = os.getpid()

    def run(id: int) -> None:
        cluster.nodes[id] = replace(cluster.nodes[id], pid=pid, started=started_at(pid) or "")

    run(1)
    run(4)  # a broker only
    assert cluster.lack_of_controllers == "1 of 3 controllers runs, 2 are needed"
    run(2)
    assert cluster.lack_of_controllers == ""


def test_down_of_a_stopped_cluster_says_that_nothing_ran(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path / "c", 1, 0)
    done = ottla("down", "--dir", str(cluster.directory))
    assert (done.returncode, done.stdout) == (errors.OK, "nothing was running\n")


def test_a_node_that_ends_is_quoted_and_keeps_its_exit_code(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path / "c", 1, 0)
    config = cluster.config_file(1)
    config.write_text(config.read_text() + "just words\n")
    for command in (("up",), ("nodes", "start", "1")):
        ended = ottla(*command, "--dir", str(cluster.directory))
        assert ended.returncode == errors.USAGE
        # Whoever starts one node of several may have heard before that it waits for the others.
        line = ended.stderr.splitlines()[-1]
        assert f"node 1 gave up: {config}:13: 'just words' is not NAME=VALUE" in line


def test_a_node_that_is_not_ready_in_time_is_stopped_again(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path / "c", 1, 0)
    line = refused(ottla("up", "--timeout", "0.01", "--dir", str(cluster.directory)), errors.FAILED)
    assert "--timeout: node 1 was not ready after 0.01 s and is stopped again" in line
    assert not LocalCluster.load(cluster.directory).running


def test_whoever_waits_for_a_slow_node_hears_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.local.cluster.NEWS_EVERY_S", 0.02)
    launcher = SilentLauncher()
    monkeypatch.setattr(Launcher, "get", lambda: launcher)
    cluster = LocalCluster.create(tmp_path / "c", 1, 0)
    node = Starting(cluster.config_file(1), cluster.log_file(1))
    cluster.log_file(1).write_text("ottla node: recovering\n")
    news: list[str] = []
    with pytest.raises(LocalClusterError, match=r"was not ready after 0\.4 s"):
        cluster.wait_ready({1: node}, 0.4, news.append)
    assert news
    assert all("node 1 is not ready after 0 s: recovering" in line for line in news)
    os.close(launcher.told)


class SilentLauncher:
    """Of a process that lives, and never tells anything."""

    def fork(self, config: Path, log: Path, *, outlives: bool, told: int) -> int:
        self.told = os.dup(told)
        return os.getpid()


def test_a_directory_that_cannot_be_used_is_no_conflict(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path / "c", 1, 0)
    (cluster.node_directory(1) / "data").write_text("a file")
    done = ottla("node", "--config", str(cluster.config_file(1)))
    assert done.returncode == errors.FAILED, done.stderr


@pytest.mark.parametrize("command", [(), ("topics",), ("nodes",)])
def test_the_lists_of_commands_are_not_cut(command: tuple[str, ...]) -> None:
    assert "..." not in ottla(*command, "--help").stdout.partition("Commands:")[2]


def test_a_node_takes_its_settings_from_the_environment_too(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path / "c", 1, 0)
    config = str(cluster.config_file(1))
    done = ottla("node", "--check", "--config", config, KAFKA_NUM_PARTITIONS="3")
    assert done.returncode == errors.OK, done.stderr
    line = refused(
        ottla("node", "--check", "--config", config, KAFKA_NUM_PARTITIONS="x"), errors.USAGE
    )
    assert "environment KAFKA_NUM_PARTITIONS: num.partitions: 'x' is not a whole number" in line


def test_a_node_refuses_to_run_without_assertions() -> None:
    command = [sys.executable, "-O", "-m", "ottla.local.node"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == errors.USAGE
    assert "python -O" in done.stderr


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_what_up_writes_is_right_for_every_size(count: int, tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path / "c", count, 0)
    settings = [Settings.load(str(cluster.config_file(id)), {}) for id in cluster.nodes]
    assert [each.node_id for each in settings] == list(range(1, count + 1))
    assert sum(each.is_controller for each in settings) == min(3, count)
    assert all(each.is_broker for each in settings)
    for each in settings:
        assert each.cluster_id == cluster.cluster_id
        assert each.default_replication_factor == min(3, count)
        assert each.min_insync_replicas == min(2, count)
        assert each.offsets_topic_replication_factor == min(3, count)
        assert each.broker_listeners[0].port == cluster.nodes[each.node_id].port
    ports = [port for node in cluster.nodes.values() for port in node.ports]
    assert len(set(ports)) == len(ports)
    assert LocalCluster.load(cluster.directory).nodes == cluster.nodes


def test_the_default_directory_follows_the_users_conventions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OTTLA_DIR", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_directory() == Path("/data/ottla/default")
    monkeypatch.setenv("OTTLA_DIR", "/elsewhere")
    assert default_directory() == Path("/elsewhere")


def test_a_process_is_not_taken_for_a_later_one_with_its_number() -> None:
    mine = Process(os.getpid(), started_at(os.getpid()) or "")
    assert mine.alive
    assert not Process(os.getpid(), "an earlier time").alive
    child = subprocess.Popen([sys.executable, "-c", ""])
    gone = Process(child.pid, started_at(child.pid) or "")
    child.wait()
    assert not gone.alive


def test_a_damaged_cluster_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text(json.dumps({"nodes": 3}))
    line = refused(ottla("status", "--dir", str(tmp_path)), errors.FAILED)
    assert "cluster.json: cannot be read" in line


def test_tables_align_numbers_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "size", "isr"), [("a", 5, (1, 2)), ("long", 1234, ()), ("b", None, (3,))])
    assert capsys.readouterr().out == (
        "name  size  isr\na        5  1,2\nlong  1234  -\nb        -  3\n"
    )


def test_what_clients_named_rules_no_terminal_and_adds_no_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = "g\x1b[2J\nforged\u202e"
    print_table(("group", "members"), [(name, [name])])
    say(f"group {name}", "next")
    warn(name)
    out, err = capsys.readouterr()
    shown = r"g\x1b[2J\nforged\u202e"
    assert out.splitlines()[1:] == [f"{shown}  {shown}", f"group {shown}", "next"]
    assert err.splitlines() == [f"ottla: {shown}"]
    for told in (name, "c\x9b31m\u202e\u2028", "\ud800", "日本語 é 😀"):
        print_json({"group": told})
        out = capsys.readouterr().out
        assert json.loads(out) == {"group": told}
        assert out.rstrip("\n").isprintable()
    assert "日本語 é 😀" in out, "what people can read stays as it is"


def test_the_launcher_takes_news_of_a_child_that_was_seen_to_already() -> None:
    """Its handler of signals may run within itself, when several nodes end at once."""
    from ottla.local.launcher import _Child, _report_ended

    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    heard, told = os.pipe()
    _report_ended({child.pid: _Child(told, False)})
    os.close(told)
    assert os.read(heard, 1) == b""
    os.close(heard)
