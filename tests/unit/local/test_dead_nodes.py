"""What `ottla status` says of nodes that do not run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ottla.cli.commands import app
from ottla.local.cluster import READY_LINE, LocalCluster

Status = Callable[..., str]


@pytest.fixture
def cluster(tmp_path: Path) -> LocalCluster:
    """Node 1 was ready once, and died when nobody looked. Nodes 2 and 3 were never started."""
    made = LocalCluster.create(tmp_path / "c", 3, 0, dynamic_voters=True)
    made.nodes[1] = replace(made.nodes[1], pid=1 << 30, started="long ago")
    made.log_file(1).write_bytes(READY_LINE)
    made.save()
    return made


@pytest.fixture
def status(cluster: LocalCluster) -> Status:
    def status(*words: str) -> str:
        done = CliRunner().invoke(app, ["status", "--dir", str(cluster.directory), *words])
        assert done.exit_code == 0, done.output
        return done.output

    return status


def settle(cluster: LocalCluster) -> Path:
    """Its log directory is there."""
    data = cluster.node_directory(1) / "data"
    (data / "meta.properties").touch()
    return data


def test_whoever_has_its_disk_is_started(cluster: LocalCluster, status: Status) -> None:
    settle(cluster)
    assert f"ottla nodes start 1 --dir {cluster.directory} brings it back" in status()


def test_whose_disk_is_empty_is_replaced_and_not_started(
    cluster: LocalCluster, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(cluster).joinpath("meta.properties").unlink()
    said = status()
    assert "node 1 died, and its disk is empty: " in said and "nodes start" not in said
    assert f"ottla doctor --dir {cluster.directory} says in which order" in said, "none lives"
    monkeypatch.setattr(LocalCluster, "lack_of_controllers", "")
    where = f"--dir {cluster.directory}"
    replace = f"ottla brokers replace 1 {where} && ottla controllers replace 1 {where}"
    assert f"{replace} brings it back" in status()


def test_nobody_knows_when_a_node_died_that_nobody_saw(
    cluster: LocalCluster, status: Status
) -> None:
    settle(cluster)
    node, *_ = json.loads(status("--format", "json"))["nodes"]
    assert (node["state"], node["since"]) == ("died", None)
    cluster.died(1, 137)
    node, *_ = json.loads(status("--format", "json"))["nodes"]
    assert node["since"] is not None
