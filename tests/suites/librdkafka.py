"""librdkafka's regression tests: those that want a broker, in their quick form."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from suites.fetching import BUILD_TIMEOUT_S, debian_source, run
from suites.lane import Lane
from suites.outcomes import Outcome, Said

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("build-essential", "dpkg-dev", "libssl-dev", "zlib1g-dev", "libzstd-dev", "liblz4-dev", "rapidjson-dev")  # fmt: skip
JOBS = 4
"""Tests at a time: they wait more than they work."""
TEST_TIMEOUT_S = 420
PATIENCE = 2
"""Their own timeouts are for one test at a time on an idle machine."""
REAUTHENTICATE_MS = 30_000
"""Long enough for a rebalance: librdkafka does not log in again while it waits for one, and has three seconds for the login."""
SETTINGS = {
    "num.partitions": "4",
    "default.replication.factor": "3",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
"""As the clusters have them that librdkafka's own test runs make."""
_LINE = re.compile(r"^\|\S*\s+(?P<name>\d{4}_\w+)\s+\|\s+(?P<state>[A-Z]+)\s+\|[^|]*\|(?P<why>.*)$", re.MULTILINE)  # fmt: skip
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_BY_FLAGS = "Filtered due to negative test flags"


class Librdkafka:
    name = "librdkafka"

    def prepare(self) -> str:
        for package in PACKAGES:
            if not _is_installed(package):
                run(ROOT / "scripts" / "apt-install", package, where=ROOT)
        self._source = source = debian_source("librdkafka")
        self._tests = source / "tests"
        if not (self._tests / "test-runner").exists():
            environment = {**os.environ, "CFLAGS": "-O1", "CXXFLAGS": "-O1"}
            build = partial(run, where=source, timeout_s=BUILD_TIMEOUT_S, environment=environment)
            build("./configure", "--enable-ssl", "--disable-gssapi", "--disable-curl")
            build("make", f"-j{os.cpu_count()}", "libs")
            build("make", f"-j{os.cpu_count()}", "-C", "tests", "build")
        return source.name.rpartition("_")[2]

    def lane(self, directory: Path, *, secured: bool) -> Lane:
        reauthenticate = {"connections.max.reauth.ms": str(REAUTHENTICATE_MS)} if secured else {}
        settings = SETTINGS | reauthenticate
        return Lane(directory, secured=secured, brokers=3, settings=settings, racks=True)

    def run(self, lane: Lane, only: Iterable[str]) -> dict[str, Outcome]:
        logs = lane.directory / "logs"
        logs.mkdir()
        conf = lane.directory / "test.conf"
        login = lane.client_file("librdkafka.properties").read_text() if lane.secured else f"bootstrap.servers={lane.bootstrap}\n"  # fmt: skip
        conf.write_text(f"test.timeout.multiplier={PATIENCE}\ntest.topic.random=true\n{login}")
        conf.chmod(0o600)
        environment = lane.environment(
            {
                "RDKAFKA_TEST_CONF": str(conf),
                "TEST_KAFKA_VERSION": lane.kafka_version,
                "KAFKA_PATH": str(lane.kafka_home()),
                "BROKERS": lane.bootstrap,
                "LD_LIBRARY_PATH": f"{self._source / 'src'}:{self._source / 'src-cpp'}",
            }
        )

        def one(number: str) -> dict[str, Outcome]:
            file = logs / f"{number}.log"
            # Quickly, and without those that need no broker. A runner that aborts must not lose its last lines.
            words = ["stdbuf", "-oL", "./test-runner", "-L", "-Q", "-p1"]
            with file.open("wb") as output:
                try:
                    subprocess.run(
                        words,
                        cwd=self._tests,
                        env={**environment, "TESTS": number},
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        timeout=TEST_TIMEOUT_S,
                        check=False,
                    )
                except subprocess.TimeoutExpired:
                    return {number: Outcome(Said.FAILED, f"no end after {TEST_TIMEOUT_S} s")}
            return outcomes_of(number, file.read_text(errors="replace"))

        numbers = sorted(only) or self._numbers()
        with ThreadPoolExecutor(JOBS) as pool:
            found = dict(zip(numbers, pool.map(one, numbers), strict=True))
        # Some want an answer within a fifth of a second. What failed beside others has a second try alone.
        for number, outcomes in found.items():
            if any(outcome.said is Said.FAILED for outcome in outcomes.values()):
                (logs / f"{number}.log").rename(logs / f"{number}.first.log")
                found[number] = one(number)
        return {name: outcome for outcomes in found.values() for name, outcome in outcomes.items()}

    def _numbers(self) -> list[str]:
        return sorted({file.name[:4] for file in self._tests.glob("0[0-9][0-9][0-9]-*.c*")})


def outcomes_of(number: str, printed: str) -> dict[str, Outcome]:
    """From the summary that the test runner prints at the end. What needs no broker is left out."""
    found = {}
    lines = [_LINE.search(line) for line in _COLOUR.sub("", printed).splitlines()]
    for line in filter(None, lines):
        why = line["why"].strip()
        if line["name"].startswith(number) and why != _BY_FLAGS:
            said = {"PASSED": Said.PASSED, "SKIPPED": Said.SKIPPED}.get(line["state"], Said.FAILED)
            found[line["name"]] = Outcome(said, why)
    if not any(lines):
        found[number] = Outcome(Said.FAILED, "the test runner ended without a summary")
    return found


def _is_installed(package: str) -> bool:
    done = subprocess.run(["dpkg", "-s", package], capture_output=True, text=True, check=False)
    return "Status: install ok installed" in done.stdout
