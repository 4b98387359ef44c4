"""Numbers, ages and small charts as they stand in cells."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.console.model.problems import whole
from ottla.diagnosis.words import size

NOTHING = "-"
"""What nobody told."""
LEVELS = "▁▂▃▄▅▆▇█"


def number(value: float | None) -> str:
    """`1,234`; below ten with a digit behind the point, unless it is a whole number."""
    if value is None:
        return NOTHING
    return f"{value:,.1f}" if abs(value) < 10 and value != int(value) else f"{value:,.0f}"


def amount(value: float | None) -> str:
    """Bytes."""
    return NOTHING if value is None else size(value)


def part(value: float | None) -> str:
    """`12 %`."""
    return NOTHING if value is None else f"{value * 100:.0f} %"


def age(since_ms: int | None, now_ms: int) -> str:
    """Nothing if it began before we looked."""
    return whole(max(0, now_ms - since_ms) / 1000) if since_ms else ""


def because(cause: str | None, since_ms: int, now_ms: int) -> str:
    """`session expired, 12 s`."""
    return ", ".join(each for each in (cause, age(since_ms, now_ms)) if each)


def sparkline(values: Sequence[float | None], width: int) -> str:
    """The last `width` values, the highest of them with the highest bar; blank where nobody told."""
    shown = values[-width:]
    highest = max((value for value in shown if value is not None), default=0.0)
    bars = "".join(" " if value is None else _bar(value, highest) for value in shown)
    return bars.rjust(width)


def _bar(value: float, highest: float) -> str:
    if value <= 0 or highest <= 0:
        return LEVELS[0]
    return LEVELS[max(1, min(len(LEVELS) - 1, round(value / highest * (len(LEVELS) - 1))))]


def ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers)) or NOTHING
