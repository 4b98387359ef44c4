"""A cluster of real processes whose controllers change, and a controller that nobody has heard of yet."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ottla.cli.errors import CONFLICT
from ottla.local.ports import free_ports
from support.cluster import HOST, OTTLA, ProcessCluster

NEW_CONTROLLER = 9


class ChangingCluster(ProcessCluster):
    dynamic_voters = True

    def controllers(self) -> dict[str, Any]:
        listed = self.ottla("controllers", "list")
        assert isinstance(listed, dict)
        return listed

    def ids_of(self, *roles: str) -> list[int]:
        return [each["id"] for each in self.controllers()["replicas"] if each["role"] in roles]

    def voters(self) -> list[int]:
        return self.ids_of("voter", "leader")

    def bootstrap_controllers(self) -> str:
        ports = [node.controller_port for node in self._local.nodes.values()]
        return ",".join(f"{HOST}:{port}" for port in ports if port is not None)

    def refused(self, *words: str) -> str:
        """What a command says that finds things other than it was told."""
        command = [str(OTTLA), *words, "--bootstrap", self.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == CONFLICT, done.stdout + done.stderr
        return done.stderr

    def lose_disk(self, id: int) -> None:
        self.kill(id)
        shutil.rmtree(self._local.node_directory(id) / "data")
        self.start(id)

    def settings_of_new_controller(self, directory: Path) -> dict[str, str]:
        (port,) = free_ports(1)
        return {
            "node.id": str(NEW_CONTROLLER),
            "process.roles": "controller",
            "cluster.id": self._local.cluster_id,
            "listeners": f"CONTROLLER://{HOST}:{port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": self.bootstrap_controllers(),
            "log.dirs": str(directory),
        }


class UpgradedCluster(ChangingCluster):
    """Its voters are static, until they are upgraded."""

    dynamic_voters = False

    def features(self, *words: str) -> tuple[int, str]:
        """Our kafka-features: its exit code, and what it says."""
        tool = [sys.executable, "-m", "ottla.kafka_tools", "kafka-features"]
        command = [*tool, "--bootstrap-server", self.bootstrap, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        return done.returncode, done.stdout + done.stderr


class NewController(NamedTuple):
    id: int
    at: str
    file: Path


@contextmanager
def new_controller(
    cluster: ChangingCluster, directory: Path, **more: str
) -> Iterator[NewController]:
    """A process of ours. Settings are given with `_` for `.`."""
    settings = cluster.settings_of_new_controller(directory / "new")
    settings |= {name.replace("_", "."): value for name, value in more.items()}
    file = directory / "new.properties"
    file.write_text("\n".join(f"{name}={value}" for name, value in settings.items()))
    with (directory / "new.log").open("wb") as log:
        command = [str(OTTLA), "node", "--config", str(file)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        at = settings["listeners"].removeprefix("CONTROLLER://")
        yield NewController(NEW_CONTROLLER, at, file)
    finally:
        process.kill()
        process.wait()
