"""`python -m ottla.sim`: run seeds.

    python -m ottla.sim --seed 7 [--trace FILE] [--trouble SECONDS]
    python -m ottla.sim --seeds 0..100 --jobs 2 [--require-coverage]

At the end of many seeds stands how often each rare state was met. Exit codes: 0 all passed, 10 a crash, 20 a
broken invariant, 30 no progress (the first that occurred), 40 something that was to be covered was not.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterable

from ottla.sim.coverage import RARE
from ottla.sim.scenario import Options, Verdict, run_seed
from ottla.sim.seeds import HASH_SEED, Tally, outcomes

NOT_COVERED = 40


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ottla.sim", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="one seed, with all that is known about it")
    which.add_argument("--seeds", type=_range, metavar="A..B", help="A to B-1, a line each")
    parser.add_argument("--jobs", type=int, default=1, help="processes for --seeds")
    parser.add_argument("--trace", metavar="FILE", help="write every event of --seed there")
    parser.add_argument(
        "--trouble", type=float, metavar="S", help="so long under faults, not what the seed says"
    )
    parser.add_argument(
        "--require-coverage", action="store_true", help="fail where something rare never happened"
    )
    parser.add_argument("--verbose", action="store_true", help="what the nodes log")
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        # Our own code does not depend on it; whatever it imports might.
        environment = {**os.environ, "PYTHONHASHSEED": HASH_SEED}
        os.execve(sys.executable, [sys.executable, "-m", "ottla.sim", *sys.argv[1:]], environment)
    logging.basicConfig(level=logging.INFO if arguments.verbose else logging.CRITICAL)
    if arguments.seed is not None:
        return _run_one(arguments.seed, arguments.trouble, arguments.trace)
    return _run_many(arguments.seeds, arguments.trouble, arguments.jobs, arguments.require_coverage)


def _range(text: str) -> range:
    first, dots, end = text.partition("..")
    if not dots:
        raise argparse.ArgumentTypeError("A..B is wanted")
    return range(int(first), int(end))


def _replay(seed: int, trouble_s: float | None) -> str:
    options = "" if trouble_s is None else f" --trouble {trouble_s}"
    return f"again: python -m ottla.sim --seed {seed}{options}"


def _run_one(seed: int, trouble_s: float | None, trace: str | None) -> int:
    options = Options.draw(seed, trouble_s)
    for line in options.lines():
        print(line, flush=True)
    outcome = run_seed(seed, keep_trace=trace is not None, options=options)
    if trace is not None and outcome.trace is not None:
        with open(trace, "w") as file:
            file.writelines(f"{line}\n" for line in outcome.trace)
    faults = " ".join(f"{kind}:{count}" for kind, count in outcome.faults.items())
    print(f"met {faults or 'no fault'}")
    print(
        f"{outcome.acknowledged} batches acknowledged, {outcome.unknown} unknown, {outcome.read} "
        f"records read, {outcome.losses} recorded losses; {outcome.events} events in "
        f"{outcome.virtual_s:.1f} virtual seconds"
    )
    if outcome.verdict is not Verdict.PASSED:
        print(outcome.problem)
        print(f"{outcome.verdict.name}; {_replay(seed, trouble_s)}")
    print(outcome.digest)
    return outcome.verdict


def _run_many(
    seeds: Iterable[int], trouble_s: float | None, jobs: int, require_coverage: bool
) -> int:
    tally = Tally()
    for outcome in outcomes([Options.draw(seed, trouble_s) for seed in seeds], jobs):
        tally.add(outcome)
        print(
            f"{outcome.seed} {outcome.verdict.name} {outcome.acknowledged} {outcome.events} "
            f"{outcome.digest}",
            flush=True,
        )
        if outcome.verdict is not Verdict.PASSED:
            print(outcome.problem)
            print(_replay(outcome.seed, trouble_s), flush=True)
    for word in RARE:
        print(f"{tally.marks[word]:>8} {word}")
    print("met " + " ".join(f"{kind}:{times}" for kind, times in sorted(tally.faults.items())))
    absent = tally.never_happened
    if absent:
        print(f"never happened: {', '.join(absent)}")
    failed = [outcome.seed for outcome in tally.failed]
    print(
        f"{tally.count} seeds, {len(failed)} failed {failed}; {tally.virtual_s:.0f} virtual seconds, "
        f"{tally.events} events, {tally.losses} recorded losses"
    )
    if not failed and require_coverage and absent:
        return NOT_COVERED
    return tally.verdict


if __name__ == "__main__":
    sys.exit(main())
