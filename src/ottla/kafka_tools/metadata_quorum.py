"""kafka-metadata-quorum: who leads the metadata quorum, how far the others are, and changing its voters."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from ottla.kafka_tools.ending import ended
from ottla.kafka_tools.java import uuid_of, uuid_text
from ottla.kafka_tools.options import ToolError
from ottla.kafka_tools.session import ToolSession, properties, with_cluster
from ottla.kafka_tools.subcommands import SubcommandParser, add_connection
from ottla.kafka_tools.tables import print_table
from ottla.wire.apis import ApiKey

Listener = tuple[str, str, int]

HEADERS = (
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
)


def _parser() -> SubcommandParser:
    parser = SubcommandParser(
        "kafka-metadata-quorum", description="This tool describes kraft metadata quorum status."
    )
    add_connection(parser)
    commands = parser.add_subparsers(dest="command", required=True)
    describe = commands.add_parser("describe", help="Describe the metadata quorum info")
    describe.add_argument("--status", action="store_true")
    describe.add_argument("--replication", action="store_true")
    describe.add_argument("--human-readable", action="store_true")
    add = commands.add_parser("add-controller", help="Add a controller to the quorum")
    add.add_argument("--dry-run", action="store_true")
    remove = commands.add_parser("remove-controller", help="Remove a controller from the quorum")
    remove.add_argument("--controller-id", "-i", type=int, required=True)
    remove.add_argument("--controller-directory-id", "-d", required=True)
    remove.add_argument("--dry-run", action="store_true")
    return parser


def main(words: list[str]) -> int:
    return ended(lambda: _main(words))


def _main(words: list[str]) -> int:
    given = _parser().parse_args(words)
    settings = properties(given.command_config)
    if given.command == "describe":
        _check_describe(given)
    elif given.command == "add-controller" and given.command_config is None:
        raise ToolError(
            "You must supply the configuration file of the controller you are adding when using"
            " add-controller."
        )

    async def work(session: ToolSession) -> int:
        if given.command == "describe":
            await (_replication if given.replication else _status)(session, given)
        elif given.command == "add-controller":
            await _add(session, settings, given.dry_run)
        else:
            await _remove(session, given)
        return 0

    bootstrap = given.bootstrap_server or given.bootstrap_controller
    return with_cluster(bootstrap, settings, "metadata-quorum", work)


def _check_describe(given: Namespace) -> None:
    if given.status and given.replication:
        raise ToolError(
            "Only one of --status or --replication should be specified with describe sub-command"
        )
    if not given.status and not given.replication:
        raise ToolError(
            "One of --status or --replication must be specified with describe sub-command"
        )
    if given.status and given.human_readable:
        raise ToolError("The option --human-readable is only supported along with --replication")


def _ms(value: Any) -> int | None:
    """A time that the leader may not know."""
    if value is None:
        return None
    number = value if isinstance(value, int) else round(value.timestamp() * 1000)
    return None if number < 0 else number


async def _replication(session: ToolSession, given: Namespace) -> None:
    quorum, _ = await session.admin.quorum()
    voters = list(quorum.current_voters)
    leader = next(each for each in voters if each.replica_id == quorum.leader_id)
    now = int(time.time() * 1000)

    def shown(at: int | None) -> str:
        if at is None:
            return "-1"
        return f"{max(now - at, 0)} ms ago" if given.human_readable else str(at)

    followers = [each for each in voters if each is not leader]
    rows = [
        (
            str(each.replica_id),
            uuid_text(getattr(each, "replica_directory_id", None)),
            str(each.log_end_offset),
            str(leader.log_end_offset - each.log_end_offset),
            shown(_ms(getattr(each, "last_fetch_timestamp", None))),
            shown(_ms(getattr(each, "last_caught_up_timestamp", None))),
            status,
        )
        for status, group in (
            ("Leader", [leader]),
            ("Follower", followers),
            ("Observer", list(quorum.observers)),
        )
        for each in group
    ]
    print_table(HEADERS, rows)


async def _status(session: ToolSession, given: Namespace) -> None:
    cluster = await session.client.describe_cluster()
    quorum, nodes = await session.admin.quorum()
    voters = list(quorum.current_voters)
    leader = next(each for each in voters if each.replica_id == quorum.leader_id)
    last = min(voters, key=lambda each: int(each.log_end_offset))
    ahead, behind = (_ms(each.last_caught_up_timestamp) for each in (leader, last))
    if leader is last:
        lag_ms = 0
    else:
        lag_ms = -1 if ahead is None or behind is None else ahead - behind
    rows = (
        ("ClusterId:", cluster.cluster_id),
        ("LeaderId:", quorum.leader_id),
        ("LeaderEpoch:", quorum.leader_epoch),
        ("HighWatermark:", quorum.high_watermark),
        ("MaxFollowerLag:", leader.log_end_offset - last.log_end_offset),
        ("MaxFollowerLagTimeMs:", lag_ms),
        ("CurrentVoters:", _members(voters, nodes)),
        ("CurrentObservers:", _members(quorum.observers, nodes)),
    )
    for name, value in rows:
        print(f"{name:<24}{value}")


def _members(replicas: Sequence[Any], nodes: dict[int, list[Listener]]) -> str:
    return f"[{', '.join(_member(each, nodes) for each in replicas)}]"


def _member(replica: Any, nodes: dict[int, list[Listener]]) -> str:
    fields = [f'"id": {replica.replica_id}']
    directory: UUID | None = getattr(replica, "replica_directory_id", None)
    if directory is not None:
        fields.append(f'"directoryId": "{uuid_text(directory)}"')
    listeners = nodes.get(int(replica.replica_id), [])
    if listeners:
        shown = ", ".join(f'"{_endpoint(each)}"' for each in listeners)
        fields.append(f'"endpoints": [{shown}]')
    return "{" + ", ".join(fields) + "}"


def _endpoint(listener: Listener) -> str:
    name, host, port = listener
    return f"{name}://{f'[{host}]' if ':' in host else host}:{port}"


async def _add(session: ToolSession, settings: dict[str, str], dry_run: bool) -> None:
    """The settings are those of the controller that is added."""
    id = _controller_id(settings)
    directory = _directory_id(settings)
    listeners = _listeners(settings)
    if not dry_run:
        cluster = await session.client.describe_cluster()
        fields = {
            "cluster_id": cluster.cluster_id,
            "timeout": int(session.client.connections.timeout_s * 1000),
            "voter_id": id,
            "voter_directory_id": directory,
            "listeners": [{"name": n, "host": h, "port": p} for n, h, p in listeners],
            "ack_when_committed": True,
        }
        await session.admin.ask(ApiKey.ADD_RAFT_VOTER, fields)
    print(
        f"{'DRY RUN of adding' if dry_run else 'Added'} controller {id} with directory id"
        f" {uuid_text(directory)} and endpoints: {', '.join(map(_endpoint, listeners))}"
    )


def _controller_id(settings: dict[str, str]) -> int:
    valid = "Is this a valid controller configuration file?"
    if "node.id" not in settings:
        raise ToolError(f"node.id not found in configuration file. {valid}")
    id = int(settings["node.id"])
    if id < 0:
        raise ToolError(f"node.id was negative in configuration file. {valid}")
    if "controller" not in settings.get("process.roles", ""):
        raise ToolError(
            f"process.roles did not contain 'controller' in configuration file. {valid}"
        )
    return id


def _directory_id(settings: dict[str, str]) -> UUID:
    named = settings.get("metadata.log.dir") or settings.get("log.dirs", "").split(",")[0].strip()
    if not named:
        raise ToolError(
            "Neither metadata.log.dir nor log.dirs were found. Is this a valid controller"
            " configuration file?"
        )
    path = os.path.join(named, "meta.properties")
    if not os.path.exists(path):
        raise ToolError(f"Unable to read meta.properties from {named}")
    id = properties(path).get("directory.id")
    if id is None:
        raise ToolError(f"No directory id found in {named}")
    return uuid_of(id)


def _listeners(settings: dict[str, str]) -> list[Listener]:
    found: dict[str, Listener] = {}
    for key in ("listeners", "advertised.listeners"):
        for text in filter(None, (part.strip() for part in settings.get(key, "").split(","))):
            name, _, address = text.partition("://")
            host, _, port = address.rpartition(":")
            found[name.upper()] = (name.upper(), host.strip("[]") or "localhost", int(port))
    if "controller.listener.names" not in settings:
        raise ToolError(
            "controller.listener.names was not found. Is this a valid controller configuration file?"
        )
    names = [name.strip().upper() for name in settings["controller.listener.names"].split(",")]
    for name in names:
        if name not in found:
            raise ToolError(f"Cannot find information about controller listener name: {name}")
    return [found[name] for name in names]


async def _remove(session: ToolSession, given: Namespace) -> None:
    if given.controller_id < 0:
        raise ToolError(f"Invalid negative --controller-id: {given.controller_id}")
    try:
        directory = uuid_of(given.controller_directory_id)
    except ValueError as error:
        raise ToolError(f"Failed to parse --controller-directory-id: {error}") from None
    if not given.dry_run:
        cluster = await session.client.describe_cluster()
        fields = {
            "cluster_id": cluster.cluster_id,
            "voter_id": given.controller_id,
            "voter_directory_id": directory,
        }
        await session.admin.ask(ApiKey.REMOVE_RAFT_VOTER, fields)
    # Kafka's tool, too, prints two blanks.
    print(
        f"{'DRY RUN of removing ' if given.dry_run else 'Removed '} KRaft controller"
        f" {given.controller_id} with directory id {uuid_text(directory)}"
    )
