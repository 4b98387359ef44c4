"""From the rounds' figures to a table: medians, their spread, and the ratio that counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.asked import ASKED, ASKED_WITH_ACLS, Asked, asked_of
from bench.cases import CASES, FIGURES

DOCS = Path(__file__).resolve().parents[1] / "docs"
Column = list[float | None]
"""A figure's rounds in their order; None for one that failed."""
Rounds = Mapping[str, Mapping[str, Mapping[str, Column]]]  # case → target → figure → rounds


class Comparison(NamedTuple):
    """What is held against what, in a table and a chart of its own."""

    spark: bool
    header: tuple[str, ...]
    document: Path
    picture: str
    sides: tuple[str, str] = ("ottla", "Kafka")
    """The names of the targets."""
    asked: tuple[Asked, ...] = ASKED

    @property
    def chart(self) -> Path:
        return self.document.with_name(self.picture)


BROKERS = Comparison(
    False,
    ("case", "figure", "ottla", "Apache Kafka", "ottla ÷ Kafka", "asked"),
    DOCS / "BENCHMARKS.md",
    "benchmarks.svg",
)
SPARK = Comparison(
    True,
    ("case", "figure", 'format("ottla")', "Spark's connector", "ratio", "asked"),
    DOCS / "SPARK.md",
    "spark.svg",
)
WITH_ACLS = Comparison(
    False,
    ("case", "figure", "authorizer with ACLs", "no authorizer", "with ÷ without", "asked"),
    DOCS / "BENCHMARKS.md",
    "",
    ("guarded", "ottla"),
    ASKED_WITH_ACLS,
)
"""Of `--acls`. It is shown, and never written."""


class Row(NamedTuple):
    case: str
    figure: str
    ottla: str
    kafka: str
    ratio: str
    asked: str


def rows(rounds: Rounds, comparison: Comparison, *, judged: bool = True) -> list[Row]:
    """Medians with their spread; empty where a target was left out. `judged`: and whether that is what was asked."""
    found = []
    for case in CASES:
        targets = rounds.get(case.name)
        if not targets or case.spark != comparison.spark:
            continue
        names = {figure: None for figures in targets.values() for figure in figures}
        for figure in names:
            values = {name: figures.get(figure, []) for name, figures in targets.items()}
            ours, theirs = (values.get(side, []) for side in comparison.sides)
            pairs = _of_both(ours, theirs)
            ratio = _ratio(pairs)
            spread = [our / their for our, their in pairs if their]
            found.append(
                Row(
                    case.name,
                    figure,
                    _shown(figure, _succeeded(ours)),
                    _shown(figure, _succeeded(theirs)),
                    "" if ratio is None else f"{ratio:.2g} ×{_spread(spread, _ratio_number)}",
                    _verdict(
                        asked_of(case.name, figure, comparison.asked), ratio if judged else None
                    ),
                )
            )
    return found


def _succeeded(column: Column) -> list[float]:
    return [value for value in column if value is not None]


def _of_both(ours: Column, theirs: Column) -> list[tuple[float, float]]:
    """The rounds in which neither failed. (One column is shorter where the last rounds failed.)"""
    return [
        (our, their)
        for our, their in zip(ours, theirs, strict=False)
        if our is not None and their is not None
    ]


def _ratio(pairs: list[tuple[float, float]]) -> float | None:
    """Of the medians."""
    if not pairs:
        return None
    ours, theirs = (median(values) for values in zip(*pairs, strict=True))
    return ours / theirs if theirs else None


def _verdict(asked: Asked | None, ratio: float | None) -> str:
    if asked is None:
        return ""
    if ratio is None:
        return str(asked)
    return f"{asked}: {'reached' if asked.is_reached(ratio) else 'MISSED'}"


def _shown(figure: str, values: list[float]) -> str:
    if not values:
        return ""
    return f"{_number(median(values))} {FIGURES[figure].unit}{_spread(values, _number)}"


def _spread(values: list[float], shown: Callable[[float], str]) -> str:
    return f" ({shown(min(values))}–{shown(max(values))})" if len(values) > 1 else ""


def _ratio_number(value: float) -> str:
    return f"{value:.2g}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def markdown(rounds: Rounds, comparison: Comparison) -> str:
    lines = [f"| {' | '.join(comparison.header)} |", "|---" * len(comparison.header) + "|"]
    lines += [f"| {' | '.join(row)} |" for row in rows(rounds, comparison)]
    return "\n".join(lines) + "\n"


def conditions(told: Mapping[str, str], comparison: Comparison) -> str:
    """Under what which cases were measured."""
    cases: dict[str, list[str]] = {}
    for case in CASES:
        if case.name in told and case.spark == comparison.spark:
            cases.setdefault(told[case.name], []).append(case.name)
    return "".join(f"- {', '.join(names)}: {text}.\n" for text, names in cases.items())


def chart(rounds: Rounds, comparison: Comparison) -> str:
    """An SVG with one bar per figure: how far ottla is ahead (right) or behind (left), on a log scale."""
    bars = []
    for name, figure, _, _, ratio, _ in rows(rounds, comparison):
        if ratio:
            value = float(ratio.split()[0])
            ahead = value if FIGURES[figure].more_is_better else 1 / max(value, 1e-6)
            bars.append((f"{name}: {figure}", max(1 / 64, min(1024.0, ahead))))
    line, left, scale = 18, 560, 34.0
    height = line * (len(bars) + 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="960" height="{height}" font-family="sans-serif"'
        ' font-size="11"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="{left}" y="12" text-anchor="middle">equal</text>',
        f'<line x1="{left}" y1="16" x2="{left}" y2="{height}" stroke="black"/>',
    ]
    for index, (label, ahead) in enumerate(bars):
        y = line * (index + 1) + 4
        width = abs(math.log2(ahead)) * scale
        x = left if ahead >= 1 else left - width
        colour = "#2a7" if ahead >= 1 else "#c53"
        parts.append(
            f'<text x="8" y="{y + 11}">{label}</text>'
            f'<rect x="{x:.1f}" y="{y}" width="{max(width, 1):.1f}" height="13" fill="{colour}"/>'
            f'<text x="{left + width + 6 if ahead >= 1 else left + 6:.1f}" y="{y + 11}">{ahead:.3g} ×</text>'
        )
    return "\n".join(parts) + "\n</svg>\n"
