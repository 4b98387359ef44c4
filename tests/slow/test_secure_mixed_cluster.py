"""Apache Kafka's broker beside ours, with our controller, in a secure cluster: certificates between them, our users and ACLs at its door."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.local.certificates import issue_node, node_principal
from ottla.local.ports import free_ports
from ottla.local.secure import authorities, now
from support.cluster import wait_until
from support.kafka_jars import STORAGE, java_command, run_tool
from support.kafka_server import SERVER
from support.secure import SecureCluster, secure_cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

KAFKA = 9
"""Its node id, which its certificate names."""
LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


def properties(cluster: SecureCluster, directory: Path) -> Path:
    """As `ottla up --secure` writes them, in Kafka's spelling."""
    (ours,) = json.loads((cluster.directory / "cluster.json").read_text())["nodes"]
    nodes, _clients = authorities(cluster.directory)
    key = directory / "node.pem"
    key.write_bytes(issue_node(nodes.load(), KAFKA, [], now()))
    clients, internal = free_ports(2)
    listeners = f"CLIENTS://127.0.0.1:{clients},INTERNAL://127.0.0.1:{internal}"
    file = directory / "server.properties"
    settings = {
        "node.id": KAFKA,
        "process.roles": "broker",
        "listeners": listeners,
        "advertised.listeners": listeners,
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{ours['controller_port']}",
        "log.dirs": directory / "data",
        "listener.security.protocol.map": "CLIENTS:SASL_SSL,INTERNAL:SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": "INTERNAL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.clients.scram-sha-512.sasl.jaas.config": LOGIN,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": key,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": nodes.trust,
        "listener.name.internal.ssl.client.auth": "required",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:admin;{node_principal(1)};{node_principal(KAFKA)}",
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    directory = tmp_path_factory.mktemp("mixed")
    with secure_cluster(directory / "cluster", nodes=1) as made:
        file = properties(made, directory)
        cluster_id = json.loads((made.directory / "cluster.json").read_text())["cluster_id"]
        run_tool(STORAGE, "format", "--config", file, "--cluster-id", cluster_id)
        # Our nodes do not have it among their super users: this right is all that it needs.
        made.told("acls", "add", node_principal(KAFKA), "--allow", "CLUSTER_ACTION", "--cluster")
        with (
            (directory / "kafka.log").open("wb") as output,
            subprocess.Popen(java_command(SERVER, file), stdout=output, stderr=output) as kafka,
        ):
            try:
                made.told("users", "add", "alice")
                admin = AdminClient(settings(made, "admin"))
                wait_until(
                    lambda: KAFKA in admin.list_topics(timeout=30).brokers,
                    120,
                    "Kafka's broker is there, and not fenced",
                )
                made.told("topics", "create", "orders", "-p", "2", "--replication-factor", "2")
                made.told("acls", "add", "alice", "--produce", "orders")
                yield made
            finally:
                kafka.kill()


def settings(cluster: SecureCluster, user: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.file("confluent-kafka.json", user).read_text())
    return found


def written(cluster: SecureCluster, topic: str, partition: int) -> KafkaError | None:
    told: list[KafkaError | None] = []
    producer = Producer({**settings(cluster, "alice"), "message.timeout.ms": 30_000})
    producer.produce(topic, b"x", partition=partition, on_delivery=lambda e, _: told.append(e))
    producer.flush(40)
    return told[0]


def test_each_leads_and_the_other_follows_through_mutual_tls(cluster: SecureCluster) -> None:
    found = cluster.listed("topics", "describe", "orders")["partitions"]
    assert {each["leader"] for each in found} == {1, KAFKA}
    consumer = Consumer({**settings(cluster, "admin"), "group.id": "g"})
    try:
        for partition in (0, 1):
            before = consumer.get_watermark_offsets(TopicPartition("orders", partition), timeout=30)
            # Answered when all replicas in sync have it (acks=all), and below these are both.
            assert written(cluster, "orders", partition) is None
            after = consumer.get_watermark_offsets(TopicPartition("orders", partition), timeout=30)
            assert after[1] == before[1] + 1
    finally:
        consumer.close()
    for each in cluster.listed("topics", "describe", "orders")["partitions"]:
        assert sorted(each["isr"]) == [1, KAFKA]


def test_a_right_taken_away_counts_at_kafkas_broker_too(cluster: SecureCluster) -> None:
    (of_kafka,) = (
        each["partition"]
        for each in cluster.listed("topics", "describe", "orders")["partitions"]
        if each["leader"] == KAFKA
    )
    assert written(cluster, "orders", of_kafka) is None
    cluster.told("acls", "remove", "alice", "--produce", "orders")

    def is_refused() -> bool:
        error = written(cluster, "orders", of_kafka)
        return error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED

    wait_until(is_refused, 60, "she is refused")
    cluster.told("acls", "add", "alice", "--produce", "orders")
    wait_until(lambda: written(cluster, "orders", of_kafka) is None, 60, "she is let in again")
