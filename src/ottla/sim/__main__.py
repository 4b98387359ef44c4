"""`python -m ottla.sim`: run seeds.

    python -m ottla.sim --seed 7 [--trace FILE] [--trouble SECONDS]
    python -m ottla.sim --seeds 0..100 --jobs 2 [--results FILE] [--require-coverage]
    python -m ottla.sim --results FILE --summary docs/SIMULATOR-RESULTS.md

At the end of many seeds stands how often each rare state was met. Exit codes: 0 all passed, 10 a crash, 20 a
broken invariant, 30 no progress (the first that occurred), 40 something that was to be covered was not, 2 wrong
usage, 130 Ctrl-C, after which stands what is known so far.

`ottla sim` is what people use by day: --minimize, --faults, --profile, --with-fault and --stop-at-first are there.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from contextlib import closing, nullcontext
from pathlib import Path
from typing import IO

from ottla.sim.oracle.coverage import RARE
from ottla.sim.run.options import RunOptions
from ottla.sim.run.outcome import RunOutcome, Verdict
from ottla.sim.run.results import line_of, write_summary
from ottla.sim.run.scenario import run_seed
from ottla.sim.run.seeds import HASH_SEED, Tally, outcomes, speed_text

NOT_COVERED = 40
INTERRUPTED = 130
PROGRESS_EVERY_S = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ottla.sim",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", type=_seed, help="one seed, with all that is known about it")
    which.add_argument("--seeds", type=_range, metavar="A..B", help="A to B-1, a line each")
    parser.add_argument("--jobs", type=int, default=1, help="processes for --seeds")
    parser.add_argument(
        "--trace", type=Path, metavar="FILE", help="write every event of --seed there"
    )
    parser.add_argument(
        "--trouble", type=float, metavar="S", help="so long under faults; all else as the seed says"
    )
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="append what each of --seeds came to, as JSON"
    )
    parser.add_argument(
        "--summary", type=Path, metavar="FILE", help="put the table of --results into this document"
    )
    parser.add_argument(
        "--require-coverage", action="store_true", help="fail where something rare never happened"
    )
    parser.add_argument("--verbose", action="store_true", help="what the nodes log")
    arguments = parser.parse_args()
    if arguments.summary is not None and arguments.results is None:
        parser.error("--summary needs --results")
    if arguments.seed is None and arguments.seeds is None and arguments.summary is None:
        parser.error("one of --seed, --seeds and --summary is wanted")
    if arguments.trace is not None and arguments.seed is None:
        parser.error("--trace goes with --seed only")
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        # Our own code does not depend on it; whatever it imports might.
        environment = {**os.environ, "PYTHONHASHSEED": HASH_SEED}
        os.execve(sys.executable, [sys.executable, "-m", "ottla.sim", *sys.argv[1:]], environment)
    if arguments.verbose:
        logging.basicConfig(level=logging.INFO)
    else:
        logging.disable()
    code: int = Verdict.PASSED
    if arguments.seed is not None:
        try:
            trace = nullcontext() if arguments.trace is None else arguments.trace.open("w")
        except OSError as error:
            parser.error(f"--trace {arguments.trace}: {error.strerror}")
        with trace as file:
            code = _run_one(arguments.seed, arguments.trouble, file)
    elif arguments.seeds is not None:
        code = _run_many(arguments)
    if arguments.summary is not None:
        write_summary(arguments.results, arguments.summary)
    return code


def _range(text: str) -> range:
    first, dots, end = text.partition("..")
    if not (dots and first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        raise argparse.ArgumentTypeError(f"{text}: A..B with A < B is wanted, such as 0..100")
    return range(int(first), int(end))


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text}: a seed is a number, 0 or more")
    return int(text)


def _replay(seed: int, trouble_s: float | None) -> str:
    options = "" if trouble_s is None else f" --trouble {trouble_s:g}"
    return f"again: python -m ottla.sim --seed {seed}{options}"


def _run_one(seed: int, trouble_s: float | None, trace: IO[str] | None) -> int:
    options = RunOptions.draw(seed, trouble_s)
    for line in options.lines():
        print(line, flush=True)
    began = time.monotonic()
    outcome = run_seed(seed, keep_trace=trace is not None, options=options)
    seconds = time.monotonic() - began
    if trace is not None:
        trace.writelines(f"{line}\n" for line in outcome.trace or ())
    faults = " ".join(f"{kind}:{count}" for kind, count in outcome.faults.items())
    print(f"met {faults or 'no fault'}")
    print(
        f"{outcome.acknowledged} batches acknowledged, {outcome.unknown} unknown, {outcome.read} "
        f"records read, {outcome.losses} recorded losses, {outcome.transactions} transactions, of which "
        f"they excuse {outcome.excused}; {outcome.events} events in "
        f"{outcome.virtual_s:.1f} virtual seconds"
    )
    print(f"{speed_text(outcome.virtual_s, outcome.cpu_s)}, {seconds:.1f} s of wall time")
    if outcome.verdict is not Verdict.PASSED:
        print(outcome.problem)
        print(f"{outcome.verdict.name}; {_replay(seed, trouble_s)}")
    print(outcome.digest)
    return outcome.verdict


def _run_many(arguments: argparse.Namespace) -> int:
    seeds, trouble_s = arguments.seeds, arguments.trouble
    tally, began = Tally(), time.monotonic()
    told = began
    runs = [RunOptions.draw(seed, trouble_s) for seed in seeds]
    interrupted = False
    with (
        arguments.results.open("a") if arguments.results else nullcontext() as results,
        closing(outcomes(runs, arguments.jobs)) as found,
    ):
        try:
            for outcome in found:
                tally.add(outcome)
                if results is not None:
                    results.write(line_of(outcome))
                    results.flush()
                _tell(outcome, trouble_s)
                now = time.monotonic()
                if now - told >= PROGRESS_EVERY_S:
                    told = now
                    print(tally.progress(len(runs), now - began), flush=True)
        except KeyboardInterrupt:
            interrupted = True
    _tell_tally(tally)
    print(tally.progress(len(runs), time.monotonic() - began))
    if interrupted:
        return INTERRUPTED
    absent = tally.never_happened
    if not tally.failed and arguments.require_coverage and absent:
        return NOT_COVERED
    return tally.verdict


def _tell(outcome: RunOutcome, trouble_s: float | None) -> None:
    print(
        f"{outcome.seed} {outcome.verdict.name} {outcome.acknowledged} {outcome.events} "
        f"{outcome.digest}",
        flush=True,
    )
    if outcome.verdict is not Verdict.PASSED:
        print(outcome.problem)
        print(_replay(outcome.seed, trouble_s), flush=True)


def _tell_tally(tally: Tally) -> None:
    for word in RARE:
        print(f"{tally.marks[word]:>8} {word}")
    print("met " + " ".join(f"{kind}:{times}" for kind, times in sorted(tally.faults.items())))
    if tally.never_happened:
        print(f"never happened: {', '.join(tally.never_happened)}")
    failed = [outcome.seed for outcome in tally.failed]
    print(
        f"{tally.count} seeds, {len(failed)} failed {failed}; {tally.virtual_s:.0f} virtual seconds, "
        f"{tally.events} events, {tally.losses} recorded losses, {tally.transactions} transactions, "
        f"of which they excuse {tally.excused}"
    )


if __name__ == "__main__":
    sys.exit(main())
