"""Spark's own Kafka connector and ours, each in a Spark of its own version, as processes that are told what to do line by line.

The connector's last complete release is older than the PySpark that `format("ottla")` needs, so it lives in an
environment of its own under `.cache/`, made once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, Self

from support.kafka_jars import CACHE, CONNECTOR, CONNECTOR_VERSION, installed

ROOT = Path(__file__).resolve().parents[2]
PROGRAMME = Path(__file__).with_name("spark_sources_job.py")
INSTALL_TIMEOUT_S = 600


class SparkSource:
    """One Spark session; each call is one line in and one line out."""

    format: str

    def __init__(self, directory: Path, python: str, jars: str = "") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._log = (directory / "spark.log").open("w")
        self._process = subprocess.Popen(
            [python, str(PROGRAMME), self.format, str(directory), jars],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={
                **os.environ,
                "PYSPARK_PYTHON": python,
                "PYSPARK_DRIVER_PYTHON": python,
                # Where it is set, every worker of every session would compile its libraries anew.
                "PYTHONDONTWRITEBYTECODE": "",
            },
            start_new_session=True,
        )
        assert self._heard() == "ready"

    @property
    def system_session(self) -> int:
        """What the system calls a session: driver, JVM and Python workers have the same."""
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def __call__(self, task: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"task": task, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._heard()

    def _heard(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"Spark ended:\n{Path(self._log.name).read_text()[-3000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"format('{self.format}'): {answer['error']}")
        return answer["result"]


class SparkConnector(SparkSource):
    """Spark's own."""

    format = "kafka"

    def __init__(self, directory: Path) -> None:
        jars = ",".join(map(str, sorted(installed(CONNECTOR).glob("*.jar"))))
        super().__init__(directory, str(environment()), jars)


class OttlaSource(SparkSource):
    """Ours, in the environment that this runs in."""

    format = "ottla"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, sys.executable)


@cache
def environment() -> Path:
    """The Python of an environment that has the PySpark which the connector belongs to."""
    home = CACHE / f"pyspark-{CONNECTOR_VERSION}"
    python = home / "bin" / "python"
    if not (home / "complete").exists():
        uv = shutil.which("uv") or str(ROOT / ".cache" / "uv" / "bin" / "uv")
        for words in (
            ["venv", "--quiet", "--clear", str(home)],
            ["pip", "install", "--quiet", "--python", str(python), f"pyspark=={CONNECTOR_VERSION}"],
        ):
            subprocess.run([uv, *words], check=True, timeout=INSTALL_TIMEOUT_S)
        (home / "complete").touch()
    return python
