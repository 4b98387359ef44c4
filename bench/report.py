"""From the rounds' figures to a table: medians, their spread, and the ratio that counts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

from bench.asked import asked_of
from bench.cases import CASES, FIGURES

Rounds = Mapping[str, Mapping[str, Mapping[str, list[float]]]]  # case → target → figure → rounds


class Row(NamedTuple):
    case: str
    figure: str
    ottla: str
    kafka: str
    ratio: str
    asked: str


def rows(rounds: Rounds) -> list[Row]:
    """Medians with their spread; empty where a target was left out."""
    found = []
    for case in CASES:
        targets = rounds.get(case.name)
        if not targets:
            continue
        names = {figure: None for figures in targets.values() for figure in figures}
        for figure in names:
            values = {name: figures.get(figure, []) for name, figures in targets.items()}
            ours, theirs = values.get("ottla", []), values.get("Kafka", [])
            ratio = _ratio(ours, theirs)
            found.append(
                Row(
                    case.name,
                    figure,
                    _shown(figure, ours),
                    _shown(figure, theirs),
                    "" if ratio is None else f"{ratio:.2g} ×",
                    _verdict(case.name, figure, ratio),
                )
            )
    return found


def _ratio(ours: list[float], theirs: list[float]) -> float | None:
    if not ours or not theirs or not median(theirs):
        return None
    return median(ours) / median(theirs)


def _verdict(case: str, figure: str, ratio: float | None) -> str:
    asked = asked_of(case, figure)
    if asked is None:
        return ""
    if ratio is None:
        return str(asked)
    return f"{asked}: {'reached' if asked.is_reached(ratio) else 'MISSED'}"


def _shown(figure: str, values: list[float]) -> str:
    if not values:
        return ""
    middle = f"{_number(median(values))} {FIGURES[figure].unit}"
    if len(values) == 1:
        return middle
    return f"{middle} ({_number(min(values))}–{_number(max(values))})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def markdown(rounds: Rounds) -> str:
    lines = [
        "| case | figure | ottla | Apache Kafka | ottla ÷ Kafka | asked |",
        "|---|---|---|---|---|---|",
    ]
    lines += [f"| {' | '.join(row)} |" for row in rows(rounds)]
    return "\n".join(lines) + "\n"


def chart(rounds: Rounds) -> str:
    """An SVG with one bar per figure: how far ottla is ahead (right) or behind (left), on a log scale."""
    bars = []
    for name, figure, _, _, ratio, _ in rows(rounds):
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
