"""A real Prometheus server for a cluster; it is installed if it is missing and that may be done."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Collection, Iterator
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
MONITORING = ROOT / "monitoring"
ALERTS = (MONITORING / "alerts.yml").read_text()
ALERT_NAMES = re.findall(r"- alert: (\w+)", ALERTS)
OF_THE_MACHINE = {
    "OttlaDiskFull",
    "OttlaEventLoopStalls",
    "OttlaSlowFlushes",
    "OttlaSlowProduce",
}
"""They say how the machine is on which the tests run."""


def tool(name: str, package: str = "prometheus") -> str:
    """The path of `prometheus`, `promtool`, or a programme of another package."""
    if shutil.which(name) is None:
        installed = subprocess.run(
            [str(ROOT / "scripts" / "apt-install"), package],
            capture_output=True,
            text=True,
            check=False,
        )
        if installed.returncode:
            pytest.skip(installed.stderr.strip())
    found = shutil.which(name)
    assert found is not None, f"{name} is not in the package"
    return found


def at_once(rules: str) -> str:
    """The rules as they are shipped, but they fire at once: how long they wait is promtool's matter."""
    return re.sub(r"for: \S+", "for: 0s", rules)


def scraping(ports: Collection[int]) -> str:
    """The configuration that is shipped, for nodes at these ports, which are scraped every second."""
    targets = ", ".join(f"127.0.0.1:{port}" for port in ports)
    shipped = (MONITORING / "prometheus.yml").read_text()
    return shipped.replace("127.0.0.1:9404", targets).replace(": 5s", ": 1s")


class Prometheus:
    def __init__(self, port: int, directory: Path, process: subprocess.Popen[bytes]) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._directory = directory
        self._process = process

    def scrape(self, ports: Collection[int]) -> None:
        """These nodes from now on. Returns when all of them are up."""
        (self._directory / "prometheus.yml").write_text(scraping(ports))
        self._process.send_signal(signal.SIGHUP)
        expected = {f"127.0.0.1:{port}": "up" for port in ports}
        wait_until(lambda: self.targets() == expected, 60, "all nodes are scraped")

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

    def firing(self, port: int | None = None) -> set[str]:
        """Names of alerts; only those about the node with its metrics at `port`, if it is given."""
        alerts = self.get("/api/v1/alerts")["alerts"]
        return {
            each["labels"]["alertname"]
            for each in alerts
            if each["state"] == "firing"
            and port in (None, int(each["labels"].get("instance", ":0").rpartition(":")[2]))
        }

    def becomes_quiet(self, within_s: float, but: Collection[str] = ()) -> None:
        left: set[str] = set()

        def is_quiet() -> bool:
            left.clear()
            left.update(self.firing() - set(but))
            return not left

        try:
            wait_until(is_quiet, within_s, "no alert fires")
        except AssertionError as error:
            raise AssertionError(f"still firing after {within_s} s: {left}") from error


@contextmanager
def prometheus(directory: Path, ports: Collection[int]) -> Iterator[Prometheus]:
    """It scrapes the nodes with their metrics at these ports. All of them are up."""
    binary = tool("prometheus")
    directory.mkdir(exist_ok=True)
    (directory / "prometheus.yml").write_text(scraping(ports))
    (directory / "alerts.yml").write_text(at_once(ALERTS))
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
            server = Prometheus(port, directory, process)
            wait_until(server.is_ready, 60, f"Prometheus is ready ({directory}/prometheus.log)")
            server.scrape(ports)
            yield server
        finally:
            process.kill()
            process.wait()
