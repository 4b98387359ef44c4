"""`ottla explain`: why a topic, a partition, a group or a broker is as it is now, and what to do."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    from ottla.diagnosis.explaining import Here, Subject
    from ottla.diagnosis.explanation import Explanation
    from ottla.diagnosis.happened import Happened
    from ottla.diagnosis.now import Commands
    from ottla.local.cluster import LocalCluster

QUESTION_S = 4.0
"""At most so long for one question, whatever --timeout: a cluster in trouble leaves many unanswered."""


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
    from ottla.diagnosis.explaining import Subject

    if sum((topic, group, broker)) > 1:
        raise Failure("give at most one of --topic, --group and --broker", USAGE)
    any_kind = not (topic or group or broker)
    wanted = Subject(name, topic or any_kind, group or any_kind, broker or any_kind)
    local = _local(bootstrap, dir)
    if local is not None and not local.running:
        found = _from_disk(local, wanted, commands_for(local, bootstrap, dir))
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

    from ottla.cli.reaching import directory_of
    from ottla.local.cluster import LocalCluster

    if bootstrap or (os.environ.get("OTTLA_BOOTSTRAP") and dir is None):
        return None
    return LocalCluster.load(directory_of(dir))


def commands_for(local: LocalCluster | None, bootstrap: str | None, dir: Path | None) -> Commands:
    """How to type commands for this cluster."""
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


def looking_around(bootstrap: str | None, dir: Path | None) -> Callable[[], tuple[Here, Commands]]:
    """What the directory of a local cluster says of it, anew each time: its nodes come and go."""

    def look() -> tuple[Here, Commands]:
        from ottla.cli.connect import local_cluster
        from ottla.diagnosis.explaining import Here
        from ottla.local.errors import LocalClusterError

        try:
            local = local_cluster(bootstrap, dir)
        except LocalClusterError:
            local = None
        here = Here() if local is None else Here.of(local)
        return here, commands_for(local, bootstrap, dir)

    return look


# -- a cluster that runs


def _from_cluster(
    local: LocalCluster | None,
    wanted: Subject,
    bootstrap: str | None,
    dir: Path | None,
    timeout_s: float,
    command_config: Path | None,
) -> list[Explanation]:
    from ottla.diagnosis.explaining import Here, explained, situation
    from ottla.runtime.real import RealClock

    reached = addresses(bootstrap, dir, command_config)
    here = Here() if local is None else Here.of(local)
    with client_to(bootstrap, dir, command_config, min(timeout_s, QUESTION_S)) as blocking:
        now = blocking.run(situation(blocking.client, RealClock(), reached, here))
        if not now.entries and local is not None:
            entries, missing = _stored_history(local)
            read = "It was read from the disks of this machine instead."
            now = now._replace(entries=entries, missing=missing or f"{now.missing} {read}")
        found = blocking.run(explained(wanted, now, commands_for(local, bootstrap, dir)))
        if not found:
            raise _not_found(blocking, wanted)
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
    from ottla.diagnosis.lost_disks import data_of
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
    data = {id: data_of(local, id) for id in local.nodes}
    cluster = replace(cluster, data=data, unknown=(why,) if why else ())
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
