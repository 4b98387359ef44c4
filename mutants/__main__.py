"""`scripts/mutants`: draws mutants, tries each, and keeps what came of it, so that it can be interrupted and goes on."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from mutants import reach, report
from mutants.operators import Mutant
from mutants.sample import PACKAGES, draw, everything
from mutants.trial import Workshop

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "docs" / "mutants"
PAGE = ROOT / "docs" / "MUTANTS.md"
EQUIVALENT = ROOT / "mutants" / "equivalent.json"
CACHE = ROOT / ".cache" / "mutants"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="draws the sample [1]")
    parser.add_argument(
        "--count", type=int, default=600, help="mutants against the unit tests [600]"
    )
    parser.add_argument(
        "--simulate",
        type=int,
        default=150,
        help="the first of them also against the simulator [150]",
    )
    parser.add_argument("--seeds", type=int, default=100, help="of the simulator, for each [100]")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--hours", type=float, help="stop after these; the next run goes on")
    parser.add_argument("--list", action="store_true", help="print the sample and try nothing")
    parser.add_argument(
        "--write", action="store_true", help="only write the tables into docs/MUTANTS.md"
    )
    return parser.parse_args()


def commit() -> str:
    words = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


class Kept:
    """The results of one sample: a line of JSON for each part of a trial, the newest counts."""

    def __init__(self, seed: int) -> None:
        self._file = KEPT / f"sample-{seed}.jsonl"
        self._lock = threading.Lock()
        self.results: dict[str, dict[str, Any]] = {}
        for line in self._file.read_text().splitlines() if self._file.exists() else ():
            result = json.loads(line)
            self.results.setdefault(result["id"], {}).update(result)

    def add(self, mutant: Mutant, **part: Any) -> None:
        result = {"id": mutant.id, **mutant._asdict(), **part}
        with self._lock:
            self.results.setdefault(mutant.id, {}).update(result)
            KEPT.mkdir(exist_ok=True)
            with self._file.open("a") as file:
                file.write(json.dumps(result) + "\n")


def main() -> int:
    options = arguments()
    if options.write:
        write()
        return 0
    population = everything(ROOT / "src")
    sample = draw(population, options.count, options.seed)
    if options.list:
        for mutant in sample:
            print(
                f"{mutant.path}:{mutant.line} {mutant.kind}: {report.short(mutant.before)} → {report.short(mutant.after)}"
            )
        total = sum(map(len, population.values()))
        print(f"{len(sample)} of {total} in {len(PACKAGES)} packages", file=sys.stderr)
        return 0
    reached = reach.measure(ROOT, CACHE / commit())
    kept = Kept(options.seed)
    ends = time.monotonic() + options.hours * 3600 if options.hours else float("inf")
    workshops: SimpleQueue[Workshop] = SimpleQueue()
    for number in range(options.jobs):
        workshops.put(Workshop(ROOT, CACHE / f"worker-{number}"))
    of = commit()

    def one(number: int, mutant: Mutant) -> None:
        if time.monotonic() > ends:
            return
        known = kept.results.get(mutant.id, {})
        workshop = workshops.get()
        try:
            if "unit" not in known:
                found = workshop.unit(mutant, reach.tests_for(mutant, reached))
                kept.add(mutant, commit=of, unit=found)
                say(number, len(sample), mutant, "unit tests", found)
            tried = known.get("simulator") or {}
            if (
                number < options.simulate
                and tried.get("of", 0) < options.seeds
                and not tried.get("killed_by")
            ):
                found = workshop.simulator(mutant, range(options.seeds))
                kept.add(mutant, commit=of, simulator=found)
                say(number, len(sample), mutant, "simulator", found)
        finally:
            workshops.put(workshop)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(one, range(len(sample)), sample))
    print(f"{len(kept.results)} tried; scripts/mutants --write puts the tables into {PAGE.name}")
    return 0


def say(number: int, of: int, mutant: Mutant, who: str, found: dict[str, Any]) -> None:
    verdict = f"killed by {found['killed_by']}" if found["killed_by"] else "SURVIVED"
    print(
        f"{number + 1}/{of} {mutant.path}:{mutant.line} {mutant.kind}; {who}: {verdict} ({found['seconds']} s)",
        flush=True,
    )


def write() -> None:
    samples = {
        int(file.stem.partition("-")[2]): [
            each
            for each in Kept(int(file.stem.partition("-")[2])).results.values()
            if "unit" in each
        ]
        for file in sorted(KEPT.glob("sample-*.jsonl"))
    }
    equivalent = json.loads(EQUIVALENT.read_text())
    PAGE.write_text(report.replaced(PAGE.read_text(), report.tables(samples, equivalent)))


if __name__ == "__main__":
    sys.exit(main())
