"""How far moves are: bars on a terminal, lines elsewhere, JSON lines for programs."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Protocol

from ottla.cli.load_tables import seconds_text
from ottla.cli.output import Format, print_json, say
from ottla.diagnosis.words import size

if TYPE_CHECKING:
    from rich.progress import TaskID

    from ottla.client.reassigning import MoveProgress

SHOWN_MAX = 8
"""Bars of partitions at a time: those that are being moved."""
LINE_EVERY_S = 5.0
WIDE = 120
"""Columns of a terminal that has room for the throttle, too."""


class Display(Protocol):
    def show(self, progress: MoveProgress) -> None: ...

    def close(self) -> None: ...


async def show_moves(progress: AsyncIterator[MoveProgress], format: Format) -> MoveProgress | None:
    """Until it is over. Returns the last one."""
    display: Display
    if format is Format.json:
        display = _JsonLines()
    elif sys.stdout.isatty():
        display = _Bars()
    else:
        display = _Lines()
    last = None
    try:
        async for last in progress:
            display.show(last)
    finally:
        display.close()
    return last


def as_json(progress: MoveProgress) -> dict[str, Any]:
    return {
        "event": "progress",
        "moved": progress.moved,
        "total": progress.total,
        "partitions_done": progress.done,
        "partitions": len(progress.partitions),
        "rate": round(progress.rate),
        "seconds_left": progress.seconds_left,
        "throttle": progress.throttle,
        "latency_ms": None if progress.latency_s is None else progress.latency_s * 1000,
        "held_by": progress.held_by,
        "moving": [
            {"topic": topic, "partition": number, "moved": each.moved, "total": each.total}
            for (topic, number), each in progress.partitions.items()
            if not each.is_done
        ],
    }


def line_of(progress: MoveProgress) -> str:
    parts = [
        f"{progress.done} of {len(progress.partitions)} partitions",
        f"{size(progress.moved)} of {size(progress.total)}",
        f"{size(progress.rate)}/s",
        f"left {seconds_text(progress.seconds_left)}",
    ]
    return ", ".join(parts) + _limits(progress)


def _limits(progress: MoveProgress) -> str:
    text = ""
    if progress.throttle is not None:
        text += f", throttle {size(progress.throttle)}/s a broker"
    if progress.held_by is not None:
        text += f", held back: {progress.held_by}"
    elif progress.latency_s is not None:
        text += f", producers wait {progress.latency_s * 1000:.0f} ms"
    return text


class _JsonLines:
    def show(self, progress: MoveProgress) -> None:
        print_json(as_json(progress))

    def close(self) -> None:
        pass


class _Lines:
    def __init__(self) -> None:
        self._said_at = -LINE_EVERY_S

    def show(self, progress: MoveProgress) -> None:
        is_over = progress.done == len(progress.partitions)
        if is_over or progress.seconds - self._said_at >= LINE_EVERY_S:
            self._said_at = progress.seconds
            say(line_of(progress))

    def close(self) -> None:
        pass


class _Bars:
    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(16), TextColumn("{task.fields[news]}")
        )
        self._all = self._progress.add_task("all", news="")
        self._each: dict[tuple[str, int], TaskID] = {}
        self._progress.start()

    def show(self, progress: MoveProgress) -> None:
        bars = self._progress
        news = (
            f"{_done(progress.moved, progress.total)}, {size(progress.rate)}/s,"
            f" left {seconds_text(progress.seconds_left)}"
        )
        if bars.console.width >= WIDE or progress.held_by is not None:
            news += _limits(progress)
        bars.update(self._all, completed=progress.moved, total=progress.total, news=news)
        moving = [place for place, each in progress.partitions.items() if not each.is_done]
        for place in set(self._each) - set(moving[:SHOWN_MAX]):
            bars.remove_task(self._each.pop(place))
        for place in moving[:SHOWN_MAX]:
            each = progress.partitions[place]
            if place not in self._each:
                self._each[place] = bars.add_task(f"{place[0]}-{place[1]}", news="")
            done = _done(each.moved, each.total)
            bars.update(self._each[place], completed=each.moved, total=each.total, news=done)

    def close(self) -> None:
        self._progress.stop()


def _done(moved: int, total: int) -> str:
    return f"{size(moved)} of {size(total)}"
