"""The figures of `scripts/scale` as tables and charts: docs/SCALE.md, and docs/scale.svg beside it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

from bench.report import DOCS

Row = Mapping[str, float]
DOCUMENT, PICTURE, RECORD = DOCS / "SCALE.md", DOCS / "scale.svg", DOCS / "scale.json"
LEFT, WIDTH, HEIGHT, GAP = 70, 360, 170, 60
COLOURS = ("#2a7", "#c53", "#37b")
CHARTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("controller", "a broker dies: milliseconds of a processor", ("election ms", "apply ms")),
    ("controller", "of the active controller's core, %", ("heartbeats % of a core",)),
    ("controller", "memory and log, MB", ("image MB", "snapshot MB")),
    ("controller", "one decision, µs of a processor", ("heartbeat µs", "ISR change µs")),
    ("simulated", "a broker dies: ms until brokers know", ("first knows ms", "all know ms")),
    ("simulated", "requests a second, nothing written", ("controllers' requests per s",)),
)
"""(part, what is drawn, its figures), by the number of brokers; both axes are logarithmic."""


def begin(part: str) -> str:
    return f"<!-- {part}: begin -->\n"


def end(part: str) -> str:
    return f"<!-- {part}: end -->\n"


def table(part: str, rows: Sequence[Row]) -> str:
    """A figure a line, a size a column."""
    sizes = [_size(part, row) for row in rows]
    lines = [f"| {part} | {' | '.join(sizes)} |", "|---" * (len(rows) + 1) + "|"]
    for name in rows[0]:
        if name not in ("brokers", "partitions", "nodes"):
            shown = " | ".join(number(row[name]) if name in row else "" for row in rows)
            lines.append(f"| {name} | {shown} |")
    return "\n".join(lines) + "\n"


def _size(part: str, row: Row) -> str:
    if part == "cores":
        return f"{row['nodes']:.0f} node{'s' if row['nodes'] > 1 else ''}"
    return f"{row['brokers']:,.0f} brokers, {row['partitions']:,.0f} partitions"


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def write(found: Mapping[str, Sequence[Row]]) -> None:
    """These parts; the others keep their last figures."""
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    known = {**known, **found}
    RECORD.write_text(json.dumps(known, indent=1) + "\n")
    text = DOCUMENT.read_text()
    for part, rows in known.items():
        head, _, rest = text.partition(begin(part))
        tail = rest.partition(end(part))[2]
        text = f"{head}{begin(part)}\n{table(part, rows)}\n{end(part)}{tail}"
    DOCUMENT.write_text(text)
    PICTURE.write_text(chart(known))


def chart(found: Mapping[str, Sequence[Row]]) -> str:
    drawn = [each for each in CHARTS if len(found.get(each[0], ())) > 1]
    height = math.ceil(len(drawn) / 2) * (HEIGHT + GAP) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="960" height="{height}" font-family="sans-serif"'
        ' font-size="11"><rect width="100%" height="100%" fill="white"/>'
    ]
    for place, (part, title, names) in enumerate(drawn):
        x, y = LEFT + place % 2 * (WIDTH + 110), 30 + place // 2 * (HEIGHT + GAP)
        parts += _one(found[part], title, names, x, y)
    return "\n".join(parts) + "\n</svg>\n"


def _one(rows: Sequence[Row], title: str, names: Sequence[str], x: int, y: int) -> list[str]:
    def scaled(value: float, values: Sequence[float], length: int) -> float:
        low, high = math.log10(min(values)), math.log10(max(values))
        return length * (math.log10(value) - low) / (high - low) if high > low else length / 2

    sizes = [row["brokers"] for row in rows]
    values = [max(row[name], 1e-6) for row in rows for name in names]
    parts = [
        f'<text x="{x}" y="{y - 8}" font-weight="bold">{title}</text>',
        f'<line x1="{x}" y1="{y + HEIGHT}" x2="{x + WIDTH}" y2="{y + HEIGHT}" stroke="black"/>',
        f'<line x1="{x}" y1="{y}" x2="{x}" y2="{y + HEIGHT}" stroke="black"/>',
    ]
    for size in sizes:
        at = x + scaled(size, sizes, WIDTH)
        parts.append(
            f'<text x="{at:.1f}" y="{y + HEIGHT + 14}" text-anchor="middle">{size:,.0f}</text>'
        )
    for value in (min(values), max(values)):
        at = y + HEIGHT - scaled(value, values, HEIGHT) + 4
        parts.append(f'<text x="{x - 6}" y="{at:.1f}" text-anchor="end">{number(value)}</text>')
    for colour, name in zip(COLOURS, names, strict=False):
        points = [
            (
                x + scaled(row["brokers"], sizes, WIDTH),
                y + HEIGHT - scaled(max(row[name], 1e-6), values, HEIGHT),
            )
            for row in rows
        ]
        path = " ".join(f"{at:.1f},{up:.1f}" for at, up in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{at:.1f}" cy="{up:.1f}" r="3" fill="{colour}"/>' for at, up in points
        ]
        at, up = points[-1]
        parts.append(f'<text x="{at - 4:.1f}" y="{up - 7:.1f}" text-anchor="end">{name}</text>')
    return parts
