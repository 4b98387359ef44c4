"""kcat's tests: shell scripts, with the kcat that is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from suites.fetching import Missing, debian_source
from suites.lane import Lane
from suites.outcomes import Outcome, Said

TEST_TIMEOUT_S = 120
_COLOUR = re.compile(r"\x1b\[[0-9;]*m|\\033\[[0-9;]*m")
_SKIPPED = "TEST SKIPPED: "


class Kcat:
    name = "kcat"

    def prepare(self) -> str:
        if (kcat := shutil.which("kcat")) is None or shutil.which("jq") is None:
            raise Missing("kcat's tests need kcat and jq: apt-get install kcat jq")
        source = debian_source("kafkacat")
        self._tests = source / "tests"
        here = source / "kcat"
        if not here.exists():
            here.symlink_to(kcat)
        return source.name.rpartition("_")[2]

    def lane(self, directory: Path, *, secured: bool) -> Lane:
        return Lane(directory, secured=secured, brokers=3, settings={"num.partitions": "4"})

    def run(self, lane: Lane, only: Iterable[str]) -> dict[str, Outcome]:
        config = {"KCAT_CONFIG": str(lane.client_file("kcat.conf"))} if lane.secured else {}
        environment = lane.environment({"BROKERS": lane.bootstrap, **config})
        found = {}
        _, terminal = os.openpty()  # kcat is a producer unless it has one before it
        for script in sorted(self._tests.glob("0[0-9]*.sh")):
            if only and not any(each in script.stem for each in only):
                continue
            done = subprocess.run(
                ["bash", script.name],
                cwd=self._tests,
                env=environment,
                stdin=terminal,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=TEST_TIMEOUT_S,
                check=False,
            )
            said = Said.PASSED if done.returncode == 0 else Said.FAILED
            last = _COLOUR.sub("", next(iter(done.stdout.strip().splitlines()[-1:]), ""))
            if _SKIPPED in last:
                said = Said.SKIPPED
            found[script.stem] = Outcome(said, "" if said is Said.PASSED else last)
        return found
