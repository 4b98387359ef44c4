"""`ottla brokers add`, `drain`, `replace` and `remove`: machines that come and go.

Each derives from the cluster what is left to do. So after Ctrl-C, or after the death of whoever ran it, the same command goes on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ottla.cli.connect import (
    BootstrapOption,
    CommandConfigOption,
    DirOption,
    TimeoutOption,
    connect,
    local_cluster,
)
from ottla.cli.errors import CONFLICT, FAILED, NOT_FOUND, UNREACHABLE, USAGE, Failure
from ottla.cli.node_rights import give_rights, revoke_rights
from ottla.cli.output import Format, FormatOption, count_of, print_json, say, warn
from ottla.cli.reassign import (
    ThrottleOption,
    ToleranceOption,
    mention_left_over,
    parse_throttle,
    tidy_up,
    watch_moves,
    what_goes_on,
)
from ottla.cli.settings import parse_configs

if TYPE_CHECKING:
    from ottla.balance.model import BalancedBroker, BalancePlan
    from ottla.client import BlockingClient
    from ottla.client.admin import DescribedPartition, Place
    from ottla.client.broker_changes import DestinationLost, Situation, Standings
    from ottla.client.model import QuorumInfo
    from ottla.client.reassigning import MoveProgress
    from ottla.local.cluster import LocalCluster

NODE_STARTS_S = 60.0
SHUTDOWN_S = 60.0
NAMED_MAX = 5
"""Partitions that a message names."""

IdArgument = Annotated[int, typer.Argument(metavar="ID", help="The broker's node id.", min=0)]
AtOnceOption = Annotated[
    int, typer.Option("--at-once", help="Partitions that move at a time, at most.", min=1)
]
ShareRacksOption = Annotated[
    bool,
    typer.Option(
        "--share-racks", help="Also where replicas of a partition must share a rack then."
    ),
]
LostAfterOption = Annotated[
    float,
    typer.Option(
        "--lost-after",
        metavar="SECONDS",
        help="If a broker that takes replicas is down for so long, others take them.",
        min=0,
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what would move, change nothing.")
]
RackOption = Annotated[
    str | None, typer.Option("--rack", help="The rack of the new machine (broker.rack).")
]
HostOption = Annotated[
    str | None,
    typer.Option("--host", help="Name or address of the new machine, as all others reach it."),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FILE", help="Write the properties file there. [default: stdout]"
    ),
]
SettingOption = Annotated[
    list[str] | None,
    typer.Option(
        "-c", "--config", metavar="NAME=VALUE", help="A setting of the new node; may be repeated."
    ),
]
WaitOption = Annotated[
    float,
    typer.Option(
        "--wait",
        help="Seconds to wait for a new machine to register; 0 writes the file only.",
        min=0,
    ),
]


class ChangeCommand:
    """What every one of these commands needs."""

    def __init__(
        self,
        blocking: BlockingClient,
        local: LocalCluster | None,
        format: Format,
        again: str,
    ) -> None:
        from ottla.client.broker_changes import BrokerChanges

        self.blocking = blocking
        self.changes = BrokerChanges(blocking.client)
        self.local = local
        self.format = format
        self.again = again

    def quorum(self) -> QuorumInfo:
        return self.blocking.run(self.blocking.client.describe_quorum())

    def has_dynamic_voters(self, quorum: QuorumInfo) -> bool:
        from ottla.client.voters import are_dynamic

        return self.blocking.run(are_dynamic(self.blocking.client, quorum))

    def tell(self, event: str, text: str, **facts: Any) -> None:
        if self.format is Format.json:
            print_json({"event": event, **facts})
        else:
            say(text)

    def standings(self) -> Standings:
        return self.blocking.run(self.changes.standings())

    def situation(self) -> Situation:
        return self.blocking.run(self.changes.situation())

    def partitions_on(self, id: int) -> dict[Place, DescribedPartition]:
        return self.blocking.run(self.changes.partitions_on(id))

    def only_copies(self, id: int) -> list[Place]:
        return self.blocking.run(self.changes.only_copies(id))

    def show_plan(self, plan: BalancePlan, situation: Situation, **more: Any) -> None:
        from ottla.balance.plan_json import plan_as_json
        from ottla.cli.load_tables import print_plan

        if self.format is Format.json:
            moving = len(situation.moving)
            print_json({"event": "plan", **more, **plan_as_json(plan), "moving": moving})
        else:
            print_plan(plan, len(situation.moving))

    def watch(self, progress: AsyncIterator[MoveProgress]) -> None:
        again = f"{self.again} goes on with it, and removes the throttle"
        watch_moves(self.blocking, progress, self.format, again)

    def give_up(self, lost: DestinationLost) -> None:
        """Its moves to there: the next plan has others."""
        warn(f"broker {lost} is down: what was to go there goes elsewhere")
        self.blocking.run(self.changes.moves.cancel(lost.places))
        self.blocking.run(self.changes.moves.remove_left_over())

    def move(self, plan: BalancePlan, situation: Situation, throttle: str, at_once: int) -> None:
        """Carry out a plan, with the moves that go on already."""
        moves = self.changes.moves
        targets = targets_of(plan, situation)
        if targets:
            self.watch(moves.run(targets, parse_throttle(throttle), at_once=at_once))


def tidy(blocking: BlockingClient, *, dry_run: bool) -> None:
    if dry_run:
        mention_left_over(blocking)
    else:
        tidy_up(blocking)


def targets_of(plan: BalancePlan, situation: Situation) -> dict[Place, tuple[int, ...]]:
    return {**situation.moving, **{each.place: each.after for each in plan.changes}}


def _names(places: Sequence[Place]) -> str:
    shown = ", ".join(f"{topic}-{number}" for topic, number in places[:NAMED_MAX])
    more = len(places) - NAMED_MAX
    return f"{shown} and {more} more" if more > 0 else shown


# Drain


def drain(
    id: IdArgument,
    throttle: ThrottleOption = "auto",
    at_once: AtOnceOption = 10,
    share_racks: ShareRacksOption = False,
    lost_after: LostAfterOption = 30.0,
    undo: Annotated[
        bool, typer.Option("--undo", help="Stop: cancel its moves, and let it get replicas again.")
    ] = False,
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Move everything away from a broker, so that it may leave.

    Afterwards it has no replica and leads nothing. All partitions keep their replicas and their racks, and nothing else moves.
    Meanwhile and afterwards the controller puts no new replica there (cordoned.log.dirs). After Ctrl-C the moves go on
    under their throttle: the same command again watches them, and does the rest.
    """
    parse_throttle(throttle)
    with connect(bootstrap, dir, timeout, command_config, by_controller=True) as blocking:
        command = ChangeCommand(blocking, None, format, f"ottla brokers drain {id}")
        tidy(blocking, dry_run=dry_run)
        standings = command.standings()
        if id not in standings.known and not command.partitions_on(id):
            raise _unknown(id, standings)
        if undo:
            _undo_drain(command, id)
            return
        if dry_run:
            situation = command.situation()
            plan = _drain_plan(command, situation, id, share_racks)
            command.show_plan(plan, situation, dry_run=True)
            return
        _drain(command, id, throttle, at_once, lost_after, share_racks)


def _drain(
    command: ChangeCommand,
    id: int,
    throttle: str,
    at_once: int,
    lost_after_s: float,
    share_racks: bool,
) -> None:
    from ottla.client.broker_changes import DestinationLost, SourceLost

    _drain_plan(command, command.situation(), id, share_racks)  # fails if it cannot be
    cordon = command.blocking.run(command.changes.cordon(id))
    cordoned = cordon.holds
    if cordon.instead_of:
        warn(
            f"broker {id} had cordoned.log.dirs={cordon.instead_of}, and has * now; --undo takes * away, and you set yours"
            " again"
        )
    if not cordoned:
        warn(
            f"this cluster cannot cordon broker {id}: what is created meanwhile may land there, and is moved away, too"
        )
    while True:
        situation = command.situation()
        plan = _drain_plan(command, situation, id, share_racks)
        targets = targets_of(plan, situation)
        if not targets:
            break
        command.show_plan(plan, situation)
        pace = parse_throttle(throttle)
        try:
            command.watch(
                command.changes.drain_moves(
                    [id],
                    targets,
                    pace,
                    at_once,
                    lost_after_s,
                    partial(_goes_elsewhere, situation, id),
                )
            )
        except SourceLost:
            warn(f"{what_goes_on(command.blocking)}; {command.again} carries on with it")
            require_other_copies(command, id)  # else it is back by now: go on
        except DestinationLost as error:
            command.give_up(error)
    tidy_up(command.blocking)
    where = "" if cordoned else " (it is not cordoned: remove it before something is created there)"
    command.tell(
        "done",
        f"broker {id} is drained: it has no replica and leads nothing; {_way_out(command, id)}{where}",
        broker=id,
        replicas=0,
        leaders=0,
        cordoned=cordoned,
    )


def _goes_elsewhere(situation: Situation, id: int, down: Sequence[int]) -> bool:
    from ottla.balance.departures import settled, too_few

    brokers, partitions, _ = situation.picture
    # Their moves will be cancelled first.
    if too_few(_without(brokers, down), settled(partitions, situation.starts), id) is None:
        return True
    warn(f"waiting for broker {', '.join(map(str, down))}: no other can take its part")
    return False


def _without(brokers: Sequence[BalancedBroker], down: Sequence[int]) -> list[BalancedBroker]:
    from ottla.balance.model import Standing

    return [
        each._replace(standing=Standing.ABSENT) if each.id in down else each for each in brokers
    ]


def _drain_plan(
    command: ChangeCommand, situation: Situation, id: int, share_racks: bool
) -> BalancePlan:
    """Failure, before anything is moved, if a partition would lose a replica or a rack, or cannot be copied."""
    from ottla.balance.departures import crowded, drain_plan, too_few
    from ottla.balance.plan_json import tolerance_of
    from ottla.balance.planner import Impossible

    living = command.standings().living
    brokers, partitions, _ = situation.picture
    few = too_few(brokers, partitions, id)
    if few is not None:
        left = f"brokers {', '.join(map(str, few.left))}" if few.left else "no broker"
        raise Failure(
            f"broker {id} cannot leave: {left} would be left, and {count_of(few.needed, 'broker')} are needed for"
            f" {_names(few.places)}. Add one first (ottla brokers add), or ask for fewer replicas"
            " (ottla reassign generate -r N --brokers …)",
            CONFLICT,
        )
    if id not in living:
        require_other_copies(command, id)
    try:
        plan = drain_plan(brokers, partitions, id, tolerance_of(10.0))
    except Impossible as error:
        raise Failure(f"broker {id} cannot leave: {error}", CONFLICT) from None
    places = crowded(brokers, plan)
    if places and not share_racks:
        rack = next((each.rack for each in brokers if each.id == id), None)
        raise Failure(
            f"without broker {id}, replicas of {count_of(len(places), 'partition')} would share a rack"
            f" ({_names(places)}). Add a broker in rack {rack} first (ottla brokers add --rack {rack}), or give"
            " --share-racks",
            CONFLICT,
        )
    return plan


def require_other_copies(command: ChangeCommand, id: int) -> None:
    only = command.only_copies(id)
    if only:
        raise Failure(
            f"broker {id} is down, and nobody else has all records of {_names(only)}. Start it again, if its disk is"
            " alive; else elect one of their other replicas (ottla topics elect --unclean), or delete them",
            CONFLICT,
        )


def _undo_drain(command: ChangeCommand, id: int) -> None:
    moves = command.changes.moves
    active = command.blocking.run(moves.active())
    leaving = [place for place, change in active.items() if id in change.removing]
    cancelled = command.blocking.run(moves.cancel(leaving))
    tidy_up(command.blocking)
    standings = command.standings()
    if id in standings.living:
        command.blocking.run(command.changes.uncordon(id))
    elif id in standings.known:
        raise Failure(
            f"cancelled {count_of(len(cancelled), 'move')}, but broker {id} is down, and its cordon can only be taken away"
            " where it runs: start it, and give the same command again",
            CONFLICT,
        )
    command.tell(
        "undone",
        f"broker {id} may get replicas again; cancelled {count_of(len(cancelled), 'move')};"
        " ottla balance apply gives it its share again",
        broker=id,
        cancelled=len(cancelled),
    )


def _way_out(command: ChangeCommand, id: int) -> str:
    """What takes a drained broker out of the cluster: not while it votes."""
    quorum = command.quorum()
    if quorum.voter(id) is None:
        return f"ottla brokers remove {id} takes it out"
    if not command.has_dynamic_voters(quorum):
        return "it stays a controller, for the voters are static"
    return f"ottla migrate retire {id} takes it out, with its vote"


def _unknown(id: int, standings: Standings) -> Failure:
    known = ", ".join(str(each) for each in sorted(standings.known))
    return Failure(f"there is no broker {id}; brokers are {known} (ottla brokers)", NOT_FOUND)


# Remove


def remove(
    id: IdArgument,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Take a drained or dead broker out of the cluster.

    It must have no replica (ottla brokers drain) and no vote (ottla controllers remove). A node of ottla up is stopped first;
    any other machine must be stopped already. Its directory stays, under another name.
    """
    local = local_cluster(bootstrap, dir)
    with connect(bootstrap, dir, timeout, command_config, by_controller=True) as blocking:
        command = ChangeCommand(blocking, local, format, f"ottla brokers remove {id}")
        standings = command.standings()
        is_local = local is not None and id in local.nodes
        if id not in standings.known and not is_local:
            raise _unknown(id, standings)
        _require_no_vote(command, id)
        is_alive = id in standings.living
        cordon_empty(command, id, is_alive=is_alive, how=_emptied(id, is_alive=is_alive))
        take_out(command, id)
    command.tell("removed", f"broker {id} is no part of the cluster any more", broker=id)


def cordon_empty(command: ChangeCommand, id: int, *, is_alive: bool, how: str) -> None:
    """Failure if the broker has something; else it gets nothing any more. `how` says what empties it."""
    require_empty(command, id, how)
    if not is_alive:
        return
    cordon = command.blocking.run(command.changes.cordon(id))
    try:
        # Again: before the cordon something may have been created there.
        require_empty(command, id, how)
    except Failure:
        if cordon.is_new:
            command.blocking.run(command.changes.uncordon(id))
        raise


def require_empty(command: ChangeCommand, id: int, how: str) -> None:
    found = command.partitions_on(id)
    if found:
        raise Failure(
            f"broker {id} has replicas of {count_of(len(found), 'partition')} ({_names(list(found))}): {how}",
            CONFLICT,
        )


def _emptied(id: int, *, is_alive: bool) -> str:
    if is_alive:
        return f"ottla brokers drain {id} moves them away"
    return f"ottla brokers drain {id} builds them anew on others, ottla brokers replace {id} on a new machine"


def _require_no_vote(command: ChangeCommand, id: int) -> None:
    from ottla.cli.controllers import STATIC

    quorum = command.quorum()
    if quorum.voter(id) is None:
        return
    if not command.has_dynamic_voters(quorum):
        raise Failure(f"node {id} is a controller, too, and {STATIC}", CONFLICT)
    raise Failure(
        f"node {id} is a controller, too: take its vote away first (ottla controllers remove {id})",
        CONFLICT,
    )


def take_out(command: ChangeCommand, id: int) -> None:
    """Stop its process if it is ours, and unregister it. What of this was done already is not done again."""
    from ottla.local.cluster import LocalCluster, locked
    from ottla.local.membership import leave

    is_local = command.local is not None and id in command.local.nodes
    if is_local:
        assert command.local is not None
        with locked(command.local.directory):
            cluster = LocalCluster.load(command.local.directory)
            cluster.stop([id], SHUTDOWN_S)
    elif id in command.standings().living:
        raise Failure(
            f"broker {id} runs: stop its process first, since it would not notice that it is unregistered",
            CONFLICT,
        )
    if not command.blocking.run(command.changes.wait_fenced(id, SHUTDOWN_S)):
        raise Failure(
            f"broker {id} is stopped, and still not fenced after {SHUTDOWN_S:g} s", FAILED
        )
    if id in command.standings().known:
        # It could not be cordoned, or somebody named it.
        require_empty(command, id, _emptied(id, is_alive=False))
        command.blocking.run(command.changes.unregister(id))
    if is_local:
        assert command.local is not None
        if command.local.secure:
            revoke_rights(command.blocking, id)
        with locked(command.local.directory):
            kept = leave(LocalCluster.load(command.local.directory), id)
        if kept is not None and command.format is Format.table:
            say(f"its directory is {kept} now")


# Add


def add(
    id: Annotated[
        int | None, typer.Option("--id", help="Its node id. [default: the next free one]", min=0)
    ] = None,
    host: HostOption = None,
    rack: RackOption = None,
    config: SettingOption = None,
    out: OutOption = None,
    balance: Annotated[
        bool, typer.Option("--balance/--no-balance", help="Give it its share of replicas.")
    ] = True,
    tolerance: ToleranceOption = 10.0,
    throttle: ThrottleOption = "auto",
    at_once: AtOnceOption = 10,
    wait: WaitOption = 600.0,
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Add a broker, and give it its share.

    In a cluster of ottla up the new node is started. For any other cluster, this writes the properties file of the new
    machine, with the settings of a broker that is there, and waits until that machine has registered. Then replicas move
    to it, as few bytes as possible, throttled. The same command with its --id goes on where it was interrupted.
    """
    parse_throttle(throttle)
    local = local_cluster(bootstrap, dir)
    with connect(bootstrap, dir, timeout, command_config, by_controller=True) as blocking:
        command = ChangeCommand(blocking, local, format, "")
        tidy(blocking, dry_run=dry_run)
        standings = command.standings()
        new = _new_id(command, standings, balance) if id is None else id
        command.again = f"ottla brokers add --id {new}"
        if dry_run:
            command.show_plan(*_share_plan(command, new, rack, tolerance), dry_run=True)
            return
        if new not in standings.living:
            machine = _Machine(new, host, rack, parse_configs(config), out, wait)
            if not _bring_up(command, machine, standings):
                return
        elif command.blocking.run(command.changes.uncordon(new)):
            warn(f"broker {new} was cordoned, and is not any more")
        if balance:
            plan, situation = _share_plan(command, new, rack, tolerance)
            command.show_plan(plan, situation)
            command.move(plan, situation, throttle, at_once)
        tidy_up(blocking)
    done = "has its share" if balance else "is part of the cluster"
    command.tell("done", f"broker {new} {done}", broker=new)


class _Machine(NamedTuple):
    """A new one, as its operator wants it."""

    id: int
    host: str | None
    rack: str | None
    settings: Mapping[str, str]
    out: Path | None
    wait_s: float


def _new_id(command: ChangeCommand, standings: Standings, balance: bool) -> int:
    """The next free one, unless there is a broker whose addition was interrupted: it has nothing yet, or it alone is being
    given replicas."""
    active = command.blocking.run(command.changes.moves.active())
    getting = {id for change in active.values() for id in change.adding}
    begun = getting if len(getting) == 1 else set()
    if balance and not begun:
        picture = command.situation().picture
        begun = {
            each.id
            for each in picture.members
            if all(each.id not in partition.replicas for partition in picture.partitions)
        }
    if balance and begun:
        found = min(begun)
        warn(f"going on with broker {found}, which has no share yet (--id adds another)")
        return found
    quorum = command.blocking.run(command.blocking.client.describe_quorum())
    taken = {*standings.known, *(each.id for each in (*quorum.voters, *quorum.observers))}
    if command.local is not None:
        taken |= set(command.local.nodes)
    return max(taken) + 1


def _share_plan(
    command: ChangeCommand, id: int, rack: str | None, tolerance: float
) -> tuple[BalancePlan, Situation]:
    from ottla.balance.model import BalancedBroker
    from ottla.balance.plan_json import tolerance_of
    from ottla.cli.load_tables import make_plan

    situation = command.situation()
    brokers = list(situation.picture.brokers)
    if all(each.id != id for each in brokers):
        brokers.append(BalancedBroker(id, rack))  # as it will be, for a dry run
    plan = make_plan(brokers, situation.picture.partitions, tolerance_of(tolerance))
    return plan, situation


def _bring_up(command: ChangeCommand, machine: _Machine, standings: Standings) -> bool:
    """Until the broker lives. False if that was not asked for."""
    id = machine.id
    if id in standings.known and command.partitions_on(id):
        raise Failure(
            f"broker {id} is down, and has replicas: start it again, or ottla brokers replace {id}",
            CONFLICT,
        )
    if command.local is not None:
        _start_local(command, machine)
    else:
        _hand_out_file(command, machine, standings)
        if machine.wait_s == 0:
            # Only a broker that runs says whether it is cordoned.
            warn(
                f"if a broker {id} was cordoned when it left, ottla brokers add --id {id} --no-balance takes that away, once"
                " this one runs"
            )
            return False
    _await_broker(command, id, NODE_STARTS_S if command.local is not None else machine.wait_s)
    if command.blocking.run(command.changes.uncordon(id)):
        warn(f"broker {id} was cordoned, by a broker of this id before; it is not any more")
    return True


def _await_broker(command: ChangeCommand, id: int, seconds: float) -> None:
    warn(f"waiting until broker {id} has registered")
    if not command.blocking.run(command.changes.wait_registered(id, seconds)):
        raise Failure(
            f"broker {id} has not registered after {seconds:g} s (--wait); {command.again} goes on",
            UNREACHABLE,
        )
    command.tell("registered", f"broker {id} is registered, and unfenced", broker=id)


def _start_local(command: ChangeCommand, machine: _Machine) -> None:
    from ottla.local.cluster import LocalCluster, locked
    from ottla.local.membership import join

    assert command.local is not None
    id = machine.id
    with locked(command.local.directory):
        cluster = LocalCluster.load(command.local.directory)
        if id not in cluster.nodes:
            join(cluster, id, machine.rack, machine.settings)
        if cluster.secure:
            give_rights(command.blocking, id)
        if not cluster.nodes[id].running:
            cluster.start([id], NODE_STARTS_S, warn)
        node = cluster.nodes[id]
    command.local = cluster
    command.tell(
        "started",
        f"node {id} runs (pid {node.pid}), at {node.address}, in {cluster.node_directory(id)}",
        broker=id,
        pid=node.pid,
        address=node.address,
    )


def _hand_out_file(command: ChangeCommand, machine: _Machine, standings: Standings) -> None:
    from ottla.client.new_broker_file import NewBroker, new_broker_file

    if machine.host is None:
        raise Failure("--host: say how others reach the new machine", USAGE)
    if not standings.living:
        raise Failure("no broker lives whose settings could be taken", UNREACHABLE)
    new = NewBroker(machine.id, machine.host, machine.rack, machine.settings)
    try:
        text = command.blocking.run(
            new_broker_file(command.blocking.client, new, max(standings.living))
        )
    except ValueError as error:
        raise Failure(f"listeners: {error}", USAGE) from None
    if machine.out is not None:
        machine.out.write_text(text, encoding="utf-8")
        command.tell(
            "file",
            f"{machine.out}: the properties of broker {machine.id}; how to start it stands in its first lines",
            broker=machine.id,
            file=str(machine.out),
        )
    elif command.format is Format.json:
        print_json({"event": "file", "broker": machine.id, "text": text})
    else:
        say(*text.splitlines())


# Replace


def replace(
    id: IdArgument,
    successor: Annotated[
        int | None,
        typer.Option("--with", metavar="ID2", help="Its successor has another id.", min=0),
    ] = None,
    host: HostOption = None,
    rack: RackOption = None,
    config: SettingOption = None,
    out: OutOption = None,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="Also if nobody else has the records of some partitions."
        ),
    ] = False,
    throttle: ThrottleOption = "auto",
    at_once: AtOnceOption = 10,
    wait: WaitOption = 600.0,
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Put a new machine in the place of a dead one.

    Its successor has the same id and an empty disk: its replicas are copied from others. Or it has another id (--with), of a
    broker that is there or comes: then the replicas of the dead one are moved to it, and the dead one is unregistered. In a
    cluster of ottla up the successor is started; what the dead node had on its disk is put aside. For any other cluster
    this writes the properties file, and waits for the new machine.
    """
    from ottla.cli.controllers import local_with_voters

    parse_throttle(throttle)
    local = local_cluster(bootstrap, dir)
    words = f"{id}" if successor is None else f"{id} --with {successor}"
    with connect(bootstrap, dir, timeout, command_config, by_controller=True) as blocking:
        if not dry_run:
            local = local_with_voters(blocking, local)
        command = ChangeCommand(blocking, local, format, f"ottla brokers replace {words}")
        tidy(blocking, dry_run=dry_run)
        standings = command.standings()
        mine = command.partitions_on(id)
        is_local = local is not None and id in local.nodes
        if id not in standings.known and not mine and not is_local:
            raise _unknown(id, standings)
        if local is not None and is_local and not local.nodes[id].running:
            # It is dead, whatever the controller believes for some seconds more.
            command.blocking.run(command.changes.wait_fenced(id, SHUTDOWN_S))
            standings = command.standings()
        new = id if successor is None else successor
        machine = _Machine(new, host, rack, parse_configs(config), out, wait)
        if successor is None or successor == id:
            _replace_disk(command, machine, standings, throttle, accept_loss, dry_run=dry_run)
        else:
            _replace_by(command, id, machine, standings, throttle, at_once, dry_run=dry_run)


def _replace_disk(
    command: ChangeCommand,
    machine: _Machine,
    standings: Standings,
    throttle: str,
    accept_loss: bool,
    *,
    dry_run: bool,
) -> None:
    id = machine.id
    pace = parse_throttle(throttle)
    if id not in standings.living:
        only = command.only_copies(id)
        if only and not accept_loss:
            raise Failure(
                f"nobody else has all records of {_names(only)}: with an empty disk they are lost. Start broker {id} with"
                " its disk, elect other replicas (ottla topics elect --unclean), or give --accept-loss",
                CONFLICT,
            )
        if dry_run:
            mine = command.partitions_on(id)
            command.tell(
                "plan",
                f"broker {id} would copy {count_of(len(mine), 'replica')} from others",
                broker=id,
                dry_run=True,
                replicas=len(mine),
            )
            return
        if command.local is not None:
            _require_forgetful(command.local, id)
        else:
            _hand_out_file(command, machine, standings)
            if machine.wait_s == 0:
                return
        try:
            command.blocking.run(command.changes.throttle_rebuild(id, pace))
            if command.local is not None:
                _restart_empty(command, machine)
            seconds = NODE_STARTS_S if command.local is not None else machine.wait_s
            _await_broker(command, id, seconds)
        except BaseException:
            _end_rebuild(command, id)
            raise
    mine = command.partitions_on(id)
    behind = sum(id not in each.isr for each in mine.values())
    if behind and not dry_run:
        command.watch(command.changes.rebuild(id, pace))
    if accept_loss and not dry_run:
        _begin_anew(command, id)
    # Of all its partitions: some had no leader, or were in sync when the others were watched.
    command.blocking.run(command.changes.moves.remove_left_over(command.partitions_on(id).keys()))
    command.tell(
        "done",
        f"broker {id} runs, and all of its {count_of(len(mine), 'replica')} are in sync"
        + ("" if behind else ": there is nothing to replace"),
        broker=id,
        replicas=len(mine),
    )


def _end_rebuild(command: ChangeCommand, id: int) -> None:
    """Nobody waits for the broker any more. Unless it copies already, whoever starts it later shall not be slowed down by a
    throttle that nobody watches."""
    ended = () if id in command.standings().living else command.partitions_on(id).keys()
    if command.blocking.run(command.changes.moves.remove_left_over(ended)):
        warn(f"the throttle for broker {id} is removed: {command.again} sets it again")


def _begin_anew(command: ChangeCommand, id: int) -> None:
    """What nobody has the records of gets a leader, as its operator has accepted."""
    lost = command.only_copies(id)
    if not lost:
        return
    left = command.blocking.run(command.changes.elect_anyone(lost))
    if left:
        raise Failure(
            f"{_names(list(left))} still has no leader: {next(iter(left.values()))}", FAILED
        )
    warn(f"{_names(lost)}: the records are lost; the broker that lives leads them now")


def _require_forgetful(local: LocalCluster, id: int) -> None:
    """That the node may start without its disk. Where its disk is gone already there is nothing left to forget: a static voter
    on an empty disk has no vote until it has caught up."""
    if local.dynamic_voters or not _is_controller(local, id) or local.lost_directories(id):
        return
    raise Failure(
        f"node {id} is a controller, too, the voters of this cluster are static, and its disk is there: one that forgets"
        f" its vote could elect a second leader. Start it with its disk (ottla nodes start {id}). If that disk is"
        " broken, move its directory away first",
        CONFLICT,
    )


def _is_controller(local: LocalCluster, id: int) -> bool:
    return id in local.nodes and local.nodes[id].controller_port is not None


def _restart_empty(command: ChangeCommand, machine: _Machine) -> None:
    from ottla.local.cluster import LocalCluster, locked
    from ottla.local.membership import empty_disk

    assert command.local is not None
    id = machine.id
    with locked(command.local.directory):
        cluster = LocalCluster.load(command.local.directory)
        if id in cluster.nodes:
            _require_forgetful(cluster, id)
            cluster.stop([id], 1.0)  # it is fenced, so it does nothing any more
            kept = empty_disk(cluster, id)
            if kept is not None and command.format is Format.table:
                say(f"what it had on its disk is in {kept} now")
            if cluster.dynamic_voters and _is_controller(cluster, id):
                warn(
                    f"node {id} is a controller, too: ottla controllers replace {id} gives it its vote"
                )
    _start_local(command, machine)


def _replace_by(
    command: ChangeCommand,
    id: int,
    machine: _Machine,
    standings: Standings,
    throttle: str,
    at_once: int,
    *,
    dry_run: bool,
) -> None:
    from ottla.balance.departures import too_few

    if id in standings.living:
        raise Failure(
            f"broker {id} runs: ottla brokers drain {id} moves everything away from it, then ottla brokers remove {id}",
            CONFLICT,
        )
    _require_no_vote(command, id)
    require_other_copies(command, id)
    if machine.id not in standings.living:
        if dry_run:
            raise Failure(
                f"broker {machine.id} does not live yet, so there is no plan; without --dry-run it is started",
                CONFLICT,
            )
        if not _bring_up(command, machine, standings):
            return
    while True:
        situation = command.situation()
        few = too_few(situation.picture.brokers, situation.picture.partitions, id)
        if few is not None:
            raise Failure(
                f"broker {machine.id} has a replica of {_names(few.places)} already, and there is no other broker"
                " for them: add one first (ottla brokers add)",
                CONFLICT,
            )
        plan = _succession(situation, id, machine.id)
        if dry_run:
            command.show_plan(plan, situation, dry_run=True)
            return
        targets = targets_of(plan, situation)
        if not targets:
            break
        command.show_plan(plan, situation)
        command.move(plan, situation, throttle, at_once)
    take_out(command, id)
    tidy_up(command.blocking)
    command.tell(
        "done",
        f"broker {machine.id} is in the place of broker {id}, which is no part of the cluster any more",
        broker=machine.id,
        replaced=id,
    )


def _succession(situation: Situation, id: int, successor: int) -> BalancePlan:
    from ottla.balance.departures import succession_plan
    from ottla.balance.plan_json import tolerance_of

    brokers, partitions, _ = situation.picture
    return succession_plan(brokers, partitions, id, successor, tolerance_of(10.0))
