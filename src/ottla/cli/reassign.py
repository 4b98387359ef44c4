"""`ottla reassign …`: replicas to other brokers, planned, throttled, watched, and undone if need be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connect import (
    BootstrapOption,
    CommandConfigOption,
    DirOption,
    TimeoutOption,
    connect,
)
from ottla.cli.errors import CONFLICT, FAILED, NOT_FOUND, USAGE, Failure
from ottla.cli.output import Format, FormatOption, count_of, print_json, print_table, say, warn

if TYPE_CHECKING:
    from ottla.balance.model import BalancePlan
    from ottla.client import BlockingClient
    from ottla.client.admin import Place
    from ottla.client.model import Reassignment
    from ottla.client.move_pace import Throttle
    from ottla.client.reassigning import MoveProgress, Reassigner
    from ottla.client.reassignment_file import ReassignmentFile
    from ottla.client.throttled_moves import LeftOver

app = typer.Typer(
    help="Propose, carry out, watch and undo moves of replicas.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

FileArgument = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="A proposal, in the JSON of kafka-reassign-partitions."),
]
ThrottleOption = Annotated[
    str,
    typer.Option(
        "--throttle",
        metavar="auto|none|RATE",
        help="Bytes per second that each broker may copy, such as 20M. auto: adapted to how long producers wait.",
    ),
]
ToleranceOption = Annotated[
    float,
    typer.Option(
        "--tolerance",
        metavar="PERCENT",
        help="How far from its share a broker may be.",
        min=1,
        max=100,
    ),
]
FIRST_WORD_S = 1.0
"""Whoever waits for longer is told what for."""
UNITS = {"k": 1000, "m": 1000**2, "g": 1000**3}


@app.command()
def generate(
    brokers: Annotated[
        str,
        typer.Option(
            "--brokers", metavar="ID,…", help="Who shall carry these topics; nobody else."
        ),
    ],
    topics: Annotated[
        str | None,
        typer.Option("--topics", metavar="NAME,…", help="[default: all, internal ones too]"),
    ] = None,
    factor: Annotated[
        int | None,
        typer.Option(
            "-r",
            "--replication-factor",
            help="Another number of replicas. [default: as now]",
            min=1,
        ),
    ] = None,
    tolerance: ToleranceOption = 10.0,
    to: Annotated[Path, typer.Option("--to", help="Where the proposal is written.")] = Path(
        "reassignment.json"
    ),
    rollback: Annotated[
        Path, typer.Option("--rollback", help="Where the present assignment is written.")
    ] = Path("rollback.json"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite these files.")] = False,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Propose where the replicas of topics go.

    The named brokers get equal shares of these topics, with as few bytes moved as possible. Nothing is changed: `ottla reassign execute` does it, with the
    file of the proposal; with that of the rollback it is undone.
    """
    from ottla.balance.plan_json import tolerance_of
    from ottla.cli.load_tables import make_plan
    from ottla.client.cluster_picture import cluster_picture
    from ottla.client.loads import partition_rates
    from ottla.client.log_dir_moves import LogDirMoves
    from ottla.client.reassignment_file import written

    ids = _numbers("--brokers", brokers)
    names = None if topics is None else [name.strip() for name in topics.split(",") if name.strip()]
    for path in (to, rollback):
        if path.exists() and not force:
            raise Failure(f"{path} exists already (--force overwrites it)", CONFLICT)
    with connect(bootstrap, dir, timeout, command_config) as blocking:
        rates = blocking.run(partition_rates(blocking.client))
        picture = blocking.run(cluster_picture(blocking.client, names, rates))
        partitions = [each._replace(factor=factor) for each in picture.partitions]
        plan = make_plan(picture.within(ids), partitions, tolerance_of(tolerance))
        before = _before_moves({each.place: each.replicas for each in partitions}, picture.moving)
        if moving := before.keys() & picture.moving.keys():
            warn(
                f"{count_of(len(moving), 'partition')} are being moved: the proposal begins where they will be, the way back"
                " leads to where they were"
            )
        directories = blocking.run(LogDirMoves(blocking.client).directories_of(before))
    after = {change.place: change.after for change in plan.changes}
    proposal = written({each.place: after.get(each.place, each.replicas) for each in partitions})
    present = written(before, directories)
    to.write_text(proposal + "\n")
    rollback.write_text(present + "\n")
    _show_plan(plan, format, {"proposal": str(to), "rollback": str(rollback)})
    if format is Format.table:
        say("", f"proposal: {to}; the way back: {rollback}", f"next: ottla reassign execute {to}")


@app.command()
def execute(
    file: FileArgument,
    throttle: ThrottleOption = "auto",
    rollback: Annotated[
        Path | None,
        typer.Option("--rollback", help="Write the present assignment there first."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite the file of the rollback.")
    ] = False,
    additional: Annotated[
        bool, typer.Option("--additional", help="Also while other partitions are being moved.")
    ] = False,
    at_once: Annotated[
        int | None,
        typer.Option("--at-once", help="Partitions that move at a time. [default: all]", min=1),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the loads before and after, change nothing.")
    ] = False,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Carry out a proposal, and stay until it is done.

    Where the file names log_dirs, replicas are also moved to these directories of their brokers.

    The copying is throttled, and the throttle is removed at the end. After Ctrl-C the moves go on under it: then
    `ottla reassign verify FILE --wait` watches them and removes it, `ottla reassign cancel FILE` undoes them. Every
    command that moves replicas removes a throttle that was left over.
    """
    from ottla.client.log_dir_moves import LogDirMoves
    from ottla.client.reassigning import Reassigner
    from ottla.client.reassignment_file import written

    pace = parse_throttle(throttle)
    plan = _read(file)
    with connect(bootstrap, dir, timeout, command_config, by_controller=True) as blocking:
        moves = Reassigner(blocking.client)
        if dry_run:
            _show_plan(_as_plan(blocking, plan), format, {"dry_run": True})
            warn_of_shortages(blocking, moves, plan.targets)
            return
        active = blocking.run(moves.active())
        goes_on = any(
            place in active and active[place].goal == tuple(wanted)
            for place, wanted in plan.targets.items()
        )
        keeps = rollback is not None and rollback.exists() and not force
        if keeps and not goes_on:
            raise Failure(f"{rollback} exists already (--force overwrites it)", CONFLICT)
        tidy_up(blocking)
        _require_free(active, plan, additional)
        if keeps:
            warn(f"these moves go on: {rollback} stays, as the way back to where they began")
        elif rollback is not None:
            names = {topic for topic, _ in plan.targets}
            current = blocking.run(moves.partitions(names))
            present = _before_moves(
                {p: current[p].replicas for p in plan.targets if p in current}, active
            )
            directories = blocking.run(LogDirMoves(blocking.client).directories_of(present))
            rollback.write_text(written(present, directories) + "\n")
        _ask_for_directories(blocking, plan)  # so that new replicas are made there
        carry_out(
            blocking,
            moves,
            plan.targets,
            pace,
            format,
            at_once=at_once,
            keep_factor=False,
            again=_again(file),
        )
        _move_directories(blocking, plan, format)


@app.command()
def verify(
    file: FileArgument,
    wait: Annotated[bool, typer.Option("--wait", help="Watch until it is done.")] = False,
    throttle: ThrottleOption = "auto",
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Say how far a proposal is carried out. Exit code 1 if something is missing.

    Nothing is changed; with --wait, a throttle that is left over at the end is removed.
    """
    from ottla.client.reassigning import Reassigner

    plan = _read(file)
    pace = parse_throttle(throttle)
    with connect(bootstrap, dir, timeout, command_config) as blocking:
        moves = Reassigner(blocking.client)
        active = blocking.run(moves.active())
        moving = {place: wanted for place, wanted in plan.targets.items() if place in active}
        if wait and moving:
            carry_out(blocking, moves, moving, pace, format, keep_factor=False, again=_again(file))
            active = blocking.run(moves.active())
        if wait:
            _move_directories(blocking, plan, format)
        states = _states(blocking, moves, plan, active)
        directories = _directory_states(blocking, plan)
        removed = tidy_up(blocking) if wait else False
        if not wait:
            mention_left_over(blocking)
    if format is Format.json:
        print_json(
            {
                "partitions": states,
                "log_dirs": directories,
                "active": len(active),
                "throttle_removed": removed,
            }
        )
    else:
        print_table(
            ("partition", "state", "replicas", "wanted"),
            [
                (
                    f"{each['topic']}-{each['partition']}",
                    each["state"],
                    each["replicas"],
                    each["wanted"],
                )
                for each in states
            ],
        )
        if directories:
            print_table(
                ("partition", "broker", "state", "log dir", "wanted"),
                [
                    (
                        f"{each['topic']}-{each['partition']}",
                        each["broker"],
                        each["state"],
                        each["log_dir"],
                        each["wanted"],
                    )
                    for each in directories
                ],
            )
    missing = sum(each["state"] != "done" for each in states)
    elsewhere = sum(each["state"] != "done" for each in directories)
    if elsewhere and not missing:
        raise Failure(
            f"{elsewhere} of {count_of(len(directories), 'replica')} are not in the log directory where they shall be",
            FAILED,
        )
    if missing:
        raise Failure(
            f"{missing} of {count_of(len(states), 'partition')} are not where they shall be", FAILED
        )


@app.command()
def cancel(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="[default: everything that is being moved]"),
    ] = None,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Stop moves: what is not done is as before.

    Without a file everything is stopped, moves between log directories too, and every throttle is removed (but for those of
    topics that throttle all of their replicas, "*").
    """
    from ottla.client.log_dir_moves import LogDirMoves, LogDirRefused
    from ottla.client.reassigning import Reassigner

    plan = None if file is None else _read(file)
    with connect(bootstrap, dir, timeout, command_config, by_controller=True) as blocking:
        moves = Reassigner(blocking.client)
        active = blocking.run(moves.active())
        places: Collection[Place] = active if plan is None else plan.targets
        cancelled = blocking.run(moves.cancel(places))
        replicas = None if plan is None else plan.directories
        within = LogDirMoves(blocking.client)
        refused = None
        try:
            stayed = blocking.run(within.cancel(replicas))
        except LogDirRefused as error:
            refused, stayed = error, []
        removed = tidy_up(blocking, everything=plan is None)
        if refused is not None:
            raise Failure(
                f"cancelled {count_of(len(cancelled), 'reassignment')}, but a broker refused to leave {refused}",
                FAILED,
            )
        _mention_unheard(within.unheard, "moves between its log directories may go on")
        space = _when_space_returns(blocking, cancelled)
    if format is Format.json:
        names = [{"topic": topic, "partition": number} for topic, number in cancelled]
        print_json({"cancelled": names, "log_dirs": len(stayed), "throttle_removed": removed})
    else:
        say(f"cancelled {count_of(len(cancelled) + len(stayed), 'move')}{space}")


def _mention_unheard(brokers: Iterable[int], so: str) -> None:
    for id in brokers:
        warn(f"broker {id} does not answer: {so}")


def _when_space_returns(blocking: BlockingClient, cancelled: Collection[Place]) -> str:
    from ottla.client.admin import TOPIC, Admin

    name = "file.delete.delay.ms"
    resources = [(TOPIC, topic) for topic in sorted({topic for topic, _ in cancelled})]
    if not resources:
        return ""
    found = blocking.run(Admin(blocking.client).describe_configs(resources, keys=[name]))
    delays = [
        int(entry.value or 0) for each in found.values() for entry in each if entry.name == name
    ]
    if not delays:
        return ""
    return f"; the disks have the space of what was copied back after {max(delays) / 1000:g} s ({name})"


@app.command("list")
def list_moves(
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Show what is being moved, also between the log directories of a broker."""
    from ottla.client.log_dir_moves import LogDirMoves
    from ottla.client.reassigning import Reassigner

    with connect(bootstrap, dir, timeout, command_config) as blocking:
        active = blocking.run(Reassigner(blocking.client).active())
        log_dirs = LogDirMoves(blocking.client)
        within = blocking.run(log_dirs.under_way())
        _mention_unheard(
            log_dirs.unheard, "whether it moves replicas between its log directories is not known"
        )
        mention_left_over(blocking)
    if format is Format.json:
        print_json(
            {
                "partitions": [each._asdict() for each in active.values()],
                "log_dirs": [
                    {
                        "topic": topic,
                        "partition": number,
                        "broker": broker,
                        "log_dir": state.current,
                        "wanted": state.future,
                    }
                    for (broker, topic, number), state in within.items()
                ],
            }
        )
        return
    if active:
        print_table(
            ("partition", "AR", "adding", "removing"),
            [
                (f"{topic}-{number}", each.replicas, each.adding, each.removing)
                for (topic, number), each in active.items()
            ],
        )
    if within:
        print_table(
            ("partition", "broker", "from", "to"),
            [
                (f"{topic}-{number}", broker, state.current, state.future)
                for (broker, topic, number), state in within.items()
            ],
        )
    if not active and not within:
        say("nothing is being moved")


def _ask_for_directories(blocking: BlockingClient, plan: ReassignmentFile) -> None:
    from ottla.client.log_dir_moves import LogDirMoves, LogDirRefused

    try:
        blocking.run(LogDirMoves(blocking.client).ask(plan.directories))
    except LogDirRefused as error:
        raise Failure(f"the broker refused to move {error}", USAGE) from None


def _move_directories(blocking: BlockingClient, plan: ReassignmentFile, format: Format) -> None:
    """Stay until every replica lies in the directory that the file names."""
    from ottla.cli.move_bars import LINE_EVERY_S
    from ottla.client.log_dir_moves import LogDirMoves, LogDirRefused

    if not plan.directories:
        return

    async def watch() -> None:
        loop = asyncio.get_running_loop()
        said_at = loop.time() - LINE_EVERY_S + FIRST_WORD_S
        async for left in LogDirMoves(blocking.client).run(plan.directories):
            total = len(plan.directories)
            if format is Format.json:
                print_json({"event": "log_dirs", "left": left, "total": total})
            elif left and loop.time() - said_at >= LINE_EVERY_S:
                said_at = loop.time()
                say(f"{left} of {count_of(total, 'replica')} not yet in the log directory named")

    try:
        blocking.run(watch())
    except LogDirRefused as error:
        raise Failure(f"not moved: {error}", FAILED) from None
    if format is not Format.json:
        say(f"done: {count_of(len(plan.directories), 'replica')} in the log directories named")


def _directory_states(blocking: BlockingClient, plan: ReassignmentFile) -> list[dict[str, Any]]:
    from ottla.client.log_dir_moves import LogDirMoves

    states = blocking.run(LogDirMoves(blocking.client).states(plan.directories))
    rows = []
    for (broker, topic, partition), (current, future) in states.items():
        wanted = plan.directories[broker, topic, partition]
        is_done = current == wanted and future is None
        rows.append(
            {
                "topic": topic,
                "partition": partition,
                "broker": broker,
                "state": "done" if is_done else "moving" if future == wanted else "not moving",
                "log_dir": current,
                "wanted": wanted,
            }
        )
    return rows


def carry_out(
    blocking: BlockingClient,
    moves: Reassigner,
    targets: Mapping[Place, Any],
    throttle: Throttle,
    format: Format,
    *,
    again: str,
    at_once: int | None = None,
    keep_factor: bool = True,
) -> None:
    """Move, show how far it is, and leave no throttle behind."""
    warn_of_shortages(blocking, moves, targets)
    run = moves.run(targets, throttle, at_once=at_once, keep_factor=keep_factor)
    last = watch_moves(blocking, run, format, again)
    done = 0 if last is None else len(last.partitions)
    gone = len(targets) - done
    limited = () if last is None else last.limited
    if format is Format.json:
        print_json({"event": "done", "partitions": done, "gone": gone, "limited": limited})
    else:
        deleted = f"; {count_of(gone, 'partition')} deleted meanwhile" if gone else ""
        left = _rates_stay(limited) if limited else "no throttle is left"
        say(f"done: {count_of(done, 'partition')}{deleted}; {left}")


def _rates_stay(brokers: Sequence[int]) -> str:
    """Of an Apache Kafka: there only the broker itself can be told."""
    ids = ", ".join(map(str, brokers))
    return (
        f"the rates of broker {ids}, which is down, stay there: the next command that moves something after its return"
        " removes them"
    )


def warn_of_shortages(
    blocking: BlockingClient, moves: Reassigner, targets: Mapping[Place, Any]
) -> None:
    from ottla.diagnosis.words import size

    for each in blocking.run(moves.shortages(targets)):
        warn(
            f"broker {each.broker} has no room for all of it: {size(each.coming)} are to come, {size(each.free)} are free on its"
            " disks; it stops copying before a disk is full"
        )


def watch_moves(
    blocking: BlockingClient, progress: AsyncIterator[MoveProgress], format: Format, again: str
) -> MoveProgress | None:
    """Show it to its end. After Ctrl-C what was begun goes on under its throttle, whatever command began it; `again`
    says how to go on with it."""
    from ottla.cli.move_bars import show_moves
    from ottla.client.reassigning import MoveRefused, MovesUndone

    try:
        return blocking.run(show_moves(progress, format))
    except MoveRefused as error:
        raise Failure(
            f"the controller refused to move {error}; all others are where they shall be", FAILED
        ) from None
    except MovesUndone as error:
        raise Failure(str(error), CONFLICT) from None
    except KeyboardInterrupt:
        warn(f"interrupted: {what_goes_on(blocking)}; {again}")
        raise


def what_goes_on(blocking: BlockingClient) -> str:
    """Without the command that watched it."""
    from ottla.client.reassigning import Reassigner

    tidy_up(blocking)
    going_on = len(blocking.run(Reassigner(blocking.client).going_on()))
    if not going_on:
        return "no move goes on, and no throttle is left"
    return f"{count_of(going_on, 'partition')} go on moving, under the throttle"


def parse_throttle(text: str) -> Throttle:
    """`auto`, `none`, or bytes per second, such as 500000, 20M or 1.5G."""
    from ottla.balance.pace import CopyPace

    word = text.strip().lower().removesuffix("/s").removesuffix("b")
    if word == "auto":
        return CopyPace(0.0)
    if word == "none":
        return None
    unit = UNITS.get(word[-1:], 1)
    try:
        rate = int(float(word if unit == 1 else word[:-1]) * unit)
    except (ValueError, OverflowError):
        rate = 0
    if rate < 1:
        raise Failure(f"--throttle {text}: give auto, none or bytes per second, such as 20M", USAGE)
    return rate


def _numbers(option: str, words: str) -> list[int]:
    try:
        return [int(word) for word in words.split(",")]
    except ValueError:
        raise Failure(f"{option} {words}: is not a list of broker ids", USAGE) from None


def _read(path: Path) -> ReassignmentFile:
    from ottla.client.reassignment_file import BadReassignmentFile, read

    if not path.exists():
        raise Failure(f"there is no file {path} (ottla reassign generate makes one)", NOT_FOUND)
    try:
        found = read(str(path))
        found.check()
    except BadReassignmentFile as error:
        raise Failure(str(error), USAGE) from None
    return found


def _again(file: Path) -> str:
    return (
        f"ottla reassign verify {file} --wait watches them and removes it, ottla reassign cancel {file} undoes"
        " them"
    )


def tidy_up(blocking: BlockingClient, *, everything: bool = False) -> bool:
    """Whether there was a throttle of what is not being copied (or any, with `everything`), and is removed now."""
    from ottla.client.reassigning import Reassigner

    moves = Reassigner(blocking.client)
    found = blocking.run(moves.remove_throttles() if everything else moves.remove_left_over())
    if found:
        warn(f"removed a throttle that was left over from earlier moves, on {found}")
    if found.stays_on:
        warn(_rates_stay(found.stays_on))
    _mention_waiting(found)
    return bool(found)


def mention_left_over(blocking: BlockingClient) -> None:
    """For commands that show, and so change nothing."""
    from ottla.client.reassigning import Reassigner

    found = blocking.run(Reassigner(blocking.client).left_over())
    if found and not found.is_in_part:
        warn(
            f"a throttle is left over from earlier moves, on {found}; the next command that moves something removes it, or"
            " ottla reassign cancel"
        )
    _mention_waiting(found)


def _mention_waiting(found: LeftOver) -> None:
    """It cannot be told from the throttle of a command that still waits for the broker, so it stays."""
    if found.waits_for:
        ids = ", ".join(map(str, found.waits_for))
        warn(
            f"a throttle waits for broker {ids}, which is down: its replicas will be copied under it. Once they are in sync,"
            " the next command that moves something removes it; ottla reassign cancel does at once"
        )


def _before_moves(
    replicas: Mapping[Place, Sequence[int]], active: Mapping[Place, Reassignment]
) -> dict[Place, Sequence[int]]:
    """The way back: a partition that is being moved has its new replicas, too, and must lose them."""
    return {
        place: active[place].start if place in active else present
        for place, present in replicas.items()
    }


def _require_free(active: Collection[Place], plan: ReassignmentFile, additional: bool) -> None:
    """Nothing else is being moved, unless that is meant. What this file asks for may go on."""
    others = [
        f"{topic}-{number}" for topic, number in active if (topic, number) not in plan.targets
    ]
    if others and not additional:
        raise Failure(
            f"{count_of(len(others), 'other partition')} are being moved, first {others[0]} (ottla reassign list);"
            " wait, cancel them, or give --additional",
            CONFLICT,
        )


def _states(
    blocking: BlockingClient,
    moves: Reassigner,
    plan: ReassignmentFile,
    active: Collection[Place],
) -> list[dict[str, Any]]:
    from ottla.wire.errors import KafkaError

    states = []
    known: dict[Place, Any] = {}
    for topic in sorted({topic for topic, _ in plan.targets}):
        try:
            known |= blocking.run(moves.partitions([topic]))
        except KafkaError:
            continue  # it is gone: said below
    for (topic, number), wanted in sorted(plan.targets.items()):
        found = known.get((topic, number))
        replicas = [] if found is None else list(found.replicas)
        state = "moving" if (topic, number) in active else "done" if replicas == wanted else "other"
        states.append(
            {
                "topic": topic,
                "partition": number,
                "state": "gone" if found is None else state,
                "replicas": replicas,
                "wanted": wanted,
            }
        )
    return states


def _as_plan(blocking: BlockingClient, file: ReassignmentFile) -> BalancePlan:
    """What a file would do to the loads of all brokers."""
    from ottla.balance.plan_json import tolerance_of
    from ottla.balance.planner import foreseen
    from ottla.client.cluster_picture import cluster_picture
    from ottla.client.loads import partition_rates

    rates = blocking.run(partition_rates(blocking.client))
    picture = blocking.run(cluster_picture(blocking.client, None, rates))
    unknown = [
        place for place in file.targets if all(place != each.place for each in picture.partitions)
    ]
    if unknown:
        raise Failure(f"there is no partition {unknown[0][0]}-{unknown[0][1]}", NOT_FOUND)
    return foreseen(picture.brokers, picture.partitions, file.targets, tolerance_of(10.0))


def _show_plan(plan: BalancePlan, format: Format, more: Mapping[str, Any]) -> None:
    from ottla.balance.plan_json import plan_as_json
    from ottla.cli.load_tables import print_plan

    if format is Format.json:
        print_json({**more, **plan_as_json(plan)})
    else:
        print_plan(plan)
