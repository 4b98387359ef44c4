"""A cluster of real processes whose controllers change, and a controller that nobody has heard of yet."""

from __future__ import annotations

import shutil
import subprocess
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
        text = self._local.config_file(1).read_text()
        name = "controller.quorum.bootstrap.servers="
        return next(line for line in text.splitlines() if line.startswith(name)).partition("=")[2]

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
