"""Explore for some hours: unseen seeds, random property tests, all mutations, the slow tests; in turns, until the time is up.

Which seeds, and the seed of the property tests, follow from --base, which is the date's unless given and is printed. What
was done is noted in .cache/nightly/BASE: the same base goes on where it stopped. Exit code 1 if something failed.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import NamedTuple

from ottla.sim.mutations import MUTATIONS

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
SEEDS_A_DAY = 10_000
SEEDS_A_STEP = 20
LINES_SHOWN = 40


class Step(NamedTuple):
    """Some minutes of work: what is noted as done, and what is lost when the time is up."""

    name: str
    command: list[str]

    def __str__(self) -> str:
        """As it is typed into a shell."""
        return shlex.join(
            str(Path(word).relative_to(ROOT)) if word.startswith(str(ROOT)) else word
            for word in self.command
        )


def seeds(base: int, jobs: int, results: Path) -> Iterator[Step]:
    for first in count(base, SEEDS_A_STEP):
        span = f"{first}..{first + SEEDS_A_STEP}"
        words = ["sim", "--seeds", span, "--jobs", str(jobs), "--results", str(results)]
        yield Step(f"seeds {span}", [str(BIN / "ottla"), *words])


def mutations(base: int) -> Iterator[Step]:
    python = [sys.executable, "-m", "ottla.sim.mutate"]
    for name in MUTATIONS:
        yield Step(f"mutation {name}", [*python, "--first", str(base), "--only", name])


def properties(base: int, jobs: int) -> Iterator[Step]:
    words = ["--hypothesis-profile=explore", f"--hypothesis-seed={base}", "--timeout=3600"]
    for directory in sorted((ROOT / "tests" / "unit").iterdir()):
        users = [path for path in sorted(directory.glob("test_*.py")) if _explores(path)]
        if users:
            files = [str(path.relative_to(ROOT)) for path in users]
            pytest = [sys.executable, "-m", "pytest", "-q", "-n", str(jobs)]
            yield Step(f"properties of {directory.name}", [*pytest, *words, *files])


def _explores(path: Path) -> bool:
    return "from hypothesis" in path.read_text()


def slow_tests(with_spark: bool) -> Iterator[Step]:
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        name = str(path.relative_to(ROOT))
        if "mark.slow" in path.read_text() and (with_spark or "spark" not in name):
            yield Step(f"slow {name}", [sys.executable, "-m", "pytest", "-q", "-m", "slow", name])


def in_turns(*parts: Iterator[Step]) -> Iterator[Step]:
    waiting = list(parts)
    while waiting:
        for part in list(waiting):
            step = next(part, None)
            if step is None:
                waiting.remove(part)
            else:
                yield step


class Diary:
    """What was done under this base, a line of JSON each, and the output of what failed."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._file = directory / "steps.jsonl"
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        self.codes: dict[str, int] = {}
        for line in map(json.loads, lines):
            self.codes[line["step"]] = line["code"]

    def log_of(self, step: Step) -> Path:
        return self.directory / f"{step.name.replace(' ', '-').replace('/', '-')}.log"

    def note(self, step: Step, code: int, seconds: float) -> None:
        self.codes[step.name] = code
        line = {"step": step.name, "code": code, "seconds": round(seconds), "again": str(step)}
        with self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def failed(self) -> list[tuple[str, str]]:
        """(step, how to repeat it); the last word on each counts."""
        if not self._file.exists():
            return []
        lines = {
            line["step"]: line for line in map(json.loads, self._file.read_text().splitlines())
        }
        return [(name, line["again"]) for name, line in lines.items() if line["code"] != 0]


def run(step: Step, log: Path, seconds: float) -> int | None:
    """The exit code; None if the time was up before."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            step.command,
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # all that it starts ends with it
        )
        try:
            return process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()


def explore(steps: Iterator[Step], diary: Diary, until: float) -> None:
    for step in steps:
        if diary.codes.get(step.name) == 0:
            continue
        left, began = until - time.monotonic(), time.monotonic()
        if left <= 0:
            return
        log = diary.log_of(step)
        code = run(step, log, left)
        seconds = time.monotonic() - began
        if code is None:
            print(f"time is up; {step.name} was not finished", flush=True)
            return
        if code == 5 and step.command[1:3] == ["-m", "pytest"]:
            code = 0  # nothing to run there
        diary.note(step, code, seconds)
        print(f"{'passed' if code == 0 else 'FAILED'} {seconds:5.0f} s  {step.name}", flush=True)
        if code != 0:
            print("\n".join(log.read_text(errors="replace").splitlines()[-LINES_SHOWN:]))
            print(f"again: {step}", flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/nightly", description=__doc__)
    days = (datetime.now(UTC).date() - datetime(1970, 1, 1).date()).days
    parser.add_argument("--hours", type=float, default=6.0, help="when to end (default 6)")
    parser.add_argument(
        "--base",
        type=int,
        default=days * SEEDS_A_DAY,
        help="the first seed; the date's if not given",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--no-spark", action="store_true", help="without the tests on Spark")
    parser.add_argument(
        "--only",
        choices=["seeds", "properties", "mutations", "slow"],
        help="one part instead of all in turns",
    )
    return parser.parse_args()


def main() -> int:
    options = parse()
    until = time.monotonic() + options.hours * 3600
    diary = Diary(ROOT / ".cache" / "nightly" / str(options.base))
    parts = {
        "properties": properties(options.base, options.jobs),
        "mutations": mutations(options.base),
        "slow": slow_tests(not options.no_spark),
        "seeds": seeds(options.base, options.jobs, diary.directory / "seeds.jsonl"),
    }
    where = diary.directory.relative_to(ROOT)
    print(f"base {options.base}, {options.hours:g} h, {options.jobs} processes; notes in {where}")
    if options.no_spark:
        print("without the tests on Spark")
    chosen = [parts[options.only]] if options.only else list(parts.values())
    try:
        explore(in_turns(*chosen), diary, until)
    except KeyboardInterrupt:
        print("interrupted")
    failed = diary.failed()
    print(f"{len(diary.codes)} steps done under base {options.base}, {len(failed)} failed")
    for name, again in failed:
        print(f"FAILED {name}\n  again: {again}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
