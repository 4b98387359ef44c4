"""A cluster in which nobody is served without a login, its own nodes included: PLAIN at controllers, SCRAM among brokers."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from support.cluster import wait_until
from support.sasl import (
    BETWEEN_NODES,
    FIRST_NODE_USER,
    NODES_PASSWORD,
    REAUTH_MS,
    OnlyByLogin,
    WithLogins,
    cluster_with_logins,
)

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WithLogins]:
    directory = tmp_path_factory.mktemp("nodes")
    with cluster_with_logins(directory, 3, BETWEEN_NODES, FIRST_NODE_USER, OnlyByLogin) as found:
        yield found


def log_of(cluster: WithLogins, id: int) -> str:
    directory = cluster.cluster.directory
    assert directory is not None
    return (directory / f"node-{id}" / "node.log").read_text()


def test_replicas_follow_while_sessions_end_and_are_renewed(cluster: WithLogins) -> None:
    settings = cluster.librdkafka("SCRAM-SHA-512", "node", NODES_PASSWORD)
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("followed", 3, 3)])["followed"].result(20)
    failed: list[KafkaError] = []
    producer = Producer({**settings, "acks": "all", "error_cb": failed.append})
    ends = time.monotonic() + 3.5 * REAUTH_MS / 1000
    while time.monotonic() < ends:
        producer.produce(
            "followed", b"x", on_delivery=lambda error, _: failed.append(error) if error else None
        )
        producer.poll(0.02)
    assert producer.flush(20) == 0
    assert failed == []
    partitions = admin.list_topics("followed", 20).topics["followed"].partitions.values()
    assert all(len(each.isrs) == 3 for each in partitions)
    for id in cluster.cluster.nodes:
        refused = re.findall(
            r"listener=(?:CONTROLLER|PLAINTEXT) mechanism=\S+ user=node.*", log_of(cluster, id)
        )
        assert refused == [], "no node was refused, and no session ended"


def test_the_failed_broker_is_replaced_and_comes_back(cluster: WithLogins) -> None:
    settings = cluster.librdkafka("SCRAM-SHA-512", "node", NODES_PASSWORD)
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("moved", 3, 3)])["moved"].result(20)

    def in_sync() -> list[int]:
        topic = admin.list_topics("moved", 20).topics["moved"]
        return sorted(len(each.isrs) for each in topic.partitions.values())

    cluster.cluster.kill(3)
    wait_until(lambda: in_sync() == [2, 2, 2], 30, "node 3 is out of the ISRs")
    cluster.cluster.start(3)
    wait_until(lambda: in_sync() == [3, 3, 3], 30, "node 3 is in the ISRs again")
