"""`ottla audit`: who logged in, who was denied what, and who changed what."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.connect import (
    BootstrapOption,
    CommandConfigOption,
    DirOption,
    TimeoutOption,
    connect,
    local_cluster,
)
from ottla.cli.errors import NOT_FOUND, Failure
from ottla.cli.events import entries_in_topic, since_ms
from ottla.cli.output import Format, FormatOption, print_json, say, warn

if TYPE_CHECKING:
    from ottla.client import Client
    from ottla.event_log.entry import EventEntry
    from ottla.local.cluster import LocalCluster

LOOK_AGAIN_S = 0.2
NO_TOPIC = (
    "this cluster keeps no audit (topic __ottla_audit): nobody logs in there and nothing needs an ACL, ottla.audit.topic is"
    " empty, or nothing has happened yet"
)


def audit(
    denied: Annotated[
        bool, typer.Option("--denied", help="Only denials and logins that failed.")
    ] = False,
    user: Annotated[str | None, typer.Option("--user", help="Only of this user.")] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on with what happens from now on.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="10m, 2h, 1d; or 2026-11-16T17:31, in UTC."),
    ] = None,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Show who logged in, was denied, or changed what.

    From the topic __ottla_audit, which needs READ on it. A cluster on this machine that has no such topic
    shows the authorizer's lines in the logs of its nodes: denials only.
    """
    import contextlib

    from_ms = None if since is None else since_ms(since)
    who = None if user is None else _principal(user)

    def wanted(entry: EventEntry) -> bool:
        fields = entry.told.fields
        return (
            (from_ms is None or entry.at_ms >= from_ms)
            and (who is None or fields.get("principal") == who)
            and (not denied or fields.get("allowed") is False)
        )

    with contextlib.suppress(KeyboardInterrupt):
        try:
            with connect(bootstrap, dir, timeout, command_config) as blocking:
                blocking.run(_from_topic(blocking.client, from_ms, follow, wanted, format))
        except Failure as failure:
            cluster = local_cluster(bootstrap, dir)
            if failure.code != NOT_FOUND or str(failure) != NO_TOPIC or cluster is None:
                raise
            _from_logs(cluster, who, denied, follow, from_ms, format)


def _principal(name: str) -> str:
    from ottla.security.roles import principal_named

    return str(principal_named(name))


async def _from_topic(
    client: Client,
    from_ms: int | None,
    follow: bool,
    wanted: Callable[[EventEntry], bool],
    format: Format,
) -> None:
    from ottla.event_log.audit import audit_sentence
    from ottla.wire.internal_topics import AUDIT_TOPIC

    def show(entry: EventEntry) -> None:
        if format is Format.json:
            print_json(entry.members())
        else:
            say(f"{entry.at}  node {entry.node}  {audit_sentence(entry)}")

    past: list[EventEntry] = []
    ended = False
    async for entry in entries_in_topic(client, AUDIT_TOPIC, NO_TOPIC, from_ms, follow):
        if entry is None:  # everything that was there when we began has come
            ended = True
            for each in sorted(past, key=lambda each: each.at_ms):
                show(each)
            if not past and not follow:
                warn("no decision and no login in the audit that fits")
        elif wanted(entry):
            (show if ended else past.append)(entry)


def _from_logs(
    cluster: LocalCluster,
    who: str | None,
    denied: bool,
    follow: bool,
    from_ms: int | None,
    format: Format,
) -> None:
    from datetime import UTC, datetime

    from ottla.diagnosis.audit_lines import AuditEntry, AuditTail

    tails = {id: AuditTail(cluster.log_file(id)) for id in cluster.nodes}
    # Lines begin with the time of the node's clock, as text.
    begin = "" if from_ms is None else f"{datetime.fromtimestamp(from_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"  # fmt: skip

    def found() -> Iterator[tuple[AuditEntry, int]]:
        for id, tail in tails.items():
            for entry in tail.read():
                if (
                    not (denied and entry.allowed)
                    and who in (None, entry.principal)
                    and entry.at >= begin
                ):
                    yield entry, id

    shown = 0
    while True:
        for entry, id in sorted(found(), key=lambda each: each[0].at):
            shown += 1
            if format is Format.json:
                print_json({"node": id, **entry._asdict()})
            else:
                say(f"{entry.at}  node {id}  {entry.text}")
        if not follow:
            break
        time.sleep(LOOK_AGAIN_S)
    if not shown:
        warn("no decision in the logs")
