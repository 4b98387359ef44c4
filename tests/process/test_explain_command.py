"""`ottla explain` on real processes: a quick selection. All twelve staged situations are in tests/slow/test_explain_staged.py."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.cli import errors
from support.cluster import OTTLA, ProcessCluster, wait_until
from support.staged import STAGES, explained, explanation_of, produce, staged

QUICK_ONES = ("A leader that was killed", "No majority of controllers")


def ottla(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(OTTLA), "explain", *words], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("title", QUICK_ONES)
def test_cause_and_remedy_of_a_staged_situation_are_told(title: str, tmp_path: Path) -> None:
    (stage,) = (each for each in STAGES if each.title == title)
    with staged(stage, tmp_path / "cluster") as (cluster, name):
        text = explanation_of(stage, cluster, name)
    assert text.index("Why:") < text.index("What it means now:") < text.index("What to do:")


def test_a_healthy_topic_a_broker_and_a_name_that_is_nothing(
    cluster: ProcessCluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    told = explained(cluster, topic)
    assert f"2 partitions of {topic} are healthy: {topic}-0 and {topic}-1." in told
    assert "Nothing." in told
    assert "broker 1 is healthy" in explained(cluster, "1")
    nothing = ottla("nothing-like-it", "--bootstrap", cluster.bootstrap)
    assert nothing.returncode == errors.NOT_FOUND
    assert nothing.stderr.startswith("ottla: no topic and no group and no broker nothing-like-it")
    both = ottla(topic, "--topic", "--group", "--bootstrap", cluster.bootstrap)
    assert both.returncode == errors.USAGE
    topics = ottla(topic, "--group", "--bootstrap", cluster.bootstrap)
    assert topics.returncode == errors.NOT_FOUND, "a topic is no group"


def test_a_topic_and_a_group_of_one_name_are_both_explained(
    cluster: ProcessCluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    produce(cluster, topic, 10)
    cluster.ottla("groups", "reset-offsets", topic, "--topic", topic, "--to", "4")
    done = ottla(topic, "--bootstrap", cluster.bootstrap, "--format", "json")
    assert done.returncode == errors.OK, done.stderr
    partition, group = json.loads(done.stdout)
    assert partition["subject"] == f"partition {topic}-0" and partition["ok"]
    assert partition["facts"]["isr"] and partition["steps"] == []
    assert group["subject"] == f"group {topic}" and not group["ok"]
    assert group["headline"] == f"group {topic} has no members, and 6 records wait for it."
    only = ottla(topic, "--group", "--bootstrap", cluster.bootstrap)
    assert only.stdout.startswith(f"group {topic} has no members")


def test_a_stopped_cluster_is_explained_from_its_directory(
    new_cluster: Callable[..., ProcessCluster],
) -> None:
    cluster = new_cluster()
    topic = cluster.create_topic("orders", assignment=[[3, 1, 2]])
    produce(cluster, topic, 10)
    cluster.ottla("groups", "reset-offsets", "billing", "--topic", topic, "--to", "4")
    cluster.kill(3)
    wait_until(lambda: cluster.partitions(topic)[0].isr == [1, 2], 20, "an ISR of two")
    assert cluster.stop(1, 2)
    told = explained(cluster, "orders-0")
    assert told.startswith("The cluster is stopped. When it stopped,")
    assert "broker 3 was fenced" in told and "broker 1 was elected leader after broker 3" in told
    assert "ottla up --detach" in told
    assert "The cluster is stopped." in explained(cluster, "3")
    group = explained(cluster, "billing")
    assert "group billing had no members and was 6 records behind" in group
    assert "orders-0: committed 4 of 10." in group
    missing = ottla("nothing", "--dir", str(cluster.directory))
    assert missing.returncode == errors.NOT_FOUND and "the cluster is stopped" in missing.stderr


def test_without_an_event_log_it_says_what_it_cannot_know(
    new_cluster: Callable[..., ProcessCluster],
) -> None:
    """As with Apache Kafka. The directory of a local cluster still has the metadata log."""
    cluster = new_cluster(ottla_event_log_enable="false")
    topic = cluster.create_topic("orders", assignment=[[3, 1, 2]])
    cluster.kill(3)
    wait_until(lambda: cluster.partitions(topic)[0].isr == [1, 2], 20, "an ISR of two")
    running = ",".join(node.address for node in cluster.up)
    remote = ottla("orders-0", "--bootstrap", running).stdout
    assert "Broker 3 refuses connections at" in remote and "What happened (UTC)" not in remote
    assert "this cluster has no event log (topic __ottla_events)" in remote
    assert "Start broker 3 again, on its machine." in remote
    local = explained(cluster, "orders-0")
    assert "broker 1 was elected leader after broker 3" in local
    assert "this is from the metadata log alone" in local
