"""`ottla lab`: the designs that the documents weigh, run and measured side by side.

The designs and experiments are in `ottla.lab`; here is what a person needs around them.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli import lab_play
from ottla.cli.errors import FAILED, NOT_FOUND, USAGE, Failure
from ottla.cli.output import Format, FormatOption, print_json, print_table, progress_bar

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from ottla.lab.experiment import Experiment
    from ottla.lab.results import ExperimentResult
    from ottla.lab.runner import Progress

PROCESSORS = os.cpu_count() or 1
SEEDS_MAX = 100_000
"""In one command. More of them would take days, and memory."""

app = typer.Typer(
    name="lab",
    help="Compare designs of replication.",
    no_args_is_help=True,
)
app.command()(lab_play.play)

SeedsOption = Annotated[
    str | None,
    typer.Option("--seeds", metavar="N|A..B", help="The first N seeds, or A to B-1."),
]
JobsOption = Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes.")]
SmallOption = Annotated[bool, typer.Option("--small", help="Few seeds and small sizes.")]


@app.command(name="list")
def list_all(format: FormatOption = Format.table) -> None:
    """Name the experiments and the designs."""
    from ottla.lab.design import all_designs
    from ottla.lab.experiment import all_experiments

    experiments, designs = all_experiments().values(), all_designs().values()
    if format is Format.json:
        print_json(
            {
                "experiments": [
                    {
                        "name": each.name,
                        "title": each.title,
                        "question": each.question,
                        "promises": list(each.promises),
                        "designs": list(each.designs()),
                        "seeds": each.default_seeds,
                    }
                    for each in experiments
                ],
                "designs": [
                    {
                        "name": each.name,
                        "seam": each.seam.name.lower(),
                        "promise": each.promise,
                        "summary": each.summary,
                        "product": each.is_product,
                    }
                    for each in designs
                ],
            }
        )
        return
    print_table(
        ("EXPERIMENT", "SEEDS", "QUESTION"),
        [(each.name, each.default_seeds, each.question) for each in experiments],
    )
    print()
    print_table(
        ("DESIGN", "SEAM", "PROMISE", "EXPERIMENTS", "WHAT IT DOES"),
        [
            (
                each.name,
                each.seam.name.lower(),
                each.promise,
                ",".join(e.name for e in experiments if each.name in e.designs()) or "-",
                each.summary,
            )
            for each in designs
        ],
    )


@app.command()
def run(
    names: Annotated[list[str] | None, typer.Argument(help="Experiments; see `list`.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every experiment.")] = False,
    seeds: SeedsOption = None,
    design: Annotated[
        list[str] | None, typer.Option("--design", help="Only this design (repeatable).")
    ] = None,
    jobs: JobsOption = PROCESSORS,
    small: SmallOption = False,
    results: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write what was found, as JSON.")
    ] = None,
    format: FormatOption = Format.table,
) -> None:
    """Run experiments, and print what they found. Exit code 1 if one does not show what it must."""
    experiments = _chosen(names, everything)
    if results is not None:
        with _writing("--results"):
            results.open("a").close()  # before anything runs: a wrong path is not to cost a run
    found = run_experiments(experiments, seeds, design or [], jobs, small=small)
    if results is not None:
        results.write_text(json.dumps([each.to_json() for each in found], indent=1) + "\n")
    if format is Format.json:
        print_json([each.to_json() for each in found])
    else:
        for each in found:
            _print_result(each)
    _fail_if_not_shown(found)


@app.command()
def report(
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write DIR/index.html, all in one page.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a Markdown page, charts beside it.")
    ] = None,
    sources: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            metavar="RESULTS.json",
            help="Run nothing; take these results (repeatable: the last of an experiment counts).",
        ),
    ] = None,
    seeds: SeedsOption = None,
    jobs: JobsOption = PROCESSORS,
    small: SmallOption = False,
) -> None:
    """Run every experiment, and write what they found as a page. Exit code 1 as with `run`."""
    from ottla.lab.report import pages

    if out is None and markdown is None:
        raise Failure("say where to write: --out DIR, or --markdown FILE, or both", USAGE)
    if sources and (seeds is not None or small):
        raise Failure("--seeds and --small choose what runs; with --from nothing does", USAGE)
    if not pages.can_draw():
        raise Failure("the charts need matplotlib: pip install 'ottla[lab]'")
    with _writing("--out"):
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
    with _writing("--markdown"):
        if markdown is not None:
            markdown.parent.mkdir(parents=True, exist_ok=True)
            markdown.open("a").close()
    if sources:
        newest = {each.experiment: each for file in sources for each in _read_results(file)}
        found = [each for _, each in sorted(newest.items())]
    else:
        found = run_experiments(_chosen(None, True), seeds, [], jobs, small=small)
    if out is not None:
        with _writing("--out"):
            print(pages.write_html(found, out))
    if markdown is not None:
        with _writing("--markdown"):
            pages.write_markdown(found, markdown)
        print(markdown)
    _fail_if_not_shown(found)


@contextmanager
def _writing(option: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Failure(f"{option} {error.filename}: {error.strerror}", USAGE) from error


def _read_results(file: Path) -> list[ExperimentResult]:
    from ottla.lab.report.pages import NotResults, results_of

    try:
        return results_of(file.read_text())
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}", NOT_FOUND) from error
    except (NotResults, UnicodeDecodeError) as error:
        raise Failure(f"{file} is not what ottla lab run --results writes: {error}") from error


def _fail_if_not_shown(found: list[ExperimentResult]) -> None:
    broken = [f"{each.experiment}: {why}" for each in found for why in each.failed_expectations]
    if broken:
        raise Failure("not shown:\n  " + "\n  ".join(broken), FAILED)


def _chosen(names: list[str] | None, everything: bool) -> list[Experiment]:
    from ottla.lab.experiment import all_experiments

    known = all_experiments()
    if bool(names) == everything:
        raise Failure("name experiments, or give --all (ottla lab list)", USAGE)
    for name in names or ():
        if name not in known:
            raise Failure(f"no experiment {name}; there are: {', '.join(known)}", NOT_FOUND)
    return [known[name] for name in names or known]


def run_experiments(
    experiments: list[Experiment],
    seeds: str | None,
    designs: list[str],
    jobs: int,
    *,
    small: bool,
) -> list[ExperimentResult]:
    """With a bar on a terminal, and a line for each experiment elsewhere."""
    from ottla.lab.design import all_designs
    from ottla.lab.runner import options_for, run_experiment

    logging.disable()  # what nodes of the lab log is not the result
    for name in designs:
        if name not in all_designs():
            raise Failure(
                f"no design {name}; there are: {', '.join(all_designs())}",
                NOT_FOUND,
            )
    chosen = None if seeds is None else _range(seeds)
    found = []
    for experiment in experiments:
        fitting = [name for name in designs if name in experiment.designs()]
        if designs and not fitting:
            raise Failure(
                f"{experiment.name} does not compare {', '.join(designs)}, but "
                f"{', '.join(experiment.designs())}",
                USAGE,
            )
        options = options_for(experiment, seeds=chosen, designs=fitting, small=small)
        began = time.monotonic()
        bar = progress_bar(sys.stderr, "{task.description}") if sys.stderr.isatty() else None
        with bar or nullcontext():
            found.append(run_experiment(experiment, options, jobs, _advance(bar, experiment.name)))
        took_s = time.monotonic() - began
        print(f"ottla: {experiment.name}: {took_s:.1f} s", file=sys.stderr, flush=True)
    return found


def _range(text: str) -> range:
    first, dots, end = text.partition("..")
    try:
        chosen = range(int(first), int(end)) if dots else range(int(first))
    except ValueError:
        raise Failure(f"--seeds {text}: a number, or A..B, is wanted", USAGE) from None
    if chosen.stop - chosen.start > SEEDS_MAX:
        raise Failure(f"--seeds {text}: at most {SEEDS_MAX:,} of them", USAGE)
    if not chosen or chosen.start < 0:
        raise Failure(f"--seeds {text}: there is no seed in it", USAGE)
    return chosen


def _print_result(result: ExperimentResult) -> None:
    print(f"\n== {result.experiment}: {result.question}\n")
    for table in result.tables:
        print(table.title)
        print_table(table.columns, [["-" if c is None else c for c in row] for row in table.rows])
        if table.note:
            print(table.note)
        print()
    for timeline in result.timelines:
        print(f"{timeline.title}, {timeline.design}: {timeline.verdict}")
    print(result.finding)
    for each in result.contradictions:
        print(f"contradicts the documents: {each}")
    print(f"again: {result.command}", flush=True)


def _advance(bar: Bar | None, name: str) -> Progress:
    if bar is None:
        return lambda done, of: None
    task = bar.add_task(name, total=None)
    return lambda done, of: bar.update(task, completed=done, total=of)
