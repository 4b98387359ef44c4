"""`ottla balance …`: every broker carries its share, with as few bytes moved as possible."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.connect import (
    BootstrapOption,
    CommandConfigOption,
    DirOption,
    TimeoutOption,
    connect,
)
from ottla.cli.errors import CONFLICT, Failure
from ottla.cli.output import Format, FormatOption, count_of, print_json, say
from ottla.cli.reassign import ThrottleOption, ToleranceOption, carry_out, parse_throttle, tidy_up

if TYPE_CHECKING:
    from ottla.balance.model import BalancePlan
    from ottla.client import BlockingClient

app = typer.Typer(
    help="Give every broker its share.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

AtOnceOption = Annotated[
    int, typer.Option("--at-once", help="Partitions that move at a time, at most.", min=1)
]


@app.command()
def plan(
    tolerance: ToleranceOption = 10.0,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="Write it for ottla reassign and kafka-reassign-partitions."),
    ] = None,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Show what would move, and the loads before and after. Nothing is changed.

    Leaders, replicas, disk and the leaders' bytes per second of each broker come within the tolerance of its share. Racks
    are kept. Brokers that are down keep what they have.
    """
    from ottla.cli.load_tables import plan_as_json, print_plan
    from ottla.client.reassignment_file import written

    with connect(bootstrap, dir, timeout, command_config) as blocking:
        tidy_up(blocking)
        made = _plan(blocking, tolerance)
    if to is not None:
        to.write_text(written({each.place: each.after for each in made.changes}) + "\n")
    if format is Format.json:
        print_json(plan_as_json(made))
    else:
        print_plan(made)


@app.command()
def apply(
    tolerance: ToleranceOption = 10.0,
    throttle: ThrottleOption = "auto",
    at_once: AtOnceOption = 10,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Go on watching, until Ctrl-C.")
    ] = False,
    after: Annotated[
        float,
        typer.Option("--after", help="Continuous: seconds out of balance before it acts.", min=0),
    ] = 600.0,
    every: Annotated[
        float, typer.Option("--every", help="Continuous: seconds between looks.", min=0.1)
    ] = 60.0,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Make the plan that `ottla balance plan` shows, and carry it out.

    Leaderships move first, since that costs nothing. Then replicas are copied, throttled, so many partitions at a time.
    """
    parse_throttle(throttle)
    with connect(bootstrap, dir, timeout, command_config, by_controller=True) as blocking:
        tidy_up(blocking)
        if continuous:
            _watch(blocking, tolerance, throttle, at_once, after, every, format)
        else:
            _apply(blocking, _plan(blocking, tolerance), throttle, at_once, format)


def _plan(blocking: BlockingClient, tolerance: float) -> BalancePlan:
    from ottla.cli.load_tables import make_plan, tolerance_of
    from ottla.client.cluster_picture import cluster_picture
    from ottla.client.loads import partition_rates

    rates = blocking.run(partition_rates(blocking.client))
    picture = blocking.run(cluster_picture(blocking.client, None, rates))
    return make_plan(picture.brokers, picture.partitions, tolerance_of(tolerance))


def _apply(
    blocking: BlockingClient, made: BalancePlan, throttle: str, at_once: int, format: Format
) -> None:
    from ottla.cli.load_tables import plan_as_json, print_plan
    from ottla.client.reassigning import Reassigner

    moves = Reassigner(blocking.client)
    active = blocking.run(moves.active())
    if active:
        raise Failure(
            f"{count_of(len(active), 'partition')} are being moved already (ottla reassign list)",
            CONFLICT,
        )
    if format is Format.json:
        print_json({"event": "plan", **plan_as_json(made)})
    else:
        print_plan(made)
    if not made.changes:
        return
    targets = {each.place: each.after for each in made.changes}
    carry_out(
        blocking, moves, targets, parse_throttle(throttle), format, at_once=at_once, again="list"
    )


def _watch(
    blocking: BlockingClient,
    tolerance: float,
    throttle: str,
    at_once: int,
    after: float,
    every: float,
    format: Format,
) -> None:
    """Only what stays out of balance is moved. What others move is let alone."""
    from ottla.balance.patience import Patience
    from ottla.client.reassigning import Reassigner

    patience = Patience(after)
    while True:
        made = _plan(blocking, tolerance)
        is_busy = bool(blocking.run(Reassigner(blocking.client).active()))
        is_out = bool(made.misses_before and made.changes) and not is_busy
        acts = patience.look(time.monotonic(), is_out=is_out)
        waited = patience.waited_s(time.monotonic())
        if format is Format.json:
            out = len(made.misses_before)
            print_json({"event": "look", "out_of_balance": out, "seconds": waited, "acts": acts})
        elif is_out and not acts:
            say(f"out of balance for {waited:.0f} s of {after:.0f}")
        if acts:
            _apply(blocking, made, throttle, at_once, format)
        time.sleep(every)
