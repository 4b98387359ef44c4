"""Controllers of ottla and of Apache Kafka in one quorum, static and dynamic: either is elected, resigns, dies, and loses its disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from support.cluster import ClusterNotReady, wait_until
from support.kafka_jars import STORAGE, run_tool
from support.mixed import KAFKA, OTTLA, Kind, MixedCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MIXES = ((OTTLA, KAFKA, OTTLA), (KAFKA, OTTLA, KAFKA))
EACH_MIX = pytest.mark.parametrize(
    "kinds", MIXES, ids=lambda kinds: "".join(kind.name[0] for kind in kinds)
)
TURNS_MAX = 12
DEATHS = 3


def same_metadata(cluster: MixedCluster) -> None:
    """All voters have the same records, byte for byte, as far as the shortest log goes; and it goes on."""
    before = min(map(len, metadata_logs(cluster)))

    def is_same() -> bool:
        logs = metadata_logs(cluster)
        end = min(map(len, logs))
        if end <= before or any(log[:end] != logs[0][:end] for log in logs):
            raise ClusterNotReady(f"{[len(log) for log in logs]}")
        return True

    wait_until(is_same, 60, "the same metadata on all voters", every=0.5)


def metadata_logs(cluster: MixedCluster) -> list[bytes]:
    return [cluster.log_bytes(id, "__cluster_metadata", 0) for id in cluster.nodes]


def is_led_by_another(cluster: MixedCluster, than: int) -> bool:
    return cluster.active_controller() != than


def let_each_lead(cluster: MixedCluster) -> None:
    """Until a controller of each kind was active, and decided something; each resigns in good order."""
    led: set[Kind] = set()
    for turn in range(TURNS_MAX):
        active = wait_until(cluster.active_controller, 60, "an active controller")
        led.add(cluster.kinds[active])
        topic = cluster.create_topic(f"resigned-{turn}", 2, 3)
        if led == set(Kind):
            return
        cluster.stop(active)
        wait_until(partial(is_led_by_another, cluster, active), 60, "another")
        cluster.start(active)
        cluster.wait_ready(90)
        cluster.wait_whole(topic, 90)
    raise AssertionError(f"only {led} led")


def kill_who_leads(cluster: MixedCluster) -> None:
    """What was decided before is known to the next one. Which kind that is, is chance: a voter of Apache Kafka refuses a pre-vote
    until it misses the leader itself, so its kind wins more often."""
    for turn in range(DEATHS):
        active = wait_until(cluster.active_controller, 60, "an active controller")
        topic = cluster.create_topic(f"killed-{turn}", 2, 3)
        cluster.kill(active)
        wait_until(partial(is_led_by_another, cluster, active), 60, "another")
        assert len(cluster.partitions(topic)) == 2
        cluster.start(active)
        cluster.wait_ready(90)
        cluster.wait_whole(topic, 90)


@EACH_MIX
def test_controllers_of_both_kinds_lead_after_a_resignation_and_after_a_death(
    tmp_path: Path, kinds: tuple[Kind, ...]
) -> None:
    with MixedCluster(tmp_path / "cluster", kinds) as cluster:
        let_each_lead(cluster)
        kill_who_leads(cluster)
        same_metadata(cluster)


@pytest.fixture
def dynamic(tmp_path: Path, kinds: tuple[Kind, ...]) -> Iterator[MixedCluster]:
    with MixedCluster(tmp_path / "cluster", kinds, dynamic_voters=True) as cluster:
        yield cluster


def voters(cluster: MixedCluster) -> list[int]:
    listed = cluster.ottla("controllers", "list")["replicas"]
    return sorted(each["id"] for each in listed if each["role"] in ("voter", "leader"))


def observes(cluster: MixedCluster, id: int) -> bool:
    listed = cluster.ottla("controllers", "list")["replicas"]
    return any(each["id"] == id and each["role"] == "observer" for each in listed)


@EACH_MIX
def test_a_voter_of_each_kind_leaves_and_returns(
    dynamic: MixedCluster, kinds: tuple[Kind, ...]
) -> None:
    for kind in Kind:
        id = dynamic.of_kind(kind)[0]
        at = f"127.0.0.1:{dynamic.nodes[id].controller_port}"
        dynamic.ottla("controllers", "remove", str(id))
        assert id not in voters(dynamic)
        wait_until(partial(observes, dynamic, id), 60, f"{id} observes", every=0.5)
        dynamic.ottla("controllers", "add", str(id), "--at", at)
        assert voters(dynamic) == [1, 2, 3]
    kill_who_leads(dynamic)
    same_metadata(dynamic)


@EACH_MIX
def test_a_voter_of_each_kind_returns_with_an_empty_disk(
    dynamic: MixedCluster, kinds: tuple[Kind, ...]
) -> None:
    topic = dynamic.create_topic("kept", 3, 3)
    for kind in Kind:
        id = dynamic.of_kind(kind)[0]
        dynamic.kill(id)
        shutil.rmtree(dynamic.nodes[id].data)
        if kind is KAFKA:
            file = dynamic.nodes[id].config
            run_tool(STORAGE, "format", "-t", dynamic.cluster_id, "-c", file, "--no-initial-controllers")  # fmt: skip
        dynamic.start(id)
        wait_until(partial(observes, dynamic, id), 90, f"{id} observes", every=0.5)
        dynamic.ottla("controllers", "replace", str(id))
        assert voters(dynamic) == [1, 2, 3]
        dynamic.wait_ready(90)
        dynamic.wait_whole(topic, 90)
    same_metadata(dynamic)
