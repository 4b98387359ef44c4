"""The two ways in which a suite runs: a cluster in plaintext, and one with logins, TLS and an authorizer."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from ottla.testing.cluster import Cluster
from support.kafka_jars import KAFKA_VERSION, java_command

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""In plaintext: the suites' own clusters have it, and their tests of ACLs need it."""


class Lane:
    """A cluster that runs, and what a client of it has to be told."""

    def __init__(
        self,
        directory: Path,
        *,
        secured: bool,
        brokers: int,
        settings: Mapping[str, str],
        racks: bool = False,
    ) -> None:
        self.secured = secured
        self.directory = directory
        self.kafka_version = KAFKA_VERSION
        self.cluster = Cluster(
            brokers,
            {**settings, **({} if secured else AUTHORIZER)},
            {id: {"broker.rack": f"RACK{id}"} for id in range(1, brokers + 1)} if racks else None,
            directory=directory / "cluster",
            security="sasl_ssl" if secured else None,
        )
        self.cluster.create()
        if not secured:
            for node in self.cluster.nodes.values():
                with node.config.open("a") as file:  # some tests look for it
                    file.write(f"advertised.listeners=PLAINTEXT://{node.address}\n")

    @property
    def name(self) -> str:
        return "secured" if self.secured else "plain"

    @property
    def bootstrap(self) -> str:
        return self.cluster.get_bootstrap_server()

    def client_file(self, name: str) -> Path:
        return self.cluster.client_directory() / name

    def kafka_home(self) -> Path:
        """A directory as KAFKA_PATH names it: `bin/kafka-topics.sh` is ottla's, `bin/kafka-acls.sh` Apache Kafka's."""
        commands = {
            "kafka-topics.sh": [sys.executable, "-m", "ottla.kafka_tools", "kafka-topics"],
            "kafka-acls.sh": java_command("org.apache.kafka.tools.AclCommand"),
        }
        home = self.directory / "kafka"
        (home / "bin").mkdir(parents=True, exist_ok=True)
        more = ["--command-config", str(self.client_file("java.properties"))] if self.secured else []  # fmt: skip
        for name, words in commands.items():
            file = home / "bin" / name
            file.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@" {shlex.join(more)}\n')
            file.chmod(file.stat().st_mode | stat.S_IXUSR)
        return home

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        return {**os.environ, **more}
