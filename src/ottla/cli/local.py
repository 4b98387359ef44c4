"""`ottla up`, `status`, `down`, `purge` and `nodes`: a cluster on this machine."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ottla.cli.errors import CONFLICT, USAGE, Failure
from ottla.cli.output import Format, FormatOption, count_of, print_json, print_table, warn
from ottla.cli.reaching import directory_of
from ottla.cli.settings import parse_configs

if TYPE_CHECKING:
    from ottla.client import BlockingClient
    from ottla.local.cluster import LocalCluster, LocalNode

DirOption = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        help="The cluster's directory. [default: $OTTLA_DIR, else ~/.local/share/ottla/default]",
        show_default=False,
    ),
]


ReadyOption = Annotated[
    float, typer.Option("--timeout", help="Seconds that a node may take to be ready.", min=0.01)
]
StopOption = Annotated[
    float,
    typer.Option(
        "--timeout", help="Seconds that a node may take to stop; then it is killed.", min=0.01
    ),
]
LOOK_AGAIN_S = 0.1
GLANCE_S = 2.0
"""A node that cannot run at all ends within this time."""


def up(
    count: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--nodes",
            help="How many nodes. [default: 3, or three machines with --per-machine]",
            min=1,
            max=1000,
        ),
    ] = None,
    per_machine: Annotated[
        int | None,
        typer.Option(
            "--per-machine",
            metavar="N",
            help="N nodes stand for one machine, as one for each of its cores: they share a broker.rack, and no two"
            " replicas of a partition are among them.",
            min=1,
            max=1000,
        ),
    ] = None,
    dir: DirOption = None,
    port: Annotated[
        int | None,
        typer.Option(help="First port; 0 takes free ones. [default: 9092]", min=0, max=65535),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "-c",
            "--config",
            metavar="NAME=VALUE",
            help="A setting of every node; may be repeated. (ottla settings lists them)",
        ),
    ] = None,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="TLS and passwords for clients, certificates among nodes, and nothing allowed but to admin.",
        ),
    ] = False,
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="NAME",
            help="With --secure: a name or address of this machine under which clients reach it from others;"
            " may be repeated, and the first is the one that they are told.",
        ),
    ] = None,
    dynamic_voters: Annotated[
        bool,
        typer.Option(
            "--dynamic-voters",
            help="Controllers can be added, removed and replaced later (ottla controllers).",
        ),
    ] = False,
    console: Annotated[
        bool, typer.Option("--console", help="Also start the console, at http://127.0.0.1:8080.")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Return, and leave it running.")] = False,
    timeout: ReadyOption = 60.0,
    format: FormatOption = Format.table,
) -> None:
    """Start a cluster and report when every broker is ready.

    Without --detach it runs until Ctrl-C. A directory that holds a cluster is started again as it
    was: all of its nodes that do not run.
    """
    from ottla.local.cluster import LocalCluster, locked

    signal.signal(
        signal.SIGTERM, _interrupt
    )  # also during the start, so that no node is left behind
    directory = directory_of(dir)
    settings = parse_configs(config)
    if console:
        from ottla.cli.console import require_server

        require_server()
    if host and not secure:
        raise Failure("--host: only a --secure cluster is reached from other machines", USAGE)
    began = time.monotonic()
    with locked(directory):
        if (directory / "cluster.json").exists():
            cluster = LocalCluster.load(directory)
            _require_same(cluster, count, port, host, per_machine, console=console)
            if secure and not cluster.secure:
                raise _is_open(cluster)
            if dynamic_voters and not cluster.dynamic_voters:
                raise Failure(
                    f"{directory}: its voters are static; leave out --dynamic-voters; another --dir is another"
                    " cluster",
                    CONFLICT,
                )
            if settings:
                raise Failure(
                    f"{directory}: its settings are in node-*/server.properties; change them there, or leave out"
                    " --config",
                    CONFLICT,
                )
        else:
            cluster = LocalCluster.create(
                directory,
                3 * (per_machine or 1) if count is None else count,
                9092 if port is None else port,
                settings,
                # Whoever reaches the port of metrics reads them, so a secure cluster has none.
                metrics=not secure,
                secure=secure,
                hosts=host or (),
                dynamic_voters=dynamic_voters,
                per_machine=per_machine,
            )
        waiting = [node.id for node in cluster.nodes.values() if not node.running]
        _warn_of_lost_disks(cluster, waiting)
        starting = cluster.start(waiting, timeout, warn)
        if console:
            cluster.start_console(is_anywhere=port == 0)
    seconds = time.monotonic() - began
    if detach:
        _announce(cluster, seconds, format, "ottla down{} stops it.")
        return
    with suppress(KeyboardInterrupt):
        _announce(cluster, seconds, format, "Ctrl-C stops it.")
        _attend(directory, {id: node.exit_code for id, node in starting.items()})
    # Other commands may have stopped, restarted or removed nodes meanwhile: cluster.json says what is true.
    if (directory / "cluster.json").exists():
        with locked(directory):
            cluster = LocalCluster.load(directory)
            cluster.stop_console()
            cluster.stop([node.id for node in cluster.running])


def _warn_of_lost_disks(cluster: LocalCluster, ids: list[int]) -> None:
    for id in ids:
        if lost := cluster.lost_directories(id):
            warn(
                f"node {id} has lost its disk ({', '.join(map(str, lost))}), and starts with an empty one; what only it had is"
                f" gone. Next time ottla brokers replace {id}{_dir_option(cluster)} looks before whether that is so"
            )


def _is_open(cluster: LocalCluster) -> Failure:
    return Failure(
        f"{cluster.directory}: is an open cluster, and --secure does not close it: its clients and its data stay"
        " as they are. Start a secure one beside it (another --dir, another --port), create users and ACLs, move"
        " the clients, then ottla purge the open one. docs/SECURITY.md says how to close a cluster in place",
        CONFLICT,
    )


def _require_same(
    cluster: LocalCluster,
    count: int | None,
    port: int | None,
    hosts: list[str] | None,
    per_machine: int | None,
    *,
    console: bool,
) -> None:
    advice = "another --dir is another cluster"
    if hosts and tuple(hosts) != cluster.hosts:
        raise Failure(
            f"{cluster.directory}: its certificates and settings have other names"
            f" ({', '.join(cluster.hosts) or 'none'}); leave out --host; {advice}",
            CONFLICT,
        )
    if len(cluster.running) == len(cluster.nodes) and (not console or cluster.console_url):
        ids = ", ".join(str(id) for id in cluster.nodes)
        run, them = ("node {} runs", "it") if len(cluster.nodes) == 1 else ("nodes {} run", "them")
        raise Failure(
            f"{cluster.directory}: {run.format(ids)} (ottla down stops {them}); {advice}", CONFLICT
        )
    if count is not None and count != len(cluster.nodes):
        raise Failure(
            f"{cluster.directory}: has {count_of(len(cluster.nodes), 'node')}, not {count}; leave out"
            f" --nodes; {advice}",
            CONFLICT,
        )
    if per_machine not in (None, cluster.per_machine):
        has = f"--per-machine {cluster.per_machine}" if cluster.per_machine else "no --per-machine"
        raise Failure(
            f"{cluster.directory}: was made with {has}; its nodes stay on their machines, so leave out"
            f" --per-machine; {advice}",
            CONFLICT,
        )
    first = min(node.port for node in cluster.nodes.values())
    if port is not None and port != 0 and port != first:
        raise Failure(
            f"{cluster.directory}: its ports are fixed, from {first} on; leave out --port; {advice}",
            CONFLICT,
        )


def _announce(cluster: LocalCluster, seconds: float, format: Format, ending: str) -> None:
    if format is Format.json:
        print_json(cluster.as_json())
        return
    nodes = list(cluster.nodes.values())
    print(
        f"{len(nodes)} {'node is' if len(nodes) == 1 else 'nodes are'} ready after {seconds:.1f} s.\n"
    )
    machines = cluster.per_machine is not None
    print_table(
        ("node", *(["machine"] if machines else []), "address", "pid", "roles", "directory"),
        [
            (
                node.id,
                *([cluster.machine_of(node.id)] if machines else []),
                node.address,
                node.pid,
                _roles(node),
                cluster.node_directory(node.id),
            )
            for node in nodes
        ],
    )
    if any(node.controller_port is None for node in nodes):
        which = "One node of each of the first three machines is a controller"
        which = which if machines else "The first three are the controllers"
        print(f"\n{which}; more would only make each decision slower.")
    if machines:
        print(f"\n{_about_machines(cluster)}")
    print(f"\nbootstrap.servers={cluster.advertised}")
    if cluster.console_url is not None:
        print(f"console: {cluster.console_url}")
    option = _dir_option(cluster)
    if cluster.secure:
        _announce_security(cluster, option)
        print("\n" + ending.format(option), flush=True)
        return
    print(f'\nPython:  Producer({{"bootstrap.servers": "{cluster.bootstrap}"}})')
    commands = [
        "ottla topics create demo -p 3",
        "seq 1000 | ottla produce demo",
        "ottla replicas demo",
        # With fewer than three nodes the others would have no majority.
        *(["ottla nodes kill 1"] if len(nodes) >= 3 else []),
        "ottla consume demo --exit",
    ]
    print("\nTry next:")
    for command in commands:
        print(f"  {command}{option}")
    print("\n" + ending.format(option), flush=True)


def _about_machines(cluster: LocalCluster) -> str:
    """What a machine's loss costs here."""
    machines = len({cluster.machine_of(id) for id in cluster.nodes})
    if machines == 1:
        return (
            "All nodes are on one machine, so that topics have one replica unless you ask for more."
        )
    replicas = min(3, machines)
    return f"Topics have {replicas} replicas, each on another machine (broker.rack)."


def _announce_security(cluster: LocalCluster, option: str) -> None:
    from ottla.local.client_files import ADMIN, JAVA, user_directory

    files = user_directory(cluster.directory, ADMIN)
    print("\nTLS and SCRAM for clients, mutual TLS among nodes; what no ACL allows is denied.")
    print(f"user {ADMIN} may do everything; settings for its clients, with the password, are in")
    print(f"  {files}")
    if cluster.hosts:
        print(
            f"For a client on another machine copy {files / JAVA} (or the file of its library) and {files / 'ca.crt'};"
            " name there where ca.crt lies."
        )
    print("\nTry next (these commands use them):")
    for command in (
        "ottla users add alice",
        "ottla topics create orders -p 3",
        "ottla acls add alice --produce orders --consume orders --group billing",
        "ottla acls test alice write orders",
        "ottla security check",
    ):
        print(f"  {command}{option}")
    server = f"--bootstrap-server {cluster.nodes[min(cluster.nodes)].address}"
    print(f"\nKafka's tools: ottla kafka-topics {server} --command-config {files / JAVA} --list")


def _dir_option(cluster: LocalCluster) -> str:
    return "" if cluster.directory == directory_of(None) else f" --dir {cluster.directory}"


def _roles(node: LocalNode) -> str:
    return "broker" if node.controller_port is None else "broker,controller"


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _attend(directory: Path, exit_codes: dict[int, Callable[[], int | None]]) -> NoReturn:
    """Run until interrupted, and report each node that ends although nobody stopped it."""
    from ottla.local.cluster import LocalCluster, locked
    from ottla.local.errors import Conflict, LocalClusterError

    while True:
        time.sleep(0.2)
        for id, exit_code in list(exit_codes.items()):
            if (code := exit_code()) is None:
                continue
            try:
                LocalCluster.load(directory)
                with locked(directory):
                    _report_end(LocalCluster.load(directory), id, code)
            except Conflict:
                continue  # another command is at work, perhaps the one that ended the node: look again
            except LocalClusterError:
                pass  # another command removed the cluster
            del exit_codes[id]


def _report_end(cluster: LocalCluster, id: int, code: int) -> None:
    node = cluster.nodes.get(id)  # none if another command took it out of the cluster
    if node is not None and node.pid is not None and not node.running:
        cluster.died(id, code)
        print(_about_dead(cluster, cluster.nodes[id]), flush=True)


def _about_dead(cluster: LocalCluster, node: LocalNode) -> str:
    """What happened to a node that does not run, and what to do: nothing helps while its disk is full, and whoever starts it with
    an empty one is not asked whether what only it had may be lost."""
    from ottla.diagnosis.lost_disks import data_of, replace_commands

    data = data_of(cluster, node.id)
    if data.lost:
        option = _dir_option(cluster)
        back = (
            f"ottla doctor{option} says in which order the nodes come back"
            if cluster.lack_of_controllers
            else " && ".join(replace_commands(data, lambda words: f"ottla {words}{option}"))
            + " brings it back"
        )
        return f"node {node.id} {node.state}, and its disk is empty: {data.lost_text}; {back}"
    start = f"ottla nodes start {node.id}{_dir_option(cluster)} brings it back"
    troubles = cluster.troubles(node.id)
    if troubles:
        return f"node {node.id} {node.state}; {'; '.join(troubles)}, then {start}"
    return f"node {node.id} {node.state}; see {cluster.log_file(node.id)}; {start}"


def _about_offline(cluster: LocalCluster, id: int, directories: list[str]) -> str:
    """Of a node that goes on with its other directories: it takes these back only when it starts."""
    where = ", ".join(directories)
    what = "directory {} is" if len(directories) == 1 else "directories {} are"
    troubles = [each for path in directories if (each := _trouble_with(path)) is not None]
    first = f"{'; '.join(troubles)}, then " if troubles else ""
    option = _dir_option(cluster)
    return (
        f"log {what.format(where)} offline; {first}ottla nodes stop {id}{option} and ottla nodes"
        f" start {id}{option} bring {'it' if len(directories) == 1 else 'them'} back"
    )


def _about_full(path: str) -> str:
    return (
        f"the disk of {path} is nearly full, and takes no records until space is freed there"
        " (ottla.disk.watermark.percent)"
    )


def _trouble_with(path: str) -> str | None:
    from ottla.local.disks import trouble_with

    return trouble_with(Path(path))


def down(
    dir: DirOption = None, timeout: StopOption = 60.0, format: FormatOption = Format.table
) -> None:
    """Stop every node in good order. The data stays; `up` continues it."""
    from ottla.local.cluster import LocalCluster, locked

    directory = directory_of(dir)
    LocalCluster.load(directory)  # fails if there is none, before a lock file is made
    with locked(directory):
        cluster = LocalCluster.load(directory)
        running = [node.id for node in cluster.running]
        others = [
            f"node {node.id} {_end_text(cluster, node)}"
            for node in cluster.nodes.values()
            if not node.running
        ]
        console = cluster.stop_console()
        killed = cluster.stop(running, timeout)
    if format is Format.json:
        print_json({"stopped": running, "killed": killed})
    elif running:
        why = f"; not running before: {', '.join(others)}" if others else ""
        and_console = " and the console" if console else ""
        print(f"stopped {len(running)} of {count_of(len(cluster.nodes), 'node')}{and_console}{why}")
    elif console:
        print("stopped the console; no node was running")
    else:
        print("nothing was running")
    if killed:
        raise _not_in_good_order(cluster, killed, timeout)


def _end_text(cluster: LocalCluster, node: LocalNode) -> str:
    """`(killed, 2026-01-31T12:00:00+0000)`"""
    when = _time_text(cluster.end_time(node.id))
    return f"({node.state})" if when is None else f"({node.state}, {when})"


def _not_in_good_order(cluster: LocalCluster, killed: list[int], timeout_s: float) -> Failure:
    nodes = ", ".join(f"node {id} ({cluster.log_file(id)})" for id in killed)
    return Failure(
        f"killed, because not stopped after {timeout_s:g} s: {nodes}. The next start checks what was not "
        "flushed; --timeout gives more time"
    )


def purge(dir: DirOption = None, format: FormatOption = Format.table) -> None:
    """Kill every node and remove all data, without asking.

    The cluster's directory is removed with everything in it.
    """
    from ottla.local.cluster import LocalCluster, locked

    directory = directory_of(dir)
    LocalCluster.load(directory)
    with locked(directory):
        LocalCluster.load(directory).purge()
    if format is Format.json:
        print_json({"removed": str(directory)})
    else:
        print(f"removed {directory}")


class WaitFor(StrEnum):
    ready = "ready"


def status(
    dir: DirOption = None,
    wait: Annotated[
        WaitFor | None,
        typer.Option(help="Wait until every node is ready: unfenced, and caught up."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds to wait at most, with --wait.", min=0)
    ] = 60.0,
    format: FormatOption = Format.table,
) -> None:
    """Show the nodes, what they lead, and the active controller.

    A node is running, fenced (alive, but not yet or no longer part of the cluster), not answering, or it
    ended: stopped, killed (both by a command), or died (without one). "since" is when it ended, if that was
    seen. The active controller decides; a standby one takes over when it fails.
    """
    from ottla.local.cluster import DIED, LocalCluster

    if wait is not None:
        _wait_ready(directory_of(dir), timeout)
    cluster = LocalCluster.load(directory_of(dir))
    lack = cluster.lack_of_controllers
    live = _ask(cluster) if cluster.running else {}
    rows = []
    for node in cluster.nodes.values():
        told = live.get(node.id, {})
        state = told.get("state", "not answering") if node.running else node.state
        rows.append(
            {
                "id": node.id,
                "address": node.address,
                "pid": node.pid if node.running else None,
                "state": state,
                "since": _time_text(cluster.end_time(node.id)),
                "controller": told.get("controller") if node.running else None,
                "leaders": told.get("leaders"),
                "replicas": told.get("replicas"),
                "metrics": node.metrics,
                "offline": told.get("offline", []) if node.running else [],
                "full": told.get("full", []) if node.running else [],
                "dir": str(cluster.node_directory(node.id)),
            }
        )
    if format is Format.json:
        print_json(
            {
                "cluster_id": cluster.cluster_id,
                "bootstrap": cluster.bootstrap,
                **({} if cluster.console_url is None else {"console": cluster.console_url}),
                "nodes": rows,
            }
        )
        return
    print(f"cluster {cluster.cluster_id} in {cluster.directory}")
    if cluster.console_url is not None:
        print(f"console: {cluster.console_url}")
    print()
    shown = ("id", "address", "pid", "state", "since", "controller", "leaders", "replicas")
    print_table(("node", *shown[1:]), [[row[name] for name in shown] for row in rows])
    for node, row in zip(cluster.nodes.values(), rows, strict=True):
        if node.state.startswith(DIED) or (not node.running and cluster.lost_directories(node.id)):
            print(f"\n{_about_dead(cluster, node)}")
        elif row["offline"]:
            print(f"\nnode {node.id}: {_about_offline(cluster, node.id, row['offline'])}")
        for path in row["full"]:
            print(f"\nnode {node.id}: {_about_full(path)}")
    if lack:
        print(f"\nno active controller: {lack}")
    elif not any(row["controller"] == "active" for row in rows):
        print("\nno active controller: none is elected yet, or it does not answer")


def _wait_ready(directory: Path, timeout_s: float) -> None:
    """Nodes may be stopped and started meanwhile: cluster.json is read again each time."""
    from ottla.local.cluster import LocalCluster

    until = time.monotonic() + timeout_s
    while why_not := _why_not_ready(LocalCluster.load(directory)):
        if time.monotonic() >= until:
            first = "; ".join(f"node {id}: {reason}" for id, reason in why_not.items())
            raise Failure(f"not ready after {timeout_s:g} s: {first}")
        time.sleep(LOOK_AGAIN_S)


def _why_not_ready(cluster: LocalCluster) -> dict[int, str]:
    """Of each node that is not. A node with metrics says it itself, the cluster says it of others."""
    from ottla.cli.pages import fetch

    reasons: dict[int, str] = {}
    told: dict[int, dict[str, Any]] | None = None
    for node in cluster.nodes.values():
        if not node.running:
            reasons[node.id] = node.state
        elif node.metrics is not None:
            try:
                url = f"{node.metrics.removesuffix('/metrics')}/readyz?format=json"
                health = json.loads(fetch(url, GLANCE_S, accept_errors=True))
            except (OSError, ValueError) as error:
                reasons[node.id] = f"does not answer ({error})"
            else:
                if not health["ready"]:
                    reasons[node.id] = "; ".join(health["reasons"])
        else:
            told = _ask(cluster) if told is None else told
            state = told.get(node.id, {}).get("state", "does not answer")
            if state != "running":
                reasons[node.id] = state
    return reasons


def _time_text(seconds: float | None) -> str | None:
    """A moment as people of this machine's time zone write it."""
    if seconds is None:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(seconds))


def _ask(cluster: LocalCluster) -> dict[int, dict[str, Any]]:
    """What the cluster answers about each node."""
    from ottla.cli.connect import client_settings
    from ottla.client import Unreachable
    from ottla.client.admin import Admin, DescribedTopic
    from ottla.client.command_config import client_from
    from ottla.local.cluster import HOST
    from ottla.wire.errors import KafkaError
    from ottla.wire.internal_topics import UNLISTED_TOPICS

    addresses = [(HOST, node.port) for node in cluster.running]
    quorum = None
    lacks_controllers = bool(cluster.lack_of_controllers)
    try:
        with client_from(
            addresses,
            client_settings(None, cluster.directory, None),
            timeout_s=1 if lacks_controllers else 3,
        ) as blocking:
            brokers = blocking.run(blocking.client.describe_cluster())
            metadata = blocking.run(blocking.client.metadata())
            # Brokers carry these, too: what is counted here is what ottla brokers counts.
            known = blocking.run(Admin(blocking.client).describe_topics(sorted(UNLISTED_TOPICS)))
            if not lacks_controllers:
                with suppress(KafkaError, OSError):  # brokers answer also without a quorum
                    quorum = blocking.run(blocking.client.describe_quorum())
            directories = _bad_directories(blocking, [node.id for node in cluster.running])
    except (Unreachable, KafkaError, OSError):
        return {}
    unlisted = [each for each in known.values() if isinstance(each, DescribedTopic)]
    carried = [(each.leader, each.replicas) for topic in unlisted for each in topic.partitions]
    carried += [
        (each.leader, each.replicas) for topic in metadata.topics for each in topic.partitions
    ]
    voters = {} if quorum is None else {each.id: "standby" for each in quorum.voters}
    if quorum is not None:
        voters[quorum.leader] = "active"
    return {
        broker.id: {
            "state": "fenced" if broker.fenced else "running",
            "controller": voters.get(broker.id),
            "leaders": sum(leader == broker.id for leader, _ in carried),
            "replicas": sum(broker.id in replicas for _, replicas in carried),
            **directories.get(broker.id, {}),
        }
        for broker in brokers.brokers
    }


def _bad_directories(
    blocking: BlockingClient, brokers: list[int]
) -> dict[int, dict[str, list[str]]]:
    """Of each broker that answers: the log directories that it does not use because they failed (`offline`), and those whose
    disks are nearly full."""
    from ottla.wire.apis import ApiKey
    from ottla.wire.errors import KafkaError

    found = {}
    for broker in brokers:
        with suppress(KafkaError, OSError):
            asked = blocking.client.connections.ask(
                ApiKey.DESCRIBE_LOG_DIRS, {"topics": []}, broker=broker
            )
            answer = blocking.run(asked)
            found[broker] = {
                "offline": [each.log_dir for each in answer.results if each.error_code],
                "full": answer.ottla_full_log_dirs.decode().splitlines(),
            }
    return found


nodes = typer.Typer(
    help="Start, stop or kill one node.", no_args_is_help=True, rich_markup_mode=None
)

IdArgument = Annotated[int, typer.Argument(metavar="ID", help="The node's id.")]


@nodes.command("start")
def nodes_start(
    id: IdArgument,
    dir: DirOption = None,
    timeout: ReadyOption = 60.0,
    format: FormatOption = Format.table,
) -> None:
    """Start one node and wait until it is ready.

    If too few controllers run, it says so and leaves the node running. The node waits for the others for
    a minute (initial.broker.registration.timeout.ms).
    """
    from ottla.local.cluster import LocalCluster, locked

    directory = directory_of(dir)
    LocalCluster.load(directory)
    with locked(directory):
        cluster = LocalCluster.load(directory)
        if cluster.node(id).running:
            runs = f"node {id} runs already (pid {cluster.nodes[id].pid})"
            offline = _ask(cluster).get(id, {}).get("offline")
            why = f", but {_about_offline(cluster, id, offline)}" if offline else ""
            raise Failure(f"{runs}{why}", CONFLICT)
        _warn_of_lost_disks(cluster, [id])
        starting = cluster.launch([id])
        if lack := cluster.lack_of_controllers:
            warn(f"{lack}; ottla up{_dir_option(cluster)} starts all")
            if starting[id].wait(time.monotonic() + min(timeout, GLANCE_S)) is False:
                failure = cluster.end_of(id, starting[id])
                cluster.stop([id])
                raise failure
        else:
            cluster.wait_ready(starting, timeout, warn)
    state = "waits for the others" if lack else "is ready"
    if format is Format.json:
        print_json(_as_json(cluster, id) | {"ready": not lack})
    else:
        print(f"node {id} {state} (pid {cluster.nodes[id].pid})")


@nodes.command("stop")
def nodes_stop(
    id: IdArgument,
    dir: DirOption = None,
    timeout: StopOption = 60.0,
    format: FormatOption = Format.table,
) -> None:
    """Stop one node in good order: its leaderships move to others first."""
    killed: list[int] = []
    cluster = _end(id, dir, lambda cluster: killed.extend(cluster.stop([id], timeout)))
    if killed:
        raise _not_in_good_order(cluster, killed, timeout)
    run = f"{len(cluster.running)} of {len(cluster.nodes)} run"
    _report(cluster, id, f"is stopped; {run}", format)


@nodes.command("kill")
def nodes_kill(id: IdArgument, dir: DirOption = None, format: FormatOption = Format.table) -> None:
    """Kill one node with SIGKILL, as a crash would."""
    cluster = _end(id, dir, lambda cluster: cluster.kill([id]))
    run = f"{len(cluster.running)} of {len(cluster.nodes)} run"
    _report(cluster, id, f"is killed; {run}", format)


def _report(cluster: LocalCluster, id: int, what: str, format: Format) -> None:
    if format is Format.json:
        print_json(_as_json(cluster, id))
    else:
        print(f"node {id} {what}")


def _as_json(cluster: LocalCluster, id: int) -> dict[str, Any]:
    return {"id": id, "pid": cluster.nodes[id].pid, "running": len(cluster.running)}


def _end(id: int, dir: Path | None, how: Callable[[LocalCluster], object]) -> LocalCluster:
    from ottla.local.cluster import LocalCluster, locked

    directory = directory_of(dir)
    LocalCluster.load(directory)
    with locked(directory):
        cluster = LocalCluster.load(directory)
        if not cluster.node(id).running:
            raise Failure(f"node {id} does not run", CONFLICT)
        how(cluster)
    return cluster


def node(
    config: Annotated[
        Path | None,
        typer.Option("--config", help="A properties file with Kafka's names.", show_default=False),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only check the settings.")] = False,
) -> None:
    """Run one node in the foreground."""
    from ottla.local.node import main

    words = [] if config is None else ["--config", str(config)]
    raise typer.Exit(main([*words, "--check"] if check else words))
