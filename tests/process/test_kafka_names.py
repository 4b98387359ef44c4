"""Kafka's tools under Kafka's names print what Apache Kafka's print, and start at once.

The golden file was printed by Apache Kafka 4.3's own tools against a cluster of ours (tests/slow/test_kafka_names_golden.py).
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from difflib import unified_diff
from pathlib import Path
from statistics import median

import pytest

from ottla.kafka_tools.names import MODULES, run
from support.kafka_names import GOLDEN, WITHOUT_SERVER, SessionCluster, transcript

START_S = 0.3
RUNS = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionCluster]:
    with SessionCluster(tmp_path_factory.mktemp("names")) as cluster:
        yield cluster


def run_ours(name: str, words: list[str], stdin: bytes) -> tuple[str, int]:
    if stdin:
        command = [sys.executable, "-m", "ottla.kafka_tools", name, *words]
        done = subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=60)
        return done.stdout.decode(), done.returncode
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        try:
            code = run(name, words)
        except SystemExit as ended:
            code = int(ended.code or 0)
    assert isinstance(out.buffer, io.BytesIO)
    return out.buffer.getvalue().decode(), code


def test_a_session_reads_as_with_apache_kafkas_tools(
    cluster: SessionCluster, tmp_path: Path
) -> None:
    ours = transcript(cluster, tmp_path, run_ours)
    golden = GOLDEN.read_text()
    difference = unified_diff(golden.splitlines(), ours.splitlines(), "kafka", "ottla", lineterm="")
    assert ours == golden, "\n".join(difference)


COMMANDS = {
    "kafka-cluster": ["cluster-id"],
    "kafka-configs": ["--describe", "--entity-type", "topics"],
    "kafka-console-consumer": ["--topic", "started", "--max-messages", "0"],
    "kafka-console-producer": ["--topic", "started"],
    "kafka-consumer-groups": ["--list"],
    "kafka-delete-records": ["--offset-json-file"],
    "kafka-dump-log": ["--files"],
    "kafka-features": ["describe"],
    "kafka-get-offsets": ["--topic", "started"],
    "kafka-leader-election": ["--election-type", "preferred", "--all-topic-partitions"],
    "kafka-log-dirs": ["--describe"],
    "kafka-metadata-quorum": ["describe", "--status"],
    "kafka-reassign-partitions": ["--list"],
    "kafka-storage": ["random-uuid"],
    "kafka-topics": ["--list"],
}
"""A command of each that asks the cluster, or reads a file."""


@pytest.mark.alone
@pytest.mark.timeout(300)  # many processes, on a machine that may be busy
def test_every_tool_starts_in_a_third_of_a_second(cluster: SessionCluster, tmp_path: Path) -> None:
    """The processor time of a whole run, from the launcher to the answer: what another program does meanwhile does not
    count. Apache Kafka's tools take 1.5 s."""
    assert COMMANDS.keys() == MODULES.keys()
    cluster.create_topic("started", 1)
    offsets = tmp_path / "offsets.json"
    offsets.write_text('{"partitions":[{"topic":"started","partition":0,"offset":0}]}')
    (segment,) = (cluster.nodes[1].data / "started-0").glob("*.log")
    files = {"kafka-delete-records": str(offsets), "kafka-dump-log": str(segment)}
    slow = {}
    for name, words in COMMANDS.items():
        server = [] if name in WITHOUT_SERVER else ["--bootstrap-server", cluster.bootstrap]
        given = [*words, *filter(None, [files.get(name)])]
        given = [*given, *server] if name == "kafka-cluster" else [*server, *given]
        took = median(_seconds_of(name, given) for _ in range(RUNS))
        if took >= START_S:
            slow[name] = took
    assert not slow


def _seconds_of(name: str, words: list[str]) -> float:
    command = [sys.executable, "-m", "ottla.kafka_tools", name, *words]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (command, said)
    return used.ru_utime + used.ru_stime


def test_a_reader_that_has_enough_ends_a_tool_without_complaint(cluster: SessionCluster) -> None:
    tool = f"{sys.executable} -m ottla.kafka_tools kafka-configs --bootstrap-server {cluster.bootstrap}"
    command = f"{tool} --describe --broker 1 --all | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "All configs for broker 1 are:\n"


def test_a_cluster_that_is_not_there_is_one_line_and_exit_code_1() -> None:
    command = ["kafka-topics", "--bootstrap-server", "127.0.0.1:1", "--list"]
    printed, code = run_ours(command[0], command[1:], b"")
    assert code == 1
    assert printed.startswith("Error while executing topic command : no broker answers")
