"""`scripts/bench`: which cases, how often, and what to do with the figures."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench import report, spark
from bench.asked import CASES_ASKED
from bench.cases import CASES, Case, Figures
from bench.report import BROKERS, SPARK, Comparison, Rounds
from bench.targets import Kafka, Ottla, Target

BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"
RECORD = report.DOCS / "benchmarks.json"
"""Every round's figures of what was last written into the documents, by case."""
WARM_UP = ("produce-1k", "unbatched", "consume", "ack-2000", "end-to-end")
"""What is done to a cluster that cases share before the first of them: large requests and small ones, written and read,
at full speed and paced. A JVM compiles what it does often, and no case must pay for that, whichever runs first."""
WARM_UP_SCALE = 0.5
TOUCHED_BYTES = 6 << 30


def main() -> int:
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # on the way out brokers are killed
    chosen = choose(options)
    rounds: Rounds = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    failures: list[str] = []
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress, ExitStack() as stack:
        task = progress.add_task(
            "", total=sum(len(targets_of(case, options)) for case in chosen) * options.rounds
        )
        progress.update(task, description="touching memory")
        touch_memory(int(TOUCHED_BYTES * min(1.0, options.scale)))
        clusters = Clusters(stack, options.scale)
        for case in chosen:
            targets = targets_of(case, options)
            for round in range(options.rounds):
                # In turns, and each first as often as the other.
                for make in targets if round % 2 == 0 else reversed(targets):
                    progress.update(
                        task, description=f"{case.name}: {make.name}, round {round + 1}"
                    )
                    try:
                        figures = clusters.run(case, make)
                    except Exception as error:  # the other cases' figures are worth keeping
                        failures.append(f"{case.name} against {make.name}: {error!r}")
                        progress.console.print(failures[-1])
                        continue
                    finally:
                        progress.advance(task)
                    for name, value in figures.items():
                        column = rounds[case.name][make.name][name]
                        column += [None] * (round - len(column))  # rounds that failed
                        column.append(value)
    if options.json:
        print(json.dumps(rounds, indent=1))
    else:
        show(rounds)
    if options.write:
        write(rounds)
    return 1 if failures else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=sys.modules["bench"].__doc__)
    parser.add_argument(
        "cases", nargs="*", help="names of cases; all of the short ones if none is given"
    )
    parser.add_argument("--only", choices=["ottla", "kafka"], help="ottla alone needs no Java")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--scale", type=float, default=1.0, help="how much of the load; 0.1 for a quick look"
    )
    parser.add_argument(
        "--asked",
        action="store_true",
        help="only the cases with a ratio that ottla asks of itself; about 35 minutes",
    )
    parser.add_argument("--long", action="store_true", help="also the cases that take many minutes")
    parser.add_argument("--json", action="store_true", help="every round's figures")
    parser.add_argument(
        "--write",
        action="store_true",
        help="put these cases into the tables and charts under docs/; what others last showed stays",
    )
    parser.add_argument("--list", action="store_true", help="name the cases")
    options = parser.parse_args()
    if options.list:
        for case in CASES:
            print(f"{case.name:22} {case.about}{' (long)' if case.long else ''}")
        sys.exit(0)
    if options.rounds < 1 or options.scale <= 0:
        parser.error("--rounds is at least 1, --scale above 0")
    unknown = sorted(set(options.cases) - {case.name for case in CASES})
    if unknown:
        parser.error(f"no such case: {', '.join(unknown)} (--list names them)")
    return options


def choose(options: argparse.Namespace) -> list[Case]:
    if options.cases:
        return [case for case in CASES if case.name in options.cases]
    chosen = [case for case in CASES if not options.asked or case.name in CASES_ASKED]
    without_java = options.only == "ottla"
    without_spark = without_java or not spark.is_installed()
    if not spark.is_installed():
        print("without the cases of Spark, which need scripts/setup --spark", file=sys.stderr)
    return [
        case
        for case in chosen
        if (options.asked or options.long or not case.long)
        and not (case.java and without_java)
        and not (case.spark and without_spark)
    ]


def targets_of(case: Case, options: argparse.Namespace) -> list[type[Any]]:
    both = [spark.OttlaSource, spark.SparkConnector] if case.spark else [Ottla, Kafka]
    return [each for each in both if options.only in (None, each.name.lower())]


class Clusters:
    """What cases share, made with the first that asks."""

    def __init__(self, stack: ExitStack, scale: float) -> None:
        self._stack = stack
        self._scale = scale
        self._brokers: dict[str, Target] = {}
        self._under_spark = stack.enter_context(spark.SharedCluster())
        self._sources: dict[str, spark.SparkTarget] = {}

    def run(self, case: Case, make: type[Any]) -> Figures:
        if case.spark:
            return case.run(self._source(make), self._scale)
        if case.own_cluster:
            with make(brokers=case.brokers) as target:
                return case.run(target, self._scale)
        target = self._warm(make)
        figures = case.run(target, self._scale)
        target.delete_topics()
        return figures

    def _source(self, make: type[spark.SparkTarget]) -> spark.SparkTarget:
        if make.name not in self._sources:
            self._sources[make.name] = self._stack.enter_context(make(self._under_spark))
        return self._sources[make.name]

    def _warm(self, make: type[Target]) -> Target:
        if make.name not in self._brokers:
            target = self._brokers[make.name] = self._stack.enter_context(make())
            for case in CASES:
                if case.name in WARM_UP:
                    case.run(target, self._scale * WARM_UP_SCALE)
                    target.delete_topics()
        return self._brokers[make.name]


def touch_memory(size: int) -> None:
    """Have the page cache in use once before anything is measured: in a virtual machine, memory that is
    used for the first time costs its user several times the write itself."""
    block = bytes(1 << 20)
    with tempfile.TemporaryFile() as file:
        for _ in range(0, size, len(block)):
            file.write(block)


def measured(rounds: Rounds) -> list[Comparison]:
    return [each for each in (BROKERS, SPARK) if report.rows(rounds, each)]


def show(rounds: Rounds) -> None:
    for comparison in measured(rounds):
        table = Table(*comparison.header)
        before = ""
        for row in report.rows(rounds, comparison):
            if row[0] != before:
                table.add_section()
            table.add_row(row[0] if row[0] != before else "", *row[1:])
            before = row[0]
        Console().print(table)


def write(rounds: Rounds) -> None:
    """The cases of this run, beside those of earlier ones."""
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    rounds = {**recorded, **rounds}
    RECORD.write_text(json.dumps(rounds, indent=1, sort_keys=True) + "\n")
    for comparison in measured(rounds):
        head, _, rest = comparison.document.read_text().partition(BEGIN)
        _, _, tail = rest.partition(END)
        picture = (
            f"![How far ottla is ahead (right of the line) or behind]({comparison.chart.name})"
        )
        table = report.markdown(rounds, comparison)
        comparison.document.write_text(f"{head}{BEGIN}\n{table}\n{picture}\n\n{END}{tail}")
        comparison.chart.write_text(report.chart(rounds, comparison))


if __name__ == "__main__":
    sys.exit(main())
