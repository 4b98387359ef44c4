"""A reassignment held to a rate, on either side of the copy, while producers go on undisturbed (KIP-73)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from support.clients import Confluent, rows
from support.cluster import ProcessCluster, wait_until
from support.configs import BROKER, TOPIC, alter

RATE = 1_000_000


@pytest.fixture
def limited(cluster: ProcessCluster) -> Iterator[Callable[[str], None]]:
    sides: list[str] = []

    def limit(side: str) -> None:
        sides.append(side)
        alter(cluster, BROKER, "", **{f"{side}_replication_throttled_rate": str(RATE)})

    yield limit
    for side in sides:
        alter(cluster, BROKER, "", **{f"{side}_replication_throttled_rate": None})


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_P39_a_throttled_move_keeps_to_its_rate_and_holds_up_no_producer(
    cluster: ProcessCluster,
    new_topic: Callable[..., str],
    limited: Callable[[str], None],
    side: str,
) -> None:
    topic = new_topic(assignment=[[1, 2]])
    one_by_one = {"batch.num.messages": 1}
    Confluent().produce(cluster.bootstrap, topic, rows(50, 100_000), config=one_by_one)
    alter(cluster, TOPIC, topic, **{f"{side}_replication_throttled_replicas": "*"})
    limited(side)
    began = time.monotonic()
    move(cluster, topic, [1, 3])
    written = time.monotonic()
    Confluent().produce(cluster.bootstrap, topic, rows(10), acks="all")
    assert time.monotonic() - written < 2.0, "those in sync are not held back"
    wait_until(lambda: cluster.partitions(topic)[0].isr == [1, 3], 60, "the replica has moved")
    took = time.monotonic() - began
    assert 3.0 < took < 30.0, "five megabytes at one a second"


def test_P39_a_move_goes_on_at_once_when_its_throttle_is_removed(
    cluster: ProcessCluster, new_topic: Callable[..., str], limited: Callable[[str], None]
) -> None:
    topic = new_topic(assignment=[[1, 2]])
    one_by_one = {"batch.num.messages": 1}
    Confluent().produce(cluster.bootstrap, topic, rows(200, 100_000), config=one_by_one)
    alter(cluster, TOPIC, topic, leader_replication_throttled_replicas="0:1")
    limited("leader")
    began = time.monotonic()
    move(cluster, topic, [1, 3])
    alter(cluster, TOPIC, topic, leader_replication_throttled_replicas=None)
    wait_until(lambda: cluster.partitions(topic)[0].isr == [1, 3], 60, "the replica has moved")
    assert time.monotonic() - began < 15.0, "twenty seconds at that rate"


def move(cluster: ProcessCluster, topic: str, replicas: list[int]) -> None:
    partition = {"partition_index": 0, "replicas": replicas}
    fields: dict[str, Any] = {"topics": [{"name": topic, "partitions": [partition]}]}
    answer = cluster.ask(cluster.up[0], ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, fields)
    assert int(answer.responses[0].partitions[0].error_code) == ErrorCode.NONE
