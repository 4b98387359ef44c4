"""`ottla events`: what happened in a cluster, from its event log; also from the directory of a cluster that is stopped."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.connect import (
    BootstrapOption,
    CommandConfigOption,
    DirOption,
    TimeoutOption,
    connect,
)
from ottla.cli.errors import NOT_FOUND, USAGE, Failure
from ottla.cli.output import Format, FormatOption, print_json, warn

if TYPE_CHECKING:
    from ottla.client import Client
    from ottla.event_log.entry import EventEntry

Wanted = Callable[["EventEntry"], bool]

NO_LOG = (
    "this cluster has no event log (topic __ottla_events). Only ottla's clusters have one, unless"
    " ottla.event.log.enable is false; a new cluster has it a few seconds after its start."
)
_AGE = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def events(
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on with what happens from now on.")
    ] = False,
    topic: Annotated[str | None, typer.Option(help="Only about this topic.")] = None,
    partition: Annotated[
        int | None, typer.Option("-p", "--partition", help="Only about this partition.", min=0)
    ] = None,
    group: Annotated[str | None, typer.Option(help="Only about this group.")] = None,
    broker: Annotated[
        int | None, typer.Option(help="Only about this broker, in whatever role.", min=0)
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(metavar="KIND,…", help="Only these kinds. (docs/EVENTS.md lists them)"),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="10m, 2h, 1d; or 2026-11-16T17:31, in UTC."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("-n", "--limit", help="Only the last so many.", min=1)
    ] = None,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Show what happened in the cluster.

    Elections, ISR changes, truncations, fencing, settings and more (docs/EVENTS.md). One line for each event, the
    oldest first. Of the throttle of a move only the first setting and the removal are shown (--kind setting_changed shows
    all). With --format json, an object each. If no majority of the
    cluster of --dir runs, its event log is read from the files of its nodes.
    """
    import contextlib

    from_ms = None if since is None else since_ms(since)
    wanted = _filter(topic, partition, group, broker, _kinds(kind), from_ms)
    show = _json if format is Format.json else _line()
    stored = None if bootstrap else _stopped(dir)
    if stored is not None:
        if follow:
            raise Failure("--follow: the cluster is stopped, or has no majority (ottla up)", USAGE)
        for entry in _ordered(filter(wanted, _in_files(stored)), limit):
            show(entry)
        return
    with (
        contextlib.suppress(KeyboardInterrupt),
        connect(bootstrap, dir, timeout, command_config) as blocking,
    ):
        blocking.run(_show_all(blocking.client, from_ms, follow, limit, wanted, show))


async def _show_all(
    client: Client,
    since_ms: int | None,
    follow: bool,
    limit: int | None,
    wanted: Wanted,
    show: Callable[[EventEntry], None],
) -> None:
    from ottla.wire.internal_topics import EVENT_LOG_TOPIC

    past: list[EventEntry] = []
    ended = False
    async for entry in entries_in_topic(client, EVENT_LOG_TOPIC, NO_LOG, since_ms, follow):
        if entry is None:  # everything that was there when we began has come
            ended = True
            for each in _ordered(past, limit):
                show(each)
        elif wanted(entry):
            (show if ended else past.append)(entry)


def _ordered(entries: Iterable[EventEntry], limit: int | None) -> list[EventEntry]:
    """By time: each node writes its own, so that they come into the log a little mixed up."""
    ordered = sorted(entries, key=lambda entry: entry.at_ms)
    return ordered if limit is None else ordered[-limit:]


async def entries_in_topic(
    client: Client, topic: str, missing: str, since_ms: int | None, follow: bool
) -> AsyncIterator[EventEntry | None]:
    """The entries, with None where the log ended at first. `missing` is said if there is no such topic."""
    from ottla.client.client import EARLIEST, LATEST
    from ottla.event_log.entry import EntryReader
    from ottla.wire.errors import ErrorCode, KafkaError

    try:
        await client.topic(topic)
    except KafkaError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise Failure(missing, NOT_FOUND) from None
        raise
    end = await client.offset(topic, 0, LATEST)
    position = await client.offset(topic, 0, EARLIEST if since_ms is None else since_ms)
    reader = EntryReader()
    told_end = False
    while True:
        if not told_end and not 0 <= position < end:
            told_end, position = True, max(position, end)
            yield None
        if told_end and not follow:
            return
        fetched = await client.fetch(topic, 0, position)
        for entry in reader.entries(fetched.records):
            yield entry
        position = fetched.next_offset


# On disk


def _stopped(dir: Path | None) -> list[Path] | None:
    """The copies of the log, if no majority of the cluster's nodes runs: then nobody may lead it. None if the cluster is to
    be asked."""
    import os

    from ottla.cli.reaching import directory_of
    from ottla.local.cluster import LocalCluster
    from ottla.wire.internal_topics import EVENT_LOG_TOPIC

    if dir is None and os.environ.get("OTTLA_BOOTSTRAP"):
        return None
    cluster = LocalCluster.load(directory_of(dir))
    if 2 * len(cluster.running) > len(cluster.nodes):
        return None
    places = [cluster.node_directory(id) / "data" / f"{EVENT_LOG_TOPIC}-0" for id in cluster.nodes]
    found = [place for place in places if place.is_dir()]
    if not found:
        raise Failure(f"{NO_LOG} (looked in the directories of all nodes)", NOT_FOUND)
    return found


def _in_files(copies: list[Path]) -> Iterator[EventEntry]:
    """From the copy that reaches furthest: the other replicas have the same records, up to some offset."""
    from ottla.event_log.entry import entries
    from ottla.records.batch import batches
    from ottla.records.record import Record, records

    def read(copy: Path) -> list[Record]:
        found: list[Record] = []
        for segment in sorted(copy.glob("*.log")):
            data = memoryview(segment.read_bytes())
            try:
                for batch in batches(data):
                    found += records(data, batch)
            except ValueError as error:
                warn(f"{segment} is damaged, the rest of it is left out: {error}")
        return found

    copy = max((read(copy) for copy in copies), key=lambda found: found[-1].offset if found else -1)
    return entries(copy)


# What is wanted


def since_ms(text: str) -> int:
    import time
    from datetime import UTC, datetime

    if age := _AGE.fullmatch(text):
        return int(time.time() * 1000 - float(age[1]) * _UNIT_MS[age[2]])
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise Failure(
            f"--since {text}: is an age like 10m, or a time like 2026-11-16T17:31", USAGE
        ) from None
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def _kinds(text: str | None) -> set[str] | None:
    from ottla.config.names import nearest
    from ottla.event_log.kinds import KINDS

    if text is None:
        return None
    chosen = {each.strip() for each in text.split(",") if each.strip()}
    for each in chosen - KINDS.keys():
        raise Failure(f"--kind: there is no kind {each}{nearest(each, list(KINDS))}", USAGE)
    return chosen


def _filter(
    topic: str | None,
    partition: int | None,
    group: str | None,
    broker: int | None,
    kinds: set[str] | None,
    since_ms: int | None,
) -> Wanted:
    from ottla.event_log.search import concerns, topic_of
    from ottla.event_log.words import is_renewal

    def wanted(entry: EventEntry) -> bool:
        told = entry.told
        return (
            (entry.kind in kinds if kinds is not None else not is_renewal(told))
            and (since_ms is None or entry.at_ms >= since_ms)
            and (topic is None or topic == topic_of(told.about, told.partition))
            and (partition is None or (told.partition or ("", -1))[1] == partition)
            and (group is None or told.about == f"group:{group}")
            and (
                broker is None or concerns(broker, entry.kind, entry.node, told.about, told.fields)
            )
        )

    return wanted


# What is shown


def _json(entry: EventEntry) -> None:
    print_json(entry.members())


def _line() -> Callable[[EventEntry], None]:
    import os
    import sys

    from ottla.event_log.kinds import KINDS, Severity, severity
    from ottla.event_log.words import sentence
    from ottla.wire.printable import printable

    width = max(map(len, KINDS))
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    colours = {Severity.WARNING: "\x1b[33m", Severity.ERROR: "\x1b[31m"}

    def show(entry: EventEntry) -> None:
        kind = printable(entry.kind)
        text = f"{entry.at}  node {entry.node:<3} {kind:<{width}}  {sentence(entry)}"
        colour = colours.get(severity(entry)) if coloured else None
        print(text if colour is None else f"{colour}{text}\x1b[0m", flush=True)

    return show
