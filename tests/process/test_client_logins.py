"""Our own client at listeners with SASL: it logs in again before its session ends, and is told soon that it must log in at all."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli import errors
from ottla.client.command_config import client_from
from ottla.client.connections import LoginWanted
from support.cluster import OTTLA, wait_until
from support.sasl import WithLogins, cluster_with_logins

pytestmark = pytest.mark.timeout(120)

SESSION_MS = 3_000
"""Of its last 15 % a client may be late on a busy machine. A broker lets nobody log in again within a second."""
SOON_S = 10.0
"""A third of what a command waits for answers."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WithLogins]:
    settings = {"connections.max.reauth.ms": str(SESSION_MS)}
    with cluster_with_logins(tmp_path_factory.mktemp("logins"), 1, settings) as found:
        found.cluster.create_topic("orders")
        found.add_user("alice", "pencil")
        yield found


SETTINGS = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
    ' username="alice" password="pencil";',
}


def address(cluster: WithLogins) -> tuple[str, int]:
    host, port = cluster.bootstrap.split(":")
    return host, int(port)


def log_of(cluster: WithLogins) -> str:
    directory = cluster.cluster.directory
    assert directory is not None
    return (directory / "node-1" / "node.log").read_text()


def test_a_connection_outlives_the_sessions_of_its_logins(cluster: WithLogins) -> None:
    with client_from([address(cluster)], SETTINGS) as blocking:
        connections = blocking.client.connections
        first = blocking.run(connections.to_any())
        reasons: list[str] = []
        first.on_close.append(reasons.append)

        async def ask_all_the_time() -> None:
            ends = time.monotonic() + 2.2 * SESSION_MS / 1000
            while time.monotonic() < ends:
                await blocking.client.metadata()
                await asyncio.sleep(0.01)

        blocking.run(ask_all_the_time())
        # And if its loop stood still for longer than a session, as between two calls of a blocking client.
        until = time.monotonic() + 1.5 * SESSION_MS / 1000
        wait_until(lambda: time.monotonic() > until, 10, "the end of the session")
        blocking.run(blocking.client.metadata())
        assert not first.closed, reasons
        assert blocking.run(connections.to_any()) is first
    assert "did not log in again" not in log_of(cluster)


def test_who_must_log_in_is_told_so_soon(cluster: WithLogins) -> None:
    began = time.monotonic()
    with (
        client_from([address(cluster)], {}) as blocking,
        pytest.raises(
            LoginWanted, match=r"wants a login: security\.protocol must be SASL_PLAINTEXT"
        ),
    ):
        blocking.run(blocking.client.metadata())
    assert time.monotonic() - began < SOON_S


def ottla(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [str(OTTLA), *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=environment
    )


def test_a_command_without_a_login_says_what_to_do_soon(cluster: WithLogins) -> None:
    began = time.monotonic()
    done = ottla("topics", "list", "-b", cluster.bootstrap)
    assert done.returncode == errors.UNREACHABLE
    assert f"the broker at {cluster.bootstrap} speaks SASL; give --command-config" in done.stderr
    assert time.monotonic() - began < SOON_S


def test_a_login_at_a_listener_without_one_says_what_is_wrong(
    cluster: WithLogins, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in SETTINGS.items()))
    plain = cluster.cluster.bootstrap
    done = ottla("topics", "list", "-b", plain, "--command-config", str(file))
    assert done.returncode == errors.FAILED
    assert "listener has no SASL: security.protocol is wrong" in done.stderr
