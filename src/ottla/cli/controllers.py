"""`ottla controllers`: who votes in the metadata quorum, and changing it while the cluster runs (KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from ottla.cli.connect import (
    BootstrapOption,
    CommandConfigOption,
    DirOption,
    TimeoutOption,
    connect,
    local_cluster,
)
from ottla.cli.errors import CONFLICT, NOT_FOUND, USAGE, Failure
from ottla.cli.output import Format, FormatOption, print_json, print_table, say, warn

if TYPE_CHECKING:
    from ottla.client import BlockingClient
    from ottla.client.model import QuorumInfo, QuorumReplica
    from ottla.client.voters import Listener
    from ottla.local.cluster import LocalCluster

LISTENER = "CONTROLLER"
NODE_STARTS_S = NODE_STOPS_S = 60.0
OBSERVES_S, LOOK_AGAIN_S = 30.0, 0.2
GONE, GONE_AFTER_MS = "gone", 60_000
STATIC = (
    "the voters of this cluster are static (controller.quorum.voters, kraft.version 0). While all of them run,"
    " kafka-features upgrade --feature kraft.version=1 makes them voters that can change; there is no way back"
)

app = typer.Typer(
    help="List, add, remove and replace the voters of the quorum.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

IdArgument = Annotated[int, typer.Argument(metavar="ID", help="The controller's node id.", min=0)]
AtOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="[NAME://]HOST:PORT",
        help=f"Its controller listener, as other nodes reach it. [name: {LISTENER}]",
        show_default=False,
    ),
]


@app.command("list")
def list_all(
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Voters and observers of the metadata log, with how far each is behind the leader.

    Brokers observe, and so does a controller that was not added yet.
    """
    with connect(bootstrap, dir, timeout, command_config) as blocking:
        view = blocking.run(blocking.client.describe_quorum())
    rows = [_row(view, each, "voter") for each in view.voters]
    rows += [_row(view, each, "observer") for each in view.observers]
    if format is Format.json:
        print_json({"leader": view.leader, "epoch": view.epoch, "replicas": rows})
        return
    heads = ("ID", "ROLE", "LAG", "SEEN", "AT", "DIRECTORY")
    for row in rows:
        row["seen"] = _ago(row["seen_ms_ago"])
    print_table(heads, [[row[head.lower()] for head in heads] for row in rows])
    if any(row["seen"] == GONE for row in rows):
        say(
            "",
            f"{GONE}: it has not fetched for a minute; it is down, or is no part of the cluster any more",
        )


def _row(view: QuorumInfo, replica: QuorumReplica, role: str) -> dict[str, Any]:
    leader = view.voter(view.leader)
    end = replica.log_end if leader is None else leader.log_end
    return {
        "id": replica.id,
        "role": "leader" if role == "voter" and replica.id == view.leader else role,
        "lag": end - replica.log_end if replica.log_end >= 0 else None,
        "seen_ms_ago": view.silent_ms(replica),
        "at": " ".join(f"{host}:{port}" for _, host, port in replica.listeners) or None,
        "directory": None if replica.directory is None else _text(replica.directory),
    }


def _ago(ms: Any) -> str | None:
    from ottla.diagnosis.words import duration

    if ms is None:
        return None
    return GONE if ms > GONE_AFTER_MS else f"{duration(ms)} ago"


def _text(directory: UUID) -> str:
    from ottla.wire.types import uuid_to_text

    return uuid_to_text(directory)


@app.command()
def add(
    id: IdArgument,
    at: AtOption = None,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Make a controller a voter.

    In a cluster of ottla up the node is made and started, or restarted as a controller if it is a broker so far. Any other
    must observe already: start it first, and say with --at where it listens. No file of any other node changes.
    """
    from ottla.client.voters import add_voter

    local = local_cluster(bootstrap, dir)
    with connect(bootstrap, dir, timeout, command_config, by_controller=True) as blocking:
        view = blocking.run(blocking.client.describe_quorum())
        require_dynamic(blocking, view)
        local = local_with_voters(blocking, local)
        if (voter := view.voter(id)) is not None:
            advice = ""
            if view.other_disk(id) is not None:
                advice = (
                    f"; a node {id} with another disk observes (ottla controllers replace {id})"
                )
            raise Failure(f"node {id} is a voter, with directory {_shown(voter)}{advice}", CONFLICT)
        if at is None and local is not None:
            at = _start_local(blocking, local, id)
            view = _observed(blocking, id)
        newcomer = _observer(view, id)
        if at is None:
            raise Failure(f"--at: say where controller {id} listens, as HOST:PORT", USAGE)
        assert newcomer.directory is not None
        blocking.run(add_voter(blocking.client, id, newcomer.directory, [_listener(at)]))
        after = blocking.run(blocking.client.describe_quorum())
    _tell(after, format, f"controller {id} votes, with directory {_shown(newcomer)}")


@app.command()
def remove(
    id: IdArgument,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Take a controller's vote away. If it leads, another voter is elected. Its process goes on as an observer."""
    from ottla.client.voters import remove_voter

    with connect(bootstrap, dir, timeout, command_config, by_controller=True) as blocking:
        view = blocking.run(blocking.client.describe_quorum())
        voter = _voter(blocking, view, id)
        if len(view.voters) == 1:
            raise Failure(f"controller {id} is the only voter: add another first", CONFLICT)
        assert voter.directory is not None
        local_with_voters(blocking, local_cluster(bootstrap, dir))
        blocking.run(remove_voter(blocking.client, id, voter.directory))
        after = blocking.run(blocking.client.describe_quorum())
    _tell(after, format, f"controller {id} votes no more")


@app.command()
def replace(
    id: IdArgument,
    at: AtOption = None,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Give the vote of a controller whose disk is gone to the same node with its new disk.

    Start the node with an empty disk first: it gets a directory id of its own, and observes. Then its former identity is
    removed, and the new one added. If this is interrupted in between, ottla controllers add completes it.
    """
    from ottla.client.voters import add_voter, remove_voter

    with connect(bootstrap, dir, timeout, command_config, by_controller=True) as blocking:
        view = blocking.run(blocking.client.describe_quorum())
        lost, newcomer = _voter(blocking, view, id), _observer(view, id)
        if view.other_disk(id) is None:
            raise Failure(
                f"controller {id} fetches with directory {_shown(lost)}: its disk is not gone",
                CONFLICT,
            )
        listeners = [_listener(at)] if at is not None else list(lost.listeners)
        assert lost.directory is not None and newcomer.directory is not None
        blocking.run(remove_voter(blocking.client, id, lost.directory))
        blocking.run(add_voter(blocking.client, id, newcomer.directory, listeners))
        after = blocking.run(blocking.client.describe_quorum())
    _tell(
        after,
        format,
        f"controller {id} votes with directory {_shown(newcomer)}, in place of {_shown(lost)}",
    )


def _start_local(blocking: BlockingClient, local: LocalCluster, id: int) -> str:
    """Where the node, which can get a vote then, listens. What was done before an interruption is not done again."""
    from ottla.cli.node_rights import give_rights
    from ottla.local.cluster import HOST, LocalCluster, locked
    from ottla.local.membership import become_controller, join

    with locked(local.directory):
        cluster = LocalCluster.load(local.directory)
        if id not in cluster.nodes:
            join(cluster, id, None, controller=True)
        elif cluster.nodes[id].controller_port is None:
            cluster.stop([id], NODE_STOPS_S)
            become_controller(cluster, id)
        if cluster.secure:
            give_rights(blocking, id)
        if not cluster.nodes[id].running:
            warn(f"starting node {id}")
            cluster.start([id], NODE_STARTS_S, warn)
        return f"{HOST}:{cluster.nodes[id].controller_port}"


def _observed(blocking: BlockingClient, id: int) -> QuorumInfo:
    """Once the node observes; what it cannot do is said by whoever asks for it."""
    import time

    deadline = time.monotonic() + OBSERVES_S
    while True:
        view = blocking.run(blocking.client.describe_quorum())
        found = view.observer(id)
        if (found is not None and found.directory is not None) or time.monotonic() > deadline:
            return view
        time.sleep(LOOK_AGAIN_S)


def _tell(view: QuorumInfo, format: Format, what: str) -> None:
    voters = [voter.id for voter in view.voters]
    if format is Format.json:
        print_json({"voters": voters, "leader": view.leader})
    else:
        say(f"{what}; voters: {', '.join(map(str, voters))}")


def _shown(replica: QuorumReplica) -> str:
    return "unknown" if replica.directory is None else _text(replica.directory)


def require_dynamic(blocking: BlockingClient, view: QuorumInfo) -> None:
    from ottla.client.voters import are_dynamic

    if not blocking.run(are_dynamic(blocking.client, view)):
        raise Failure(STATIC, CONFLICT)


def local_with_voters(blocking: BlockingClient, local: LocalCluster | None) -> LocalCluster | None:
    """The local cluster. Where the log says who votes by now, its files do not any more."""
    from ottla.client.voters import are_dynamic
    from ottla.local.cluster import LocalCluster, locked
    from ottla.local.membership import voters_may_change

    if local is None or local.dynamic_voters:
        return local
    view = blocking.run(blocking.client.describe_quorum())
    if not blocking.run(are_dynamic(blocking.client, view)):
        return local
    with locked(local.directory):
        cluster = LocalCluster.load(local.directory)
        voters_may_change(cluster)
    return cluster


def _voter(blocking: BlockingClient, view: QuorumInfo, id: int) -> QuorumReplica:
    require_dynamic(blocking, view)
    voter = view.voter(id)
    if voter is None:
        ids = ", ".join(str(each.id) for each in view.voters)
        raise Failure(
            f"node {id} is no voter; voters are {ids} (ottla controllers list)", NOT_FOUND
        )
    return voter


def _observer(view: QuorumInfo, id: int) -> QuorumReplica:
    found = view.observer(id)
    if found is None or found.directory is None:
        raise Failure(
            f"no node {id} with a new disk observes the metadata: start it, with the cluster's id and"
            " controller.quorum.bootstrap.servers in its file (ottla controllers list)",
            NOT_FOUND,
        )
    return found


def _listener(text: str) -> Listener:
    name, found, address = text.rpartition("://")
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise Failure(f"--at {text}: is not HOST:PORT", USAGE)
    return (name if found else LISTENER), host.strip("[]"), int(port)
