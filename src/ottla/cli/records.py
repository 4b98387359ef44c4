"""`ottla produce` and `ottla consume`: records as lines, in the manner of kcat."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connect import (
    BootstrapOption,
    CommandConfigOption,
    DirOption,
    TimeoutOption,
    connect,
)
from ottla.cli.errors import NOT_FOUND, USAGE, Failure
from ottla.cli.output import Format, FormatOption, count_of, print_json, warn
from ottla.cli.topics import TopicArgument

if TYPE_CHECKING:
    from ottla.client import Client
    from ottla.client.model import Topic
    from ottla.records.record import Record

BATCH_BYTES_MAX = 512 * 1024
BATCH_RECORDS_MAX = 10_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Isolation(StrEnum):
    read_uncommitted = "read_uncommitted"
    read_committed = "read_committed"


def produce(
    topic: TopicArgument,
    value: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[VALUE]…", help="Records to send; without any, the lines of stdin."
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("-k", "--key", help="The key of every record."),
    ] = None,
    key_delimiter: Annotated[
        str | None,
        typer.Option("-K", "--key-delimiter", help="Each line is KEY, this, VALUE."),
    ] = None,
    empty_is_null: Annotated[
        bool,
        typer.Option(
            "-Z", "--empty-is-null", help="An empty value is null: it deletes its key if compacted."
        ),
    ] = False,
    partition: Annotated[
        int | None,
        typer.Option("-p", "--partition", help="[default: by key, else in turn]", min=0),
    ] = None,
    acks: Annotated[str, typer.Option(help="0, 1 or all.")] = "all",
    compression: Annotated[
        str, typer.Option("-z", "--compression", help=", ".join(CODECS))
    ] = "none",
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Write records: arguments, or lines of stdin.

    With acks=all (the default) a retry never makes a duplicate.
    """
    from ottla.client import Producer

    wanted = {"0": 0, "1": 1, "all": -1, "-1": -1}.get(acks)
    if wanted is None:
        raise Failure(f"--acks {acks}: is 0, 1 or all", USAGE)
    if compression not in CODECS:
        raise Failure(f"--compression {compression}: is one of {', '.join(CODECS)}", USAGE)
    lines = (
        (word.encode() for word in value)
        if value
        else (line.rstrip(b"\n") for line in sys.stdin.buffer)
    )
    keyed = _with_keys(lines, None if key is None else key.encode(), key_delimiter)
    records = ((key, None if empty_is_null and not value else value) for key, value in keyed)
    sent: dict[int, int] = {}
    with connect(bootstrap, dir, timeout, command_config, topic=topic) as blocking:
        described = blocking.run(blocking.client.topic(topic))
        producer = Producer(blocking.client, acks=wanted, codec=CODECS.index(compression))
        for number, batch in _batches(records, described, partition):
            offset = blocking.run(producer.send(topic, number, batch))
            sent[number] = sent.get(number, 0) + len(batch)
            if format is Format.json:
                print_json(
                    {
                        "topic": topic,
                        "partition": number,
                        "offset": offset if offset >= 0 else None,
                        "count": len(batch),
                    }
                )
    if format is Format.table:
        spread = ", ".join(f"{topic}-{number}: {count}" for number, count in sorted(sent.items()))
        written = count_of(sum(sent.values()), "record")
        print(f"{written} written" + (f" ({spread})" if spread else ""))


def _with_keys(
    lines: Iterable[bytes], key: bytes | None, delimiter: str | None
) -> Iterator[tuple[bytes | None, bytes]]:
    mark = None if delimiter is None else delimiter.encode()
    for number, line in enumerate(lines, 1):
        if mark is None:
            yield key, line
            continue
        name, found, value = line.partition(mark)
        if not found:
            raise Failure(f"line {number}: has no {delimiter!r} between key and value", USAGE)
        yield name, value


def _batches(
    records: Iterable[tuple[bytes | None, bytes | None]], topic: Topic, partition: int | None
) -> Iterator[tuple[int, list[Record]]]:
    """Records gathered per partition. A full batch is sent at once, the rest at the end."""
    import time

    from ottla.client.partitioner import partition_for
    from ottla.records.record import Record

    count = len(topic.partitions)
    if partition is not None and partition >= count:
        raise Failure(f"topic {topic.name} has no partition {partition}, only {count}", NOT_FOUND)
    waiting: dict[int, list[Record]] = {}
    sizes: dict[int, int] = {}
    turn = 0
    for key, value in records:
        if partition is not None:
            number = partition
        elif key is not None:
            number = partition_for(key, count)
        else:
            number, turn = turn % count, turn + 1
        batch = waiting.setdefault(number, [])
        batch.append(Record(0, time.time_ns() // 1_000_000, key, value))
        sizes[number] = sizes.get(number, 0) + len(value or b"") + len(key or b"") + 16
        if sizes[number] >= BATCH_BYTES_MAX or len(batch) >= BATCH_RECORDS_MAX:
            yield number, waiting.pop(number)
            del sizes[number]
    yield from sorted(waiting.items())


def consume(
    topic: TopicArgument,
    partition: Annotated[
        list[int] | None,
        typer.Option("-p", "--partition", help="Only these; may be repeated.", min=0),
    ] = None,
    offset: Annotated[
        str,
        typer.Option("-o", "--offset", help="beginning, end, a number, -N before the end, or @MS."),
    ] = "beginning",
    count: Annotated[
        int | None,
        typer.Option("-n", "--count", help="Stop after so many records.", min=1),
    ] = None,
    exit: Annotated[bool, typer.Option("-e", "--exit", help="Stop at the present end.")] = False,
    keys: Annotated[bool, typer.Option("--keys", help="Print KEY, a tab, VALUE.")] = False,
    isolation_level: Annotated[
        Isolation,
        typer.Option(help="read_committed: nothing of transactions that are open or aborted."),
    ] = Isolation.read_uncommitted,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Read records, a line each.

    With --format json, an object each. Goes on until Ctrl-C, --count or --exit.
    """
    with connect(bootstrap, dir, timeout, command_config, topic=topic) as blocking:
        committed = isolation_level is Isolation.read_committed
        blocking.run(
            _consume(
                blocking.client, topic, partition, offset, count, exit, keys, committed, format
            )
        )


async def _consume(
    client: Client,
    topic: str,
    chosen: list[int] | None,
    offset: str,
    count: int | None,
    exit: bool,
    keys: bool,
    committed: bool,
    format: Format,
) -> None:
    import asyncio

    from ottla.client.client import LATEST

    described = await client.topic(topic)
    known = sorted(each.partition for each in described.partitions)
    for number in chosen or []:
        if number not in known:
            raise Failure(f"topic {topic} has no partition {number}, only {len(known)}", NOT_FOUND)

    async def offset_at(number: int, timestamp: int) -> int:
        return await client.offset(topic, number, timestamp, committed=committed)

    positions = {number: await _start(offset_at, number, offset) for number in chosen or known}
    ends = {number: await offset_at(number, LATEST) for number in positions} if exit else {}
    beyond = [number for number in ends if positions[number] > ends[number]]
    if beyond:
        where = ", ".join(f"{topic}-{number} ends at {ends[number]}" for number in beyond)
        warn(f"--offset {offset} is beyond the end: {where}")
    for number, end in ends.items() if committed else ():
        hidden = await client.offset(topic, number, LATEST) - end
        if hidden > 0:
            warn(
                f"{topic}-{number}: an open transaction hides {count_of(hidden, 'offset')} from {end} on "
                "(ottla transactions list --state ongoing)"
            )
    left = count

    async def fetch(number: int) -> None:
        nonlocal left
        while (left is None or left > 0) and (not exit or positions[number] < ends[number]):
            fetched = await client.fetch(topic, number, positions[number], committed=committed)
            for record in fetched.records:
                if left == 0 or (exit and record.offset >= ends[number]):
                    return
                _show(topic, number, record, keys, format)
                left = None if left is None else left - 1
            sys.stdout.flush()
            positions[number] = fetched.next_offset

    # One partition has brought the last record that was asked for; the other fetches are still waiting.
    tasks = [asyncio.ensure_future(fetch(number)) for number in positions]
    try:
        while any(not task.done() for task in tasks) and left != 0:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            tasks = [task for task in tasks if not task.done()]
            if not tasks:
                break
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _start(
    offset_at: Callable[[int, int], Awaitable[int]], partition: int, offset: str
) -> int:
    from ottla.client.client import EARLIEST, LATEST

    if offset in ("beginning", "earliest"):
        return await offset_at(partition, EARLIEST)
    if offset in ("end", "latest"):
        return await offset_at(partition, LATEST)
    number = offset.removeprefix("@")
    if not number.lstrip("-").isdigit():
        raise Failure(f"--offset {offset}: is beginning, end, a number, -N or @MS", USAGE)
    if offset.startswith("@"):
        return await offset_at(partition, int(number))
    if int(number) >= 0:
        return int(number)
    first = await offset_at(partition, EARLIEST)
    return max(first, await offset_at(partition, LATEST) + int(number))


def _show(topic: str, partition: int, record: Record, keys: bool, format: Format) -> None:
    if format is Format.json:
        print_json(
            {
                "topic": topic,
                "partition": partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": _text(record.key),
                "value": _text(record.value),
                "headers": [[name, _text(value)] for name, value in record.headers],
            }
        )
        return
    out = sys.stdout.buffer
    if keys:
        out.write((record.key or b"") + b"\t")
    out.write((record.value or b"") + b"\n")


def _text(data: bytes | None) -> Any:
    """UTF-8 as text, anything else as {"base64": …}, so that nothing is altered."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        from base64 import b64encode

        return {"base64": b64encode(data).decode()}
