"""`ottla migrate`: Apache Kafka's brokers make room for ottla's, or the other way round, while clients go on.

Brokers join with `ottla brokers add`, controllers with `ottla controllers add`, and leave with `remove`. What is between, is
here: what would be refused, everything moved from the one kind to the other, and how far that is.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.broker_changes import (
    AtOnceOption,
    ChangeCommand,
    DryRunOption,
    IdArgument,
    LostAfterOption,
    ShareRacksOption,
    cordon_empty,
    require_empty,
    require_other_copies,
    take_out,
    targets_of,
    tidy,
)
from ottla.cli.connect import (
    BootstrapOption,
    CommandConfigOption,
    DirOption,
    TimeoutOption,
    connect,
    local_cluster,
)
from ottla.cli.errors import CONFLICT, NOT_FOUND, USAGE, Failure
from ottla.cli.output import Format, FormatOption, count_of, print_json, print_table, say, warn
from ottla.cli.reassign import ThrottleOption, ToleranceOption, parse_throttle, tidy_up

if TYPE_CHECKING:
    from ottla.balance.model import BalancePlan
    from ottla.client import BlockingClient
    from ottla.client.admin import Place
    from ottla.client.broker_changes import Situation
    from ottla.client.migration import Kind, Readiness
    from ottla.local.cluster import LocalCluster

CANCELLED_LATER_S = 2.0
"""In which a command that moves partitions has noticed that some of them were cancelled, and begins no others."""

app = typer.Typer(
    help="Move a cluster from Apache Kafka to ottla, or back.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ToOption = Annotated[
    str,
    typer.Option("--to", metavar="ottla|kafka", help="Whose brokers shall have everything."),
]


class _Migrate(ChangeCommand):
    """A command, and which broker is of which kind."""

    def __init__(
        self,
        blocking: BlockingClient,
        format: Format,
        again: str,
        local: LocalCluster | None = None,
    ) -> None:
        from ottla.client.migration import Migration

        super().__init__(blocking, local, format, again)
        self.migration = Migration(blocking.client)
        self.kinds: dict[int, Kind] = {}
        """Also of those that died since."""
        self.look()

    def look(self) -> None:
        self.now = self.standings()
        self.kinds |= self.blocking.run(self.migration.kinds(self.now.living))

    def of_kind(self, kind: Kind) -> list[int]:
        return sorted(id for id, each in self.kinds.items() if each is kind)

    def findings(self, to: Kind, *, in_place: bool = False) -> list[Readiness]:
        from ottla.client.migration import findings
        from ottla.metadata.features import supported_ranges

        known = {
            each.name: (each.min_supported_version, each.max_supported_version)
            for each in supported_ranges()
        }
        picture = self.situation().picture
        seen = self.blocking.run(self.migration.look(to, self.kinds, known, picture))
        return findings(seen, in_place=in_place)


def _kind_of(word: str) -> Kind:
    from ottla.client.migration import Kind

    try:
        return Kind(word.lower())
    except ValueError:
        raise Failure(f"--to {word}: give ottla or kafka", USAGE) from None


@app.command()
def status(
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Show which nodes are whose, what each has, and what is being moved."""
    with connect(bootstrap, dir, timeout, command_config) as blocking:
        command = _Migrate(blocking, format, "ottla migrate status")
        quorum = blocking.run(blocking.client.describe_quorum())
        active = blocking.run(command.changes.moves.active())
        cordoned = blocking.run(command.changes.cordoned(command.now.living))
        rows = []
        for id in sorted(command.now.known):
            mine = command.partitions_on(id)
            kind = command.kinds.get(id)
            rows.append(
                {
                    "id": id,
                    "kind": "?" if kind is None else kind.value,
                    "state": "live" if id in command.now.living else "down",
                    "replicas": len(mine),
                    "leaders": sum(each.leader == id for each in mine.values()),
                    "cordoned": id in cordoned,
                    "votes": quorum.voter(id) is not None,
                }
            )
    only_voters = [each.id for each in quorum.voters if each.id not in command.now.known]
    if format is Format.json:
        print_json({"brokers": rows, "controllers_only": only_voters, "moving": len(active)})
        return
    heads = ("ID", "KIND", "STATE", "REPLICAS", "LEADERS", "CORDONED", "VOTES")
    print_table(heads, [[_shown(row[head.lower()]) for head in heads] for row in rows])
    if only_voters:
        say(f"controllers that are no brokers: {', '.join(map(str, only_voters))}")
    if active:
        say(f"being moved: {count_of(len(active), 'partition')} (ottla reassign list)")


def _shown(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value


@app.command()
def check(
    to: ToOption = "ottla",
    in_place: Annotated[
        bool,
        typer.Option("--in-place", help="For nodes that stay, with their files: nothing is moved."),
    ] = False,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Say what would be refused, and why. Nothing is changed.

    Exit code 5 if something would be refused.
    """
    kind = _kind_of(to)
    with connect(bootstrap, dir, timeout, command_config) as blocking:
        command = _Migrate(blocking, format, "ottla migrate check")
        found = command.findings(kind, in_place=in_place)
    if format is Format.json:
        print_json([each._asdict() for each in found])
    else:
        rows = [("no" if each.refused else "yes", each.what, each.why) for each in found]
        print_table(("READY", "WHAT", "WHY"), rows)
    refused = sum(each.refused for each in found)
    if refused:
        raise Failure(f"{count_of(refused, 'thing')} must change first", CONFLICT)


@app.command()
def move(
    to: ToOption = "ottla",
    throttle: ThrottleOption = "auto",
    at_once: AtOnceOption = 10,
    tolerance: ToleranceOption = 10.0,
    share_racks: ShareRacksOption = False,
    lost_after: LostAfterOption = 30.0,
    cancel: Annotated[
        bool,
        typer.Option(
            "--cancel",
            help="Stop, whatever --to is: what is not done is as before, no cordon is left.",
        ),
    ] = False,
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Move all replicas and leaderships to the brokers of one kind.

    The other brokers are cordoned, so that no new replica lands there. The copying is throttled, and the throttle is removed at
    the end. After Ctrl-C the same command goes on, and the same command with the other kind is the way back.
    """
    from ottla.client.migration import IN_SYNC, RACKS

    parse_throttle(throttle)
    kind = _kind_of(to)
    if cancel and dry_run:
        raise Failure("--cancel cannot be tried: leave out --dry-run", USAGE)
    with connect(bootstrap, dir, timeout, command_config, by_controller=True) as blocking:
        command = _Migrate(blocking, format, f"ottla migrate move --to {kind.value}")
        tidy(blocking, dry_run=dry_run)
        if cancel:
            _cancel(command)
            return
        accepted = {RACKS} if share_racks else set()
        # What is being moved is not in sync yet: that is what goes on.
        if command.blocking.run(command.changes.moves.active()):
            accepted.add(IN_SYNC)
        refused = [
            each for each in command.findings(kind) if each.refused and each.what not in accepted
        ]
        if refused:
            first = refused[0]
            raise Failure(f"{first.what}: {first.why} (ottla migrate check --to {to})", CONFLICT)
        if dry_run:
            command.show_plan(*_plan(command, kind, tolerance), dry_run=True)
            return
        _move(command, kind, throttle, at_once, tolerance, lost_after)


@app.command()
def retire(
    id: IdArgument,
    wait: Annotated[
        float,
        typer.Option("--wait", help="Seconds to wait until the node is stopped.", min=0),
    ] = 600.0,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Take an empty node out of the cluster: wait until it is stopped, take its vote away, unregister it.

    It is stopped while it still votes. A node without a vote finds the controllers at controller.quorum.bootstrap.servers
    only; if those are gone, too, it cannot end in good order. So add the vote of its successor first (ottla controllers add).
    """
    from ottla.cli.controllers import require_dynamic
    from ottla.client.migration import Kind, may_run
    from ottla.client.voters import remove_voter

    local = local_cluster(bootstrap, dir)
    with connect(bootstrap, dir, timeout, command_config, by_controller=True) as blocking:
        command = _Migrate(blocking, format, f"ottla migrate retire {id}", local)
        quorum = blocking.run(blocking.client.describe_quorum())
        voter = quorum.voter(id)
        if id not in command.now.known and voter is None and quorum.observer(id) is None:
            raise Failure(f"there is no node {id} (ottla migrate status)", NOT_FOUND)
        is_ottla = command.kinds.get(id) is Kind.OTTLA
        emptied = f"ottla brokers drain {id} first" if is_ottla else "ottla migrate move first"
        require_empty(command, id, emptied)
        if voter is not None:
            require_dynamic(blocking, quorum)
            if len(quorum.voters) == 1:
                raise Failure(
                    f"controller {id} is the only voter: add another first (ottla controllers add)",
                    CONFLICT,
                )
            if not blocking.run(command.migration.has_majority_without(id)):
                raise Failure(
                    f"controller {id} is one of {len(quorum.voters)} voters, and without it those that answer are no majority:"
                    " add the vote of its successor first (ottla controllers add), or take its vote away while it runs"
                    f" (ottla controllers remove {id})",
                    CONFLICT,
                )
        is_alive = id in command.now.living
        cordon_empty(command, id, is_alive=is_alive, how=emptied)
        if is_alive or may_run(quorum, id):
            warn(f"stop node {id} now, in good order (SIGTERM); waiting up to {wait:g} s")
        if not blocking.run(command.migration.wait_stopped(id, wait)):
            raise Failure(f"node {id} still runs: stop it, and run {command.again} again", CONFLICT)
        # Where brokers cannot be cordoned, something may have been created there.
        require_empty(command, id, emptied)
        if voter is not None:
            assert voter.directory is not None
            warn(f"node {id} is stopped: taking its vote away")
            blocking.run(remove_voter(blocking.client, id, voter.directory))
        take_out(command, id)
    command.tell("retired", f"node {id} is no part of the cluster any more", broker=id)


def _move(
    command: _Migrate,
    to: Kind,
    throttle: str,
    at_once: int,
    tolerance: float,
    lost_after_s: float,
) -> None:
    from ottla.client.broker_changes import DestinationLost, SourceLost

    run = command.blocking.run
    _uncordon(command, command.of_kind(to))
    leaving = command.of_kind(to.other)
    open_ = [id for id in leaving if not run(command.changes.cordon(id)).holds]
    if open_:
        warn(
            f"this cluster cannot cordon brokers {', '.join(map(str, open_))}: what is created meanwhile may land there, and"
            " is moved away, too"
        )
    while True:
        command.look()
        plan, situation = _plan(command, to, tolerance)
        targets = targets_of(plan, situation)
        if not targets:
            break
        command.show_plan(plan, situation)
        pace = parse_throttle(throttle)
        elsewhere = partial(_goes_elsewhere, command, to, situation)
        try:
            command.watch(
                command.changes.drain_moves(
                    leaving,
                    targets,
                    pace,
                    at_once,
                    lost_after_s,
                    elsewhere,
                    keep_factor=False,  # of ottla's own topics
                )
            )
        except SourceLost as error:
            require_other_copies(command, error.broker)  # else it is back by now: go on
        except DestinationLost as error:
            command.give_up(error)
    tidy_up(command.blocking)
    left = [id for id in leaving if command.partitions_on(id)]
    if left:
        raise Failure(
            f"brokers {', '.join(map(str, left))} have replicas again: run it again", CONFLICT
        )
    text = f"brokers of {to.value} have everything"
    if leaving:
        shown = ", ".join(map(str, leaving))
        text += (
            f"; brokers {shown} have nothing, and may leave, one by one (ottla migrate retire ID)"
        )
    command.tell("done", text, to=to.value, empty=leaving)


def _plan(command: _Migrate, to: Kind, tolerance: float) -> tuple[BalancePlan, Situation]:
    from ottla.balance.plan_json import tolerance_of
    from ottla.balance.planner import Impossible
    from ottla.client.migration import migration_plan

    situation = command.situation()
    try:
        plan = migration_plan(
            situation.picture, to, command.kinds, command.now.living, tolerance_of(tolerance)
        )
    except Impossible as error:
        raise Failure(f"there is no plan: {error}", CONFLICT) from None
    return plan, situation


def _goes_elsewhere(command: _Migrate, to: Kind, situation: Situation, down: Sequence[int]) -> bool:
    from ottla.balance.departures import settled
    from ottla.balance.model import Tolerance
    from ottla.balance.planner import Impossible
    from ottla.client.migration import migration_plan

    # Their moves will be cancelled first.
    partitions = settled(situation.picture.partitions, situation.starts)
    picture = situation.picture._replace(partitions=partitions)
    living = command.now.living - set(down)
    try:
        migration_plan(picture, to, command.kinds, living, Tolerance())
    except Impossible:
        warn(f"waiting for broker {', '.join(map(str, down))}: no other can take its part")
        return False
    return True


def _uncordon(command: _Migrate, ids: Iterable[int]) -> None:
    """Also those that somebody drains: only he knows that, so it is said."""
    for id in ids:
        if command.blocking.run(command.changes.uncordon(id)):
            warn(f"broker {id} was cordoned, and is not any more")


def _cancel(command: _Migrate) -> None:
    """The moves between brokers of different kinds, in either direction."""
    from ottla.client.migration import is_between_kinds

    run, moves = command.blocking.run, command.changes.moves
    cancelled: set[Place] = set()
    while True:
        active = run(moves.active())
        mine = [
            place for place, change in active.items() if is_between_kinds(change, command.kinds)
        ]
        if not mine:
            break
        cancelled.update(run(moves.cancel(mine)))
        time.sleep(CANCELLED_LATER_S)
    _uncordon(command, sorted(command.kinds))
    tidy_up(command.blocking)
    others = f"; other moves that go on: {len(active)} (ottla reassign list)" if active else ""
    command.tell(
        "cancelled",
        f"cancelled {count_of(len(cancelled), 'move')}, and no broker is cordoned; what was moved before stays where it is"
        + others,
        cancelled=len(cancelled),
    )
