"""`ottla up --secure`: one command, and nobody does what no ACL allows; passwords, certificates and CAs change while it runs."""

from __future__ import annotations

import json
import socket
import ssl
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli import errors
from support.cluster import wait_until
from support.secure import SecureCluster, run, secure_cluster

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    with secure_cluster(tmp_path_factory.mktemp("secure") / "cluster") as made:
        made.told("topics", "create", "orders", "-p", "3")
        yield made


def address(cluster: SecureCluster) -> tuple[str, int]:
    host, port = cluster.bootstrap.split(",")[0].split(":")
    return host, int(port)


def shown_certificate(cluster: SecureCluster) -> bytes:
    """What a client meets that trusts the cluster's CA."""
    context = ssl.create_default_context(cafile=cluster.file("ca.crt"))
    with (
        socket.create_connection(address(cluster), 10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        found = secured.getpeercert(binary_form=True)
        assert found is not None
        return found


def test_the_commands_use_the_admin_of_the_directory(cluster: SecureCluster) -> None:
    rows = cluster.listed("status")["nodes"]
    assert [row["state"] for row in rows] == ["running"] * 3
    assert sorted(row["controller"] for row in rows) == ["active", "standby", "standby"]
    for words in (
        ("topics", "list"),
        ("groups", "list"),
        ("replicas", "orders"),
        ("explain", "orders"),
        ("events",),
        ("losses",),
    ):
        cluster.told(*words)
    assert cluster.run("doctor").returncode in (errors.OK, errors.SERIOUS)
    cluster.told("produce", "orders", said="one\ntwo\n")
    assert sorted(cluster.told("consume", "orders", "--exit").split()) == ["one", "two"]


def test_all_that_is_secret_is_for_its_owner_only(cluster: SecureCluster) -> None:
    for name in ("", "secrets", "clients", "clients/admin", "node-1/tls"):
        assert stat.S_IMODE((cluster.directory / name).stat().st_mode) == 0o700, name
    for place in ("secrets", "clients"):
        for path in (cluster.directory / place).rglob("*"):
            assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    assert not (cluster.directory / "node-1/server.properties").stat().st_mode & 0o077
    assert cluster.listed("security", "check") == {"findings": [], "unknown": {}}


def test_a_node_with_secrets_leaves_no_core_file(cluster: SecureCluster) -> None:
    for node in cluster.listed("status")["nodes"]:
        limits = Path(f"/proc/{node['pid']}/limits").read_text().splitlines()
        (core,) = (line.split() for line in limits if line.startswith("Max core file size"))
        assert core[4:6] == ["0", "0"]


def test_a_user_may_do_what_the_acls_say_and_nothing_else(cluster: SecureCluster) -> None:
    cluster.told("users", "add", "alice")
    denied = cluster.as_user("alice", "produce", "orders", "--timeout", "5", said="no\n")
    assert denied.returncode == errors.FAILED
    assert "TOPIC_AUTHORIZATION_FAILED" in denied.stderr
    cluster.told("acls", "add", "alice", "--produce", "orders")
    done = cluster.as_user("alice", "produce", "orders", said="yes\n")
    assert done.returncode == errors.OK, done.stderr
    unread = cluster.as_user("alice", "consume", "orders", "--exit", "--timeout", "5")
    assert "TOPIC_AUTHORIZATION_FAILED" in unread.stderr
    no = cluster.run("acls", "test", "alice", "read", "orders")
    assert no.returncode == errors.FAILED and "--consume orders   would" in no.stdout
    shown = [json.loads(line) for line in cluster.told("audit", "--denied", "--user", "alice", "--format", "json").splitlines()]  # fmt: skip
    assert {each["principal"] for each in shown} == {"User:alice"}
    assert not any(each["allowed"] for each in shown)
    assert "no decision" in cluster.run("audit", "--user", "nobody").stderr
    cluster.told("users", "remove", "alice")
    assert not cluster.file("password", "alice").exists()


def test_a_user_who_is_gone_or_has_another_password_is_told_so(cluster: SecureCluster) -> None:
    cluster.told("users", "add", "bob")
    old = cluster.file("java.properties", "bob").read_text()
    before = cluster.file("password", "bob").read_text()
    cluster.told("users", "rotate", "bob")
    assert cluster.file("password", "bob").read_text() != before
    assert cluster.as_user("bob", "topics", "list").returncode == errors.OK
    cluster.file("java.properties", "bob").write_text(old)
    refused = cluster.as_user("bob", "topics", "list")
    assert refused.returncode == errors.FAILED
    assert "does not let user 'bob' in" in refused.stderr
    assert before.strip() not in refused.stderr
    cluster.told("users", "remove", "bob")


def test_without_a_login_there_is_a_hint(cluster: SecureCluster) -> None:
    done = run("topics", "list", "-b", cluster.bootstrap, "--timeout", "3")
    assert done.returncode == errors.UNREACHABLE
    assert "speaks TLS; give --command-config" in done.stderr


def test_tools_of_kafka_and_the_wrong_protocol_get_hints_too(
    cluster: SecureCluster, tmp_path: Path
) -> None:
    server = ("--bootstrap-server", cluster.bootstrap)
    plain = run("kafka-get-offsets", *server, "--topic", "orders")
    assert plain.returncode == 1 and "speaks TLS; give --command-config" in plain.stderr
    caught = run("kafka-topics", *server, "--list")
    assert caught.returncode == 1 and "TLS or a login (--command-config)" in caught.stdout
    file = tmp_path / "no-login.properties"
    text = cluster.file("java.properties").read_text()
    words = ("-b", cluster.bootstrap, "--command-config", str(file))
    for protocol in ("SSL", "SASL_PLAINTEXT"):
        file.write_text(text.replace("SASL_SSL", protocol))
        began = time.monotonic()
        done = run("topics", "list", *words)
        assert done.returncode == errors.UNREACHABLE, done.stderr
        assert f"security.protocol=SASL_SSL, not {protocol}" in done.stderr
        assert time.monotonic() - began < 10, "long before its requests time out"
    for name in ("librdkafka.properties", "confluent-kafka.json"):
        other = run("topics", "list", "--command-config", str(cluster.file(name)))
        assert other.returncode == errors.USAGE and "use java.properties" in other.stderr
    assert "ottla acls" in run("kafka-acls", "--list").stderr


def test_a_user_without_rights_is_told_what_is_missing(cluster: SecureCluster) -> None:
    cluster.told("users", "add", "eve")
    server = ("--bootstrap-server", cluster.bootstrap, "--topic", "orders")
    config = ("--command-config", str(cluster.file("java.properties", "eve")))
    wrote = run("kafka-console-producer", *server, *config, said="x\n")
    read = run("kafka-console-consumer", *server, *config, "--timeout-ms", "5000")
    for done in (wrote, read):
        assert "Not authorized to access topics: [orders]" in done.stderr, done
    looked = cluster.as_user("eve", "doctor")
    assert "no active controller" not in looked.stdout + looked.stderr
    assert "CLUSTER_AUTHORIZATION_FAILED" in looked.stdout
    cluster.told("users", "remove", "eve")


def test_what_is_not_wrong_is_said_so(cluster: SecureCluster) -> None:
    assert cluster.told("losses") == "No record was lost.\n"
    figures = cluster.run("metrics")
    assert figures.returncode == errors.NOT_FOUND and "on purpose" in figures.stderr
    assert "differs between brokers" not in cluster.run("doctor").stdout


def test_a_wrong_ca_is_named(cluster: SecureCluster, tmp_path: Path) -> None:
    text = cluster.file("java.properties").read_text()
    other = cluster.directory / "secrets" / "clients-ca.crt"
    file = tmp_path / "wrong.properties"
    file.write_text(text.replace(str(cluster.file("ca.crt")), str(other)))
    done = run("topics", "list", "-b", cluster.bootstrap, "--command-config", str(file))
    assert done.returncode == errors.FAILED and "is not trusted" in done.stderr


def test_the_nodes_listener_takes_nobody_without_a_certificate(cluster: SecureCluster) -> None:
    node = json.loads((cluster.directory / "cluster.json").read_text())["nodes"][0]
    context = ssl.create_default_context(cafile=cluster.file("ca.crt"))
    for port in (node["internal_port"], node["controller_port"]):
        with (
            socket.create_connection(("127.0.0.1", port), 10) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secured,
            pytest.raises((ssl.SSLError, ConnectionError)),
        ):
            # In TLS 1.3 a client is told only when it reads.
            secured.sendall(bytes(8))
            if not secured.recv(1):
                raise ConnectionError("closed without a word")


def test_new_certificates_and_another_ca_without_a_restart(cluster: SecureCluster) -> None:
    pids = [node["pid"] for node in cluster.listed("status")["nodes"]]
    before = shown_certificate(cluster)
    cluster.told("security", "rotate", "nodes")
    assert shown_certificate(cluster) != before
    old_ca = cluster.file("ca.crt").read_text()
    for step in ("step 1 of 3", "step 2 of 3", "step 3 of 3"):
        told = cluster.told("security", "rotate", "nodes", "--ca")
        assert step in told and ("restart all that run" in told) == ("1 of" in step)
        checked = cluster.listed("security", "check")["findings"]
        between = [each for each in checked if "two CAs of the nodes" in each["what"]]
        assert [step in each["what"] for each in between] == [True] * ("3 of" not in step)
        cluster.told("security", "reload")
        cluster.told("produce", "orders", said=f"{step}\n")
        shown_certificate(cluster)
    assert cluster.file("ca.crt").read_text() != old_ca
    assert [node["pid"] for node in cluster.listed("status")["nodes"]] == pids
    wait_until(
        lambda: not cluster.listed("security", "check")["findings"], 10, "nothing is to be mended"
    )


def test_all_passwords_at_once(cluster: SecureCluster) -> None:
    cluster.told("users", "add", "carol")
    before = {user: cluster.file("password", user).read_text() for user in ("admin", "carol")}
    assert "cut off at once" in cluster.told("security", "rotate", "clients")
    for user, password in before.items():
        assert cluster.file("password", user).read_text() != password
        assert cluster.as_user(user, "topics", "list").returncode == errors.OK
    cluster.told("users", "remove", "carol")


def test_a_killed_node_comes_back(cluster: SecureCluster) -> None:
    cluster.told("nodes", "kill", "2")
    cluster.told("produce", "orders", said="without node 2\n")
    cluster.told("nodes", "start", "2")
    cluster.told("status", "--wait", "ready", "--timeout", "30")


def test_it_is_started_again_as_it_was(tmp_path: Path) -> None:
    with secure_cluster(tmp_path / "again", "--host", "vm.example", nodes=1) as cluster:
        (port,) = (each.split(":")[1] for each in cluster.bootstrap.split(","))
        assert f"bootstrap.servers=vm.example:{port}" in cluster.file("java.properties").read_text()
        cluster.told("topics", "create", "kept")
        cluster.told("down")
        cluster.told("up", "--detach")
        assert "kept" in cluster.told("topics", "list")
        cluster.told("down")
        stopped = run("losses", environment={"OTTLA_DIR": str(cluster.directory)})
        assert stopped.stdout == "No record was lost.\n", stopped.stderr
        told = cluster.told("up", "--secure", "--detach")
        assert f"bootstrap.servers=vm.example:{port}" in told and "on another machine copy" in told
        assert "kept" in cluster.told("topics", "list")


def test_an_open_cluster_does_not_become_secure_by_accident(tmp_path: Path) -> None:
    directory = ("--dir", str(tmp_path / "open"))
    assert run("up", "-n", "1", "--port", "0", "--detach", *directory).returncode == errors.OK
    try:
        run("down", *directory)
        done = run("up", "--secure", "--detach", *directory)
        assert done.returncode == errors.CONFLICT
        assert "is an open cluster, and --secure does not close it" in done.stderr
        rotated = run("security", "rotate", "nodes", *directory)
        assert rotated.returncode == errors.CONFLICT
    finally:
        run("purge", *directory)


def test_wrong_use_is_explained(tmp_path: Path) -> None:
    words = ("up", "--detach", "--dir", str(tmp_path / "none"), "--port", "0")
    host = run(*words, "--host", "example.org")
    assert host.returncode == errors.USAGE and "--host" in host.stderr
    own = run(*words, "--secure", "-c", "super.users=User:mallory")
    assert own.returncode == errors.USAGE and "super.users" in own.stderr
    assert not (tmp_path / "none").exists()
