"""What the nodes of `ottla up --secure` are told."""

from __future__ import annotations

from pathlib import Path

from ottla.local.cluster import LocalCluster
from ottla.local.secure import node_settings


def test_strangers_cannot_open_connections_without_end(tmp_path: Path) -> None:
    found = node_settings(LocalCluster(tmp_path, "some-cluster-id", [], secure=True), 1)
    assert found["max.connections"] == "10000"
    assert found["max.connections.per.ip"] == "1000"
    assert found["max.connection.creation.rate"] == "500"
