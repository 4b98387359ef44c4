"""`ottla up --secure` for tests: a cluster in a directory, and commands that use it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ottla.cli import errors
from support.cluster import OTTLA


class SecureCluster:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def bootstrap(self) -> str:
        nodes = json.loads((self.directory / "cluster.json").read_text())["nodes"]
        return ",".join(f"127.0.0.1:{node['port']}" for node in nodes)

    def file(self, name: str, user: str = "admin") -> Path:
        return self.directory / "clients" / user / name

    def run(
        self, *words: str, said: str = "", environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A command about this cluster."""
        return run(*words, "--dir", str(self.directory), said=said, environment=environment)

    def told(self, *words: str, said: str = "") -> str:
        done = self.run(*words, said=said)
        assert done.returncode == errors.OK, done.stderr
        return done.stdout

    def listed(self, *words: str) -> Any:
        return json.loads(self.told(*words, "--format", "json"))

    def as_user(self, user: str, *words: str, said: str = "") -> subprocess.CompletedProcess[str]:
        config = ("--command-config", str(self.file("java.properties", user)))
        return run(*words, "-b", self.bootstrap, *config, said=said)


def run(
    *words: str, said: str = "", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(OTTLA), *words],
        input=said,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **(environment or {})},
    )


@contextmanager
def secure_cluster(directory: Path, *words: str, nodes: int = 3) -> Iterator[SecureCluster]:
    cluster = SecureCluster(directory)
    options = ("--secure", "--detach", "--port", "0", "-n", str(nodes), *words)
    cluster.told("up", *options, "-c", "group.initial.rebalance.delay.ms=0")
    try:
        yield cluster
    finally:
        run("purge", "--dir", str(directory))
