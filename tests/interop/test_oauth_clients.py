"""Real clients log in by OAUTHBEARER: with a token that the issuer has signed, with worthless ones, and with a new one when
the old one is about to end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import aiokafka.abc
import kafka
import kafka.net.sasl.oauth
import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from support.cluster import wait_until
from support.oauth import AUDIENCE, ISSUER, Issuer, claims
from support.sasl import WithLogins, cluster_with_logins

pytestmark = pytest.mark.timeout(300)
ISSUED = Issuer("RS256")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WithLogins]:
    directory = tmp_path_factory.mktemp("oauth")
    keys = directory / "keys.json"
    keys.write_bytes(ISSUED.jwks())
    settings = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }
    with cluster_with_logins(directory, 1, settings) as found:
        yield found


def confluent(cluster: WithLogins, token: Callable[[], tuple[str, float]]) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: token(),
    }


def signed(lifetime_s: float = 60, **others: object) -> tuple[str, float]:
    return ISSUED.token(claims("alice", lifetime_s, **others)), time.time() + lifetime_s


def test_confluent_writes_and_reads(cluster: WithLogins) -> None:
    topic = cluster.cluster.create_topic("oauth-confluent")
    producer = Producer(confluent(cluster, signed))
    producer.produce(topic, b"here")
    assert producer.flush(20) == 0
    consumer = Consumer(
        {**confluent(cluster, signed), "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    assert [each.value() for each in consumer.consume(1, 20)] == [b"here"]
    consumer.close()


def test_confluent_goes_on_with_a_new_token_when_the_old_one_ends(cluster: WithLogins) -> None:
    topic = cluster.cluster.create_topic("oauth-again")
    made: list[str] = []

    def short() -> tuple[str, float]:
        """librdkafka logs in again before the session ends, and gets a new token only as soon as it is told to: earlier."""
        token, end = signed(5)
        made.append(token)
        return token, end - 3

    lost: list[object] = []
    told: list[KafkaError] = []
    producer = Producer({**confluent(cluster, short), "error_cb": told.append})
    end = time.monotonic() + 10
    written = 0
    while time.monotonic() < end:
        producer.produce(topic, b"x", on_delivery=lambda error, _: lost.append(error))
        written += 1
        producer.poll(0.05)
    assert producer.flush(20) == 0
    assert len(made) >= 3
    assert lost == [None] * written
    assert not told


@pytest.mark.parametrize(
    "others",
    [{"aud": "another service"}, {"iss": "https://other.example"}, {"iat": time.time() + 3600}],
)
def test_confluent_is_told_that_its_token_is_worthless(
    cluster: WithLogins, others: dict[str, object]
) -> None:
    told: list[KafkaError] = []
    settings = confluent(cluster, lambda: signed(**others))  # type: ignore[arg-type]
    producer = Producer({**settings, "error_cb": told.append})
    wait_until(lambda: producer.poll(0.1) >= 0 and bool(told), 20, "the client is refused")
    assert told[0].code() == KafkaError._AUTHENTICATION


class _KafkaPythonTokens(kafka.net.sasl.oauth.AbstractTokenProvider):
    def token(self) -> str:
        return signed()[0]


def test_kafka_python_writes_and_reads(cluster: WithLogins) -> None:
    topic = cluster.cluster.create_topic("oauth-kafka-python")
    settings = {
        "bootstrap_servers": cluster.bootstrap.split(","),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": _KafkaPythonTokens(),
    }
    producer = kafka.KafkaProducer(**settings)
    producer.send(topic, b"here").get(20)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, **settings, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    assert next(consumer).value == b"here"
    consumer.close()


class _AiokafkaTokens(aiokafka.abc.AbstractTokenProvider):
    async def token(self) -> str:
        return signed()[0]


def test_aiokafka_writes_and_reads(cluster: WithLogins) -> None:
    topic = cluster.cluster.create_topic("oauth-aiokafka")
    settings = {
        "bootstrap_servers": cluster.bootstrap.split(","),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": _AiokafkaTokens(),
    }

    async def scenario() -> bytes | None:
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"here")
        consumer = aiokafka.AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest")
        async with consumer:
            return (await asyncio.wait_for(consumer.getone(), 20)).value

    assert asyncio.run(scenario()) == b"here"
