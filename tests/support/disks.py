"""Second disks of nodes, which become full."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from support.cluster import ProcessCluster

SMALL = 2 << 20


def second_disk(cluster: ProcessCluster, node_id: int) -> Path:
    return cluster.nodes[node_id].directory / "second"


def give_second_disks(cluster: ProcessCluster) -> None:
    for node in cluster.nodes.values():
        text = node.config.read_text()
        line = f"log.dirs={node.data}"
        assert line in text
        node.config.write_text(text.replace(line, f"{line},{second_disk(cluster, node.id)}"))


@contextmanager
def tiny_file_system(
    cluster: ProcessCluster, node_id: int, size: int = SMALL
) -> Iterator[Callable[[], None]]:
    """The node's second disk is a file system of two megabytes."""
    with mounted(second_disk(cluster, node_id), size):
        yield lambda: None


@contextmanager
def mounted(place: Path, size: int) -> Iterator[Path]:
    """A file system of this size, there."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "ottla-test", str(place)]
    subprocess.run(command, check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@contextmanager
def file_size_limit(cluster: ProcessCluster, node_id: int) -> Iterator[Callable[[], None]]:
    yield lambda: limit_file_size(cluster, node_id)


def limit_file_size(cluster: ProcessCluster, node_id: int) -> None:
    """The node may write no file larger than two megabytes; only one log there grows so large."""
    pid = cluster.nodes[node_id].pid
    assert pid is not None
    hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (SMALL, hard))


def may_mount() -> bool:
    """In a name space of its own, so that nothing is left of the attempt."""
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/tmp"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
