"""Families as text: Prometheus' format, OpenMetrics, and JSON.

A writer yields pieces of a few hundred lines, so that its caller can let others have a turn in between. A list of
strings that is joined at the end is the fastest way that Python has; docs/DECISIONS.md has the figures.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from math import isfinite, isnan
from typing import NamedTuple

from ottla.metrics.families import Family, MetricKind

PIECE_SAMPLES = 200
"""Samples in a piece: a fifth of a millisecond."""


class ExpositionFormat(NamedTuple):
    content_type: str
    write: Callable[[Family], Iterator[str]]
    """A family in pieces. It stands alone: whoever makes a page may leave it out."""
    before: str = ""
    between: str = ""
    """Two families."""
    after: str = ""


def write_text(family: Family) -> Iterator[str]:
    """Prometheus' text format, version 0.0.4."""
    name = family.name
    yield f"# HELP {name} {_escaped(family.help)}\n# TYPE {name} {family.kind.value}\n"
    yield from _sample_lines(family)


def write_openmetrics(family: Family) -> Iterator[str]:
    """OpenMetrics, version 1.0.0: a counter's family is named without the `_total` of its samples."""
    name = family.name.removesuffix("_total") if family.kind is MetricKind.COUNTER else family.name
    help = _escaped(family.help).replace('"', '\\"')
    yield f"# TYPE {name} {family.kind.value}\n# HELP {name} {help}\n"
    yield from _sample_lines(family)


def write_json(family: Family) -> Iterator[str]:
    """An object of the list of families. What is not a number is null."""
    head = {"name": family.name, "type": family.kind.value, "help": family.help}
    yield f'\n{json.dumps(head)[:-1]}, "samples": ['
    comma = ""
    for labels, value, suffix in family.samples:
        shown = value if isfinite(value) else None
        sample = {"name": family.name + suffix, "labels": labels.pairs, "value": shown}
        yield f"{comma}\n {json.dumps(sample)}"
        comma = ","
    yield "]}"


TEXT = ExpositionFormat("text/plain; version=0.0.4; charset=utf-8", write_text)
OPENMETRICS = ExpositionFormat(
    "application/openmetrics-text; version=1.0.0; charset=utf-8",
    write_openmetrics,
    after="# EOF\n",
)
JSON = ExpositionFormat("application/json", write_json, '{"families": [', ",", "\n]}\n")


def format_for(accept: str) -> ExpositionFormat:
    """What a client gets that sends this `Accept` header: what it names first of what we have, else text."""
    for wanted in accept.split(","):
        kind = wanted.partition(";")[0].strip().lower()
        for known in (OPENMETRICS, TEXT, JSON):
            if kind == known.content_type.partition(";")[0]:
                return known
    return TEXT


def _sample_lines(family: Family) -> Iterator[str]:
    name = family.name
    lines: list[str] = []
    add = lines.append
    for labels, value, suffix in family.samples:
        shown = value if value.__class__ is int else number(value)
        add(f"{name}{suffix}{labels.text} {shown}\n")
        if len(lines) == PIECE_SAMPLES:
            yield "".join(lines)
            lines.clear()
    if lines:
        yield "".join(lines)


def number(value: float) -> str:
    if isfinite(value):
        return repr(float(value))
    if isnan(value):
        return "NaN"
    return "+Inf" if value > 0 else "-Inf"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
