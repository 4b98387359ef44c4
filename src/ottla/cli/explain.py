"""`ottla explain`: why a topic, a partition, a group or a broker is as it is now, and what to do."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ottla.cli.connect import (
    BootstrapOption,
    CommandConfigOption,
    DirOption,
    TimeoutOption,
    addresses,
    client_to,
)
from ottla.cli.errors import NOT_FOUND, USAGE, Failure
from ottla.cli.output import Format, FormatOption, print_json, say

if TYPE_CHECKING:
    from ottla.client import BlockingClient
    from ottla.diagnosis.directory import StoredMetadata
    from ottla.diagnosis.explanation import Explanation
    from ottla.diagnosis.happened import Happened
    from ottla.diagnosis.looking import Look
    from ottla.diagnosis.now import ClusterNow, Commands
    from ottla.local.cluster import LocalCluster

QUESTION_S = 4.0
"""At most so long for one question, whatever --timeout: a cluster in trouble leaves many unanswered."""


class Subject(NamedTuple):
    """What the name may be."""

    name: str
    topic: bool
    group: bool
    broker: bool

    @property
    def broker_id(self) -> int | None:
        match = re.fullmatch(r"(?:broker-?)?(\d+)", self.name)
        return int(match[1]) if match is not None and self.broker else None

    def places(self) -> list[tuple[str, int | None]]:
        """A topic, or a topic and a partition: `a-1` may be both."""
        if not self.topic:
            return []
        topic, dash, number = self.name.rpartition("-")
        is_partition = bool(dash and topic) and number.isdecimal()
        return [(self.name, None), *([(topic, int(number))] if is_partition else [])]


def explain(
    name: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC[-PARTITION] | GROUP | BROKER",
            help="What to explain.",
            show_default=False,
        ),
    ],
    topic: Annotated[bool, typer.Option("--topic", help="The name is that of a topic.")] = False,
    group: Annotated[bool, typer.Option("--group", help="The name is that of a group.")] = False,
    broker: Annotated[
        bool, typer.Option("--broker", help="The number is that of a broker.")
    ] = False,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Explain why something is as it is now, and what to do.

    The state now in one sentence, what happened, the cause, what it means for producers and consumers,
    and what to do. If several things have the name, all are explained. Of a cluster in a directory that
    does not run, the metadata log and the event log on its disks are read.
    """
    if sum((topic, group, broker)) > 1:
        raise Failure("give at most one of --topic, --group and --broker", USAGE)
    any_kind = not (topic or group or broker)
    wanted = Subject(name, topic or any_kind, group or any_kind, broker or any_kind)
    local = _local(bootstrap, dir)
    if local is not None and not local.running:
        found = _from_disk(local, wanted, _commands(local, bootstrap, dir))
    else:
        found = _from_cluster(local, wanted, bootstrap, dir, timeout, command_config)
    if format is Format.json:
        print_json([each.as_json() for each in found])
        return
    for number, each in enumerate(found):
        if len(found) > 1:
            say(*([""] if number else []), f"== {each.subject}", "")
        print(each.text())


def _local(bootstrap: str | None, dir: Path | None) -> LocalCluster | None:
    """The cluster of the directory, unless another is named."""
    import os

    from ottla.cli.local import directory_of
    from ottla.local.cluster import LocalCluster

    if bootstrap or (os.environ.get("OTTLA_BOOTSTRAP") and dir is None):
        return None
    return LocalCluster.load(directory_of(dir))


def _commands(local: LocalCluster | None, bootstrap: str | None, dir: Path | None) -> Commands:
    from shlex import quote

    from ottla.diagnosis.now import Commands

    if local is not None:
        first = (local.running or list(local.nodes.values()))[0]
        return Commands(
            "" if dir is None else f" --dir {quote(str(dir))}", first.address, local=True
        )
    return Commands(
        f" --bootstrap {quote(bootstrap)}" if bootstrap else "", bootstrap or "HOST:PORT"
    )


# -- a cluster that runs


def _from_cluster(
    local: LocalCluster | None,
    wanted: Subject,
    bootstrap: str | None,
    dir: Path | None,
    timeout_s: float,
    command_config: Path | None,
) -> list[Explanation]:
    from ottla.diagnosis.history import fetched_history
    from ottla.diagnosis.looking import Look, NodeHere
    from ottla.runtime.real import RealClock

    reached = addresses(bootstrap, dir, command_config)
    nodes = {} if local is None else {
        id: NodeHere(
            node.address,
            node.running,
            str(local.config_file(id)),
            node.pid if node.running else None,
            None if (ended := local.end_time(id)) is None else round(ended * 1000),
        )
        for id, node in local.nodes.items()
    }  # fmt: skip
    voters = () if local is None else tuple(
        id for id, node in local.nodes.items() if node.controller_port is not None
    )  # fmt: skip
    with client_to(bootstrap, dir, command_config, min(timeout_s, QUESTION_S)) as blocking:
        look = Look(blocking.client, RealClock(), reached, nodes, voters)
        cluster = blocking.run(look.cluster())
        entries, why = blocking.run(
            fetched_history(blocking.client, cluster.now_ms, cluster.unreachable)
        )
        if not entries and local is not None:
            entries, missing = _stored_history(local)
            why = missing or f"{why} It was read from the disks of this machine instead."
        if why:
            look.unknown.append(why)
        commands = _commands(local, bootstrap, dir)
        found = _explained(blocking, look, wanted, cluster, entries, commands)
        if not found:
            raise _not_found(blocking, wanted)
    return found


def _explained(
    blocking: BlockingClient,
    look: Look,
    wanted: Subject,
    cluster: ClusterNow,
    entries: list[Happened],
    commands: Commands,
) -> list[Explanation]:
    from ottla.diagnosis.explain_broker import explain_broker
    from ottla.diagnosis.explain_group import explain_group
    from ottla.diagnosis.explain_partition import explain_partition
    from ottla.diagnosis.topics import merged

    found: list[Explanation] = []
    for topic, partition in wanted.places():
        told = blocking.run(look.partitions(topic, partition, cluster))
        known = replace(cluster, unknown=tuple(look.unknown))
        found += merged([explain_partition(each, known, entries, commands) for each in told])
    if wanted.group:
        group = blocking.run(look.group(wanted.name, cluster))
        known = replace(cluster, unknown=tuple(look.unknown))
        if group is not None:
            found.append(explain_group(group, known, entries, commands))
    if wanted.broker_id in cluster.brokers:
        assert wanted.broker_id is not None
        duties = blocking.run(look.duties(wanted.broker_id))
        known = replace(cluster, unknown=tuple(look.unknown))
        broker = cluster.brokers[wanted.broker_id]
        found.append(explain_broker(broker, duties, known, entries, commands))
    return found


def _not_found(blocking: BlockingClient, wanted: Subject) -> Failure:
    from ottla.config.names import nearest

    names = [each.name for each in blocking.run(blocking.client.metadata()).topics]
    kinds = [
        kind
        for kind, is_wanted in (
            ("topic", wanted.topic),
            ("group", wanted.group),
            ("broker", wanted.broker),
        )
        if is_wanted
    ]
    advice = nearest(wanted.name, names) if wanted.topic else ""
    return Failure(
        f"no {' and no '.join(kinds)} {wanted.name}{advice} (ottla topics list, ottla groups list, ottla status)",
        NOT_FOUND,
    )


# -- a cluster that does not run


def _stored_metadata(local: LocalCluster) -> StoredMetadata | None:
    from ottla.diagnosis.directory import agreed_metadata

    controllers = [node.id for node in local.nodes.values() if node.controller_port is not None]
    return agreed_metadata([local.node_directory(id) for id in controllers])


def _stored_history(local: LocalCluster) -> tuple[list[Happened], str]:
    """From the disks: the event log or, without one, the metadata log; and what is not in it."""
    from ottla.diagnosis.history import stored_history

    if entries := stored_history(local.node_directory(id) for id in local.nodes):
        return entries, ""
    stored = _stored_metadata(local)
    return (
        [] if stored is None else stored.history,
        "The reasons of what happened: the event log is missing or empty, so this is from the metadata log alone.",
    )


def _from_disk(local: LocalCluster, wanted: Subject, commands: Commands) -> list[Explanation]:
    from ottla.diagnosis.directory import (
        stopped_cluster,
        stored_duties,
        stored_partitions,
    )
    from ottla.diagnosis.explain_broker import explain_broker
    from ottla.diagnosis.explain_group import explain_group
    from ottla.diagnosis.explain_partition import explain_partition
    from ottla.diagnosis.stored_groups import stored_group
    from ottla.diagnosis.topics import merged

    nodes = [local.node_directory(id) for id in local.nodes]
    stored = _stored_metadata(local)
    if stored is None:
        raise Failure(
            f"{local.directory}: the cluster never ran; there is no metadata yet", NOT_FOUND
        )
    entries, why = _stored_history(local)
    cluster = stopped_cluster(stored.image, round(time.time() * 1000))
    cluster = replace(cluster, unknown=(why,) if why else ())
    found: list[Explanation] = []
    for topic, partition in wanted.places():
        told = stored_partitions(stored.image, topic, partition)
        found += merged([explain_partition(each, cluster, entries, commands) for each in told])
    group = stored_group(nodes, stored.image, wanted.name) if wanted.group else None
    if group is not None:
        found.append(explain_group(group, cluster, entries, commands))
    if wanted.broker_id in cluster.brokers:
        assert wanted.broker_id is not None
        broker, duties = (
            cluster.brokers[wanted.broker_id],
            stored_duties(stored.image, wanted.broker_id),
        )
        found.append(explain_broker(broker, duties, cluster, entries, commands))
    if not found:
        raise Failure(
            f"{local.directory}: the cluster is stopped, and its disks know no topic, no group and no broker"
            f" {wanted.name}",
            NOT_FOUND,
        )
    return found
