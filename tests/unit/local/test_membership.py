"""Nodes that join and leave a cluster on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.local.cluster import LocalCluster
from ottla.local.errors import Conflict, InvalidUse
from ottla.local.membership import empty_disk, join, leave


def settings_of(cluster: LocalCluster, id: int) -> dict[str, str]:
    lines = cluster.config_file(id).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_a_node_that_joins_has_the_settings_of_the_others(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path / "c", 3, 0, {"num.partitions": "7"}, metrics=True)
    join(cluster, 4, "west", {"log.retention.ms": "5000"})
    found = settings_of(LocalCluster.load(tmp_path / "c"), 4)
    assert (found["node.id"], found["process.roles"], found["broker.rack"]) == (
        "4",
        "broker",
        "west",
    )
    assert (found["num.partitions"], found["log.retention.ms"]) == ("7", "5000")
    assert found["controller.quorum.voters"] == settings_of(cluster, 1)["controller.quorum.voters"]
    ports = [port for node in cluster.nodes.values() for port in node.ports]
    assert len(set(ports)) == len(ports) == 3 * 3 + 2


def test_in_a_secure_cluster_all_agree_who_the_super_users_are(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path / "c", 1, 0, secure=True)
    join(cluster, 2, None)
    assert settings_of(cluster, 2)["super.users"] == settings_of(cluster, 1)["super.users"]
    assert (cluster.node_directory(2) / "tls" / "node.pem").exists()
    kept = leave(cluster, 2)
    assert kept is not None and not (kept / "tls").exists(), "its key is gone"


def test_a_setting_that_is_not_for_its_user_leaves_nothing_behind(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path / "c", 1, 0)
    with pytest.raises(InvalidUse, match=r"node\.id"):
        join(cluster, 2, None, {"node.id": "9"})
    assert list(LocalCluster.load(tmp_path / "c").nodes) == [1]
    assert not cluster.node_directory(2).exists()
    with pytest.raises(Conflict, match="has a node 1"):
        join(cluster, 1, None)


def test_what_a_node_had_is_kept_under_another_name(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path / "c", 2, 0)
    assert empty_disk(cluster, 2) is None, "it has nothing yet"
    for number in (1, 2):
        (cluster.node_directory(2) / "data").mkdir()
        assert empty_disk(cluster, 2) == cluster.node_directory(2) / f"data.lost-{number}"
    kept = leave(cluster, 2)
    assert kept == tmp_path / "c" / "node-2.removed-1"
    assert (kept / "data.lost-2").exists()
    assert list(LocalCluster.load(tmp_path / "c").nodes) == [1]


def test_a_join_that_was_interrupted_is_done_by_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = LocalCluster.create(tmp_path / "c", 1, 0)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(LocalCluster, "configure", interrupted)
        join(cluster, 9, None)
    again = LocalCluster.load(tmp_path / "c")
    join(again, 9, None)
    assert settings_of(again, 9)["node.id"] == "9"
    leave(again, 9)
    (again.node_directory(9) / "data").mkdir(parents=True)
    with pytest.raises(Conflict, match="is no node of this cluster"):
        join(again, 9, None)
