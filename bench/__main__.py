"""`scripts/bench`: which cases, how often, and what to do with the figures."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from bench import history, report, spark
from bench.asked import CASES_ASKED
from bench.cases import CASES, FIGURES, Case, Figures
from bench.report import BROKERS, SPARK, WITH_ACLS, Comparison, Rounds
from bench.secured import Certificates, Logins
from bench.targets import Guarded, Kafka, Ottla, Target
from support import kafka_jars

BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"
RECORD = report.DOCS / "benchmarks.json"
"""Every round's figures of what was last written into the documents, by case."""
HISTORY = report.DOCS / "benchmarks-history.jsonl"
"""Every run that was written, a line each; lines are only ever appended."""
WARM_UP = ("produce-1k", "unbatched", "consume", "ack-2000", "end-to-end")
"""What is done to a cluster that cases share before the first of them: large requests and small ones, written and read,
at full speed and paced. A JVM compiles what it does often, and no case must pay for that, whichever runs first."""
WARM_UP_SCALE = 0.5
TOUCHED_BYTES = 6 << 30
BUSY_FROM = 0.7
WIDTH = 180
"""Of a table that no terminal shows."""


def main() -> int:
    options = parse()
    # As Ctrl-C does: brokers are killed on the way out, and what was measured is shown.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    chosen = choose(options)
    under = conditions(options)
    rounds: Rounds = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    failures: list[str] = []
    try:
        with neighbours(options.beside):
            measure(chosen, options, rounds, failures)
    except KeyboardInterrupt:
        failures.append("interrupted")
        options.write = False  # half of a comparison is none
        print(
            "interrupted; this is what was measured before, and nothing is written", file=sys.stderr
        )
    if options.json:
        units = {name: figure.unit for name, figure in FIGURES.items()}
        print(json.dumps({"conditions": under, "units": units, "cases": rounds}, indent=1))
    else:
        print(under)
        compared = [WITH_ACLS] if options.acls else measured(rounds)
        show(rounds, compared, judged=options.scale == 1)
        if options.scale < 1 and options.only != "ottla":
            print(
                "A quick look, no comparison: the warm-up is as short as the cases, and a JVM that is not warm takes "
                "several times what it takes otherwise."
            )
    if options.write and rounds:
        write(rounds, under)
        history.append(HISTORY, rounds, under)
    return 1 if failures else 0


def conditions(options: argparse.Namespace) -> str:
    """What a reader of the figures has to know of how they came about."""
    load = os.getloadavg()[0]
    if load > BUSY_FROM:
        print(
            f"the machine is busy (load average {load:.1f}): figures of a quiet one differ, and more for one "
            "side than for the other",
            file=sys.stderr,
        )
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    beside = "" if options.only == "ottla" else f", Apache Kafka {kafka_jars.KAFKA_VERSION}"
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores and {memory_gb:.0f} GB, load average before {load:.1f}; "
        f"Python {platform.python_version()}{beside}; rounds {options.rounds}, scale {options.scale:g}"
    )


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Processes that want a processor all the time. They end with this one, however it ends."""
    busy = f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(100_000))"
    each = [subprocess.Popen([sys.executable, "-c", busy]) for _ in range(count)]
    try:
        yield
    finally:
        for one in each:
            one.kill()
            one.wait()


def measure(
    chosen: list[Case], options: argparse.Namespace, rounds: Rounds, failures: list[str]
) -> None:
    """Fills `rounds` as they are done."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress, spark.SharedCluster() as under_spark:
        task = progress.add_task(
            "", total=sum(len(targets_of(case, options)) for case in chosen) * options.rounds
        )
        progress.update(task, description="touching memory")
        touch_memory(int(TOUCHED_BYTES * options.scale))
        for round, make, cases in turns(chosen, options):
            with House(make, options.scale, under_spark) as house:
                for case in cases:
                    step = f"{case.name}: {make.name}, round {round + 1}"
                    progress.update(task, description=step)
                    if not console.is_terminal:
                        print(f"{datetime.now():%H:%M:%S} {step}", file=sys.stderr, flush=True)
                    try:
                        figures = house.run(case)
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


def turns(
    chosen: list[Case], options: argparse.Namespace
) -> Iterator[tuple[int, type[Any], list[Case]]]:
    """Who is measured when, and by which cases: alone on the machine, and each first in its turn. Cases
    with a cluster of their own come first, before the one that the others share."""
    for round in range(options.rounds):
        for of_spark in (False, True):
            cases = [case for case in chosen if case.spark == of_spark]
            cases.sort(key=lambda case: not case.own_cluster)
            if cases:
                targets = targets_of(cases[0], options)
                for make in targets if round % 2 == 0 else reversed(targets):
                    yield round, make, cases


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=sys.modules["bench"].__doc__)
    parser.add_argument(
        "cases", nargs="*", help="names of cases; all of the short ones if none is given"
    )
    parser.add_argument("--only", choices=["ottla", "kafka"], help="ottla alone needs no Java")
    parser.add_argument("--rounds", type=int, default=3, help="3 unless told")
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="how much is written and read, and for how long; 0.1 for a quick look",
    )
    parser.add_argument(
        "--asked",
        action="store_true",
        help="only the cases with a ratio that ottla asks of itself; half an hour, and Spark's besides",
    )
    parser.add_argument(
        "--beside",
        type=int,
        default=0,
        metavar="N",
        help="so many other processes want a processor all the time, as on a machine that is shared",
    )
    parser.add_argument(
        "--tcp",
        action="store_true",
        help="ottla's brokers use TCP among themselves, as on machines of their own",
    )
    parser.add_argument(
        "--tls",
        action="store_true",
        help="both sides with TLS, for clients and among brokers and controllers; ottla's over TCP",
    )
    parser.add_argument(
        "--acls",
        type=int,
        default=0,
        metavar="N",
        help="ottla with an authorizer and so many ACLs (10000) beside ottla without; clients log in at both. Without Kafka",
    )
    parser.add_argument(
        "--blind",
        action="store_true",
        help="ottla without event log and metrics, to see what they cost",
    )
    parser.add_argument("--long", action="store_true", help="also the cases that take many minutes")
    parser.add_argument("--json", action="store_true", help="every round's figures")
    parser.add_argument(
        "--write",
        action="store_true",
        help="put these cases into the tables and charts under docs/; what others last showed stays, and "
        "docs/benchmarks-history.jsonl keeps every run",
    )
    parser.add_argument("--list", action="store_true", help="name the cases")
    options = parser.parse_args()
    if options.list:
        for case in CASES:
            print(f"{case.name:22} {case.about}{' (long)' if case.long else ''}")
        sys.exit(0)
    if options.rounds < 1 or not 0 < options.scale <= 1:
        parser.error("--rounds is at least 1, --scale above 0 and at most 1")
    unusual = options.beside or options.tcp or options.tls or options.acls or options.blind
    if options.write and (options.scale < 1 or unusual):
        parser.error(
            "--write needs the whole load, the whole machine and ottla as it is: "
            "without --scale, --beside, --tcp, --tls, --acls or --blind"
        )
    if options.tcp:
        Ottla.settings = {**Ottla.settings, "ottla.local.sockets.enable": "false"}
    if options.blind:
        off = {"ottla.event.log.enable": "false", "metrics.listeners": ""}
        Ottla.settings = {**Ottla.settings, **off}
    unknown = sorted(set(options.cases) - {case.name for case in CASES})
    if unknown:
        parser.error(f"no such case: {', '.join(unknown)} (--list names them)")
    if any(case.spark for case in CASES if case.name in options.cases) and not spark.is_installed():
        parser.error("these cases need PySpark: scripts/setup --spark")
    if options.tls or options.acls:
        if any(case.spark for case in CASES if case.name in options.cases):
            parser.error("Spark's cases have no TLS and no logins")
        if options.tls and options.acls:
            parser.error("--tls and --acls each want listeners of their own")
        Target.access = Logins() if options.acls else Certificates()
    if options.acls:
        Guarded.acls, options.only = options.acls, "ottla"
    if options.only != "ottla" and (why := kafka_jars.lack()) is not None:
        parser.error(f"{why}; --only ottla needs neither")
    return options


def choose(options: argparse.Namespace) -> list[Case]:
    if options.cases:
        return [case for case in CASES if case.name in options.cases]
    chosen = [case for case in CASES if not options.asked or case.name in CASES_ASKED]
    without_java = options.only == "ottla"
    without_spark = without_java or options.tls or options.acls or not spark.is_installed()
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
    if options.acls:
        return [Guarded, Ottla]
    both: list[type[Any]] = [Ottla, Kafka]
    if case.spark:
        both = [spark.OttlaSource, spark.SparkConnector]
    return [each for each in both if options.only in (None, each.name.lower())]


class House:
    """One side while it is measured, with what its cases share, made with the first that asks."""

    def __init__(self, make: type[Any], scale: float, under_spark: spark.SharedCluster) -> None:
        self._make = make
        self._scale = scale
        self._under_spark = under_spark
        self._stack = ExitStack()
        self._shared: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, case: Case) -> Figures:
        if case.own_cluster:
            with self._make(brokers=case.brokers) as target:
                return case.run(target, self._scale)
        if self._shared is None:
            self._shared = self._source() if case.spark else self._warm_brokers()
        if case.spark:
            return case.run(self._shared, self._scale)
        self._shared.settle()
        figures = case.run(self._shared, self._scale)
        self._shared.delete_topics()
        return figures

    def _source(self) -> spark.SparkTarget:
        source: spark.SparkTarget = self._stack.enter_context(self._make(self._under_spark))
        return source

    def _warm_brokers(self) -> Target:
        target: Target = self._stack.enter_context(self._make())
        for case in CASES:
            if case.name in WARM_UP:
                case.run(target, self._scale * WARM_UP_SCALE)
                target.delete_topics()
        return target


def touch_memory(size: int) -> None:
    """Have the page cache in use once before anything is measured: in a virtual machine, memory that is
    used for the first time costs its user several times the write itself."""
    block = bytes(1 << 20)
    with tempfile.TemporaryFile() as file:
        for _ in range(0, size, len(block)):
            file.write(block)


def measured(rounds: Rounds) -> list[Comparison]:
    return [each for each in (BROKERS, SPARK) if report.rows(rounds, each)]


def show(rounds: Rounds, compared: list[Comparison], *, judged: bool) -> None:
    for comparison in compared:
        table = Table(*comparison.header)
        before = ""
        for row in report.rows(rounds, comparison, judged=judged):
            if row[0] != before:
                table.add_section()
            table.add_row(row[0] if row[0] != before else "", *row[1:])
            before = row[0]
        console = Console()
        Console(width=None if console.is_terminal else WIDTH).print(table)


def write(rounds: Rounds, under: str) -> None:
    """The cases of this run, beside those of earlier ones."""
    measured_now = list(rounds)
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {"cases": {}, "under": {}}
    rounds = {**recorded["cases"], **rounds}
    conditions = {**recorded["under"], **dict.fromkeys(measured_now, under)}
    RECORD.write_text(
        json.dumps({"cases": rounds, "under": conditions}, indent=1, sort_keys=True) + "\n"
    )
    for comparison in measured(rounds):
        head, _, rest = comparison.document.read_text().partition(BEGIN)
        _, _, tail = rest.partition(END)
        picture = (
            f"![How far ottla is ahead (right of the line) or behind]({comparison.chart.name})"
        )
        table = report.markdown(rounds, comparison)
        told = report.conditions(conditions, comparison)
        comparison.document.write_text(f"{head}{BEGIN}\n{told}\n{table}\n{picture}\n\n{END}{tail}")
        comparison.chart.write_text(report.chart(rounds, comparison))


if __name__ == "__main__":
    sys.exit(main())
