"""Every file that `ottla up --secure` writes for clients, with its own client; the files of a cluster for pytest."""

from __future__ import annotations

import asyncio
import json
import runpy
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer

from ottla.kafka_tools.names import MODULES
from ottla.testing.cluster import Cluster
from support.cluster import OTTLA, ProcessCluster

pytestmark = pytest.mark.timeout(120)

VALUES = [b"%d" % number for number in range(20)]


@pytest.fixture(scope="module")
def secure() -> Iterator[Cluster]:
    with Cluster(1, security="sasl_ssl") as made:
        made.add_user("alice", produce=["alice-*"], consume=["alice-*"], groups=["alice-*"])
        yield made


@pytest.fixture
def topic(secure: Cluster, request: pytest.FixtureRequest) -> str:
    return secure.create_topic(f"alice-{abs(hash(request.node.name))}")


def librdkafka(file: Path) -> dict[str, str]:
    pairs = (line.partition("=")[::2] for line in file.read_text().splitlines())
    return dict(pairs)


@pytest.mark.parametrize("name", ["confluent-kafka.json", "librdkafka.properties"])
def test_confluent_kafka(secure: Cluster, topic: str, name: str) -> None:
    file = secure.client_directory("alice") / name
    settings: dict[str, Any] = json.loads(file.read_text()) if name.endswith("json") else librdkafka(file)  # fmt: skip
    producer = Producer(settings)
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    consumer = Consumer(settings | {"group.id": "alice-group", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        found: list[bytes] = []
        while len(found) < len(VALUES):
            for message in consumer.consume(len(VALUES), 30):
                assert message.error() is None, message.error()
                found.append(message.value() or b"")
        assert found == VALUES
    finally:
        consumer.close()


def test_kafka_python(secure: Cluster, topic: str) -> None:
    settings = secure.client_settings("alice", family="kafka-python")
    producer = KafkaProducer(**settings)
    for value in VALUES:
        producer.send(topic, value)
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer(topic, group_id="alice-kp", auto_offset_reset="earliest", consumer_timeout_ms=30_000, **settings)  # fmt: skip
    try:
        assert [next(consumer).value for _ in VALUES] == VALUES
    finally:
        consumer.close()


def test_aiokafka(secure: Cluster, topic: str) -> None:
    settings = runpy.run_path(str(secure.client_directory("alice") / "aiokafka.py"))["settings"]

    async def both() -> list[bytes]:
        async with AIOKafkaProducer(**settings()) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value)
        consumer = AIOKafkaConsumer(
            topic, group_id="alice-aio", auto_offset_reset="earliest", **settings()
        )
        async with consumer:
            return [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in VALUES]

    assert asyncio.run(both()) == VALUES


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat(secure: Cluster, topic: str) -> None:
    config = ("-F", str(secure.client_directory("alice") / "kcat.conf"))

    def kcat(*words: str, said: bytes = b"") -> bytes:
        done = subprocess.run(["kcat", *config, *words], input=said, capture_output=True, timeout=60, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    kcat("-P", "-t", topic, said=b"\n".join(VALUES))
    assert kcat("-C", "-t", topic, "-e", "-q").split() == VALUES


def test_the_commands_and_kafkas_tools(secure: Cluster, topic: str) -> None:
    config = ("--command-config", str(secure.client_directory("alice") / "java.properties"))

    def told(*words: str, said: str = "") -> str:
        done = subprocess.run([str(OTTLA), *words], input=said, capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    bootstrap = secure.get_bootstrap_server()
    told("produce", topic, "-b", bootstrap, *config, said="1\n2\n")
    assert told("consume", topic, "--exit", "-b", bootstrap, *config).split() == ["1", "2"]
    assert "kafka-topics" in MODULES
    shown = told("kafka-topics", "--list", "--bootstrap-server", bootstrap, *config).split()
    assert topic in shown
    assert all(each.startswith("alice-") for each in shown)


def test_the_file_for_a_shell(secure: Cluster, topic: str) -> None:
    env = secure.client_directory("alice") / "env"
    script = f". {env} && {OTTLA} topics list"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert topic in done.stdout


def test_spark_reads_and_writes_with_its_options(secure: Cluster, topic: str) -> None:
    pytest.importorskip("pyarrow", reason="needs PySpark: scripts/setup --spark")
    from ottla.spark.command_config import client_of

    options = secure.client_settings("alice", family="spark")
    with client_of(options) as blocking:
        names = [each.name for each in blocking.run(blocking.client.metadata()).topics]
    assert topic in names


# What is refused


def _error(work: Callable[[], object]) -> KafkaError:
    with pytest.raises(KafkaException) as failure:
        work()
    found = failure.value.args[0]
    assert isinstance(found, KafkaError)
    return found


def test_a_wrong_password_a_wrong_ca_and_a_missing_right(secure: Cluster, topic: str) -> None:
    right = secure.client_settings("alice")

    def is_told(expected: str, **changed: str) -> bool:
        """Whether a client that stays without a broker hears this. librdkafka gives the same cause one of several codes."""
        seen: list[KafkaError] = []
        settings = right | {name.replace("_", "."): text for name, text in changed.items()}
        producer = Producer(settings | {"error_cb": seen.append})
        for _ in range(300):
            producer.poll(0.1)
            if any(expected in str(error) for error in seen):
                return True
        raise AssertionError(f"only {seen}")

    assert is_told("Authentication failed", sasl_password="wrong")
    other = secure.client_directory().parent.parent / "secrets" / "clients-ca.crt"
    assert is_told("certificate verify failed", ssl_ca_location=str(other))

    delivered: list[KafkaError | None] = []
    producer = Producer(right)
    producer.produce("bobs", b"x", on_delivery=lambda error, _: delivered.append(error))
    producer.flush(30)
    (error,) = delivered
    assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


# pytest


def test_a_cluster_for_pytest_says_what_it_lacks() -> None:
    with pytest.raises(ValueError, match="there is only 'sasl_ssl'"):
        Cluster(security="kerberos")
    with pytest.raises(ValueError, match="cannot be cut"):
        Cluster(security="sasl_ssl", proxied=True)
    with pytest.raises(RuntimeError, match="has no users"):
        Cluster().client_settings()


def test_a_user_without_files_or_of_an_unknown_family_is_named(secure: Cluster) -> None:
    with pytest.raises(ValueError, match="no settings for 'rust' of user 'alice'"):
        secure.client_settings("alice", family="rust")


def test_the_factory_of_the_plugin_takes_security(
    kafka_cluster_factory: Callable[..., Cluster],
) -> None:
    made = kafka_cluster_factory(1, security="sasl_ssl")
    made.create_topic("t")
    consumer = Consumer(made.client_settings() | {"group.id": "g"})
    try:
        assert "t" in consumer.list_topics(timeout=30).topics
    finally:
        consumer.close()
    assert isinstance(made, Cluster) and not isinstance(made, ProcessCluster)
