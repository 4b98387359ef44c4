"""Partitions move to other brokers while they are written to (P33), on real processes.

Controllers on nodes 1 to 3, broker 4 beside them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping

import pytest
from kafka import KafkaAdminClient, TopicPartition

from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from support.cluster import OTTLA, ClusterNotReady, ProcessCluster, byte_identical, wait_until
from support.ledger import LedgerProducer

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("reassignment"), 4) as running:
        yield running


@pytest.fixture(autouse=True)
def whole(cluster: ProcessCluster) -> Iterator[None]:
    yield
    cluster.mend()


def reassign(
    cluster: ProcessCluster, topic: str, wishes: Mapping[int, list[int] | None]
) -> list[int]:
    """By any broker, in one request: the error code of each partition."""
    rows = [{"partition_index": i, "replicas": replicas} for i, replicas in wishes.items()]
    fields = {"topics": [{"name": topic, "partitions": rows}], "timeout": 10_000}
    answer = cluster.ask(cluster.up[-1], ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, fields)
    assert answer.error_code == 0
    return [int(row.error_code) for row in answer.responses[0].partitions]


def is_under_way(cluster: ProcessCluster, topic: str) -> bool:
    fields = {"topics": None, "timeout": 10_000}
    answer = cluster.ask(cluster.up[0], ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, fields)
    if answer.error_code:
        raise ClusterNotReady(ErrorCode(answer.error_code).name)
    return any(row.name == topic for row in answer.topics)


def wait_moved(cluster: ProcessCluster, topic: str, target: dict[int, list[int]]) -> None:
    """Until every live broker knows exactly these replicas, all in sync, and no other of them has a log."""

    def moved() -> bool:
        for node in cluster.up:
            states = cluster.partitions_as_seen_by(node, topic)
            found = {i: states[i].replicas for i in target}
            if found != target or not all(states[i].whole for i in target):
                raise ClusterNotReady(f"node {node.id}: {states}")
        return not is_under_way(cluster, topic)

    wait_until(moved, 60, f"{topic} at {target}")
    strays = [
        node.data / f"{topic}-{i}"
        for i, replicas in target.items()
        for node in cluster.up
        if node.id not in replicas
    ]
    wait_until(lambda: not any(each.exists() for each in strays), 20, "no log of those who left")


def test_P33_partitions_move_under_load_and_nothing_is_lost(cluster: ProcessCluster) -> None:
    topic = cluster.create_topic("moving", assignment=[[1, 2], [2, 3], [3, 1]])
    target = {0: [3, 4], 1: [4, 2], 2: [1, 3]}
    with LedgerProducer(cluster.bootstrap, topic, 3) as ledger:
        ledger.wait_for_more(300)
        assert reassign(cluster, topic, target) == [0, 0, 0]
        wait_moved(cluster, topic, target)
        ledger.wait_for_more(300)
    leaders = {i: state.leader for i, state in cluster.partitions(topic).items()}
    assert leaders[0] in (3, 4), "its leader left"
    assert (leaders[1], leaders[2]) == (2, 3), "their leaders are of the target, and stay"
    ledger.verify().assert_clean()
    byte_identical(cluster, topic)


def test_P33_a_broker_killed_meanwhile_holds_it_up_and_loses_nothing(
    cluster: ProcessCluster,
) -> None:
    topic = cluster.create_topic("interrupted", assignment=[[1, 2], [2, 1]])
    target = {0: [4, 3], 1: [3, 4]}
    with LedgerProducer(cluster.bootstrap, topic, 2) as ledger:
        ledger.wait_for_more(200)
        cluster.kill(4)
        assert reassign(cluster, topic, target) == [0, 0]
        ledger.wait_for_more(200)
        assert is_under_way(cluster, topic), "4 is away"
        cluster.kill(2)
        cluster.start(4)
        wait_moved(cluster, topic, target)
        ledger.wait_for_more(200)
    cluster.start(2)
    cluster.wait_ready()
    wait_moved(cluster, topic, target)
    ledger.verify().assert_clean()
    byte_identical(cluster, topic)


def test_P33_a_reassignment_is_cancelled_and_all_is_as_before(cluster: ProcessCluster) -> None:
    topic = cluster.create_topic("cancelled", assignment=[[1, 2]])
    with LedgerProducer(cluster.bootstrap, topic) as ledger:
        cluster.kill(4)  # so that it cannot be done before it is cancelled
        assert reassign(cluster, topic, {0: [3, 4]}) == [0]
        joined = cluster.nodes[3].data / f"{topic}-0"
        wait_until(joined.exists, 20, "3 copies")
        ledger.wait_for_more(100)
        assert reassign(cluster, topic, {0: None}) == [0]
        assert reassign(cluster, topic, {0: None}) == [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]
        cluster.start(4)
        cluster.wait_ready()
        wait_moved(cluster, topic, {0: [1, 2]})
        ledger.wait_for_more(100)
    ledger.verify().assert_clean()
    byte_identical(cluster, topic)


def test_P33_kafka_pythons_admin_client_moves_a_partition(cluster: ProcessCluster) -> None:
    topic = cluster.create_topic("by-client", assignment=[[1]])
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    try:
        admin.alter_partition_reassignments({TopicPartition(topic, 0): [2, 4]})
        wait_moved(cluster, topic, {0: [2, 4]})
        assert not admin.list_partition_reassignments()
    finally:
        admin.close()


def test_P33_the_command_line_moves_cancels_and_lists(cluster: ProcessCluster) -> None:
    topic = cluster.create_topic("by-command", 2, 1, assignment=[[1], [2]])
    cluster.kill(4)
    (moving,) = cluster.ottla("topics", "reassign", topic, "-p", "0", "--replicas", "4,3")
    assert moving == {
        "topic": topic,
        "partition": 0,
        "replicas": [4, 3, 1],
        "adding": [4, 3],
        "removing": [1],
    }
    assert cluster.ottla("topics", "reassign", topic, "--list") == [moving]
    assert cluster.ottla("topics", "reassign", topic, "-p", "0", "--cancel") == []
    assert cluster.ottla("topics", "reassign", topic, "-p", "1", "--replicas", "3") in (
        [],
        [{**moving, "partition": 1, "replicas": [3, 2], "adding": [3], "removing": [2]}],
    )
    wait_moved(cluster, topic, {0: [1], 1: [3]})
    words = ["topics", "reassign", topic, "-b", cluster.nodes[1].address]
    assert _exit_code(*words, "-p", "0", "--replicas", "9") == 2
    assert _exit_code(*words, "-p", "0") == 2
    assert _exit_code(*words, "-p", "7", "--replicas", "1") == 3
    assert _exit_code(*words, "-p", "0", "--cancel") == 1


def _exit_code(*words: str) -> int:
    return subprocess.run([OTTLA, *words], capture_output=True, check=False).returncode
