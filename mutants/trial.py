"""One mutant against the unit tests that reach it, and against seeds of the simulator, each in a process of its own.

A worker has a copy of the sources, into which one mutant at a time is written. A test that fails kills it, a seed that does
not pass kills it, and so does one that takes many times as long as it should: it would never end.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mutants.operators import Mutant

TEST_TIMEOUT_S = 1800
"""For all tests that reach a mutant; each has its own limit besides."""
SEED_CPU_S = 90
"""Processor time for one seed; most take two seconds. Others may have the machine meanwhile."""
SEED_WALL_S = 1800
TESTS_MAX = 400
"""More than these are run as whole files."""


class Workshop:
    """A copy of the sources, and how to run tests and seeds on it."""

    def __init__(self, root: Path, place: Path) -> None:
        self._root = root
        self._source = place / "src"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(root / "src", self._source, ignore=shutil.ignore_patterns("__pycache__"))
        self._environment = {
            **os.environ,
            "PYTHONPATH": f"{self._source}:{root}:{root / 'tests'}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
        }

    def unit(self, mutant: Mutant, tests: Sequence[str]) -> dict[str, Any]:
        """`killed_by`: the test, or how else; None if it survived."""
        if not tests:
            return {"killed_by": None, "tests": 0, "seconds": 0.0}
        chosen = tests
        if len(tests) > TESTS_MAX:
            chosen = sorted({test.partition("::")[0] for test in tests})
        began = time.monotonic()
        words = [
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "-m",
            "not slow",
            "--tb=no",
            "-rfE",
        ]
        killed_by = self._run(mutant, [*words, *chosen], TEST_TIMEOUT_S, _failed_test)
        return {
            "killed_by": killed_by,
            "tests": len(tests),
            "seconds": round(time.monotonic() - began, 1),
        }

    def simulator(self, mutant: Mutant, seeds: range) -> dict[str, Any]:
        """`killed_by`: what the first seed that failed says; `seeds`: how many ran."""
        began = time.monotonic()
        words = ["-m", "mutants.seeds", str(seeds.start), str(seeds.stop), str(SEED_CPU_S)]
        limit = SEED_WALL_S * len(seeds)
        killed_by = self._run(mutant, words, limit, _failed_seed)
        ran = _number(killed_by, seeds.start) - seeds.start + 1 if killed_by else len(seeds)
        return {
            "killed_by": killed_by,
            "seeds": ran,
            "of": len(seeds),
            "seconds": round(time.monotonic() - began, 1),
        }

    def _run(self, mutant: Mutant, words: list[str], limit_s: float, failed: Any) -> str | None:
        file = self._source / mutant.path
        original = file.read_text()
        file.write_text(mutant.applied(original))
        try:
            done = subprocess.run(
                [sys.executable, *words],
                cwd=self._root,
                env=self._environment,
                capture_output=True,
                text=True,
                timeout=limit_s,
            )
        except subprocess.TimeoutExpired:
            return "timeout"
        finally:
            file.write_text(original)
        return None if done.returncode == 0 else str(failed(done))


def _failed_test(done: subprocess.CompletedProcess[str]) -> str:
    named = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return named.group(1) if named else f"exit code {done.returncode}"


def _failed_seed(done: subprocess.CompletedProcess[str]) -> str:
    """The last line that `mutants.seeds` prints. A mutant that cannot even be imported prints none."""
    lines = done.stdout.strip().splitlines()
    return lines[-1] if lines and lines[-1].startswith("seed ") else f"exit code {done.returncode}"


def _number(killed_by: str, otherwise: int) -> int:
    named = re.match(r"seed (\d+) ", killed_by)
    return int(named.group(1)) if named else otherwise
