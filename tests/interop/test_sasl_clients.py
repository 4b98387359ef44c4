"""Real clients log in: by each mechanism, with a wrong password, again when their session is about to end, and not at all when
their credential is gone."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.errors
import kafka
import kafka.errors
import pytest
import trustme
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from support.cluster import wait_until
from support.sasl import MECHANISMS, WithLogins, cluster_with_logins

pytestmark = pytest.mark.timeout(300)
EACH = pytest.mark.parametrize("mechanism", MECHANISMS)
USER, PASSWORD = "alice", "correct, horse=battery"
REAUTH_MS = 2_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WithLogins]:
    more = {"listener.name.clients.scram-sha-512.connections.max.reauth.ms": str(REAUTH_MS)}
    with cluster_with_logins(tmp_path_factory.mktemp("sasl"), 2, more) as found:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            found.add_user(USER, PASSWORD, mechanism)
        yield found


@EACH
def test_confluent_writes_and_reads(cluster: WithLogins, mechanism: str) -> None:
    topic = cluster.cluster.create_topic(f"confluent-{mechanism}")
    settings = cluster.librdkafka(mechanism, USER, PASSWORD)
    producer = Producer(settings)
    producer.produce(topic, b"here")
    assert producer.flush(20) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    assert [each.value() for each in consumer.consume(1, 20)] == [b"here"]
    consumer.close()


@EACH
def test_kafka_python_writes_and_reads(cluster: WithLogins, mechanism: str) -> None:
    topic = cluster.cluster.create_topic(f"kafka-python-{mechanism}")
    settings = cluster.kafka_python(mechanism, USER, PASSWORD)
    producer = kafka.KafkaProducer(**settings)
    producer.send(topic, b"here").get(20)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, **settings, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    assert next(consumer).value == b"here"
    consumer.close()


@EACH
def test_aiokafka_writes_and_reads(cluster: WithLogins, mechanism: str) -> None:
    topic = cluster.cluster.create_topic(f"aiokafka-{mechanism}")
    settings = cluster.kafka_python(mechanism, USER, PASSWORD)

    async def scenario() -> bytes | None:
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"here")
        consumer = aiokafka.AIOKafkaConsumer(
            topic, **settings, group_id=topic, auto_offset_reset="earliest"
        )
        async with consumer:
            return (await asyncio.wait_for(consumer.getone(), 20)).value

    assert asyncio.run(scenario()) == b"here"


def test_plain_takes_the_accounts_of_the_listener(cluster: WithLogins) -> None:
    admin = AdminClient(cluster.librdkafka("PLAIN", "operator", "operators-password"))
    assert len(admin.list_topics(timeout=20).brokers) == 2


@EACH
@pytest.mark.parametrize(("user", "password"), [(USER, "wrong"), ("nobody", PASSWORD)])
def test_confluent_is_told_once_and_for_all(
    cluster: WithLogins, mechanism: str, user: str, password: str
) -> None:
    told = refusal(cluster.librdkafka(mechanism, user, password))
    assert told.code() == KafkaError._AUTHENTICATION
    text = (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism"
    )
    assert f"{text} {mechanism}" in told.str()


def test_kafka_python_and_aiokafka_are_told_too(
    cluster: WithLogins, caplog: pytest.LogCaptureFixture
) -> None:
    settings = cluster.kafka_python("SCRAM-SHA-256", USER, "wrong")
    with pytest.raises(kafka.errors.KafkaTimeoutError):  # it tries again until then
        kafka.KafkaAdminClient(**settings, bootstrap_timeout_ms=2_000)
    assert "SaslAuthenticationFailedError: Authentication failed during" in caplog.text

    async def scenario() -> None:
        producer = aiokafka.AIOKafkaProducer(**settings)
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(aiokafka.errors.KafkaConnectionError):
        asyncio.run(scenario())


def test_a_mechanism_that_is_not_enabled_is_refused(cluster: WithLogins) -> None:
    told: list[KafkaError] = []
    settings = cluster.librdkafka("OAUTHBEARER", USER, PASSWORD)
    settings |= {
        "sasl.oauthbearer.config": "principal=alice",
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
    }
    producer = Producer({**settings, "error_cb": told.append})
    wait_until(lambda: producer.poll(0.1) >= 0 and bool(told), 20, "the client is refused")
    assert any("PLAIN" in each.str() for each in told), [each.str() for each in told]


def test_confluent_logs_in_again_and_keeps_its_connections(cluster: WithLogins) -> None:
    """KIP-368: three sessions on one connection, without a lost or failed request."""
    topic = cluster.cluster.create_topic("again", partitions=1)
    seen: list[dict[str, Any]] = []
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Any) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {
            **cluster.librdkafka("SCRAM-SHA-512", USER, PASSWORD),
            "statistics.interval.ms": 200,
            "stats_cb": lambda text: seen.append(json.loads(text)),
            "error_cb": failed.append,
            "linger.ms": 0,
        }
    )
    ends = time.monotonic() + 3.5 * REAUTH_MS / 1000
    while time.monotonic() < ends:
        producer.produce(topic, b"x", on_delivery=delivered)
        producer.poll(0.02)
    assert producer.flush(20) == 0
    assert failed == []
    leaders = [each for each in seen[-1]["brokers"].values() if each["req"].get("Produce", 0) > 0]
    assert [each["connects"] - each["disconnects"] for each in leaders] == [1]
    assert [each["disconnects"] for each in leaders] == [0]
    assert leaders[0]["req"]["SaslAuthenticate"] >= 3 * 2, "two messages for each login"


def test_a_removed_user_is_out_at_once(cluster: WithLogins) -> None:
    topic = cluster.cluster.create_topic("removed")
    cluster.add_user("mallory", "pencil")
    told: list[KafkaError] = []
    settings = cluster.librdkafka("SCRAM-SHA-512", "mallory", "pencil")
    producer = Producer({**settings, "error_cb": told.append, "message.timeout.ms": 10_000})
    producer.produce(topic, b"x")
    assert producer.flush(20) == 0
    cluster.remove_user("mallory")
    wait_until(
        lambda: (
            producer.poll(0.05) >= 0
            and any(each.code() == KafkaError._AUTHENTICATION for each in told)
        ),
        20,
        "the client is out",
    )
    lost: list[KafkaError | None] = []
    producer.produce(topic, b"y", on_delivery=lambda error, _: lost.append(error))
    producer.flush(20)
    assert lost and lost[0] is not None


def test_a_user_changes_the_own_password(cluster: WithLogins) -> None:
    """The answer arrives, and the session ends afterwards."""
    cluster.add_user("eve", "old")
    settings = cluster.librdkafka("SCRAM-SHA-512", "eve", "old")
    cluster_of_eve = WithLogins(cluster.cluster, {})
    cluster_of_eve.admin = AdminClient(settings)
    cluster_of_eve.add_user("eve", "new")
    again = AdminClient(cluster.librdkafka("SCRAM-SHA-512", "eve", "new"))
    assert again.list_topics(timeout=20).brokers


def test_credentials_are_described_without_themselves(cluster: WithLogins) -> None:
    asked: Any = cluster.admin.describe_user_scram_credentials([USER])
    described = asked[USER].result(20)
    assert [
        (each.mechanism.name, each.iterations) for each in described.scram_credential_infos
    ] == [
        ("SCRAM_SHA_256", 4096),
        ("SCRAM_SHA_512", 4096),
    ]
    with pytest.raises(KafkaException) as caught:
        cluster.remove_user("nobody")
    assert caught.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND


def test_passwords_are_in_no_file(cluster: WithLogins) -> None:
    """Neither that of a user nor that of an account, except where the operator wrote it."""
    directory = cluster.cluster.directory
    assert directory is not None
    for file in directory.rglob("*"):
        if file.is_file() and file.name != "server.properties":
            content = file.read_bytes()
            assert PASSWORD.encode() not in content, file
            assert b"operators-password" not in content, file


def test_a_cluster_has_its_first_user_from_the_beginning(tmp_path: Path) -> None:
    """Written by kafka-storage before the nodes' first start."""
    user = "SCRAM-SHA-512=[name=admin,password=from-the-beginning]"
    with cluster_with_logins(tmp_path, 2, first_user=user) as cluster:
        admin = AdminClient(cluster.librdkafka("SCRAM-SHA-512", "admin", "from-the-beginning"))
        assert len(admin.list_topics(timeout=20).brokers) == 2
        described: Any = admin.describe_user_scram_credentials()
        assert [*described.result(20)] == ["admin"]


def test_passwords_go_through_tls(tmp_path: Path) -> None:
    """PLAIN needs no permission there."""
    authority = trustme.CA()
    own = authority.issue_cert("localhost", "127.0.0.1")
    store, trusted = tmp_path / "node.pem", tmp_path / "ca.pem"
    own.private_key_and_cert_chain_pem.write_to_path(str(store))
    authority.cert_pem.write_to_path(str(trusted))
    more = {
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL,CONTROLLER:PLAINTEXT"
        ),
        "ottla.allow.plain.without.tls": "false",
        "listener.name.clients.ssl.keystore.location": str(store),
    }
    with cluster_with_logins(tmp_path, 1, more) as cluster:
        cluster.add_user(USER, PASSWORD)
        through_tls = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(trusted)}
        for mechanism in ("PLAIN", "SCRAM-SHA-512"):
            settings = cluster.librdkafka(mechanism, USER, PASSWORD) | through_tls
            assert AdminClient(settings).list_topics(timeout=20).brokers
            wrong = cluster.librdkafka(mechanism, USER, "wrong") | through_tls
            assert refusal(wrong).code() == KafkaError._AUTHENTICATION


def refusal(settings: dict[str, Any]) -> KafkaError:
    """What librdkafka says of a login that fails."""
    told: list[KafkaError] = []
    producer = Producer({**settings, "error_cb": told.append})
    wait_until(lambda: producer.poll(0.1) >= 0 and bool(told), 20, "the client is refused")
    return told[0]
