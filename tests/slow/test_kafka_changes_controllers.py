"""Apache Kafka's tools change our controllers, and Apache Kafka's controller joins ours by itself (KIP-853)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.changing_controllers import (
    NEW_CONTROLLER,
    ChangingCluster,
    UpgradedCluster,
    new_controller,
)
from support.cluster import wait_until
from support.kafka_jars import STORAGE, java_command, run_tool
from support.kafka_server import SERVER

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first one installs Kafka

FEATURES_TOOL = "org.apache.kafka.tools.FeatureCommand"
QUORUM_TOOL = "org.apache.kafka.tools.MetadataQuorumCommand"


def directory_of(cluster: ChangingCluster, id: int) -> str:
    listed = cluster.controllers()["replicas"]
    return next(str(each["directory"]) for each in listed if each["id"] == id)


def test_kafkas_tool_adds_and_removes_our_controllers(tmp_path: Path) -> None:
    with (
        ChangingCluster(tmp_path / "cluster", 3) as cluster,
        new_controller(cluster, tmp_path) as new,
    ):
        wait_until(lambda: new.id in cluster.ids_of("observer"), 60, "the new controller observes")
        to_cluster = ("--bootstrap-server", cluster.bootstrap)
        said = run_tool(QUORUM_TOOL, *to_cluster, "--command-config", new.file, "add-controller")
        assert f"Added controller {new.id} with directory id" in said
        assert cluster.voters() == [1, 2, 3, new.id]
        leader = cluster.controllers()["leader"]
        said = run_tool(
            QUORUM_TOOL,
            *to_cluster,
            "remove-controller",
            "--controller-id",
            str(leader),
            "--controller-directory-id",
            directory_of(cluster, leader),
        )
        assert "Removed" in said
        wait_until(lambda: cluster.controllers()["leader"] != leader, 30, "another leader")
        assert leader not in cluster.voters()
        said = run_tool(QUORUM_TOOL, *to_cluster, "describe", "--status")
        assert f'"id": {new.id}' in said.partition("CurrentVoters:")[2].partition("\n")[0]


def test_kafkas_tool_upgrades_our_static_voters(tmp_path: Path) -> None:
    with (
        UpgradedCluster(tmp_path / "cluster", 3) as cluster,
        new_controller(cluster, tmp_path) as new,
    ):
        to_cluster = ("--bootstrap-server", cluster.bootstrap)
        upgrade = ("upgrade", "--feature", "kraft.version=1")
        wait_until(
            lambda: cluster.features(*upgrade, "--dry-run")[0] == 0, 60, "all voters are known"
        )
        said = run_tool(FEATURES_TOOL, *to_cluster, *upgrade)
        assert "kraft.version was upgraded to 1." in said
        said = run_tool(
            FEATURES_TOOL, *to_cluster, "downgrade", "--feature", "kraft.version=0", exits_with=1
        )
        assert "Can't downgrade the version of this feature." in said
        wait_until(lambda: new.id in cluster.ids_of("observer"), 60, "the new controller observes")
        said = run_tool(QUORUM_TOOL, *to_cluster, "--command-config", new.file, "add-controller")
        assert f"Added controller {new.id} with directory id" in said
        assert cluster.voters() == [1, 2, 3, new.id]


def test_kafkas_controller_joins_ours_and_leads(tmp_path: Path) -> None:
    """Its directory is formatted by Kafka's tool. Our leader asks it for its versions and adds it."""
    with ChangingCluster(tmp_path / "cluster", 3) as cluster:
        settings = cluster.settings_of_new_controller(tmp_path / "kafka")
        cluster_id = settings.pop("cluster.id")
        settings["controller.quorum.auto.join.enable"] = "true"
        file = tmp_path / "kafka.properties"
        file.write_text("\n".join(f"{name}={value}" for name, value in settings.items()))
        run_tool(STORAGE, "format", "-t", cluster_id, "-c", file, "--no-initial-controllers")
        printed = (tmp_path / "kafka.log").open("wb")
        process = subprocess.Popen(java_command(SERVER, file), stdout=printed, stderr=printed)
        try:
            wait_until(lambda: NEW_CONTROLLER in cluster.voters(), 300, "Kafka's controller votes")
            topic = cluster.create_topic("with-kafka", 3)
            cluster.wait_whole(topic)
            for _ in range(20):
                leader = cluster.controllers()["leader"]
                if leader == NEW_CONTROLLER:
                    break
                cluster.restart(leader)
                cluster.wait_ready(60)
            assert leader == NEW_CONTROLLER, "Kafka's controller was never elected"
            # Kafka's leader removes one of our voters, and takes it back.
            cluster.ottla("controllers", "remove", "1")
            assert cluster.voters() == [2, 3, NEW_CONTROLLER]
            at = cluster.bootstrap_controllers().split(",")[0]
            cluster.ottla("controllers", "add", "1", "--at", at)
            assert cluster.voters() == [1, 2, 3, NEW_CONTROLLER]
        except BaseException as error:
            error.add_note(
                f"--- Kafka\n{(tmp_path / 'kafka.log').read_text(errors='replace')[-4000:]}"
            )
            raise
        finally:
            process.kill()
            process.wait()
            printed.close()
