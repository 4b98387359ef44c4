"""A cluster in which one node cannot start: the two others would wait for it."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from ottla.local.cluster import HOST, READY_TIMEOUT_S, LocalCluster
from ottla.local.errors import LocalClusterError


def test_a_node_that_ends_while_others_wait_for_it_is_told_at_once(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path / "cluster", 3, 0)
    began = time.monotonic()
    file = cluster.config_file(3)
    with socket.create_server((HOST, 0)) as listening, pytest.raises(LocalClusterError) as failed:
        taken = f"{HOST}:{listening.getsockname()[1]}"
        file.write_text(file.read_text().replace(f"{HOST}:{cluster.nodes[3].port}", taken))
        cluster.start([1, 2, 3])
    assert "node 3 gave up: " in str(failed.value) and taken in str(failed.value)
    assert str(cluster.log_file(3)) in str(failed.value)
    assert time.monotonic() - began < READY_TIMEOUT_S / 2
    assert not any(node.running for node in cluster.nodes.values())
