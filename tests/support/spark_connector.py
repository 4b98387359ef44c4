"""Spark's own Kafka connector, in a Spark of its own version, as a process that is told what to do line by line.

The connector's last complete release is older than the PySpark that `format("ottla")` needs, so it lives in an
environment of its own under `.cache/`, made once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Self

import pytest

from support.kafka_jars import CACHE, CONNECTOR, CONNECTOR_VERSION, installed

ROOT = Path(__file__).resolve().parents[2]
PROGRAMME = Path(__file__).with_name("spark_connector_job.py")
INSTALL_TIMEOUT_S = 600


class SparkConnector:
    """One Spark session; each call is one line in and one line out."""

    def __init__(self, directory: Path) -> None:
        jars = ",".join(map(str, sorted(installed(CONNECTOR).glob("*.jar"))))
        python = str(environment())
        self._log = (directory / "spark.log").open("w")
        self._process = subprocess.Popen(
            [python, str(PROGRAMME), jars, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=dict(os.environ, PYSPARK_PYTHON=python, PYSPARK_DRIVER_PYTHON=python),
        )
        assert self._heard() == "ready"

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
            pytest.fail(f"Spark ended:\n{Path(self._log.name).read_text()[-3000:]}", pytrace=False)
        answer = json.loads(line)
        if "error" in answer:
            pytest.fail(f"Spark's connector: {answer['error']}", pytrace=False)
        return answer["result"]


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
