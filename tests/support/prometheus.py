"""A real Prometheus server for a cluster; it is installed if it is missing and that may be done."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from ottla.local.ports import free_ports
from support.cluster import wait_until

ROOT = Path(__file__).resolve().parents[2]


def tool(name: str) -> str:
    """The path of `prometheus` or `promtool`."""
    if shutil.which(name) is None:
        installed = subprocess.run(
            [str(ROOT / "scripts" / "apt-install"), "prometheus"],
            capture_output=True,
            text=True,
            check=False,
        )
        if installed.returncode:
            pytest.skip(installed.stderr.strip())
    found = shutil.which(name)
    assert found is not None, f"{name} is not in the package"
    return found


class Prometheus:
    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def get(self, path: str, **query: str) -> Any:
        with urlopen(f"{self._url}{path}?{urlencode(query)}", timeout=10) as answer:
            return json.load(answer)["data"]

    def is_ready(self) -> bool:
        try:
            with urlopen(f"{self._url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except URLError:
            return False

    def query(self, expression: str) -> list[Any]:
        """What it returns now."""
        return list(self.get("/api/v1/query", query=expression)["result"])

    def targets(self) -> dict[str, str]:
        """Address to health."""
        active = self.get("/api/v1/targets", state="active")["activeTargets"]
        return {each["labels"]["instance"]: each["health"] for each in active}

    def target_errors(self) -> list[str]:
        active = self.get("/api/v1/targets", state="active")["activeTargets"]
        return [each["lastError"] for each in active if each["lastError"]]

    def firing(self) -> set[str]:
        alerts = self.get("/api/v1/alerts")["alerts"]
        return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}


@contextmanager
def prometheus(directory: Path, configuration: str) -> Iterator[Prometheus]:
    """With this configuration, and the files beside it."""
    binary = tool("prometheus")
    directory.mkdir(exist_ok=True)
    (directory / "prometheus.yml").write_text(configuration)
    (port,) = free_ports(1)
    with (directory / "prometheus.log").open("w") as log:
        process = subprocess.Popen(
            [
                binary,
                f"--config.file={directory}/prometheus.yml",
                f"--storage.tsdb.path={directory}/tsdb",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
        try:
            server = Prometheus(port)
            wait_until(server.is_ready, 60, f"Prometheus is ready ({directory}/prometheus.log)")
            yield server
        finally:
            process.kill()
            process.wait()
