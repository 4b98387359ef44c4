"""Apache Kafka's Java client logs in by OAUTHBEARER, with a token from a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.kafka_jars import run_tool
from support.oauth import AUDIENCE, ISSUER, Issuer, claims
from support.sasl import WithLogins, cluster_with_logins

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TOPICS = "org.apache.kafka.tools.TopicCommand"
OAUTH = "org.apache.kafka.common.security.oauthbearer"
ISSUED = Issuer("ES256")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WithLogins]:
    directory = tmp_path_factory.mktemp("oauth")
    keys = directory / "keys.json"
    keys.write_bytes(ISSUED.jwks())
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.clients.oauthbearer.sasl.jaas.config": (
            f"{OAUTH}.OAuthBearerLoginModule required;"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }
    with cluster_with_logins(directory, 1, settings) as found:
        yield found


def listed(
    cluster: WithLogins,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    token: str,
    exits_with: int = 0,
) -> str:
    (directory / "token").write_text(token)
    address = f"file://{directory}/token"
    login = directory / "client.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={OAUTH}.OAuthBearerLoginModule required;\n"
        f"sasl.login.callback.handler.class={OAUTH}.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.jwt.retriever.class={OAUTH}.FileJwtRetriever\n"
        f"sasl.oauthbearer.token.endpoint.url={address}\n"
    )
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={address}"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", allowed)
    where = ("--bootstrap-server", cluster.bootstrap, "--command-config", str(login))
    return run_tool(TOPICS, *where, "--list", exits_with=exits_with)


def test_a_signed_token_opens_the_door(
    cluster: WithLogins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.cluster.create_topic("oauth-java")
    token = ISSUED.token(claims("alice", scope="kafka"))
    assert topic in listed(cluster, tmp_path, monkeypatch, token)


def test_a_token_of_somebody_else_does_not(
    cluster: WithLogins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = Issuer("ES256").token(claims("alice", scope="kafka"))
    told = listed(cluster, tmp_path, monkeypatch, token, exits_with=1)
    assert "invalid credentials with SASL mechanism OAUTHBEARER" in told
