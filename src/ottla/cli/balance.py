"""`ottla balance …`: every broker carries its share, with as few bytes moved as possible."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
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
from ottla.cli.errors import USAGE, Failure
from ottla.cli.output import Format, FormatOption, count_of, print_json, say, warn
from ottla.cli.reassign import (
    ThrottleOption,
    ToleranceOption,
    carry_out,
    mention_left_over,
    parse_throttle,
    tidy_up,
)

if TYPE_CHECKING:
    from ottla.balance.model import BalancePlan
    from ottla.client import BlockingClient
    from ottla.client.admin import Place
    from ottla.client.balancing import BalanceLook

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
    from ottla.balance.plan_json import plan_as_json
    from ottla.cli.load_tables import print_plan
    from ottla.client.reassignment_file import written

    with connect(bootstrap, dir, timeout, command_config) as blocking:
        mention_left_over(blocking)
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
            _go_on(blocking, throttle, at_once, format)
            _apply(blocking, _plan(blocking, tolerance), throttle, at_once, format)


def _plan(blocking: BlockingClient, tolerance: float) -> BalancePlan:
    from ottla.balance.plan_json import tolerance_of
    from ottla.balance.planner import Impossible
    from ottla.client.balancing import balance_plan

    try:
        return blocking.run(balance_plan(blocking.client, tolerance_of(tolerance)))
    except Impossible as error:
        raise Failure(f"there is no plan: {error}", USAGE) from None


def _apply(
    blocking: BlockingClient, made: BalancePlan, throttle: str, at_once: int, format: Format
) -> None:
    from ottla.balance.plan_json import plan_as_json
    from ottla.cli.load_tables import print_plan

    if format is Format.json:
        print_json({"event": "plan", **plan_as_json(made)})
    else:
        print_plan(made)
    if made.changes:
        targets = {each.place: each.after for each in made.changes}
        _carry_out(blocking, targets, throttle, at_once, format)


def _go_on(blocking: BlockingClient, throttle: str, at_once: int, format: Format) -> None:
    """With what was begun before, by an interrupted command like this one or by somebody else."""
    from ottla.client.reassigning import Reassigner

    active = blocking.run(Reassigner(blocking.client).active())
    if active:
        warn(f"{count_of(len(active), 'partition')} are being moved already: these come first")
        targets = {place: change.goal for place, change in active.items()}
        _carry_out(blocking, targets, throttle, at_once, format)


def _carry_out(
    blocking: BlockingClient,
    targets: Mapping[Place, Sequence[int]],
    throttle: str,
    at_once: int,
    format: Format,
) -> None:
    from ottla.client.reassigning import Reassigner

    moves = Reassigner(blocking.client)
    again = "ottla balance apply goes on, and removes it; ottla reassign cancel undoes them"
    carry_out(
        blocking, moves, targets, parse_throttle(throttle), format, at_once=at_once, again=again
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
    """Until Ctrl-C: a cluster that does not answer for a while, or refuses a move, is looked at again."""
    from ottla.balance.patience import Patience
    from ottla.balance.plan_json import tolerance_of
    from ottla.balance.planner import Impossible
    from ottla.client import Unreachable
    from ottla.client.balancing import look
    from ottla.client.connections import SecurityRefused
    from ottla.wire.errors import KafkaError

    patience, limits = Patience(after), tolerance_of(tolerance)
    while True:
        try:
            found = blocking.run(look(blocking.client, limits, patience))
            _show_look(found, after, format)
            if found.acts:
                _apply(blocking, found.plan, throttle, at_once, format)
        except SecurityRefused:
            raise
        except (Failure, Impossible, KafkaError, OSError, Unreachable) as error:
            warn(f"{error}; looking again in {every:g} s")
        blocking.run(asyncio.sleep(every))


def _show_look(look: BalanceLook, after: float, format: Format) -> None:
    if format is Format.json:
        print_json(
            {
                "event": "look",
                "out_of_balance": len(look.plan.misses_before),
                "seconds": look.waited_s,
                "acts": look.acts,
            }
        )
    elif look.is_out and not look.acts:
        say(f"out of balance for {look.waited_s:.0f} s of {after:.0f}")
