"""Apache Kafka in the place of a secure node: our commands log in at it by TLS and SCRAM, and manage its users and ACLs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli import errors
from support.cluster import wait_until
from support.kafka_jars import java_command
from support.secure import SecureCluster, run, secure_cluster

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    """Our node makes the directory, the certificates and the first user. Kafka's programme then runs with the same settings."""
    with secure_cluster(tmp_path_factory.mktemp("kafka") / "cluster", nodes=1) as cluster:
        cluster.told("down")
        printed = cluster.directory / "kafka.log"
        settings = cluster.directory / "kafka.properties"
        # Kafka wants a login module for each mechanism, also where it has nothing to say.
        modules = "".join(
            f"listener.name.clients.{mechanism}.sasl.jaas.config={MODULE} required;\n"
            for mechanism in ("scram-sha-256", "scram-sha-512")
        )
        ours = cluster.directory / "node-1" / "server.properties"
        settings.write_text(ours.read_text() + modules)
        with printed.open("wb") as output:
            process = subprocess.Popen(
                java_command("kafka.Kafka", settings),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            answers = ("topics", "list", "--timeout", "5")
            try:
                wait_until(
                    lambda: (
                        process.poll() is not None
                        or cluster.as_user("admin", *answers).returncode == errors.OK
                    ),
                    120,
                    "Kafka answers",
                )
            except AssertionError as error:
                error.add_note(printed.read_text(errors="replace")[-4000:])
                raise
            assert process.poll() is None, printed.read_text(errors="replace")[-4000:]
            yield cluster
        finally:
            process.kill()
            process.wait()


def told(kafka: SecureCluster, *words: str, said: str = "") -> str:
    done = kafka.as_user("admin", *words, said=said)
    assert done.returncode == errors.OK, done.stderr
    return done.stdout


def test_records_users_and_acls(kafka: SecureCluster, tmp_path: Path) -> None:
    told(kafka, "topics", "create", "orders")
    told(kafka, "produce", "orders", said="one\ntwo\n")
    assert told(kafka, "consume", "orders", "--exit").split() == ["one", "two"]

    password = tmp_path / "password"
    password.write_text("of-alice\n")
    password.chmod(0o600)
    told(kafka, "users", "add", "alice", "--password-file", str(password))
    rows = {row["user"]: row for row in json.loads(told(kafka, "users", "list", "--format", "json"))}  # fmt: skip
    assert rows["alice"]["mechanisms"] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    # Apache Kafka tells nobody who its super users are.
    assert rows["admin"]["note"] == "no ACLs: may do nothing of its own, unless a super user"

    file = tmp_path / "alice.properties"
    admin = kafka.file("java.properties").read_text()
    secret = kafka.file("password").read_text().strip()
    file.write_text(admin.replace("username=\"admin\"", "username=\"alice\"").replace(secret, "of-alice"))  # fmt: skip

    def as_alice(*words: str, said: str = "") -> subprocess.CompletedProcess[str]:
        return run(*words, "-b", kafka.bootstrap, "--command-config", str(file), said=said)

    denied = as_alice("produce", "orders", "--timeout", "10", said="no\n")
    assert "TOPIC_AUTHORIZATION_FAILED" in denied.stderr
    told(kafka, "acls", "add", "alice", "--produce", "orders")
    done = wait_until(
        lambda: as_alice("produce", "orders", said="yes\n").returncode == errors.OK,
        30,
        "alice may write",
    )
    assert done
    yes = told(kafka, "acls", "test", "alice", "write", "orders")
    assert yes == "yes: allowed by  User:alice allow WRITE topic orders (literal)\n"
    no = kafka.as_user("admin", "acls", "test", "alice", "read", "orders")
    assert no.returncode == errors.FAILED
    assert "does not say who its super users are" in no.stderr
    told(kafka, "users", "rotate", "alice", "--show")
    refused = wait_until(
        lambda: (tried := as_alice("topics", "list")).returncode == errors.FAILED and tried.stderr,
        30,
        "the old password is good for nothing",
    )
    assert "does not let user 'alice' in" in str(refused)
    assert told(kafka, "users", "remove", "alice") == "user alice is removed, with 3 ACLs\n"


def test_the_check_of_its_security(kafka: SecureCluster) -> None:
    done = kafka.as_user("admin", "security", "check", "--format", "json")
    found = json.loads(done.stdout)
    assert (done.returncode, found) == (errors.OK, {"findings": [], "unknown": {}})
