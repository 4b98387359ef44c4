"""`ottla groups …`: the members of a group, their lag, and their offsets."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connect import (
    BootstrapOption,
    CommandConfigOption,
    DirOption,
    TimeoutOption,
    connect,
)
from ottla.cli.errors import CONFLICT, NOT_FOUND, USAGE, Failure
from ottla.cli.output import (
    Format,
    FormatOption,
    count_of,
    print_json,
    print_table,
    say,
    warn,
    warn_of_silent,
)

if TYPE_CHECKING:
    from ottla.client import BlockingClient
    from ottla.client.group_admin import (
        GroupAdmin,
        GroupDescription,
        GroupMember,
    )
    from ottla.client.group_lag import PartitionLag, Place

app = typer.Typer(
    help="List, describe, explain, reset or delete consumer groups.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ReadCommittedOption = Annotated[
    bool,
    typer.Option(
        "--read-committed",
        help="Seconds as for consumers that read committed transactions only.",
    ),
]

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")]


@app.command("list")
def list_groups(
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    read_committed: ReadCommittedOption = False,
    format: FormatOption = Format.table,
) -> None:
    """List the groups of all brokers, with their lag: all records, and the seconds of the partition that is furthest
    behind."""
    from ottla.client.group_admin import GroupAdmin

    with connect(bootstrap, dir, timeout, command_config) as blocking:
        groups = GroupAdmin(blocking.client)
        found, silent = blocking.run(groups.all())
        names = [group.id for group in found]
        lags = blocking.run(groups.lags_of_all(names, read_committed=read_committed))
    now_ms = time.time() * 1000
    warn_of_silent(silent)
    totals = {name: _total(lags.get(name), now_ms) for name in names}
    if format is Format.json:
        heads = ("lag", "lag_seconds")
        print_json(
            [group._asdict() | dict(zip(heads, totals[group.id], strict=True)) for group in found]
        )
        return
    print_table(
        ("group", "state", "type", "protocol", "coordinator", "lag", "seconds"),
        [
            (*each, records, _shown(seconds))
            for each in found
            for records, seconds in [totals[each.id]]
        ],
    )


def _total(lags: list[PartitionLag] | None, now_ms: float) -> tuple[int | None, float | None]:
    """Records and seconds of all partitions together; None where they are not known."""
    from ottla.client.group_lag import most_seconds

    if lags is None:
        return None, None
    return sum(lag.lag for lag in lags), most_seconds(lags, now_ms)


@app.command()
def describe(
    group: GroupArgument,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    read_committed: ReadCommittedOption = False,
    format: FormatOption = Format.table,
) -> None:
    """Show a group's members and its lag, in records and in seconds.

    The seconds are the age of the next record that the group will read, by its own timestamp.
    """
    from ottla.client.group_admin import GroupAdmin

    with connect(bootstrap, dir, timeout, command_config) as blocking:
        groups = GroupAdmin(blocking.client)
        described = _described(blocking, groups, group)
        assigned = tuple(place for member in described.members for place in member.assigned)
        lags, unknown = blocking.run(
            groups.known_lags(group, assigned, read_committed=read_committed)
        )
    now_ms = time.time() * 1000
    _warn_of_unknown(unknown)
    owners = {place: member for member in described.members for place in member.assigned}
    if format is Format.json:
        print_json(_as_json(described, lags, owners, now_ms))
        return
    say(
        f"group {described.id}: {described.state}, {described.type} protocol,"
        f" assignor {described.assignor or '-'}, {count_of(len(described.members), 'member')},"
        f" coordinator {described.coordinator}"
    )
    print_table(
        ("topic", "partition", "committed", "end", "lag", "seconds", "member", "client", "host"),
        [
            (
                lag.topic,
                lag.partition,
                lag.committed,
                lag.log_end,
                lag.lag,
                _shown(lag.seconds(now_ms)),
                owner.instance_id or owner.id if owner else None,
                owner.client_id if owner else None,
                owner.host if owner else None,
            )
            for lag in lags
            for owner in [owners.get((lag.topic, lag.partition))]
        ],
    )
    idle = [member for member in described.members if not member.assigned]
    for member in idle:
        say(f"member {member.instance_id or member.id} ({member.host}) has no partitions")


def _described(blocking: BlockingClient, groups: GroupAdmin, group: str) -> GroupDescription:
    from ottla.wire.errors import ErrorCode, KafkaError

    try:
        return blocking.run(groups.describe(group))
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            raise Failure(f"there is no group {group} (ottla groups list)", NOT_FOUND) from None
        raise


def _warn_of_unknown(places: list[Place]) -> None:
    if places:
        topic, partition = places[0]
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        warn(f"no leader answers for {topic}-{partition}{more}; its lag is not shown")


def _shown(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:.1f}"


def _as_json(
    described: GroupDescription,
    lags: list[PartitionLag],
    owners: dict[Place, GroupMember],
    now_ms: float,
) -> dict[str, Any]:
    return {
        "group": described.id,
        "type": described.type,
        "state": described.state,
        "assignor": described.assignor,
        "coordinator": described.coordinator,
        "epoch": described.epoch,
        "members": [
            {**member._asdict(), "assigned": [list(place) for place in member.assigned]}
            for member in described.members
        ],
        "partitions": [
            {
                "topic": lag.topic,
                "partition": lag.partition,
                "committed": lag.committed,
                "log_start": lag.log_start,
                "log_end": lag.log_end,
                "lag": lag.lag,
                "lag_seconds": lag.seconds(now_ms),
                "member": owner.id if owner else None,
            }
            for lag in lags
            for owner in [owners.get((lag.topic, lag.partition))]
        ],
        "hold_up": described.hold_up,
    }


@app.command()
def explain(
    group: GroupArgument,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """The same as ottla explain --group GROUP: why it is as it is now, and what to do."""
    from ottla.cli import explain as any_subject

    any_subject.explain(
        group, group=True, bootstrap=bootstrap, dir=dir, timeout=timeout, format=format
    )


@app.command("reset-offsets")
def reset(
    group: GroupArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="earliest, latest, an offset, +N or -N (records from where it is), or a time"
            " (2026-01-31T12:00:00, local unless it says otherwise).",
        ),
    ],
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "-t",
            "--topic",
            metavar="TOPIC[:PARTITION]",
            help="May be repeated. [default: all that the group has committed]",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the new offsets, change nothing.")
    ] = False,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Set the offsets from which a group will read. The group must have no members."""
    from ottla.client.offset_reset import ResetRefused, WhyNot, planned_resets, reset_offsets

    codes = {
        WhyNot.WRONG_WORD: USAGE,
        WhyNot.ABSENT: NOT_FOUND,
        WhyNot.HAS_MEMBERS: CONFLICT,
    }
    with connect(bootstrap, dir, timeout, command_config) as blocking:
        client = blocking.client
        try:
            resets = blocking.run(planned_resets(client, group, to, topic or ()))
        except ResetRefused as refused:
            raise Failure(str(refused), codes[refused.why]) from None
        if not dry_run:
            blocking.run(reset_offsets(client, group, resets))
    for each in resets:
        if each.limited is not None:
            wanted, start, end = each.limited
            warn(
                f"{each.topic}-{each.partition} holds offsets {start} to {end}: {each.after} instead of {wanted}"
            )
    heads = ("topic", "partition", "before", "after")
    rows = [tuple(each)[: len(heads)] for each in resets]
    if format is Format.json:
        changes = [dict(zip(heads, row, strict=True)) for row in rows]
        print_json({"group": group, "done": not dry_run, "partitions": changes})
    else:
        print_table(heads, rows)


@app.command()
def delete(
    group: GroupArgument,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Delete a group without members, and its offsets."""
    from ottla.client.group_admin import GroupAdmin
    from ottla.wire.errors import ErrorCode, KafkaError

    with connect(bootstrap, dir, timeout, command_config) as blocking:
        try:
            blocking.run(GroupAdmin(blocking.client).delete(group))
        except KafkaError as error:
            if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                raise Failure(f"there is no group {group} (ottla groups list)", NOT_FOUND) from None
            if error.code is ErrorCode.NON_EMPTY_GROUP:
                raise Failure(f"group {group} has members; stop them first", CONFLICT) from None
            raise
    if format is Format.json:
        print_json({"group": group, "deleted": True})
    else:
        say(f"deleted group {group}")
