"""The tests of Python's clients, which run with pytest.

kafka-python's are in its source on PyPI. Those of aiokafka and confluent-kafka are in no package: they need a checkout.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar
from xml.etree import ElementTree

from suites.fetching import Missing, python_source, python_with
from suites.lane import Lane
from suites.outcomes import Outcome, Said
from suites.secure_defaults import CLIENT, LOGIN

HERE = Path(__file__).parent
TEST_TIMEOUT_S = 180
PYTEST = ("pytest", "pytest-asyncio", "pytest-timeout")
RUN_TIMEOUT_S = 3600


class PythonSuite(ABC):
    name: str
    tests: tuple[str, ...]
    """Files or directories, and options of pytest."""
    settings: ClassVar[dict[str, str]] = {}
    login = "kafka-python.json"

    def __init__(self, checkout: Path | None = None) -> None:
        self.checkout = checkout
        self.python = sys.executable

    def prepare(self) -> str:
        if self.checkout is None:
            raise Missing(f"the tests of {self.name} are in no package; name a checkout: --checkout {self.name}=DIR")  # fmt: skip
        self.source = self.checkout.resolve()
        return version(self.name)

    def lane(self, directory: Path, *, secured: bool) -> Lane:
        return Lane(directory, secured=secured, brokers=1, settings=self.settings)

    @abstractmethod
    def environment(self, lane: Lane) -> dict[str, str]:
        """Where its tests find the cluster."""

    def run(self, lane: Lane, only: Iterable[str]) -> dict[str, Outcome]:
        report = lane.directory / "report.xml"
        login = {LOGIN: str(lane.client_file(self.login))} if lane.secured else {}
        words = [self.python, "-m", "pytest", "-p", "suites.secure_defaults", "-p", "no:cacheprovider"]  # fmt: skip
        words += ["-q", f"--timeout={TEST_TIMEOUT_S}", f"--junit-xml={report}"]
        more = {CLIENT: self.name, "PYTHONPATH": str(HERE.parent), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}  # fmt: skip
        log = lane.directory / "pytest.log"
        with log.open("wb") as output:
            subprocess.run(
                [*words, *self.tests, *(["-k", " or ".join(only)] if only else [])],
                cwd=self.source,
                env=lane.environment({**self.environment(lane), **login, **more}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=RUN_TIMEOUT_S,
                check=False,
            )
        if not report.exists():
            raise Missing(
                f"pytest could not run the tests of {self.name}:\n{log.read_text(errors='replace')[-2000:]}"
            )
        return outcomes_of(report)


class KafkaPython(PythonSuite):
    name = "kafka-python"
    settings: ClassVar[dict[str, str]] = {
        "num.partitions": "4",
        "group.min.session.timeout.ms": "1000",
    }
    tests = (
        "test/integration",
        # They start an Apache Kafka of their own.
        "--ignore=test/integration/test_sasl_integration.py",
        "--ignore=test/integration/test_ssl_integration.py",
    )

    def prepare(self) -> str:
        found = version(self.name)
        self.source = self.checkout or python_source(self.name, found)
        # Left out of the package; without it Python's own package `test` is found.
        (self.source / "test" / "__init__.py").touch()
        return found

    def environment(self, lane: Lane) -> dict[str, str]:
        return {
            "KAFKA_VERSION": lane.kafka_version,
            "KAFKA_URI": f"kafka://{lane.bootstrap}",
            "KAFKA_ROOT": str(lane.directory),  # has to exist; nothing is looked for in it
        }


class Aiokafka(PythonSuite):
    name = "aiokafka"
    settings: ClassVar[dict[str, str]] = {"num.partitions": "2"}
    tests = (
        "tests",
        "--ignore=tests/test_sasl.py",  # wants users and Kerberos in its own container
        "--ignore=tests/test_helpers.py",  # reads the container's certificates
        "-m not ssl",  # the same
        "-ofilterwarnings=default",  # a deprecation in another version of pytest is no failure
    )

    def prepare(self) -> str:
        found = super().prepare()
        self.python = python_with(
            self.name, f"aiokafka[snappy,lz4,zstd]=={found}", *PYTEST, "pytest-mock"
        )
        return found

    def run(self, lane: Lane, only: Iterable[str]) -> dict[str, Outcome]:
        # Its own conftest.py starts a container.
        copied = lane.directory / "checkout"
        shutil.copytree(self.source / "tests", copied / "tests")
        shutil.copy(self.source / "pyproject.toml", copied)
        shutil.copy(HERE / "aiokafka_conftest.py", copied / "tests" / "conftest.py")
        self.source, original = copied, self.source
        try:
            return super().run(lane, only)
        finally:
            self.source = original

    def environment(self, lane: Lane) -> dict[str, str]:
        return {"KAFKA_VERSION": lane.kafka_version, "BROKERS": lane.bootstrap}


class ConfluentKafka(PythonSuite):
    name = "confluent-kafka"
    login = "confluent-kafka.json"
    tests = (
        "tests/integration/admin",
        "tests/integration/consumer",
        "tests/integration/producer",
        "tests/integration/serialization",
        # It starts an Apache Kafka of its own.
        "--deselect=tests/integration/admin/test_describe_operations.py",
    )

    def prepare(self) -> str:
        found = super().prepare()
        # Its tests import what a schema registry's client needs, and the cluster that they would start otherwise.
        registry = ("attrs", "authlib", "avro", "cachetools", "fastavro", "googleapis-common-protos", "httpx", "jsonschema", "orjson", "protobuf", "pyrsistent", "pyyaml", "referencing", "requests")  # fmt: skip
        self.python = python_with(self.name, f"confluent-kafka=={found}", *PYTEST, "trivup", *registry)  # fmt: skip
        return found

    def environment(self, lane: Lane) -> dict[str, str]:
        return {"BROKERS": lane.bootstrap}


def outcomes_of(report: Path) -> dict[str, Outcome]:
    """From the report that pytest writes."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
        outcome = Outcome(Said.PASSED)
        for kind, said in (("skipped", Said.SKIPPED), ("failure", Said.FAILED), ("error", Said.FAILED)):  # fmt: skip
            if (element := case.find(kind)) is not None:
                outcome = Outcome(said, " ".join(element.get("message", "").split()))
        found[name] = outcome
    return found
