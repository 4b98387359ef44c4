"""`ottla lab play`: a scripted scenario under a design, step by step in the terminal."""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.errors import NOT_FOUND, USAGE, Failure
from ottla.cli.terminal import one_key_at_a_time

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from ottla.lab.play import LogCell, TimelinePlayer
    from ottla.lab.results import ReplicaMoment, Timeline

EPOCH_COLOURS = ("cyan", "yellow", "magenta", "green", "blue")
"""Each epoch has another than the epochs beside it."""
LOST = "bold red strike"
CHANGED = "bold white on blue"
MARKS_AT = 17
"""Where the marks begin in a cell: behind the longest entry."""
READ_BYTES = 64
END_OF_INPUT = b""


def play(
    scenario: Annotated[
        str | None, typer.Argument(help="Without it, the scenarios are named.", show_default=False)
    ] = None,
    design: Annotated[
        str | None, typer.Option("--design", help="A truncation design; the product's by default.")
    ] = None,
    step: Annotated[int | None, typer.Option("--step", min=1, help="Print this step only.")] = None,
) -> None:
    """Step through a scripted scenario, forwards and backwards. Elsewhere than on a terminal, print all steps."""
    from rich.console import Console

    from ottla.lab.play import TimelinePlayer

    player = TimelinePlayer(_timeline(scenario, design))
    console = Console(highlight=False)
    if step is not None:
        if step > player.last + 1:
            raise Failure(f"--step {step}: there are steps 1 to {player.last + 1}", USAGE)
        player.position = step - 1
        console.print(_drawing(player))
    elif console.is_terminal and sys.stdin.isatty():
        _play(player, console)
    else:
        for position in range(player.last + 1):
            player.position = position
            console.print(_drawing(player))


def _timeline(scenario: str | None, design: str | None) -> Timeline:
    from ottla.lab.design import Seam, designs_of
    from ottla.lab.truncation.scenarios import all_scenarios
    from ottla.lab.truncation.timelines import play as played

    scenarios = all_scenarios()
    if scenario is None:
        raise Failure(f"name a scenario; there are: {', '.join(scenarios)}", USAGE)
    if scenario not in scenarios:
        raise Failure(f"no scenario {scenario}; there are: {', '.join(scenarios)}", NOT_FOUND)
    designs = {each.name: each for each in designs_of(Seam.TRUNCATION)}
    chosen = design or next(name for name, each in designs.items() if each.is_product)
    if chosen not in designs:
        raise Failure(f"no truncation design {chosen}; there are: {', '.join(designs)}", NOT_FOUND)
    logging.disable()  # what nodes of the lab log is not the result
    return played(scenarios[scenario], designs[chosen]).timeline


def _play(player: TimelinePlayer, console: Console) -> None:
    from ottla.lab.play import keys_in

    def draw(*_: object) -> None:
        console.clear()
        console.print(_drawing(player), _keys(), sep="\n")

    received = ""
    with one_key_at_a_time(), console.screen(hide_cursor=True):
        signal.signal(signal.SIGWINCH, draw)
        while not player.is_over:
            draw()
            data = os.read(sys.stdin.fileno(), READ_BYTES)
            if data == END_OF_INPUT:
                break
            keys, received = keys_in(received + data.decode(errors="replace"))
            for key in keys:
                player.press(key)
        signal.signal(signal.SIGWINCH, signal.SIG_DFL)


# Drawing


def _keys() -> RenderableType:
    from rich.text import Text

    from ottla.lab.play import KEYS_IN_WORDS

    return Text(KEYS_IN_WORDS, style="dim")


def _drawing(player: TimelinePlayer) -> RenderableType:
    """The step as it is now: what happened, a column for each replica, and what the cluster did by itself."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from ottla.lab.play import columns_of

    timeline, step = player.timeline, player.step
    where = f"step {player.position + 1} of {player.last + 1}, after {step.at_s:.1f} s"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("offset", justify="right", style="dim")
    columns = columns_of(step)
    for column in columns:
        style = CHANGED if column.moment.changed else ""
        table.add_column(Text(_head(column.moment), style=style), min_width=24)
    for offset, cells in enumerate(zip(*(column.cells for column in columns), strict=True)):
        table.add_row(str(offset), *map(_cell, cells))
    parts: list[RenderableType] = [
        Text(f"{timeline.design}: {timeline.title}", style="bold"),
        Text(where, style="dim"),
        Text(step.what),
        table,
        *(Text(f"  {event}") for event in step.events),
    ]
    if player.position == player.last:
        parts.append(Text(f"In the end: {timeline.verdict}.", style="bold"))
    return Group(*parts, Text())


def _head(moment: ReplicaMoment) -> str:
    """Two lines; a star where something changed, for those who see no colours."""
    epoch = "" if moment.high_watermark is None else f", epoch {moment.epoch}"
    star = " *" if moment.changed else ""
    return f"broker {moment.broker}{star}\n{moment.role}{epoch}"


def _cell(cell: LogCell) -> RenderableType:
    from rich.text import Text

    text = Text()
    if cell.entry is not None:
        entry = cell.entry
        colour = EPOCH_COLOURS[entry.epoch % len(EPOCH_COLOURS)]
        lost = " lost" if entry.is_lost else ""
        text.append(f"{entry.value} epoch {entry.epoch}{lost}", LOST if lost else colour)
    if cell.marks:
        text.pad_right(max(MARKS_AT - len(text), 1))
        text.append(cell.marks, "bold")
    return text
