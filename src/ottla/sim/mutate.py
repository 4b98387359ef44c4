"""`python -m ottla.sim.mutate`: how many random seeds it takes to notice each known bug.

    python -m ottla.sim.mutate [--only NAME ...] [--seeds-max 200] [--jobs 2] [--write docs/MUTATIONS.md]

Ordinary scenarios, no schedule made for the bug; where a profile of seeds, or a kind of fault, is likely to meet it,
those seeds come first. A bug counts as caught by a broken invariant, by a failed
assertion of the product, by a file of which the product says that it is damaged, or by missing progress; an
exception of any other kind does not count, since a
mutation that only breaks the program proves nothing, and neither does a seed that fails without the bug. Exit
code 1 if one was not caught.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ottla.sim.mutations import MUTATIONS
from ottla.sim.run.options import RunOptions
from ottla.sim.run.outcome import RunOutcome, Verdict
from ottla.sim.run.scenario import run_seed
from ottla.sim.run.seeds import HASH_SEED, workers

SEEDS_MAX = 200
NOT_CAUGHT = "**not caught**"


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one mutation."""

    name: str
    caught_by: str
    """The invariant; empty if nothing noticed."""
    seed: int
    """The one that did, or the last tried."""
    seeds: int
    """How many were tried."""
    seconds: float
    what: str


def caught_by(outcome: RunOutcome) -> str:
    """The name of the invariant that an outcome breaks; empty if it breaks none."""
    text = outcome.problem
    if outcome.verdict is Verdict.LIVENESS:
        return "liveness"
    if outcome.verdict is Verdict.SAFETY:
        rule = text.split(" ", 1)[0]
        if rule == "M" and "AssertionError" not in text:
            return ""
        return f"{rule} (assertion)" if rule == "M" else rule
    damaged = re.search(r"died of (Corrupt\w+)", text)
    if damaged is not None:
        return f"a file that a crash damaged ({damaged[1]})"
    if outcome.verdict is Verdict.CRASH and "AssertionError" in text:
        rules = re.findall(r"\(([DMC]\d+)", text)
        return f"{rules[-1]} (assertion)" if rules else "assertion"
    return ""


@cache
def passes(seed: int, trouble_s: float | None) -> bool:
    """Without any bug put back."""
    return run_seed(seed, options=RunOptions.draw(seed, trouble_s)).verdict is Verdict.PASSED


def order(likely: str, first: int = 0) -> Iterator[int]:
    """Seeds of a profile, or with a kind of fault, from the first on; all of them where none is named."""
    for seed in itertools.count(first):
        if not likely or RunOptions.draw(seed).is_likely_to_meet(likely):
            yield seed


def hunt(name: str, seeds_max: int, first: int = 0, trouble_s: float | None = None) -> Finding:
    """Seeds in turn until one notices."""
    began = time.monotonic()
    mutation = MUTATIONS[name]
    for count, seed in enumerate(order(mutation.likely, first), 1):
        with mutation.applied():
            outcome = run_seed(seed, options=RunOptions.draw(seed, trouble_s))
        found = caught_by(outcome)
        if found and not passes(seed, trouble_s):
            found = ""  # something else is wrong there
        if found or count == seeds_max:
            break
    what = next((line for line in outcome.problem.splitlines() if line.strip()), "")
    return Finding(name, found, seed, count, time.monotonic() - began, what)


def findings(names: Sequence[str], seeds_max: int, first: int, jobs: int) -> Iterator[Finding]:
    if jobs == 1:
        yield from (hunt(name, seeds_max, first) for name in names)
        return
    with workers(jobs) as pool:
        under_way = [pool.submit(hunt, name, seeds_max, first) for name in names]
        for done in as_completed(under_way):
            yield done.result()


ROW = re.compile(
    r"\| `(\w+)` \|.*\| (?P<caught>[^|]+) \| (?P<seeds>\d+) \| [^|]+ \| (?P<seed>\d+) \| (?P<seconds>\d+) \|"
)


def rows_in(text: str) -> dict[str, Finding]:
    """What an earlier table says, by name: all of it in one go takes hours."""
    return {
        match[1]: Finding(
            match[1],
            "" if match["caught"] == NOT_CAUGHT else match["caught"],
            int(match["seed"]),
            int(match["seeds"]),
            float(match["seconds"]),
            "",
        )
        for match in map(ROW.match, text.splitlines())
        if match is not None and match[1] in MUTATIONS
    }


def table(found: Sequence[Finding]) -> str:
    """Markdown, in the order of the registry. Rows may come from runs of different `--seeds-max`, so it says what each took."""
    caught = [finding.seeds for finding in found if finding.caught_by]
    seeds = sum(finding.seeds for finding in found)
    lines = [
        "# Known bugs, and how soon the simulator notices them",
        "",
        "Written by `python -m ottla.sim.mutate --write docs/MUTATIONS.md`. Each bug is put back into the",
        "product (`ottla.sim.mutations`), then ordinary random seeds run until one fails: by a broken invariant",
        "(their names are those of the simulator's documentation), by an assertion of the product itself, or",
        "because the healed cluster does not come to rest. A seed that fails without the bug does not count.",
        "",
        "Seeds 0, 1, 2, … in turn, where *any* is said. Else only those that drew that profile, or that kind of fault, in",
        "the same order: a profile makes a state of the protocol likely (`ottla.sim.run.profiles`) and knows nothing of bugs.",
        "*seeds* is how many ran, *seed* the one that noticed. Rows may come from several runs (`--only`); the seconds are those of",
        "whatever else the machine had to do.",
        "",
        f"Mutation score: {len(caught)} of {len(MUTATIONS)}; {seeds} seeds in all. Of what was caught, no bug took more than "
        f"{max(caught, default=0)} seeds. How many seeds a bug that was not caught was given is in its row.",
        "",
        "| bug | known from | what it breaks | caught by | seeds | of | seed | seconds |",
        "|---|---|---|---|---:|---|---:|---:|",
    ]
    registry = list(MUTATIONS)
    for finding in sorted(found, key=lambda each: registry.index(each.name)):
        mutation = MUTATIONS[finding.name]
        lines.append(
            f"| `{finding.name}` | {mutation.bug} | {mutation.breaks} | "
            f"{finding.caught_by or NOT_CAUGHT} | {finding.seeds} | {mutation.likely or 'any'} | "
            f"{finding.seed} | {finding.seconds:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ottla.sim.mutate", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=sorted(MUTATIONS), metavar="NAME")
    parser.add_argument("--list", action="store_true", help="the names, and what each breaks")
    parser.add_argument("--seeds-max", type=int, default=SEEDS_MAX, help="for each mutation")
    parser.add_argument("--first", type=int, default=0, help="the seed to begin with")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--write", metavar="FILE", help="write the table there; rows of others than --only stay"
    )
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        environment = {**os.environ, "PYTHONHASHSEED": HASH_SEED}
        command = [sys.executable, "-m", "ottla.sim.mutate", *sys.argv[1:]]
        os.execve(sys.executable, command, environment)
    logging.disable()
    if arguments.list:
        for mutation in MUTATIONS.values():
            print(f"{mutation.name} [{mutation.bug}]: {mutation.breaks}")
        return 0
    found = []
    names = arguments.only or list(MUTATIONS)
    for finding in findings(names, arguments.seeds_max, arguments.first, arguments.jobs):
        found.append(finding)
        print(
            f"{finding.name}: {finding.caught_by or 'NOT CAUGHT'} after {finding.seeds} seeds, "
            f"{finding.seconds:.0f} s; seed {finding.seed}: {finding.what[:200]}",
            flush=True,
        )
    if arguments.write:
        file = Path(arguments.write)
        rows = rows_in(file.read_text()) if file.exists() else {}
        rows |= {finding.name: finding for finding in found}
        file.write_text(table(list(rows.values())))
    missed = [finding.name for finding in found if not finding.caught_by]
    print(f"{len(found) - len(missed)} of {len(found)} caught; not caught: {missed}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
