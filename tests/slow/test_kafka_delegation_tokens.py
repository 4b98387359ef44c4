"""Apache Kafka's kafka-delegation-tokens makes, shows, renews and removes our tokens, and its clients log in by them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.kafka_jars import run_tool
from support.sasl import WithLogins, cluster_with_logins

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
PASSWORD = "pencil"
DATE = r"\d{4}-\d\d-\d\dT\d\d:\d\d"
ROW = re.compile(
    rf"^(?P<id>\S{{22}})\s+(?P<hmac>\S{{88}})\s+User:alice\s+User:alice\s+(?P<renewers>\[.*\])\s+{DATE}\s+{DATE}\s+{DATE}",
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WithLogins]:
    settings = {"delegation.token.secret.key": "known to all nodes"}
    with cluster_with_logins(tmp_path_factory.mktemp("tokens"), 2, settings) as found:
        for user in ("alice", "bob"):
            found.add_user(user, PASSWORD)
        yield found


class Tools:
    def __init__(self, cluster: WithLogins, directory: Path) -> None:
        self._cluster = cluster
        self._directory = directory

    def login(self, user: str, password: str = PASSWORD, *, by_token: bool = False) -> Path:
        file = self._directory / f"{user}.properties"
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\n"
            "sasl.mechanism=SCRAM-SHA-512\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required"
            f' username="{user}" password="{password}"{" tokenauth=true" if by_token else ""};\n'
        )
        return file

    def run(self, tool: str, login: Path, *args: str, exits_with: int = 0) -> str:
        where = ("--bootstrap-server", self._cluster.bootstrap, "--command-config", str(login))
        return run_tool(tool, *where, *args, exits_with=exits_with)


def test_the_life_of_a_token(cluster: WithLogins, tmp_path: Path) -> None:
    tools = Tools(cluster, tmp_path)
    alice = tools.login("alice")
    made = tools.run(
        TOKENS, alice, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob"
    )
    row = ROW.search(made)
    assert row is not None, made
    assert row["renewers"] == "[User:bob]"
    assert ROW.search(tools.run(TOKENS, alice, "--describe", "--owner-principal", "User:alice"))
    bob = tools.login("bob")
    renewed = tools.run(TOKENS, bob, "--renew", "--hmac", row["hmac"], "--renew-time-period", "-1")
    assert "Completed renew operation" in renewed

    # A job of alice's, with nothing but the token.
    topic = cluster.cluster.create_topic("by-token")
    job = tools.login(row["id"], row["hmac"], by_token=True)
    assert topic in tools.run(TOPICS, job, "--list")
    assert f"{topic}:0:0" in tools.run(OFFSETS, job, "--topic", topic)
    refused = tools.run(TOKENS, job, "--create", "--max-life-time-period", "-1", exits_with=1)
    assert "not allowed on PLAINTEXT/1-way SSL channels and on delegation token auth" in refused

    expired = tools.run(
        TOKENS, bob, "--expire", "--hmac", row["hmac"], "--expiry-time-period", "-1"
    )
    assert "Completed expire operation" in expired
    assert not ROW.search(tools.run(TOKENS, alice, "--describe"))
    late = tools.run(TOPICS, job, "--list", exits_with=1)
    assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in late


def test_a_token_for_somebody_else(cluster: WithLogins, tmp_path: Path) -> None:
    """Without an authorizer everybody may make tokens for everybody, as in Kafka."""
    tools = Tools(cluster, tmp_path)
    made = tools.run(
        TOKENS,
        tools.login("alice"),
        "--create",
        "--max-life-time-period",
        "-1",
        "--owner-principal",
        "User:bob",
    )
    assert re.search(r"^\S{22}\s+\S{88}\s+User:bob\s+User:alice\s", made, re.MULTILINE), made
