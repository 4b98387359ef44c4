"""The promises about the controller and about placement, on real processes.

Controllers on nodes 1 to 3, broker 4 beside them. Leadership is given back every second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from ottla.metadata.records import (
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from support.cluster import NodeProcess, ProcessCluster, byte_identical, wait_until
from support.wire import metadata_batches, write

pytestmark = pytest.mark.timeout(120)

BROKERS = [1, 2, 3, 4]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    settings = {"leader.imbalance.check.interval.seconds": "1"}
    with ProcessCluster(tmp_path_factory.mktemp("controller"), len(BROKERS), settings) as running:
        yield running


@pytest.fixture(autouse=True)
def whole(cluster: ProcessCluster) -> Iterator[None]:
    """A test that failed half-way leaves the others a cluster in which everybody runs."""
    yield
    cluster.mend()


def topic_as_seen_by(cluster: ProcessCluster, node: NodeProcess, topic: str) -> Any:
    """Everything that the metadata of this node says about the topic."""
    fields = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    (answer,) = cluster.ask(node, ApiKey.METADATA, 12, fields).topics
    return answer


def is_known(cluster: ProcessCluster, node: NodeProcess, topic: str) -> bool:
    return topic_as_seen_by(cluster, node, topic).error_code == 0


def has_three_partitions(cluster: ProcessCluster, topic: str) -> bool:
    return sorted(cluster.partitions(topic)) == [0, 1, 2]


def leaders(cluster: ProcessCluster, topic: str) -> list[int]:
    states = cluster.partitions(topic)
    return [states[number].leader for number in sorted(states)]


def test_P01_P02_each_topic_has_its_own_factor_and_it_counts_the_leader(
    cluster: ProcessCluster,
) -> None:
    for factor in (1, 2, 3):
        topic = f"factor-{factor}"
        described = cluster.ottla("topics", "create", topic, "-p", "2", "-r", str(factor))
        for partition in described["partitions"]:
            assert len(partition["ar"]) == factor
            assert partition["leader"] in partition["ar"]
        cluster.wait_whole(topic)
        assert write(cluster, topic, "a") is ErrorCode.NONE


# -- F. Placement and balance


def test_P36_partition_i_is_on_broker_i_mod_n_and_its_replicas_on_the_next_ones(
    cluster: ProcessCluster,
) -> None:
    described = cluster.ottla("topics", "create", "placed", "-p", "8", "-r", "3")
    placed = {each["partition"]: each["ar"] for each in described["partitions"]}
    first = BROKERS.index(placed[0][0])
    assert placed == {
        i: [BROKERS[(first + i + j) % len(BROKERS)] for j in range(3)] for i in range(8)
    }
    assert {i: each["leader"] for i, each in enumerate(described["partitions"])} == {
        i: replicas[0] for i, replicas in placed.items()
    }


def test_P32_P37_all_leaders_of_a_dead_broker_are_elected_in_one_batch_and_spread_and_return(
    cluster: ProcessCluster,
) -> None:
    topic = cluster.create_topic("many", 24)
    led_by_4 = [number for number, leader in enumerate(leaders(cluster, topic)) if leader == 4]
    assert len(led_by_4) == 6
    controller = wait_until(cluster.active_controller, 10, "an active controller")
    decided_before = len(metadata_batches(cluster, controller))

    cluster.kill(4)
    wait_until(lambda: 4 not in leaders(cluster, topic), 20, "other leaders")
    moved = Counter(leaders(cluster, topic)[number] for number in led_by_4)
    assert moved == {1: 3, 2: 3}, "evenly over the brokers that hold their other replicas"

    decisions = [
        changed
        for _, batch in metadata_batches(cluster, controller)[decided_before:]
        if (changed := [r for r in batch if isinstance(r, PartitionChangeRecord)])
    ]
    assert len(decisions) == 1, "one batch, fetched by each broker as one"
    held_by_4 = [
        each
        for topic_told in cluster.ottla("topics", "list")
        for each in topic_told["partitions"]
        if 4 in each["ar"]
    ]
    assert len(decisions[0]) - len(held_by_4) in (0, 1), "the event log's partition is not listed"
    assert all(change.isr is not None and 4 not in change.isr for change in decisions[0])

    cluster.start(4)
    wait_until(
        lambda: all(each.leader == each.replicas[0] for each in cluster.partitions(topic).values()),
        20,
        "preferred leaders lead again by themselves",
    )
    assert Counter(leaders(cluster, topic)) == dict.fromkeys(BROKERS, 6)


# -- E. The controller


def test_P33_a_topic_is_made_on_every_broker_and_deleted_from_every_disk(
    cluster: ProcessCluster,
) -> None:
    cluster.ottla("topics", "create", "short-lived", "-p", "4", "-r", "3")
    cluster.wait_whole("short-lived")
    directories = [
        cluster.nodes[broker].data / f"short-lived-{number}"
        for number, state in cluster.partitions("short-lived").items()
        for broker in state.replicas
    ]
    wait_until(lambda: all(each.exists() for each in directories), 10, "12 logs on disk")
    cluster.ottla("topics", "delete", "short-lived")
    wait_until(lambda: not any(each.exists() for each in directories), 10, "no log on disk")
    answers = [topic_as_seen_by(cluster, node, "short-lived").error_code for node in cluster.up]
    assert answers == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * len(BROKERS)


def test_P34_a_broker_that_was_down_learns_from_the_metadata_what_was_decided(
    cluster: ProcessCluster,
) -> None:
    cluster.create_topic("deleted-meanwhile", assignment=[[4, 1]])
    deleted = cluster.nodes[4].data / "deleted-meanwhile-0"
    wait_until(deleted.exists, 10, "its log on 4")
    cluster.kill(4)
    topic = NewTopic("made-meanwhile", replica_assignment=[[4, 1, 2]], num_partitions=1)
    admin = cluster.new_admin()
    admin.create_topics([topic])["made-meanwhile"].result(20)
    admin.delete_topics(["deleted-meanwhile"])["deleted-meanwhile"].result(20)
    assert write(cluster, "made-meanwhile", "while 4 was down") is ErrorCode.NONE

    cluster.start(4)
    cluster.wait_ready()
    cluster.wait_whole("made-meanwhile")
    wait_until(lambda: not deleted.exists(), 10, "the deleted log is gone from 4")
    byte_identical(cluster, "made-meanwhile")

    def all_brokers_tell_the_same() -> bool:
        # 4 is the preferred leader: its election may fall between two of these questions.
        seen = [topic_as_seen_by(cluster, node, "made-meanwhile") for node in cluster.up]
        return all(each == seen[0] for each in seen)

    wait_until(all_brokers_tell_the_same, 10, "4 routes clients as the others do")
    names = [
        record.name
        for _, batch in metadata_batches(cluster, 4)
        for record in batch
        if isinstance(record, TopicRecord)
    ]
    assert "made-meanwhile" in names, "its own copy of the decisions is on its disk"


def test_P35_a_controller_killed_while_topics_are_made_leaves_nothing_half_made(
    cluster: ProcessCluster,
) -> None:
    names = [f"made-{number}" for number in range(40)]
    wanted = [NewTopic(name, 3, 3) for name in names]
    controller = wait_until(cluster.active_controller, 10, "an active controller")
    futures = {}
    for topic in wanted:
        futures.update(cluster.admin.create_topics([topic], request_timeout=10))
        if len(futures) == len(wanted) // 2:
            next(iter(futures.values())).result(20)
            cluster.kill(controller)
    acknowledged = [name for name, future in futures.items() if future.exception(30) is None]
    assert acknowledged
    wait_until(lambda: cluster.active_controller() != controller, 20, "another controller")

    for name in acknowledged:
        for node in cluster.up:
            wait_until(partial(is_known, cluster, node, name), 10, f"{name} at {node}")
    for topic in wanted:
        try:
            cluster.admin.create_topics([topic])[topic.topic].result(20)
        except KafkaException as error:
            assert error.args[0].name() == "TOPIC_ALREADY_EXISTS"
    for name in names:
        wait_until(partial(has_three_partitions, cluster, name), 10, f"{name} is whole")
        assert all(len(each.replicas) == 3 for each in cluster.partitions(name).values())

    survivor = cluster.up[0].id
    decided = [batch for _, batch in metadata_batches(cluster, survivor)]
    made: Counter[str] = Counter()
    for batch in decided:
        for record in batch:
            if isinstance(record, TopicRecord) and record.name in names:
                made[record.name] += 1
                partitions = [
                    r
                    for r in batch
                    if isinstance(r, PartitionRecord) and r.topic_id == record.topic_id
                ]
                assert len(partitions) == 3, "a topic and its partitions are one batch"
    assert made == dict.fromkeys(names, 1)
    cluster.start(controller)
    cluster.wait_ready()
    for name in names:
        cluster.wait_whole(name)
