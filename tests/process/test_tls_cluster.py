"""Three real nodes with TLS for clients and certificates among nodes and controllers."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaConsumer, KafkaProducer

from support.cluster import wait_until
from support.secured import SecuredCluster

VALUE = b"x" * 50_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with SecuredCluster(tmp_path_factory.mktemp("tls")) as running:
        yield running


def settings(cluster: SecuredCluster) -> dict[str, str | int | float | bool]:
    return {
        "bootstrap.servers": cluster.secured_bootstrap,
        "security.protocol": "ssl",
        "ssl.ca.location": str(cluster.certificates.nodes_file),
    }


def create(cluster: SecuredCluster, topic: str, partitions: int = 3) -> None:
    admin = AdminClient(settings(cluster))
    admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result(30)


def produce(cluster: SecuredCluster, topic: str, count: int, value: bytes = b"v") -> None:
    producer = Producer({**settings(cluster), "acks": "all", "message.timeout.ms": 60_000})
    failed: list[object] = []
    for number in range(count):
        producer.produce(
            topic, value, str(number), on_delivery=lambda error, _: failed.append(error) if error else None
        )  # fmt: skip
        producer.poll(0)
    assert producer.flush(60) == 0
    assert failed == []


def consume(cluster: SecuredCluster, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({**settings(cluster), "group.id": f"{topic}-{time.monotonic_ns()}", "auto.offset.reset": "earliest"})  # fmt: skip
    consumer.subscribe([topic])
    found: list[bytes] = []
    deadline = time.monotonic() + 60
    try:
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                found.append(message.value() or b"")
    finally:
        consumer.close()
    return found


def test_librdkafka_writes_and_reads_over_tls(cluster: SecuredCluster) -> None:
    create(cluster, "confluent")
    produce(cluster, "confluent", 300, VALUE)
    assert consume(cluster, "confluent", 300) == [VALUE] * 300


def test_kafka_python_writes_and_reads_over_tls(cluster: SecuredCluster) -> None:
    create(cluster, "pure", 1)
    common = {
        "bootstrap_servers": cluster.secured_bootstrap.split(","),
        "security_protocol": "SSL",
        "ssl_cafile": str(cluster.certificates.nodes_file),
    }
    producer = KafkaProducer(**common)
    for number in range(50):
        producer.send("pure", str(number).encode()).get(30)
    producer.close()
    consumer = KafkaConsumer("pure", auto_offset_reset="earliest", consumer_timeout_ms=20_000, **common)  # fmt: skip
    assert [next(consumer).value for _ in range(50)] == [str(n).encode() for n in range(50)]
    consumer.close()


def test_nodes_talk_only_with_certificates(cluster: SecuredCluster) -> None:
    """Whoever shows none at the nodes' listener gets no answer."""
    file = cluster.certificates.directory.parent / "cluster" / "node-1" / "server.properties"
    internal = next(
        int(part.rpartition(":")[2])
        for line in file.read_text().splitlines()
        if line.startswith("listeners=")
        for part in line.partition("=")[2].split(",")
        if part.startswith("INTERNAL")
    )
    context = ssl.create_default_context(cafile=str(cluster.certificates.nodes_file))
    with (
        socket.create_connection(("127.0.0.1", internal), 10) as plain,
        pytest.raises((ssl.SSLError, ConnectionError)),
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        secured.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\0\0\0")
        if not secured.recv(1):
            raise ConnectionError("closed")
    wait_until(lambda: "showed no certificate" in cluster.log_of(1), 10, "the log says why")


def test_plain_clients_are_told_in_the_log(cluster: SecuredCluster) -> None:
    with socket.create_connection(("127.0.0.1", cluster.client_ports[2]), 10) as plain:
        plain.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\0\0\0")
        assert plain.recv(1) == b""
    wait_until(lambda: "seems to speak plain Kafka" in cluster.log_of(2), 10, "the log says so")


def test_clients_that_believe_another_authority_do_not_come_in(cluster: SecuredCluster) -> None:
    wrong = {**settings(cluster), "ssl.ca.location": str(cluster.certificates.clients_file)}
    with pytest.raises(KafkaException):
        AdminClient(wrong).list_topics(timeout=3)


def test_a_killed_leader_is_replaced(cluster: SecuredCluster) -> None:
    create(cluster, "failover", 1)
    produce(cluster, "failover", 20)
    leader = cluster.leader("failover")
    cluster.kill(leader)
    produce(cluster, "failover", 20)
    cluster.mend()
    assert len(consume(cluster, "failover", 40)) == 40


def test_nodes_restart_one_by_one(cluster: SecuredCluster) -> None:
    create(cluster, "rolling")
    for node in list(cluster.nodes):
        produce(cluster, "rolling", 10)
        cluster.stop(node)
        cluster.start(node)
        cluster.wait_ready()
    produce(cluster, "rolling", 10)
    assert len(consume(cluster, "rolling", 40)) == 40


def test_a_new_certificate_is_taken_without_a_restart(cluster: SecuredCluster) -> None:
    port = cluster.client_ports[1]

    def shown() -> int:
        context = ssl.create_default_context(cafile=str(cluster.certificates.nodes_file))
        with (
            socket.create_connection(("127.0.0.1", port), 10) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
        ):
            return hash(secured.getpeercert(binary_form=True))

    before = shown()
    made = cluster.certificates
    made.issue(made.nodes, "node-1")
    wait_until(lambda: shown() != before, 10, "the new certificate is shown")
    made.write("node-1.pem", b"nonsense")
    wait_until(lambda: "are not taken" in cluster.log_of(1), 10, "the log says that it is refused")
    assert shown() != before
    made.issue(made.nodes, "node-1")


NODES = ";".join(f"User:CN=node-{id},OU=tests,O=test" for id in (1, 2, 3))
WITH_ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The test's own questions come without a certificate.
    "super.users": f"{NODES};User:ANONYMOUS;User:admin",
    "ssl.principal.mapping.rules": r"RULE:^CN=(admin|alice),.*$/$1/,DEFAULT",
}


@pytest.mark.parametrize("local", [False, True], ids=["tcp", "local sockets"])
def test_certificates_are_principals(tmp_path: Path, local: bool) -> None:
    """Nodes by their whole names, clients by what the rules make of theirs. Over local sockets a node is itself."""
    with SecuredCluster(tmp_path, 3, WITH_ACLS, client_auth="required", local=local) as cluster:
        made = cluster.certificates

        def as_client(name: str) -> dict[str, str | int | float | bool]:
            file = str(made.issue(made.clients, name))
            return {
                **settings(cluster),
                "ssl.certificate.location": file,
                "ssl.key.location": file,
            }

        admin = AdminClient(as_client("admin"))
        admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result(30)
        producer = Producer({**as_client("admin"), "acks": "all"})
        producer.produce("orders", b"1")
        assert producer.flush(30) == 0
        alice = Producer({**as_client("alice"), "message.timeout.ms": 5_000})
        refused: list[object] = []
        alice.produce("orders", b"2", on_delivery=lambda error, _: refused.append(error))
        alice.flush(30)
        assert "authorization" in str(refused[0]).lower()
        allow = AclBinding(
            ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:alice", "*",
            AclOperation.WRITE, AclPermissionType.ALLOW,
        )  # fmt: skip
        admin.create_acls([allow])[allow].result(30)
        delivered: list[object] = []
        alice = Producer(as_client("alice"))
        alice.produce("orders", b"3", on_delivery=lambda error, _: delivered.append(error))
        assert alice.flush(30) == 0
        assert delivered == [None]


def test_settings_of_one_listener_are_described_and_secrets_are_not(
    cluster: SecuredCluster,
) -> None:
    name = "listener.name.clients.ssl.key.password"
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    admin = AdminClient(settings(cluster))
    # An encrypted key has a password; for one that is not, it changes nothing.
    change = ConfigEntry(name, "planted", incremental_operation=AlterConfigOpType.SET)
    asked = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[change])
    admin.incremental_alter_configs([asked])[asked].result(30)

    def described() -> dict[str, ConfigEntry]:
        return admin.describe_configs([resource])[resource].result(30)

    wait_until(lambda: name in described(), 10, "the broker knows the new setting")
    found = described()
    assert found[name].is_sensitive and found[name].value is None
    assert found["ssl.key.password"].is_sensitive and found["ssl.key.password"].value is None
    assert found["listener.name.clients.ssl.client.auth"].value == "none"
    assert found["ssl.client.auth"].value == "required"
    for node in cluster.nodes:
        assert "planted" not in cluster.log_of(node)
