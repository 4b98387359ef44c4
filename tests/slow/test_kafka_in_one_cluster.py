"""Apache Kafka's node and ours in one cluster with an authorizer: each passes requests of clients on to the other in an Envelope."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.config.values import STANDARD_AUTHORIZER
from support.cluster import ProcessCluster, wait_until
from support.kafka_server import kafka_among

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first one installs Kafka

SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
KAFKA = 3


def create_at(cluster: ProcessCluster, node_id: int, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.nodes[node_id].address, "log_level": 0})
    for done in admin.create_topics([NewTopic(topic, 3, 3)]).values():
        done.result(30)


def elect_kafka(cluster: ProcessCluster) -> None:
    """Kafka's node becomes the active controller."""
    for _ in range(10):
        active = cluster.active_controller()
        if active == KAFKA:
            return
        cluster.restart(active)
        cluster.wait_ready(60)
    raise AssertionError("Kafka's node was never elected")


def test_clients_requests_are_passed_on_from_either_to_either(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, 3, SETTINGS) as cluster, kafka_among(cluster, KAFKA):
        # Kafka's node came last, so one of ours is active.
        assert wait_until(cluster.active_controller, 30, "an active controller") != KAFKA
        create_at(cluster, KAFKA, "from-kafka-to-ours")
        cluster.wait_whole("from-kafka-to-ours", 60)
        elect_kafka(cluster)
        create_at(cluster, 1, "from-ours-to-kafka")
        cluster.wait_whole("from-ours-to-kafka", 60)
        assert cluster.active_controller() == KAFKA
