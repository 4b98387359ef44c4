"""A node is the one in its certificate: whoever has node 2's key does not get in as node 3."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from ottla.broker.cluster.dialer import NodeDialer
from ottla.broker.cluster.node_channels import open_channel
from ottla.cli import errors
from ottla.runtime.real import real_runtime
from ottla.runtime.tls_options import KeyStore, TlsOptions, TrustStore
from ottla.security.node_claims import CLAIMS
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode
from ottla.wire.internal_topics import CLUSTER_METADATA_TOPIC
from support.cluster import wait_until
from support.secure import SecureCluster, run, secure_cluster

pytestmark = pytest.mark.timeout(300)

DECEITFUL = """
import sys
from ottla.broker.cluster import node_security
node_security.certified_nodes = lambda certificate: None
from ottla.local.node import main
sys.exit(main(["--config", sys.argv[1]]))
"""
"""A node that does not look at its own certificate."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    """By TCP among nodes: over local sockets each process of our user may be any of its nodes."""
    directory = tmp_path_factory.mktemp("nodes") / "cluster"
    with secure_cluster(directory, "-c", "ottla.local.sockets.enable=false") as made:
        made.told("topics", "create", "orders", "-p", "1")
        yield made


def log_of(cluster: SecureCluster, node: int) -> str:
    return (cluster.directory / f"node-{node}" / "node.log").read_text()


def in_sync(cluster: SecureCluster) -> list[int]:
    (row,) = cluster.listed("topics", "describe", "orders")["partitions"]
    return sorted(row["isr"])


def forged_settings(cluster: SecureCluster) -> Path:
    """Node 3's, with node 2's certificate."""
    text = (cluster.directory / "node-3" / "server.properties").read_text()
    place = cluster.directory / "node-{}" / "tls" / "node.pem"
    own = f"ssl.keystore.location={str(place).format(3)}"
    assert own in text
    file = cluster.directory / "forged.properties"
    file.write_text(text.replace(own, f"ssl.keystore.location={str(place).format(2)}"))
    file.chmod(0o600)
    return file


def let_another_lead(cluster: SecureCluster) -> None:
    """Node 3 knows a leader of the quorum, and it is not node 3 itself: a forged node that knows none finds nobody to
    register with, for nobody tells it."""

    def follows() -> bool:
        return any(
            row["controller"] == "active" and row["id"] != 3
            for row in cluster.listed("status")["nodes"]
        )

    if not follows():
        cluster.told("nodes", "stop", "3")
        cluster.told("nodes", "start", "3")
    wait_until(follows, 60, "node 1 or 2 leads the quorum")
    wait_until(lambda: in_sync(cluster) == [1, 2, 3], 60, "node 3 follows it")


def test_a_node_with_anothers_certificate_does_not_get_in(cluster: SecureCluster) -> None:
    let_another_lead(cluster)
    cluster.told("nodes", "stop", "3")
    file = forged_settings(cluster)
    honest = run("node", "--config", str(file))
    assert honest.returncode == errors.USAGE, honest
    assert "is that of node 2, and node.id=3; other nodes would refuse this one" in honest.stderr
    told = cluster.directory / "forged.log"
    with told.open("wb") as output:
        forged = subprocess.Popen(
            [sys.executable, "-c", DECEITFUL, str(file)], stdout=output, stderr=output
        )
        try:
            refused = "its certificate is of another node"
            wait_until(
                lambda: any(refused in log_of(cluster, node) for node in (1, 2)),
                60,
                "a node refuses the forged one",
            )
            assert "claimed=3 certificate_of=2" in log_of(cluster, 1) + log_of(cluster, 2)
            cluster.told("produce", "orders", said="one\ntwo\n")
            assert sorted(cluster.told("consume", "orders", "--exit").split()) == ["one", "two"]
            assert in_sync(cluster) == [1, 2]
            assert forged.wait(60) == errors.FAILED
            said = told.read_text()
            assert "its certificate may be that of another node" in said, said
        finally:
            forged.kill()
            forged.wait()
            cluster.told("nodes", "start", "3")
    wait_until(lambda: in_sync(cluster) == [1, 2, 3], 60, "the true node 3 is back")


def quorum(**partition: Any) -> dict[str, Any]:
    asked = {"partition_index": 0, **partition}
    return {"topics": [{"topic_name": CLUSTER_METADATA_TOPIC, "partitions": [asked]}]}


CLAIMING_3: Mapping[ApiKey, Mapping[str, Any]] = {
    ApiKey.BROKER_REGISTRATION: {"broker_id": 3, "incarnation_id": uuid4()},
    ApiKey.CONTROLLER_REGISTRATION: {"controller_id": 3, "incarnation_id": uuid4()},
    ApiKey.BROKER_HEARTBEAT: {"broker_id": 3, "broker_epoch": 1, "want_fence": True},
    ApiKey.ALTER_PARTITION: {"broker_id": 3},
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: {"broker_id": 3},
    ApiKey.ALLOCATE_PRODUCER_IDS: {"broker_id": 3},
    ApiKey.FETCH: {"replica_state": {"replica_id": 3, "replica_epoch": -1}},
    ApiKey.FETCH_SNAPSHOT: {"replica_id": 3},
    ApiKey.VOTE: quorum(replica_id=3, replica_epoch=1_000, pre_vote=False),
    ApiKey.BEGIN_QUORUM_EPOCH: quorum(leader_id=3, leader_epoch=1_000),
    ApiKey.END_QUORUM_EPOCH: quorum(leader_id=3, leader_epoch=1_000),
    ApiKey.UPDATE_RAFT_VOTER: {"voter_id": 3, "voter_directory_id": uuid4()},
}


def nodes_of(cluster: SecureCluster) -> dict[int, Any]:
    listed = json.loads((cluster.directory / "cluster.json").read_text())["nodes"]
    return {each["id"]: each for each in listed}


def dialer_of_node_2(cluster: SecureCluster) -> NodeDialer:
    tls = cluster.directory / "node-2" / "tls"
    options = TlsOptions(
        "TEST",
        KeyStore("PEM", location=str(tls / "node.pem")),
        TrustStore("PEM", location=str(tls / "nodes-trust.crt")),
    )
    runtime = real_runtime(asyncio.get_running_loop())
    assert runtime.make_tls is not None
    dialer = NodeDialer(runtime.network)
    dialer.tls = runtime.make_tls(options)
    return dialer


def test_who_answers_at_node_3s_address_with_node_1s_certificate_is_not_believed(
    cluster: SecureCluster,
) -> None:
    async def dialled(node: int, listener: str) -> str | None:
        port = nodes_of(cluster)[1][listener]
        dialer = dialer_of_node_2(cluster)
        try:
            channel = await open_channel(dialer, node, "127.0.0.1", port, "broker-2")
        except ConnectionError as error:
            return str(error)
        await channel.negotiate()
        channel.close()
        return None

    for listener in ("controller_port", "internal_port"):
        said = asyncio.run(dialled(3, listener))
        assert said is not None and "is that of node 1, not of node 3" in said
        assert asyncio.run(dialled(1, listener)) is None
        # Of a bootstrap server the id is not known before it has answered.
        assert asyncio.run(dialled(-2, listener)) is None


def test_nothing_is_believed_that_node_2_says_in_the_name_of_node_3(cluster: SecureCluster) -> None:
    assert CLAIMING_3.keys() == CLAIMS.keys()
    nodes = nodes_of(cluster)

    async def asked() -> dict[tuple[str, ApiKey], int]:
        dialer = dialer_of_node_2(cluster)
        found: dict[tuple[str, ApiKey], int] = {}
        for listener, keys in (("controller_port", list(CLAIMS)), ("internal_port", [ApiKey.FETCH])):  # fmt: skip
            channel = await Channel.open(dialer, "127.0.0.1", nodes[1][listener], "forger")
            await channel.negotiate()
            for key in map(ApiKey, keys):
                answer = await channel.request(key, CLAIMING_3[key])
                found[listener, key] = answer.error_code
            # Node 2 may say that it is node 2, and a client that it is none.
            for node in (2, -1):
                fields = {"replica_state": {"replica_id": node, "replica_epoch": -1}}
                fetched = await channel.request(ApiKey.FETCH, fields)
                assert fetched.error_code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            channel.close()
        return found

    def state() -> list[tuple[Any, ...]]:
        rows = cluster.listed("status")["nodes"]
        return [(row["id"], row["state"], row["controller"]) for row in rows]

    before = state()
    for (_, key), code in asyncio.run(asked()).items():
        registers = key in (ApiKey.BROKER_REGISTRATION, ApiKey.CONTROLLER_REGISTRATION)
        assert code == (119 if registers else 31), key.name
    assert state() == before
    assert in_sync(cluster) == [1, 2, 3]
