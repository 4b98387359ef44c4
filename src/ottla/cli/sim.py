"""`ottla sim`: whole clusters under faults that a seed decides, checked after every event.

The engine is `ottla.sim`; here is what a person needs around it: options first, progress, the command that
repeats a failure, and the hash of the run as the last line.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.errors import USAGE, Failure

if TYPE_CHECKING:
    from rich.progress import Progress

    from ottla.sim.scenario import Options, Outcome
    from ottla.sim.seeds import Tally

UNLIMITED = str(2**63 - 1)
"""How Kafka writes that there is no limit."""

HELP = """Simulate whole clusters under faults.

Brokers and controllers as they are, on virtual time, network and disks; a seed decides the faults, and is
replayed exactly by the same Python version. One of --seed, --seeds and --minimize is wanted.

Exit codes: 0 all passed, 10 a crash (an exception nobody expected), 20 safety (something happened that must
never happen), 30 liveness (something did not happen that must); of many seeds, that of the first that failed.
"""


def sim(
    seed: Annotated[
        int | None, typer.Option("--seed", help="Run one, and tell all about it.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="A..B", help="Run A to B-1.")
    ] = None,
    minimize: Annotated[
        int | None,
        typer.Option("--minimize", metavar="SEED", help="Find the fewest faults that fail it."),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes for --seeds.")] = 1,
    faults: Annotated[
        str | None,
        typer.Option(metavar="N,N,…", help="Only these faults of --seed, by number; '' for none."),
    ] = None,
    trouble: Annotated[
        float | None,
        typer.Option(metavar="S", help="Seconds under faults, not what the seed says."),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Write every event of --seed to this file.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show what the nodes log.")] = False,
) -> None:
    if sum(wish is not None for wish in (seed, seeds, minimize)) != 1:
        raise Failure("one of --seed, --seeds and --minimize is wanted", USAGE)
    numbers = None if faults is None else _numbers(faults)
    wanted = None if seeds is None else _range(seeds)
    _fix_hashes()
    if verbose:
        logging.basicConfig(level=logging.INFO)
    else:
        logging.disable()
    if seed is not None:
        raise typer.Exit(_one(seed, trouble, numbers, trace))
    if wanted is not None:
        raise typer.Exit(_many(wanted, trouble, jobs))
    assert minimize is not None
    raise typer.Exit(_minimize(minimize, trouble))


def _fix_hashes() -> None:
    """Begin again in a process in which sets of strings have the same order every time."""
    from ottla.sim.seeds import HASH_SEED

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
        words.append(f"--faults {','.join(map(str, sorted(faults)))}")
    return " ".join(words)


def _options(seed: int, trouble: float | None, faults: frozenset[int] | None) -> Options:
    from ottla.sim.scenario import Options

    options = Options.draw(seed, trouble)
    return replace(options, faults=replace(options.faults, only=faults))


# One seed


def _one(
    seed: int, trouble: float | None, faults: frozenset[int] | None, trace: Path | None
) -> int:
    from ottla.sim.scenario import Verdict, run_seed

    options = _options(seed, trouble, faults)
    _print_options(options)
    outcome = run_seed(seed, keep_trace=trace is not None, options=options)
    if trace is not None:
        with trace.open("w") as file:
            file.writelines(f"{line}\n" for line in outcome.trace or ())
        print(f"trace: {len(outcome.trace or ())} events in {trace}")
    _print_outcome(outcome)
    if outcome.verdict is not Verdict.PASSED:
        print(f"again: {replay_command(seed, trouble, faults)}")
        if faults is None:
            print(f"smaller: {replay_command(seed, trouble).replace('--seed', '--minimize')}")
    print(outcome.digest, flush=True)
    missing = (faults or frozenset()).difference(outcome.struck)
    if missing and outcome.verdict is Verdict.PASSED:
        # How many a seed has turns out while it runs.
        numbers = ", ".join(map(str, sorted(missing)))
        raise Failure(
            f"--faults: seed {seed} has no fault {numbers}, or it found nothing to strike", USAGE
        )
    return outcome.verdict


def _print_options(options: Options) -> None:
    for line in options.lines():
        print(line.replace(UNLIMITED, "none"), flush=True)


def _print_outcome(outcome: Outcome) -> None:
    print(f"faults: {_counts(outcome.faults) or 'none'}")
    print(
        f"clients: {outcome.acknowledged} batches acknowledged, {outcome.unknown} without an answer, "
        f"{outcome.read} records read; {outcome.losses} losses on record"
    )
    print(f"{outcome.events} events in {outcome.virtual_s:.1f} virtual seconds")
    print(f"speed: {outcome.speed:.0f} times as fast as real time")
    print(f"verdict: {outcome.verdict.name}")
    if outcome.problem:
        print(outcome.problem)


def _counts(counts: dict[str, int]) -> str:
    return " ".join(f"{kind}:{count}" for kind, count in sorted(counts.items()))


# Many seeds


def _many(seeds: range, trouble: float | None, jobs: int) -> int:
    """A bar and the failures for a terminal, a line for each seed elsewhere."""
    from ottla.sim.seeds import Tally, outcomes

    print(f"seeds {seeds[0]} to {seeds[-1]} on {jobs} processes", flush=True)
    tally, began = Tally(), time.monotonic()
    bar = _bar() if sys.stdout.isatty() else None
    with bar or nullcontext():
        task = None if bar is None else bar.add_task("", total=len(seeds), news="")
        for outcome in outcomes([_options(seed, trouble, None) for seed in seeds], jobs):
            tally.add(outcome)
            if bar is not None and task is not None:
                bar.update(task, advance=1, news=_news(tally, time.monotonic() - began))
            else:
                print(_line(outcome), flush=True)
            if outcome.problem:
                _report(outcome, trouble, bar)
    seconds = time.monotonic() - began
    print(f"{tally.count} seeds in {seconds:.0f} s: {_rates(tally, seconds)}")
    print(f"faults: {_counts(tally.faults) or 'none'}; {tally.losses} losses on record")
    for outcome in tally.failed:
        print(f"{outcome.verdict.name}: {replay_command(outcome.seed, trouble)}")
    print(tally.digest)
    return tally.verdict


def _line(outcome: Outcome) -> str:
    return (
        f"{outcome.seed} {outcome.verdict.name} {outcome.acknowledged} acknowledged "
        f"{outcome.events} events {outcome.digest}"
    )


def _report(outcome: Outcome, trouble: float | None, bar: Progress | None) -> None:
    """Above the bar, if there is one."""
    text = (
        f"seed {outcome.seed}: {outcome.verdict.name}\n{outcome.problem}\n"
        f"again: {replay_command(outcome.seed, trouble)}"
    )
    if bar is None:
        print(text, flush=True)
    else:
        bar.console.print(text, markup=False, highlight=False)


def _rates(tally: Tally, seconds: float) -> str:
    seconds = max(seconds, 1e-6)
    return (
        f"{len(tally.failed)} failed, {tally.count / seconds:.1f} seeds/s, "
        f"{tally.events / seconds / 1000:.0f}k events/s, "
        f"{tally.virtual_s / 3600:.1f} virtual hours, {tally.speed:.0f} times as fast as real time "
        f"on each core"
    )


def _news(tally: Tally, seconds: float) -> str:
    """The same, short enough to stand beside a bar."""
    seconds = max(seconds, 1e-6)
    return f"{len(tally.failed)} failed {tally.count / seconds:.1f}/s {tally.speed:.0f}x a core"


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[news]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(file=sys.stdout),
    )


# Fewer faults


def _minimize(seed: int, trouble: float | None) -> int:
    from ottla.sim.scenario import Verdict
    from ottla.sim.seeds import minimize, run

    options = _options(seed, trouble, None)
    _print_options(options)
    first = run(options)
    if first.verdict is Verdict.PASSED:
        raise Failure(f"--minimize: seed {seed} passes, there is nothing to leave out", USAGE)
    print(f"{first.verdict.name} after {len(first.struck)} faults", flush=True)

    def tell(tried: int, smallest: Outcome) -> None:
        print(f"{tried} tried: {len(smallest.struck)} faults are enough", flush=True)

    smallest = minimize(options, first, tell).outcome
    again = run(_options(seed, trouble, frozenset(smallest.struck)))
    assert again.digest == smallest.digest, "the same faults of the same seed are another run (C5)"
    print("what happened:")
    for line in smallest.story:
        print(f"  {line}")
    _print_outcome(smallest)
    print(f"again: {replay_command(seed, trouble, smallest.struck)}")
    print(smallest.digest)
    return smallest.verdict
