"""The report as Markdown for the repository: what the lab is, its designs, the results, and how to add a design.

Charts are SVG files beside the page, because repositories do not show SVG that is inside of a page.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from importlib import import_module
from textwrap import fill

from ottla.lab.design import Seam, all_designs, designs_of
from ottla.lab.report.chart_svg import described
from ottla.lab.report.figures import columns_of
from ottla.lab.report.html_page import INTRODUCTION, contradictions_of, title_of
from ottla.lab.report.timeline_html import scenarios
from ottla.lab.results import Chart, ExperimentResult, ReplicaMoment, Table, Timeline

LINE = 120
EXAMPLE = "hw-truncation"
"""The design that shows how to add one."""

HEAD = """# The lab

{introduction}

This page is generated. `ottla lab report --markdown docs/LAB.md` runs every experiment and writes it anew;
`ottla lab report --from docs/lab/results.json --markdown docs/LAB.md` makes it of the stored results. For one experiment anew:
`ottla lab run NAME --results new.json`, then the second command with `--from new.json` as well.

"The documents" are five public texts about Kafka's replication, with which this project began. Their claims are tested here, and a
contradiction names the text. 000 and 002 are translations of Kafka's own chapter on replication (French, Chinese), 001 is a set
of notes on followers, high watermarks and leader epochs (Korean), 003 one on placement and leader epochs (English), 004 one on the
ZooKeeper versions of the controller (Chinese).

## Run it

```console
$ ottla lab list                # the experiments and the designs
$ ottla lab run --all           # every experiment; or name those that you want, as the list does
$ ottla lab play loss --design hw-truncation    # a scenario step by step, forwards and backwards
$ ottla lab report --out DIR    # every experiment, and what it found as one HTML page: DIR/index.html
```

`--small` runs few seeds and small sizes. All of it takes less than ten minutes on two cores. The charts of the report need matplotlib (`pip install 'ottla[lab]'`).
"""

HOW_TO_ADD = """## How to add a design

A design is one file in `src/ottla/lab/designs`. It assigns a `Design` to the name `DESIGN`, with the part of the node that it
replaces. `ottla lab` finds the file by itself. A design of the seams truncation, propagation, transfer or lock then takes part in
the experiments of its seam (`ottla lab list` shows in which); those of the seam commit place replicas for each design, and name
theirs. The file is named as the design, with underscores. This is `{path}`, all of it:

```python
{source}```

Then:

1. Run it beside the product: `ottla lab run loss divergence --small --design leader-epochs --design YOURS`.
2. Write the page anew, with the first of the two commands at the top. Until then `tests/lab/test_lab_page.py` fails.
3. Give the promise in docs/PROMISES.md a test that shows what the design loses or wins.

A seam that the product does not have yet is a field of `NodeDesign` (`src/ottla/broker/design.py`), with what the product does as
its default, and a member of `Seam` (`src/ottla/lab/design.py`). An experiment is one file in `src/ottla/lab/experiments`, which assigns
an `Experiment` to the name `EXPERIMENT`.
"""


def markdown_page(results: Sequence[ExperimentResult], drawings: str) -> str:
    """`drawings`: the directory of the charts, as the page links to it."""
    parts = [
        HEAD.format(introduction=fill(INTRODUCTION, LINE)),
        _contents(results),
        _designs(),
        _summary(results),
        *(_experiment(each, drawings) for each in results),
        _how_to_add(),
    ]
    return "\n".join(parts)


def drawing_name(result: ExperimentResult, at: int) -> str:
    """Of its chart number `at`, from 1 on."""
    return f"{result.experiment}-{at}"


def _anchor(heading: str) -> str:
    """As GitHub makes them."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-")


def _link(result: ExperimentResult) -> str:
    title = title_of(result)
    return f"[{title}](#{_anchor(title)})"


def _contents(results: Sequence[ExperimentResult]) -> str:
    lines = [f"- {_link(each)}" for each in results]
    titles = ("The designs", "What was found", *lines, "How to add a design")
    entries = [
        each if each.startswith("- [") else f"- [{each}](#{_anchor(each)})" for each in titles
    ]
    return "\n".join(entries) + "\n"


def _designs() -> str:
    lines = ["## The designs", ""]
    for seam in Seam:
        designs = designs_of(seam)
        if designs:
            lines += [f"**{seam.name.capitalize()}.** {seam.value}", ""]
            lines += _rows(
                ("design", "promise", "what it does"),
                [
                    (
                        f"`{each.name}`" + (" (the product)" if each.is_product else ""),
                        each.promise,
                        each.summary,
                    )
                    for each in designs
                ],
            )
            lines.append("")
    return "\n".join(lines)


def _summary(results: Sequence[ExperimentResult]) -> str:
    rows = [
        (_link(each), f"{_plain(each.finding)} {contradictions_of(each)}".rstrip())
        for each in results
    ]
    return "\n".join(["## What was found", "", *_rows(("experiment", "finding"), rows), ""])


def _rows(
    heads: Sequence[str], rows: Sequence[Sequence[str]], to_right: Sequence[bool] = ()
) -> list[str]:
    rights = to_right or [False] * len(heads)
    return [
        "| " + " | ".join(map(_cell, heads)) + " |",
        "|" + "|".join("---:" if right else "---" for right in rights) + "|",
        *("| " + " | ".join(map(_cell, row)) + " |" for row in rows),
    ]


def _plain(text: str) -> str:
    """Words of a result. What looks like a tag would not be shown."""
    return re.sub(r"`[^`]*`|<", lambda found: "&lt;" if found[0] == "<" else found[0], text)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _experiment(result: ExperimentResult, drawings: str) -> str:
    known = all_designs()
    title = title_of(result)
    names = ", ".join(
        f"`{name}` ({known[name].promise})" if name in known else f"`{name}`"
        for name in result.designs
    )
    lines = [
        f"## {title}",
        "",
        f"*{_plain(result.question)}*",
        "",
        f"**{_plain(result.finding)}**",
        "",
        f"Designs: {names}.",
        "",
    ]
    for head, sentences in (
        ("Not shown, though it must be", result.failed_expectations),
        ("Contradicts the documents", result.contradictions),
    ):
        if sentences:
            lines += [f"{head}:", "", *(f"- {_plain(each)}" for each in sentences), ""]
    for at, chart in enumerate(result.charts, 1):
        lines += _chart(chart, f"{drawings}/{drawing_name(result, at)}.svg")
    for table in result.tables:
        lines += _table(table)
    for scenario, timelines in scenarios(result.timelines).items():
        lines += [f"### {_plain(scenario)}", ""]
        for timeline in timelines:
            lines += _timeline(timeline)
    lines += [
        f"Again, with the seeds {result.seeds}:",
        "",
        "```console",
        f"$ {result.command}",
        "```",
        "",
    ]
    return "\n".join(lines)


def _chart(chart: Chart, file: str) -> list[str]:
    alternative = re.sub(r"[\[\]]", "", described(chart)).replace("\n", " ")
    return [f"**{_plain(chart.title)}**", "", f"![{alternative}]({file})", ""]


def _table(table: Table) -> list[str]:
    columns = columns_of(table)
    rows = [[_plain(column.cells[at]) for column in columns] for at in range(len(table.rows))]
    rights = [column.is_numeric for column in columns]
    note = [_plain(table.note), ""] if table.note else []
    return [f"**{_plain(table.title)}**", "", *_rows(table.columns, rows, rights), "", *note]


def _timeline(timeline: Timeline) -> list[str]:
    brokers = sorted({each.broker for step in timeline.steps for each in step.replicas})
    rows = []
    for step in timeline.steps:
        replicas = {each.broker: each for each in step.replicas}
        told = "".join(f"<br>· {_plain(each)}" for each in step.events)
        rows.append(
            [
                f"{step.at_s:.2f} s",
                f"{_plain(step.what)}{told}",
                *(_replica(replicas[each]) if each in replicas else "–" for each in brokers),
            ]
        )
    return [
        f"`{timeline.design}`: {_plain(timeline.verdict)}",
        "",
        "<details><summary>Every step (offset:value@epoch)</summary>",
        "",
        *_rows(("at", "what", *(f"broker {each}" for each in brokers)), rows),
        "",
        "</details>",
        "",
    ]


def _replica(replica: ReplicaMoment) -> str:
    """`leader, epoch 1, HW 2, LEO 2` over its records."""
    known = (
        ""
        if replica.high_watermark is None
        else f"epoch {replica.epoch}, HW {replica.high_watermark}, "
    )
    records = " ".join(
        f"~~`{text}`~~ **lost**" if entry.is_lost else f"`{text}`"
        for entry in replica.log
        for text in [f"{entry.offset}:{entry.value}@{entry.epoch}"]
    )
    role = f"**{replica.role}**" if replica.changed else replica.role
    return f"{role}, {known}LEO {replica.log_end}<br>{records}"


def _how_to_add() -> str:
    """The example is the source as it is now."""
    module = EXAMPLE.replace("-", "_")
    source = inspect.getsource(import_module(f"ottla.lab.designs.{module}"))
    return HOW_TO_ADD.format(path=f"src/ottla/lab/designs/{module}.py", source=source)
