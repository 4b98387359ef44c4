"""`ottla top`: a cluster live in the terminal; of any Kafka. What it does is in `top_run`."""

from __future__ import annotations

from typing import Annotated

import typer

from ottla.cli.connect import BootstrapOption, CommandConfigOption, DirOption, TimeoutOption
from ottla.cli.output import Format, FormatOption
from ottla.cli.top_run import (
    FIRST_SCREEN,
    INTERVAL_S,
    INTERVAL_S_MAX,
    INTERVAL_S_MIN,
    TIMEOUT_S,
    TopOptions,
    run_top,
)


def top(
    screen: Annotated[
        str,
        typer.Argument(
            metavar="SCREEN",
            help="The first one: brokers, partitions, groups, topics, events or wrong.",
        ),
    ] = FIRST_SCREEN,
    interval: Annotated[
        float,
        typer.Option(
            help="Seconds between two pictures; what is wrong is shown at once. Of one screen: over which its rates are.",
            min=INTERVAL_S_MIN,
            max=INTERVAL_S_MAX,
        ),
    ] = INTERVAL_S,
    once: Annotated[
        bool, typer.Option("--once", help="Print one screen, with all its rows, and end.")
    ] = False,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
    format: FormatOption = Format.table,
) -> None:
    """Show a cluster in the terminal, live.

    Keys: 1 to 6 or Tab for another screen, arrows, Enter for more, Esc back, ? for all of them, q ends it.
    Elsewhere than on a terminal one screen is printed. Works with any Kafka; a cluster of ottla tells more.
    """
    is_json = format is Format.json
    run_top(TopOptions(screen, interval, once, bootstrap, dir, command_config, timeout, is_json))
