"""The two ways in which a suite runs: a cluster whose clients come in plaintext, and one whose clients come by TLS and log in."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from ottla.testing.cluster import Cluster
from support.kafka_jars import KAFKA_VERSION, installed, java_command

IN_PLAINTEXT = {
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,INTERNAL:SSL,CONTROLLER:SSL",
    "allow.everyone.if.no.acl.found": "true",
}
"""For clients only. Nodes go on to know each other by certificates: the suites' tests of ACLs need an authorizer, and with one a
node has to be somebody."""


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
            {**settings, **({} if secured else IN_PLAINTEXT)},
            {id: {"broker.rack": f"RACK{id}"} for id in range(1, brokers + 1)} if racks else None,
            directory=directory / "cluster",
            security="sasl_ssl",
        )

    @property
    def name(self) -> str:
        return "secured" if self.secured else "plain"

    @property
    def bootstrap(self) -> str:
        return self.cluster.get_bootstrap_server()

    def client_file(self, name: str) -> Path:
        return self.cluster.client_directory() / name

    def kafka_home(self) -> Path:
        """A directory as KAFKA_PATH names it: `bin/kafka-topics.sh` is ottla's; the other commands and `libs` are Apache Kafka's."""
        commands = {
            "kafka-topics.sh": [sys.executable, "-m", "ottla.kafka_tools", "kafka-topics"],
            "kafka-acls.sh": java_command("org.apache.kafka.tools.AclCommand"),
        }
        home = self.directory / "kafka"
        (home / "bin").mkdir(parents=True, exist_ok=True)
        more = ["--command-config", str(self.client_file("java.properties"))] if self.secured else []  # fmt: skip
        jars = installed()
        (home / "libs").symlink_to(jars)
        files = {name: f'exec {shlex.join(words)} "$@" {shlex.join(more)}' for name, words in commands.items()}  # fmt: skip
        files["kafka-run-class.sh"] = f'exec java -cp "$CLASSPATH:{jars}/*" "$@"'
        for name, text in files.items():
            file = home / "bin" / name
            file.write_text(f"#!/bin/sh\n{text}\n")
            file.chmod(file.stat().st_mode | stat.S_IXUSR)
        return home

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        return {**os.environ, **more}
