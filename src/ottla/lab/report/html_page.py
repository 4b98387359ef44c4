"""The report as one HTML page that asks no other host for anything.

Its style and its script are inline, and its Content-Security-Policy allows these two by their hashes and nothing else.
Without the script all is there; the script steps through timelines.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from ottla.lab.design import Design, all_designs
from ottla.lab.experiment import all_experiments
from ottla.lab.report.chart_svg import svg_of
from ottla.lab.report.figures import Column, columns_of
from ottla.lab.report.prose_html import prose
from ottla.lab.report.timeline_html import scenario_html, scenarios
from ottla.lab.results import ExperimentResult, Table

TITLE = "The replication lab of ottla"
INTRODUCTION = (
    "Every replication design that the documents on Kafka weigh, run as a part of the same broker, in the same "
    "deterministic simulator, on the same schedules. Everything here was counted or measured in those runs; the "
    "same seeds give the same figures. Times are simulated: messages and disks take time, processors do not."
)
NAME_LETTERS = 26
"""Up to these a cell is not broken into lines."""


def html_page(results: Sequence[ExperimentResult]) -> str:
    style, script = _resource("report.css"), _resource("stepping.js")
    policy = "; ".join(
        (
            "default-src 'none'",
            f"style-src '{_hash(style)}'",
            f"script-src '{_hash(script)}'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            '<link rel="icon" href="data:,">',
            f"<title>{TITLE}</title>",
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            "<header>",
            f"<h1>{TITLE}</h1>",
            f"<p>{INTRODUCTION}</p>",
            "</header>",
            _contents(results),
            "<main>",
            _summary(results),
            *(_experiment(each) for each in results),
            "</main>",
            f"<script>{script}</script>",
            "</body>",
            "</html>",
            "",
        )
    )


def _resource(name: str) -> str:
    return (files(__package__) / name).read_text()


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def title_of(result: ExperimentResult) -> str:
    known = all_experiments().get(result.experiment)
    return result.experiment if known is None else known.title


def _contents(results: Sequence[ExperimentResult]) -> str:
    entries = "".join(
        f'<li><a href="#{escape(each.experiment)}">{prose(title_of(each))}</a></li>'
        for each in results
    )
    return f'<nav aria-label="Contents"><h2>Contents</h2><ol>{entries}</ol></nav>'


def _summary(results: Sequence[ExperimentResult]) -> str:
    rows = "".join(
        f'<tr><th scope="row"><a href="#{escape(each.experiment)}">{prose(title_of(each))}</a></th>'
        f"<td>{prose(each.finding)}{_remarks(each)}</td></tr>"
        for each in results
    )
    return (
        '<section class="found" aria-label="Findings"><h2>What was found</h2><table class="summary">'
        "<caption>Each experiment, and what its figures say</caption>"
        '<thead><tr><th scope="col">experiment</th><th scope="col">finding</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></section>"
    )


def _remarks(result: ExperimentResult) -> str:
    contradicts = contradictions_of(result)
    found = f' <span class="soft">{contradicts}</span>' if contradicts else ""
    if result.failed_expectations:
        found += ' <strong class="verdict bad">It does not show what it must.</strong>'
    return found


def contradictions_of(result: ExperimentResult) -> str:
    """One sentence; empty if there are none."""
    count = len(result.contradictions)
    return f"Contradicts the documents in {count} point{'s' * (count > 1)}." if count else ""


def _experiment(result: ExperimentResult) -> str:
    name = escape(result.experiment)
    charts = [
        f'<figure class="chart"><figcaption>{prose(chart.title)}</figcaption>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(chart.title)}">'
        f"{svg_of(chart, f'{result.experiment}-{at}')}</div></figure>"
        for at, chart in enumerate(result.charts, 1)
    ]
    parts = [
        f'<section class="experiment" id="{name}" aria-labelledby="{name}-title">',
        f'<h2 id="{name}-title">{prose(title_of(result))}</h2>',
        f'<p class="question">{prose(result.question)}</p>',
        f'<p class="finding">{prose(result.finding)}</p>',
        _list("failed", "Not shown, though it must be", result.failed_expectations),
        _list("contradictions", "Contradicts the documents", result.contradictions),
        _designs(result.designs),
        f'<div class="charts">{"".join(charts)}</div>' if charts else "",
        *(_table(each) for each in result.tables),
        *(
            scenario_html(title, timelines, f"{name}-scenario-{at}")
            for at, (title, timelines) in enumerate(scenarios(result.timelines).items(), 1)
        ),
        f'<div class="again"><h3>Run it again</h3><pre><code>{escape(result.command)}</code></pre>'
        f'<p class="soft">Seeds {escape(result.seeds)}.</p></div>',
        "</section>",
    ]
    return "\n".join(filter(None, parts))


def _list(kind: str, title: str, sentences: Sequence[str]) -> str:
    if not sentences:
        return ""
    items = "".join(f"<li>{prose(each)}</li>" for each in sentences)
    return f'<div class="{kind}"><h3>{title}</h3><ul>{items}</ul></div>'


def _table(table: Table) -> str:
    columns = columns_of(table)
    kinds = [_kind(column) for column in columns]
    heads = "".join(
        f'<th scope="col"{kind}>{_head(column.head)}</th>'
        for column, kind in zip(columns, kinds, strict=True)
    )
    rows = []
    for at in range(len(table.rows)):
        cells = [
            f"<td{kind}>{prose(column.cells[at])}</td>"
            for column, kind in zip(columns, kinds, strict=True)
        ]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<div class="data scroll" tabindex="0" role="region" aria-label="{escape(table.title)}">'
        f"<table><caption><span>{prose(table.title)}</span></caption><thead><tr>{heads}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    ) + (f'<p class="note">{prose(table.note)}</p>' if table.note else "")


def _head(text: str) -> str:
    """Narrow: it may break after a slash."""
    return re.sub(r"(?<!<)/", "/<wbr>", prose(text))


def _kind(column: Column) -> str:
    if column.is_numeric:
        return ' class="number"'
    return ' class="name"' if max(map(len, column.cells), default=0) <= NAME_LETTERS else ""


def _designs(names: Sequence[str]) -> str:
    known = all_designs()
    items = "".join(_design(name, known.get(name)) for name in names)
    return f'<h3>The designs</h3><dl class="designs">{items}</dl>'


def _design(name: str, design: Design | None) -> str:
    if design is None:  # of results that another version wrote
        return f"<dt><code>{escape(name)}</code></dt>"
    product = ' <span class="tag">the product</span>' if design.is_product else ""
    return (
        f'<dt><code>{escape(name)}</code> <span class="tag">{escape(design.promise)}</span>{product}</dt>'
        f"<dd>{prose(design.summary)}</dd>"
    )
