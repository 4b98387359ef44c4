"""Times, durations, counts and lists in plain words, the same in every explanation."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime


def duration(ms: float) -> str:
    """`12 ms`, `3.4 s`, `7 min`, `2 h 5 min`, `3 days`."""
    if ms < 1000:
        return f"{max(0, round(ms))} ms"
    seconds = ms / 1000
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"{hours // 24} days"


def clock(at_ms: int, now_ms: int) -> str:
    """The time of day, with the date if it was another day than now. UTC."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    text = at.strftime("%H:%M:%S.") + f"{at.microsecond // 1000:03d}"
    is_today = at.date() == datetime.fromtimestamp(now_ms / 1000, UTC).date()
    return text if is_today else f"{at:%Y-%m-%d} {text}"


def count(number: int, noun: str) -> str:
    """`1 record`, `2 records`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(items: Iterable[object], joint: str = "and") -> str:
    """`1`, `1 and 2`, `1, 2 and 3`."""
    words = [str(item) for item in items]
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {joint} {words[-1]}"


def brokers(ids: Sequence[int], joint: str = "and") -> str:
    """`broker 2`, `brokers 2 and 3`, `no broker`."""
    if not ids:
        return "no broker"
    return f"broker{'s' if len(ids) > 1 else ''} {listed(ids, joint)}"


def command(words: str, names: Sequence[str] = (), option: str = "") -> str:
    """A command of ottla to type into a shell. Clients chose the names: each stays one word, and no option."""
    quoted = " ".join(map(shlex.quote, names))
    if any(name.startswith("-") for name in names):
        return f"ottla {words}{option} -- {quoted}"
    return f"ottla {words}{' ' if names else ''}{quoted}{option}"


def is_are(ids: Sequence[object]) -> str:
    return "is" if len(ids) == 1 else "are"


def size(number: float) -> str:
    """`512 B`, `1.5 KiB`, `2.0 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"
