"""A cluster that clients reach only after a login. Its nodes, and the tests' own questions, use a listener without one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from ottla.kafka_tools.names import run
from ottla.local.ports import free_ports
from support.cluster import ProcessCluster

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
NUMBERS = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
SETTINGS = {
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "ottla.allow.plain.without.tls": "true",
    "ottla.decoy.secret": "known-to-all-brokers",
    "listener.name.clients.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' user_operator="operators-password";'
    ),
}


NODES_PASSWORD = "the-nodes-password"
REAUTH_MS = 2_000
BETWEEN_NODES = {
    "listener.security.protocol.map": (
        "PLAINTEXT:SASL_PLAINTEXT,CLIENTS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"
    ),
    "connections.max.reauth.ms": str(REAUTH_MS),
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        f' username="node" password="{NODES_PASSWORD}" user_node="{NODES_PASSWORD}";'
    ),
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "listener.name.plaintext.scram-sha-512.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required"
        f' username="node" password="{NODES_PASSWORD}";'
    ),
}
"""Nodes log in at each other, too, again and again. No listener is left without a login."""
FIRST_NODE_USER = f"SCRAM-SHA-512=[name=node,password={NODES_PASSWORD}]"


class OnlyByLogin(ProcessCluster):
    """Questions without a login reach nobody. Nodes say by themselves that they are ready."""

    def wait_ready(self, *_: Any, **__: Any) -> None:
        pass


class WithLogins:
    def __init__(self, cluster: ProcessCluster, ports: Mapping[int, int]) -> None:
        self.cluster = cluster
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports.values())
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def add_user(self, name: str, password: str, mechanism: str = "SCRAM-SHA-512") -> None:
        info = ScramCredentialInfo(NUMBERS[mechanism], 4096)
        change = UserScramCredentialUpsertion(name, info, password.encode())
        for each in self.admin.alter_user_scram_credentials([change]).values():
            each.result(20)

    def remove_user(self, name: str, mechanism: str = "SCRAM-SHA-512") -> None:
        change = UserScramCredentialDeletion(name, NUMBERS[mechanism])
        for each in self.admin.alter_user_scram_credentials([change]).values():
            each.result(20)

    def librdkafka(self, mechanism: str, user: str, password: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }

    def kafka_python(self, mechanism: str, user: str, password: str) -> dict[str, Any]:
        """aiokafka's words are the same."""
        return {
            "bootstrap_servers": self.bootstrap.split(","),
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": user,
            "sasl_plain_password": password,
        }


@contextmanager
def cluster_with_logins(
    directory: Path,
    brokers: int = 2,
    settings: Mapping[str, str] | None = None,
    first_user: str | None = None,
    kind: type[ProcessCluster] = ProcessCluster,
) -> Iterator[WithLogins]:
    """`first_user` as kafka-storage takes it."""
    cluster = kind(directory / "cluster", brokers, {})
    ports = dict(zip(cluster.nodes, free_ports(brokers), strict=True))
    for node in cluster.nodes.values():
        file = directory / "cluster" / f"node-{node.id}" / "server.properties"
        text = file.read_text()
        plain = f"listeners=PLAINTEXT://127.0.0.1:{node.port},"
        assert plain in text
        lines = {
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
            **SETTINGS,
            **(settings or {}),
        }
        file.write_text(
            text.replace(plain, f"{plain}CLIENTS://127.0.0.1:{ports[node.id]},")
            + "".join(f"{name}={value}\n" for name, value in lines.items())
        )
        if first_user is not None:
            (cluster_id,) = re.findall(r"^cluster\.id=(.*)$", text, re.MULTILINE)
            words = ["format", "-c", str(file), "-t", cluster_id, "--add-scram", first_user]
            assert run("kafka-storage", words) == 0
    with cluster:
        yield WithLogins(cluster, ports)
