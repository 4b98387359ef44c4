"""Nodes that must not start: one line on stderr that says what and where, a code, and not a byte changed.

(A directory of another cluster, a damaged recovery point and a used port are in test_cli_cluster.)
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.local.ports import free_ports
from support.cluster import OTTLA, NodeProcess, ProcessCluster, wait_until

TOPIC = "kept"
METADATA = "__cluster_metadata-0"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """A node that ran, wrote every file a node writes, and was stopped."""
    settings = {"metadata.log.max.record.bytes.between.snapshots": "100"}
    cluster = ProcessCluster(tmp_path_factory.mktemp("stopped") / "cluster", 1, settings)
    with cluster:
        cluster.create_topic(TOPIC, 2)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for partition in (0, 1):
            producer.produce(TOPIC, b"still here", partition=partition)
        assert producer.flush(20) == 0
        wait_until(lambda: checkpoints(cluster.nodes[1].data), 20, "a metadata checkpoint")
        assert cluster.stop(1) == [0]
        yield cluster


@pytest.fixture
def data(stopped: ProcessCluster) -> Iterator[Path]:
    """The node's directory, which a test may damage."""
    node = stopped.nodes[1]
    kept = node.directory / "kept"
    shutil.copytree(node.data, kept)
    config = node.config.read_text()
    try:
        yield node.data
    finally:
        shutil.rmtree(node.data, ignore_errors=True)
        kept.rename(node.data)
        node.config.write_text(config)


def checkpoints(data: Path) -> list[Path]:
    return sorted((data / METADATA).glob("*.checkpoint"))


def content(directory: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
        for path in sorted(directory.rglob("*"))
    }


def run(node: NodeProcess, **options: object) -> subprocess.CompletedProcess[str]:
    command = [str(OTTLA), "node", "--config", str(node.config)]
    return subprocess.run(  # type: ignore[call-overload]
        command, capture_output=True, text=True, check=False, timeout=60, **options
    )


def refuses(node: NodeProcess, *expected: str) -> None:
    before = content(node.directory)
    done = run(node)
    assert done.returncode > 0, done
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("ottla node: ")]
    assert line == done.stderr.splitlines()[-1] and "Traceback" not in done.stderr, done.stderr
    for part in expected:
        assert part in line, done.stderr
    assert content(node.directory) == before


FILES = [
    "meta.properties",
    "bootstrap.checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    ".kafka_cleanshutdown",
    f"{METADATA}/quorum-state",
    f"{METADATA}/recovery-point-offset-checkpoint",
    f"{METADATA}/leader-epoch-checkpoint",
]


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_named_and_nothing_is_written(
    stopped: ProcessCluster, data: Path, name: str
) -> None:
    path = data / name
    assert path.exists(), name
    path.write_bytes(b"0\nnonsense\n")
    refuses(stopped.nodes[1], str(path))


def test_a_damaged_metadata_checkpoint_is_named_and_nothing_is_written(
    stopped: ProcessCluster, data: Path
) -> None:
    newest = checkpoints(data)[-1]
    rotten = bytearray(newest.read_bytes())
    rotten[len(rotten) // 2] ^= 1
    newest.chmod(0o644)
    newest.write_bytes(rotten)
    refuses(stopped.nodes[1], str(newest))


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "partition.metadata"])
def test_a_damaged_file_of_one_partition_takes_only_that_one_offline(
    stopped: ProcessCluster, data: Path, name: str
) -> None:
    path = data / f"{TOPIC}-0" / name
    path.write_bytes(b"0\nnonsense\n")
    stopped.start(1)
    stopped.wait_ready()
    try:
        assert stopped.leader(TOPIC, 1) == 1
        assert stopped.partitions(TOPIC)[0].leader == -1
        assert (
            f"offline until another broker leads it partition={TOPIC}-0"
            in stopped.nodes[1].last_lines()
            and str(path) in stopped.nodes[1].last_lines()
        )
        assert path.read_bytes() == b"0\nnonsense\n"
    finally:
        assert stopped.stop(1) == [0]


def test_a_directory_of_another_node_is_refused(stopped: ProcessCluster, data: Path) -> None:
    properties = data / "meta.properties"
    properties.write_text(properties.read_text().replace("node.id=1", "node.id=7"))
    refuses(stopped.nodes[1], str(data), "node 7")


def test_a_directory_in_use_by_another_process_is_refused(
    stopped: ProcessCluster, data: Path
) -> None:
    """Also on ports of its own, where nothing but the lock tells."""
    node = stopped.nodes[1]
    text = node.config.read_text()
    stopped.start(1)
    stopped.wait_ready()
    try:
        second = node.directory / "second.properties"
        taken = (node.port, node.controller_port)
        for port, other in zip(taken, free_ports(len(taken)), strict=True):
            text = text.replace(f":{port}", f":{other}")
        second.write_text(text)
        before = content(data / f"{TOPIC}-0")
        done = subprocess.run(
            [str(OTTLA), "node", "--config", str(second)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode > 0 and "Traceback" not in done.stderr
        assert f"{data}: another process uses it" in done.stderr.splitlines()[-1]
        assert content(data / f"{TOPIC}-0") == before
        assert stopped.leader(TOPIC) == 1 and stopped.nodes[1].running
        second.unlink()
    finally:
        assert stopped.stop(1) == [0]


def test_a_file_where_a_directory_should_be_is_refused(stopped: ProcessCluster, data: Path) -> None:
    shutil.rmtree(data)
    data.write_text("not a directory")
    try:
        refuses(stopped.nodes[1], str(data), "not a directory")
    finally:
        data.unlink()


def test_a_directory_that_cannot_be_written_is_refused(stopped: ProcessCluster, data: Path) -> None:
    """For root every directory is writable, so this one is of a kind that nobody can write."""
    node = stopped.nodes[1]
    config = node.config.read_text()
    if os.geteuid() == 0:
        place = Path("/proc/sys/ottla")
    else:
        place = data
        data.chmod(0o500)
    node.config.write_text(config.replace(f"log.dirs={data}", f"log.dirs={place}"))
    try:
        refuses(node, str(place))
    finally:
        data.chmod(0o755)


def test_one_broken_log_directory_of_two_is_offline_and_the_node_lives(
    stopped: ProcessCluster, data: Path
) -> None:
    node = stopped.nodes[1]
    config = node.config.read_text()
    broken = node.directory / "broken"
    broken.write_text("not a directory")
    node.config.write_text(config.replace(f"log.dirs={data}", f"log.dirs={data},{broken}"))
    stopped.start(1)
    stopped.wait_ready()
    try:
        assert stopped.leader(TOPIC) == 1
        assert f"log directory is offline path={broken}" in stopped.nodes[1].last_lines()
    finally:
        assert stopped.stop(1) == [0]
        broken.unlink()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("log.segment.bytes=many", "log.segment.bytes"),
        ("no.such.setting=1", "no.such.setting"),
        ("process.roles=king", "process.roles"),
    ],
)
def test_a_wrong_setting_is_named(
    stopped: ProcessCluster, data: Path, wrong: str, said: str
) -> None:
    config = stopped.nodes[1].config
    lines = [line for line in config.read_text().splitlines() if not line.startswith(said + "=")]
    config.write_text("\n".join([*lines, wrong, ""]))
    refuses(stopped.nodes[1], said)
