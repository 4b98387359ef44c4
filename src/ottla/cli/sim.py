"""`ottla sim`: whole clusters under faults that a seed decides, checked after every event.

The engine is `ottla.sim`; here is what a person needs around it: options first, progress, the command that
repeats a failure, and the hash of the run as the last line. `python -m ottla.sim` is the same command.
"""

from __future__ import annotations

import logging
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from ottla.cli.errors import USAGE, Failure
from ottla.cli.output import progress_bar

if TYPE_CHECKING:
    from rich.progress import Progress

    from ottla.sim.run.options import RunOptions
    from ottla.sim.run.outcome import RunOutcome
    from ottla.sim.run.seeds import Tally

NOT_COVERED = 40
INTERRUPTED = 130
PROGRESS_EVERY_S = 30.0
UNLIMITED = str(2**63 - 1)
"""How Kafka writes that there is no limit."""

HELP = """Simulate whole clusters under faults.

Brokers and controllers as they are, on virtual time, network and disks; a seed decides the faults, and is
replayed exactly by the same Python version. One of --seed, --seeds and --minimize is wanted, or --results with
--summary. python -m ottla.sim is the same command.

Exit codes: 0 all passed, 10 a crash (an exception nobody expected), 20 safety (something happened that must
never happen), 30 liveness (something did not happen that must); of many seeds, that of the first that failed.
40 is --require-coverage where all passed and something rare never happened. 2 is wrong usage, 130 is Ctrl-C,
after which stands what is known so far.
"""


def sim(
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Run one, and tell all about it.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="A..B", help="Run A to B-1.")
    ] = None,
    minimize: Annotated[
        int | None,
        typer.Option(
            "--minimize", metavar="SEED", min=0, help="Find the fewest faults that fail it."
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=1, help="Processes for --seeds and --minimize.")
    ] = 1,
    profile: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of --seeds, only those that drew it.")
    ] = None,
    with_fault: Annotated[
        str | None, typer.Option(metavar="KIND", help="Of --seeds, only those that have it.")
    ] = None,
    stop_at_first: Annotated[
        bool, typer.Option("--stop-at-first", help="End --seeds with the first that fails.")
    ] = False,
    faults: Annotated[
        str | None,
        typer.Option(metavar="N,N,…", help="Only these faults of --seed, by number; '' for none."),
    ] = None,
    trouble: Annotated[
        float | None,
        typer.Option(metavar="S", help="Seconds under faults; all else stays as the seed says."),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Write every event of --seed to this file.")
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Append what each of --seeds came to, a line of JSON."),
    ] = None,
    summary: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Put the table of --results into this document."),
    ] = None,
    require_coverage: Annotated[
        bool, typer.Option("--require-coverage", help="Fail where something rare never happened.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show what the nodes log.")] = False,
    list_faults: Annotated[
        bool, typer.Option("--list-faults", help="Name every kind of fault, and what it does.")
    ] = False,
) -> None:
    if list_faults:
        _print_faults()
        return
    only_summary = summary is not None and (seed, seeds, minimize) == (None, None, None)
    if sum(wish is not None for wish in (seed, seeds, minimize)) != 1 and not only_summary:
        raise Failure("one of --seed, --seeds and --minimize is wanted", USAGE)
    if results is None:
        _refuse("--results", {"--summary": summary})
    if seed is None:
        _refuse("--seed", {"--faults": faults, "--trace": trace})
    if seeds is None:
        chosen = {"--profile": profile, "--with-fault": with_fault}
        flags = {
            "--stop-at-first": stop_at_first or None,
            "--require-coverage": require_coverage or None,
        }
        _refuse("--seeds", {**chosen, **flags, "--results": None if only_summary else results})
    numbers = None if faults is None else _numbers(faults)
    wanted = None if seeds is None else _range(seeds)
    _check_names(profile, with_fault)
    _fix_hashes()
    if verbose:
        logging.basicConfig(level=logging.INFO)
    else:
        logging.disable()
    if seed is not None:
        raise typer.Exit(_one(seed, trouble, numbers, trace))
    if wanted is not None:
        likely = [each for each in (profile, with_fault) if each is not None]
        with nullcontext() if results is None else _opened("--results", results, "a") as file:
            code = _many(
                wanted,
                trouble,
                jobs,
                likely,
                stop_at_first=stop_at_first,
                require_coverage=require_coverage,
                results=file,
            )
        if results is not None and summary is not None:
            _summarize(results, summary)
        raise typer.Exit(code)
    if minimize is not None:
        raise typer.Exit(_minimize(minimize, trouble, jobs))
    assert results is not None and summary is not None
    _summarize(results, summary)


def _refuse(wish: str, options: dict[str, object]) -> None:
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise Failure(f"{given[0]} goes with {wish} only", USAGE)


def _check_names(profile: str | None, kind: str | None) -> None:
    from ottla.sim.faults.registry import FAULTS
    from ottla.sim.run.profiles import NAMES

    for option, name, names in (("--profile", profile, NAMES), ("--with-fault", kind, FAULTS)):
        if name is not None and name not in names:
            raise Failure(f"{option} {name}: it is none of {', '.join(names)}", USAGE)


def _fix_hashes() -> None:
    """Begin again in a process in which sets of strings have the same order every time."""
    from ottla.sim.run.seeds import HASH_SEED

    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        sys.stdout.flush()
        environment = {**os.environ, "PYTHONHASHSEED": HASH_SEED}
        command = [sys.executable, "-m", "ottla.cli.main", *sys.argv[1:]]
        os.execve(sys.executable, command, environment)


def _range(text: str) -> range:
    first, dots, end = text.partition("..")
    if not (dots and first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        raise Failure(f"--seeds {text}: A..B with A < B is wanted, such as 0..100", USAGE)
    return range(int(first), int(end))


def _numbers(text: str) -> frozenset[int]:
    parts = [part for part in text.split(",") if part]
    if not all(part.isdecimal() for part in parts):
        raise Failure(f"--faults {text}: numbers are wanted, such as 3,7,12", USAGE)
    return frozenset(map(int, parts))


def replay_command(
    seed: int, trouble: float | None = None, faults: Iterable[int] | None = None
) -> str:
    words = [f"ottla sim --seed {seed}"]
    if trouble is not None:
        words.append(f"--trouble {trouble:g}")
    if faults is not None:
        words.append(f"--faults {shlex.quote(','.join(map(str, sorted(faults))))}")
    return " ".join(words)


def _print_faults() -> None:
    from ottla.cli.output import print_table
    from ottla.sim.faults.registry import FAULTS

    rows = [[name, kind.does, kind.undone] for name, kind in FAULTS.items()]
    print_table(["fault", "what it does", "how it ends"], rows)


def _options(seed: int, trouble: float | None, faults: frozenset[int] | None) -> RunOptions:
    from ottla.sim.run.options import RunOptions

    return RunOptions.draw(seed, trouble).with_faults(faults)


def minimize_command(seed: int, trouble: float | None) -> str:
    return replay_command(seed, trouble).replace("--seed", "--minimize")


# One seed


def _one(
    seed: int, trouble: float | None, faults: frozenset[int] | None, trace: Path | None
) -> int:
    from ottla.sim.run.outcome import Verdict
    from ottla.sim.run.scenario import run_seed

    options = _options(seed, trouble, faults)
    with nullcontext() if trace is None else _opened("--trace", trace, "w") as file:
        _print_options(options)
        began = time.monotonic()
        outcome = run_seed(seed, keep_trace=trace is not None, options=options)
        seconds = time.monotonic() - began
        if file is not None:
            file.writelines(f"{line}\n" for line in outcome.trace or ())
            print(f"trace: {len(outcome.trace or ())} events in {trace}")
    missing = sorted((faults or frozenset()).difference(outcome.struck))
    if missing:
        # How many a seed has turns out while it runs.
        numbers = ", ".join(map(str, missing))
        print(f"--faults: seed {seed} has no fault {numbers}, or it found nothing to strike")
    _print_outcome(outcome, seconds)
    if outcome.verdict is not Verdict.PASSED:
        print(f"again: {replay_command(seed, trouble, faults)}")
        if faults is None:
            print(f"smaller: {minimize_command(seed, trouble)}")
    print(outcome.digest, flush=True)
    return USAGE if missing and outcome.verdict is Verdict.PASSED else outcome.verdict


def _opened(option: str, path: Path, mode: str) -> IO[str]:
    """Before anything runs: a wrong path is not to cost a run."""
    try:
        return path.open(mode)
    except OSError as error:
        raise Failure(f"{option} {path}: {error.strerror}", USAGE) from error


def _print_options(options: RunOptions) -> None:
    for line in options.lines():
        print(line.replace(UNLIMITED, "none"), flush=True)


def _print_outcome(outcome: RunOutcome, seconds: float) -> None:
    from ottla.sim.run.seeds import speed_text

    print(f"faults: {_counts(outcome.faults) or 'none'}")
    print(
        f"clients: {outcome.acknowledged} batches acknowledged, {outcome.unknown} without an answer, "
        f"{outcome.read} records read; {outcome.losses} losses on record, "
        f"which excuse {outcome.excused} of {outcome.transactions} transactions"
    )
    print(f"{outcome.events} events in {outcome.virtual_s:.1f} virtual seconds")
    print(f"speed: {speed_text(outcome.virtual_s, outcome.cpu_s)}, {seconds:.1f} s of wall time")
    print(f"verdict: {outcome.verdict.name}")
    if outcome.problem:
        print(outcome.problem)


def _counts(counts: dict[str, int]) -> str:
    return " ".join(f"{kind}:{count}" for kind, count in sorted(counts.items()))


# Many seeds


def _many(
    seeds: range,
    trouble: float | None,
    jobs: int,
    likely: Sequence[str] = (),
    *,
    stop_at_first: bool = False,
    require_coverage: bool = False,
    results: IO[str] | None = None,
) -> int:
    """A bar and the failures for a terminal; elsewhere a line for each seed, and one of progress now and then."""
    from ottla.sim.run.results import line_of
    from ottla.sim.run.seeds import Tally, outcomes

    runs = [_options(seed, trouble, None) for seed in seeds]
    runs = [each for each in runs if all(map(each.is_likely_to_meet, likely))]
    if not runs:
        what = f"none of the seeds {seeds[0]} to {seeds[-1]} has {' and '.join(likely)}"
        raise Failure(f"--seeds: {what}; try more of them", USAGE)
    chosen = f", {len(runs)} of them with {' and '.join(likely)}," if likely else ""
    processes = "1 process" if jobs == 1 else f"{jobs} processes"
    print(f"seeds {seeds[0]} to {seeds[-1]}{chosen} on {processes}", flush=True)
    tally, began, interrupted = Tally(), time.monotonic(), False
    told = began
    bar = progress_bar(sys.stdout, news="{task.fields[news]}") if sys.stdout.isatty() else None
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is known so far is printed
    with bar or nullcontext(), closing(outcomes(runs, jobs)) as found:
        task = None if bar is None else bar.add_task("", total=len(runs), news="")
        try:
            for outcome in found:
                tally.add(outcome)
                if results is not None:
                    results.write(line_of(outcome))
                    results.flush()
                now = time.monotonic()
                if bar is not None and task is not None:
                    bar.update(task, advance=1, news=_news(tally, now - began))
                else:
                    print(_line(outcome), flush=True)
                    if now - told >= PROGRESS_EVERY_S:
                        told = now
                        print(tally.progress(len(runs), now - began), flush=True)
                if outcome.problem:
                    _report(outcome, trouble, bar, is_first=len(tally.failed) == 1)
                if stop_at_first and tally.failed:
                    break
        except KeyboardInterrupt:
            interrupted = True
    if tally.count < len(runs):
        why = "interrupted" if interrupted else "stopped at the first failure"
        print(f"{why} after {tally.count} of {len(runs)} seeds")
    if require_coverage:
        _print_coverage(tally)
    _print_tally(tally, time.monotonic() - began, trouble)
    if interrupted:
        return INTERRUPTED
    if require_coverage and not tally.failed and tally.never_happened:
        return NOT_COVERED
    return tally.verdict


def _print_coverage(tally: Tally) -> None:
    for word, times in tally.rare_states():
        print(f"{times:>8} {word}")
    if tally.never_happened:
        print(f"never happened in these seeds: {', '.join(tally.never_happened)}")


def _summarize(results: Path, document: Path) -> None:
    from ottla.sim.run.results import write_summary

    try:
        write_summary(results, document)
    except OSError as error:
        raise Failure(f"--summary: {error.filename}: {error.strerror}", USAGE) from error
    except ValueError as error:
        raise Failure(f"--summary: {error}", USAGE) from error


def _print_tally(tally: Tally, seconds: float, trouble: float | None) -> None:
    print(f"{tally.count} seeds in {seconds:.0f} s: {_rates(tally, seconds)}")
    print(
        f"faults: {_counts(tally.faults) or 'none'}; {tally.losses} losses on record, "
        f"which excuse {tally.excused} of {tally.transactions} transactions"
    )
    for outcome in tally.failed:
        print(f"{outcome.verdict.name}: {replay_command(outcome.seed, trouble)}")
    print(tally.digest, flush=True)


def _line(outcome: RunOutcome) -> str:
    return (
        f"{outcome.seed} {outcome.verdict.name} {outcome.acknowledged} acknowledged "
        f"{outcome.events} events {outcome.digest}"
    )


def _report(
    outcome: RunOutcome, trouble: float | None, bar: Progress | None, *, is_first: bool
) -> None:
    """Above the bar, if there is one."""
    text = (
        f"seed {outcome.seed}: {outcome.verdict.name}\n{outcome.problem}\n"
        f"again: {replay_command(outcome.seed, trouble)}"
    )
    if is_first:
        text += f"\nsmaller: {minimize_command(outcome.seed, trouble)}"
    if bar is None:
        print(text, flush=True)
    else:
        bar.console.print(text, markup=False, highlight=False)


def _rates(tally: Tally, seconds: float) -> str:
    from ottla.sim.run.seeds import speed_text

    seconds = max(seconds, 1e-6)
    return (
        f"{len(tally.failed)} failed, {tally.count / seconds:.1f} seeds/s, "
        f"{tally.events / seconds / 1000:.0f}k events/s, "
        f"{tally.virtual_s / 3600:.1f} virtual hours, {speed_text(tally.virtual_s, tally.cpu_s)}"
    )


def _news(tally: Tally, seconds: float) -> str:
    """The same, short enough to stand beside a bar."""
    seconds = max(seconds, 1e-6)
    return f"{len(tally.failed)} failed {tally.count / seconds:.1f}/s {tally.speed:.0f}x a core"


# Fewer faults


def _minimize(seed: int, trouble: float | None, jobs: int = 1) -> int:
    from ottla.sim.run.outcome import Verdict
    from ottla.sim.run.seeds import minimize, run

    options = _options(seed, trouble, None)
    _print_options(options)
    began = time.monotonic()
    first = smallest = run(options)
    if first.verdict is Verdict.PASSED:
        raise Failure(f"--minimize: seed {seed} passes, there is nothing to leave out", USAGE)
    print(f"{first.verdict.name} after {len(first.struck)} faults", flush=True)
    searching = time.monotonic()

    def tell(tried: int, found: RunOutcome) -> None:
        nonlocal smallest
        each = f"{tried} tried, {(time.monotonic() - searching) / tried:.1f} s each:"
        if found is smallest:
            print(f"{each} still {len(found.struck)} faults", flush=True)
        else:
            smallest = found
            command = replay_command(seed, trouble, found.struck)
            print(f"{each} {len(found.struck)} faults are enough: {command}", flush=True)

    interrupted = False
    try:
        minimize(options, first, tell, jobs)
    except KeyboardInterrupt:
        interrupted = True
        print("interrupted; the best so far:")
    else:
        again = run(_options(seed, trouble, frozenset(smallest.struck)))
        assert again.digest == smallest.digest, (
            "the same faults of the same seed are another run (C5)"
        )
    print("what happened:" if smallest.struck else "no fault is needed: it fails by itself")
    for line in smallest.fault_log:
        print(f"  {line}")
    _print_outcome(smallest, time.monotonic() - began)
    print(f"again: {replay_command(seed, trouble, smallest.struck)}")
    print(smallest.digest, flush=True)
    return INTERRUPTED if interrupted else smallest.verdict
