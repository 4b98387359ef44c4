"""`ottla losses` and `ottla recover`: what an unclean election or a truncation cost, and getting it back."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connect import BootstrapOption, CommandConfigOption, TimeoutOption, connect
from ottla.cli.errors import CONFLICT, NOT_FOUND, USAGE, Failure
from ottla.cli.events import since_ms
from ottla.cli.output import (
    Format,
    FormatOption,
    count_of,
    print_json,
    print_table,
    progress_bar,
    say,
    warn,
)
from ottla.wire.internal_topics import EVENT_LOG_TOPIC

if TYPE_CHECKING:
    from ottla.client import BlockingClient
    from ottla.client.producer import Producer
    from ottla.losses.manifest import Manifest
    from ottla.losses.merge import NamedLoss
    from ottla.losses.open_elections import OpenElection
    from ottla.losses.recovering import BatchReader, Identity, Recovered, Recovery
    from ottla.records.batch import Batch
    from ottla.records.record import Record

GLANCE_S = 5.0
"""How long to wait for the leader of the event log: without it, the losses that are known are shown."""
READ_BYTES = 1 << 20
BATCH_BYTES_MAX = 512 * 1024
BATCH_RECORDS_MAX = 1000

LossDirOption = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        help="A cluster's directory, or a broker's log directory. Brokers that do not run are read from disk."
        " [default: as for ottla up]",
        show_default=False,
    ),
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since", help="Only losses of the last 10m, 2h, 1d, or after a time (ISO, UTC)."
    ),
]


@dataclass
class KeptSomewhere:
    """Everything that is kept, and how to read each part of it."""

    manifests: list[Manifest] = field(default_factory=list)
    read: dict[str, Callable[[], Iterator[bytes]]] = field(default_factory=dict)
    """By id."""
    mark: dict[str, Callable[[str], None]] = field(default_factory=dict)
    """Note into which topic it was recovered. By id."""

    def add(
        self,
        manifest: Manifest,
        read: Callable[[], Iterator[bytes]],
        mark: Callable[[str], None],
    ) -> None:
        if manifest.id not in self.read:
            self.manifests.append(manifest)
            self.read[manifest.id], self.mark[manifest.id] = read, mark


def losses(
    topic: Annotated[str | None, typer.Option("--topic", help="Only this topic.")] = None,
    since: SinceOption = None,
    bootstrap: BootstrapOption = None,
    dir: LossDirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Show what unclean elections and truncations cost.

    Each line is a range of records that were committed and are not in the log any more, and says which brokers keep them
    (ottla recover copies them). END: what is below it is lost for certain. POSSIBLY: what is below it may have been committed;
    nobody who came back knows. With --format json: one object a line.
    """
    with _kept(bootstrap, dir, timeout, command_config) as (blocking, kept):
        found = _selected(kept, topic, since)
        elections = [] if blocking is None else _open_elections(blocking, topic)
    if format is Format.json:
        for fields in [each.as_json() for each in found] + [each.as_json() for each in elections]:
            print_json(fields)
        return
    if not found and not elections:
        say("No record was lost.")
        return
    print_table(
        ("partition", "first", "end", "possibly", "bytes", "at", "kept by", "recovered", "cause"),
        [_row(loss) for loss in found],
    )
    for election in elections:
        brokers = ", ".join(map(str, election.may_be_held_by))
        start = "" if election.first_offset is None else f" from offset {election.first_offset} on"
        print(
            f"{election.partition}: {election.how} election of broker {election.leader}"
            f" (epoch {election.leader_epoch}) at {election.at}; the disks of {brokers} may hold"
            f" records{start} that are lost"
        )


def _row(loss: NamedLoss) -> Sequence[object]:
    shown = loss.as_json()
    kept_by = [f"{each['broker']} ({each['kept'][:8]})" for each in shown["held_by"]]
    return (
        shown["partition"],
        loss.first,
        loss.end,
        loss.possible_end if loss.possible_end > loss.end else None,
        shown["bytes"],
        shown["at"],
        kept_by or "nobody",
        loss.recovered_to,
        shown["cause"],
    )


def recover(
    to: Annotated[str, typer.Option("--to", metavar="TOPIC", help="Where the records go.")],
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="TOPIC[-PARTITION]", help="What was lost of it."),
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", help="What is kept under this id, or its beginning.")
    ] = None,
    all: Annotated[bool, typer.Option("--all", help="Everything that is kept.")] = False,
    since: SinceOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count the records, write none.")
    ] = False,
    include_possible: Annotated[
        bool,
        typer.Option("--include-possible", help="Also records that nobody knows to be committed."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write even into the topic that lost them.")
    ] = False,
    bootstrap: BootstrapOption = None,
    dir: LossDirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Copy lost records into a topic.

    Each record keeps its key, value, headers and timestamp, and gets headers that say where it comes from:
    ottla.recovered.from, .topic_id, .offset, .epoch, .broker and .kept. A record that is in the topic already, by these
    headers, is not copied again: the command can be repeated. Records of aborted transactions are left out.
    """
    if sum((topic is not None, id is not None, all)) != 1:
        raise Failure("name one of --topic, --id and --all", USAGE)
    with _kept(bootstrap, dir, timeout, command_config) as (blocking, kept):
        found = _chosen(_selected(kept, None, since), topic, id)
        for loss in found:
            if loss.topic == to and not force:
                raise Failure(
                    f"--to {to} is the topic that lost them: consumers would read them among newer"
                    " records (--force does it)",
                    CONFLICT,
                )
        if blocking is None:
            raise Failure(
                "no broker runs that could take the records: name one with --bootstrap", NOT_FOUND
            )
        copy = _Copy(blocking, kept, to, dry_run, include_possible)
        copy.run(found)
    if format is Format.json:
        print_json(copy.as_json())
    else:
        copy.report()
    copy.warn()
    if not copy.is_complete:
        raise Failure("not everything that was asked for is recovered")


def _chosen(found: list[NamedLoss], topic: str | None, id: str | None) -> list[NamedLoss]:
    if topic is not None:
        chosen = [loss for loss in found if topic in (loss.topic, f"{loss.topic}-{loss.partition}")]
    elif id is not None:
        chosen = [loss for loss in found if any(each.id.startswith(id) for each in loss.held_by)]
    else:
        chosen = found
    if not chosen:
        raise Failure("nothing is kept of that (ottla losses)", NOT_FOUND)
    return chosen


class _Copy:
    """One run of `ottla recover`."""

    def __init__(
        self,
        blocking: BlockingClient,
        kept: KeptSomewhere,
        to: str,
        dry_run: bool,
        possible: bool,
    ) -> None:
        self._blocking = blocking
        self._kept = kept
        self._to = to
        self._dry_run = dry_run
        self._possible = possible
        self.copied = 0
        self.were_there = 0
        self.aborted = 0
        self.undecided = 0
        self.markers = 0
        self.gone: list[str] = []
        """What no disk that was asked holds."""
        self.damaged: list[str] = []
        """Copies of which not everything could be read."""
        self.unread: list[str] = []
        """What no copy could give."""
        self.too_large: list[str] = []

    def run(self, losses: Sequence[NamedLoss]) -> None:
        from ottla.client.producer import Producer
        from ottla.records.compression import Codec

        client = self._blocking.client
        partitions = len(self._blocking.run(client.topic(self._to)).partitions)
        there = self._already_there(partitions)
        producers = [Producer(client, codec=codec) for codec in Codec]
        shown = sys.stderr.isatty()
        with progress_bar(sys.stderr) if shown else nullcontext() as bar:
            total = sum(max(0, self._end(loss) - loss.first) for loss in losses)
            task = bar.add_task("", total=total) if bar is not None else None
            for loss in losses:
                self._one(loss, producers, loss.partition % partitions, there)
                if bar is not None and task is not None:
                    bar.advance(task, max(0, self._end(loss) - loss.first))

    def _end(self, loss: NamedLoss) -> int:
        return loss.possible_end if self._possible else loss.end

    def _one(
        self,
        loss: NamedLoss,
        producers: Sequence[Producer],
        partition: int,
        there: set[Identity],
    ) -> None:
        from ottla.losses.manifest import State
        from ottla.losses.recovering import BatchReader, Recovery, missing

        if self._end(loss) <= loss.first:
            return
        holders = [each for each in loss.held_by if each.state is State.KEPT]
        if not holders:
            self.gone.append(_named(loss, loss.first, self._end(loss)))
            return
        recovery = Recovery(loss, possible=self._possible)
        for holder in holders:
            for data, batch in self._batches(BatchReader(holder)):
                recovery.survey(data, batch)
        readers = [BatchReader(holder) for holder in holders]
        too_large = len(self.too_large)
        for codec, records in _batched(self._wanted(recovery, readers, there)):
            self._send(producers[codec], loss, partition, records)
        self.aborted += recovery.aborted
        self.undecided += recovery.undecided
        self.markers += recovery.markers
        self._note_damage(readers)
        unread = missing(loss, readers, possible=self._possible)
        self.unread += [_named(loss, first, end) for first, end in unread]
        if not self._dry_run and not unread and len(self.too_large) == too_large:
            for holder in holders:
                self._kept.mark[holder.id](self._to)

    def _batches(self, reader: BatchReader) -> Iterator[tuple[bytes, Batch]]:
        """What its disk can give. Another one may have the rest."""
        from ottla.wire.errors import KafkaError

        try:
            for part in self._kept.read[reader.manifest.id]():
                yield from reader.batches(part)
        except (OSError, KafkaError) as error:
            reader.damage.append(str(error))

    def _wanted(
        self, recovery: Recovery, readers: Iterable[BatchReader], there: set[Identity]
    ) -> Iterator[Recovered]:
        """The records that are not in the topic."""
        from ottla.losses.recovering import identity_of

        for reader in readers:
            manifest = reader.manifest
            for data, batch in self._batches(reader):
                for recovered in recovery.records(data, batch, manifest.broker, manifest.id):
                    identity = identity_of(recovered.record)
                    assert identity is not None, recovered
                    if identity in there:
                        self.were_there += 1
                    else:
                        there.add(identity)
                        yield recovered

    def _note_damage(self, readers: Iterable[BatchReader]) -> None:
        for reader in readers:
            if reader.damage or reader.unread():
                why = "; ".join(reader.damage[:3]) or "its end is missing"
                self.damaged.append(
                    f"{reader.manifest.id[:8]} of broker {reader.manifest.broker}: {why}"
                )

    def _send(
        self, producer: Producer, loss: NamedLoss, partition: int, records: list[Record]
    ) -> None:
        """In halves, if the topic takes no batch as large as that: headers were added, and it may have another limit."""
        from ottla.wire.errors import ErrorCode, KafkaError

        if not self._dry_run:
            try:
                self._blocking.run(producer.send(self._to, partition, records))
            except KafkaError as error:
                if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
                    raise
                if len(records) == 1:
                    offset = records[0].offset
                    self.too_large.append(_named(loss, offset, offset + 1))
                    return
                half = len(records) // 2
                self._send(producer, loss, partition, records[:half])
                self._send(producer, loss, partition, records[half:])
                return
        self.copied += len(records)

    def _already_there(self, partitions: int) -> set[Identity]:
        """What an earlier run has copied."""
        from ottla.losses.recovering import identity_of

        found: set[Identity] = set()
        for partition in range(partitions):
            for record in _all_records(self._blocking, self._to, partition):
                identity = identity_of(record)
                if identity is not None:
                    found.add(identity)
        return found

    def as_json(self) -> dict[str, Any]:
        return {
            "to": self._to,
            "copied": 0 if self._dry_run else self.copied,
            "would_copy": self.copied if self._dry_run else 0,
            "were_there": self.were_there,
            "aborted": self.aborted,
            "undecided": self.undecided,
            "markers": self.markers,
            "not_kept": self.gone,
            "damaged": self.damaged,
            "unread": self.unread,
            "too_large": self.too_large,
        }

    def report(self) -> None:
        verb = "would be copied" if self._dry_run else "copied"
        print(f"{count_of(self.copied, 'record')} {verb} to {self._to}")
        for count, what in (
            (self.were_there, "were there already"),
            (self.aborted, "left out: their transactions were aborted"),
            (self.undecided, "copied of transactions whose end is not kept"),
            (self.markers, "left out: they only mark the end of a transaction"),
        ):
            if count:
                print(f"{count_of(count, 'record')} {what}")

    def warn(self) -> None:
        for each in self.gone:
            warn(f"no disk that was asked keeps {each}")
        for each in self.damaged:
            warn(f"not everything can be read of {each}")
        for each in self.unread:
            warn(f"records are missing: no copy that can be read has all of {each}")
        for each in self.too_large:
            warn(f"{each} is too large for {self._to} (raise its max.message.bytes, and repeat)")

    @property
    def is_complete(self) -> bool:
        return not (self.gone or self.unread or self.too_large)


def _named(loss: NamedLoss, first: int, end: int) -> str:
    return f"{loss.topic}-{loss.partition} {first}..{end - 1}"


def _batched(records: Iterable[Recovered]) -> Iterator[tuple[int, list[Record]]]:
    """(codec, records that make one batch)"""
    waiting: list[Record] = []
    size = codec = 0
    for recovered in records:
        record = recovered.record
        more = len(record.key or b"") + len(record.value or b"")
        more += sum(len(name) + len(value or b"") for name, value in record.headers)
        is_full = size + more > BATCH_BYTES_MAX or len(waiting) >= BATCH_RECORDS_MAX
        if waiting and (is_full or recovered.codec != codec):
            yield codec, waiting
            waiting, size = [], 0
        codec = recovered.codec
        waiting.append(record)
        size += more
    if waiting:
        yield codec, waiting


# Where things are kept


class _kept:
    """A connection to the cluster, if one runs, and everything that is kept: with running brokers, and on the disks of
    those that do not run."""

    def __init__(
        self,
        bootstrap: str | None,
        directory: Path | None,
        timeout_s: float,
        command_config: Path | None,
    ) -> None:
        if directory is None and bootstrap is None:
            bootstrap = os.environ.get("OTTLA_BOOTSTRAP") or None
        self._bootstrap, self._directory, self._timeout_s = bootstrap, directory, timeout_s
        self._command_config = command_config
        self._connection: Any = None

    def __enter__(self) -> tuple[BlockingClient | None, KeptSomewhere]:
        kept = KeptSomewhere()
        places, runs = _directories(self._bootstrap, self._directory)
        was_read = {_read_directory(place, kept) for place in places}
        elsewhere = self._command_config is not None or bool(os.environ.get("OTTLA_CONFIG"))
        if self._bootstrap is None and not runs and (self._directory is not None or not elsewhere):
            return None, kept
        directory = None if self._bootstrap is not None else self._directory
        self._connection = connect(
            self._bootstrap, directory, self._timeout_s, self._command_config
        )
        blocking = self._connection.__enter__()
        _ask_brokers(blocking, kept, was_read)
        return blocking, kept

    def __exit__(self, *failure: Any) -> None:
        if self._connection is not None:
            self._connection.__exit__(*failure)


def _directories(bootstrap: str | None, directory: Path | None) -> tuple[list[Path], bool]:
    """The log directories to read from disk, and whether the cluster in the directory runs."""
    from ottla.cli.reaching import directory_of
    from ottla.local.cluster import LocalCluster
    from ottla.local.errors import NoCluster

    if directory is None and bootstrap is not None:
        return [], False
    if directory is not None and (directory / "meta.properties").exists():
        return [directory], False
    try:
        cluster = LocalCluster.load(directory_of(directory))
    except NoCluster:
        if directory is None:
            return [], True  # the environment may name a cluster
        raise
    stopped = [
        cluster.node_directory(id) / "data" for id in cluster.nodes if not cluster.node(id).running
    ]
    return [place for place in stopped if place.is_dir()], bool(cluster.running)


def _read_directory(place: Path, into: KeptSomewhere) -> int | None:
    """The id of the broker that it belongs to, if it says so."""
    from ottla.log.checkpoints import META_PROPERTIES, read_meta_properties
    from ottla.log.errors import CorruptCheckpoint
    from ottla.log.kept_records import Kept, files_of, kept_in, write_manifest
    from ottla.losses.manifest import State
    from ottla.runtime.files import RealDisk

    disk = RealDisk()

    def reader(kept: Kept) -> Callable[[], Iterator[bytes]]:
        def read() -> Iterator[bytes]:
            for path in files_of(disk, kept):
                with open(path, "rb") as file:
                    while part := file.read(READ_BYTES):
                        yield part

        return read

    def marker(kept: Kept) -> Callable[[str], None]:
        return lambda topic: write_manifest(
            disk, kept.path, kept.manifest._replace(recovered_to=topic)
        )

    for kept in kept_in(disk, str(place)):
        if kept.manifest.state is State.CUTTING:
            warn(
                f"{kept.path}: its broker died while it truncated; start it, and it says what was lost"
            )
        into.add(kept.manifest, reader(kept), marker(kept))
    try:
        return read_meta_properties(disk, f"{place}/{META_PROPERTIES}").node_id
    except (OSError, CorruptCheckpoint):
        return None


def _ask_brokers(
    blocking: BlockingClient, into: KeptSomewhere, was_read: Collection[int | None]
) -> None:
    """`was_read`: the brokers whose disks were read."""
    from ottla.client.kept_records import list_kept, mark_recovered, read_kept

    client = blocking.client

    def reader(broker: int, id: str) -> Callable[[], Iterator[bytes]]:
        def read() -> Iterator[bytes]:
            position = 0
            while part := blocking.run(read_kept(client, broker, id, position)):
                position += len(part)
                yield part

        return read

    def marker(broker: int, id: str) -> Callable[[str], None]:
        return lambda topic: blocking.run(mark_recovered(client, broker, id, topic))

    live = {each.id for each in blocking.run(client.metadata([])).brokers}
    for each in blocking.run(client.describe_cluster()).brokers:
        if each.id not in live and each.id not in was_read:
            warn(
                f"broker {each.id} does not run, so what it keeps is missing here (--dir reads its disk)"
            )
    for broker in sorted(live):
        try:
            found = blocking.run(list_kept(client, broker))
        except OSError as error:
            if broker not in was_read:
                warn(
                    f"broker {broker} does not say what it keeps: it is not ottla, is older, or does"
                    f" not answer ({error})"
                )
            continue
        for manifest in found:
            into.add(manifest, reader(broker, manifest.id), marker(broker, manifest.id))


def _selected(kept: KeptSomewhere, topic: str | None, since: str | None) -> list[NamedLoss]:
    from ottla.losses.merge import merge

    begin_ms = 0 if since is None else since_ms(since)
    return [
        loss
        for loss in merge(kept.manifests)
        if (topic is None or loss.topic == topic) and loss.origin.at_ms >= begin_ms
    ]


def _open_elections(blocking: BlockingClient, topic: str | None) -> list[OpenElection]:
    """From the event log, if there is one."""
    import asyncio

    from ottla.event_log.entry import entries
    from ottla.losses.open_elections import open_elections
    from ottla.wire.errors import ErrorCode, KafkaError

    told: list[dict[str, Any]] = []
    try:
        blocking.run(asyncio.wait_for(blocking.client.topic(EVENT_LOG_TOPIC), GLANCE_S))
        told += (each.members() for each in entries(_all_records(blocking, EVENT_LOG_TOPIC, 0)))
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            warn(f"unclean elections whose losses nobody knows yet are left out: {error}")
    except (OSError, ValueError) as error:  # a TimeoutError too
        warn(
            "unclean elections whose losses nobody knows yet are left out:"
            f" {EVENT_LOG_TOPIC} cannot be read: {error}"
        )
    return [
        election
        for election in open_elections(told)
        if topic is None or election.partition.rpartition("-")[0] == topic
    ]


def _all_records(blocking: BlockingClient, topic: str, partition: int) -> Iterator[Record]:
    """Everything that is committed now."""
    import asyncio  # with ssl 50 ms, which other commands and --help save

    client = blocking.client
    position = blocking.run(asyncio.wait_for(client.offset(topic, partition, -2), GLANCE_S))
    end = blocking.run(asyncio.wait_for(client.offset(topic, partition, -1), GLANCE_S))
    while position < end:
        fetched = blocking.run(client.fetch(topic, partition, position))
        yield from fetched.records
        position = max(fetched.next_offset, position)
