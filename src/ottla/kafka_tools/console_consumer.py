"""kafka-console-consumer: records of topics on standard output.

Without --group Kafka's tool joins a group with a random name, which nobody sees. This one reads the partitions without a
group.
"""

from __future__ import annotations

import asyncio
import re
import struct
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, NamedTuple
from uuid import UUID, uuid4

from ottla.client import Client
from ottla.client.client import EARLIEST, LATEST
from ottla.client.group_admin import Place
from ottla.client.group_consumer import GroupConsumer
from ottla.kafka_tools.ending import ended
from ottla.kafka_tools.java import double_text
from ottla.kafka_tools.options import (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Option,
    OptionParser,
    Parsed,
    ToolError,
)
from ottla.kafka_tools.pairs import pairs, renamed, settings_of
from ottla.kafka_tools.session import ToolSession, properties, with_cluster
from ottla.records.record import Record

IDLE_S: Final = 0.05
REFRESH_S: Final = 5.0
"""How often new partitions are looked for, and offsets are committed."""
FORMATTERS: Final = {
    "org.apache.kafka.tools.consumer.DefaultMessageFormatter": True,
    "org.apache.kafka.tools.consumer.NoOpMessageFormatter": False,
}
"""Whether it prints anything."""
PARSER = OptionParser(
    "This tool helps to read data from Kafka topics and outputs it to standard output.",
    [
        Option("topic", "The topic to consume on.", "topic"),
        Option("include", "Regular expression of topics to include.", "Java regex (String)"),
        Option("partition", "The partition to consume from.", "partition"),
        Option("offset", "A number, earliest or latest.", "consume offset", default="latest"),
        Option("consumer-property", "DEPRECATED: use --command-property.", "name=value"),
        Option("command-property", "Consumer config properties.", "name=value"),
        Option("consumer.config", "DEPRECATED: use --command-config.", "file"),
        COMMAND_CONFIG,
        Option(
            "formatter", "The class that formats records.", "class", default=next(iter(FORMATTERS))
        ),
        Option("property", "DEPRECATED: use --formatter-property.", "prop"),
        Option(
            "formatter-property",
            "print.timestamp, print.key, print.offset, print.epoch, print.partition, print.headers, print.value,"
            " key.separator, line.separator, headers.separator, null.literal, key.deserializer, value.deserializer,"
            " headers.deserializer",
            "name=value",
        ),
        Option("formatter-config", "Properties file for the formatter.", "file"),
        Option("from-beginning", "Begin with the earliest record if there is no committed offset."),
        Option("max-messages", "The most records to consume.", "num_messages"),
        Option("timeout-ms", "Exit if there is no record for so long.", "timeout_ms"),
        Option("skip-message-on-error", "Skip a record that cannot be printed."),
        BOOTSTRAP,
        Option("key-deserializer", "The class that reads keys.", "class"),
        Option("value-deserializer", "The class that reads values.", "class"),
        Option("enable-systest-events", "Print when it ends."),
        Option(
            "isolation-level",
            "read_committed or read_uncommitted",
            "level",
            default="read_uncommitted",
        ),
        Option("group", "The consumer group id of the consumer.", "consumer group id"),
    ],
)


class ConsumedRecord(NamedTuple):
    topic: str
    partition: int
    record: Record
    is_append_time: bool


def main(words: list[str]) -> int:
    return ended(lambda: _main(words))


def _main(words: list[str]) -> int:
    try:
        options = PARSER.parse(words)
    except ToolError as error:
        PARSER.usage(str(error))
    _check(options)
    warning = "Option"
    property_words = renamed(options, PARSER, "consumer-property", "command-property", warning)
    file = renamed(options, PARSER, "consumer.config", "command-config", warning)
    formatter_words = renamed(options, PARSER, "property", "formatter-property", warning)
    settings = settings_of(options, file, property_words)
    start = _start(options, settings)
    group = _group(options, settings)
    formatter = _formatter(options, formatter_words)

    async def work(session: ToolSession) -> int:
        source = _Source(session.client, options, settings, start, group)
        try:
            await _print(source, options, formatter)
        finally:
            await source.close()
            print(f"Processed a total of {source.taken} messages", file=sys.stderr)
        if options.has("enable-systest-events"):
            print("shutdown_complete")
        return 0

    bootstrap = options.text("bootstrap-server")
    try:
        return with_cluster(bootstrap, settings, "console-consumer", work)
    except KeyboardInterrupt:
        return 130


async def _print(source: _Source, options: Parsed, formatter: Formatter | None) -> None:
    most = options.number("max-messages")
    timeout_ms = options.number("timeout-ms")
    limit_s = None if timeout_ms is None or timeout_ms < 0 else timeout_ms / 1000
    out = sys.stdout.buffer
    if most == 0:
        return
    records = source.records()
    while True:
        try:
            async with asyncio.timeout(limit_s):
                batch = await anext(records)
        except TimeoutError:
            print(
                "ERROR Error processing message, terminating consumer process: "
                "org.apache.kafka.common.errors.TimeoutException",
                file=sys.stderr,
            )
            return
        for found in batch:
            source.take(found)
            if formatter is not None:
                try:
                    out.write(formatter.line(found))
                except ToolError as error:
                    if not options.has("skip-message-on-error"):
                        raise
                    print(
                        f"ERROR Error processing message, skipping this message: {error}",
                        file=sys.stderr,
                    )
            if source.taken == most:
                break
        out.flush()
        if source.taken == most:
            return


def _check(options: Parsed) -> None:
    if options.has("topic") == options.has("include"):
        PARSER.usage("Exactly one of the following arguments is required: [topic], [include]")
    if options.has("partition"):
        if not options.has("topic"):
            PARSER.usage("The topic is required when partition is specified.")
        if options.has("from-beginning") and options.has("offset"):
            PARSER.usage("Options from-beginning and offset cannot be specified together.")
    elif options.has("offset"):
        PARSER.usage("The partition is required when offset is specified.")
    PARSER.require(options, "bootstrap-server")


def _start(options: Parsed, settings: Mapping[str, str]) -> int:
    """An offset, or EARLIEST, or LATEST."""
    reset = settings.get("auto.offset.reset")
    if reset is not None and options.has("from-beginning") and reset != "earliest":
        raise ToolError(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove"
            " one option"
        )
    if options.has("from-beginning") or (reset == "earliest" and not options.has("offset")):
        return EARLIEST
    text = options.text("offset").lower()
    if text in ("earliest", "latest"):
        return EARLIEST if text == "earliest" else LATEST
    if not text.isdigit():
        PARSER.usage(
            f"The provided offset value '{options.text('offset')}' is incorrect. Valid values are 'earliest',"
            " 'latest', or a non-negative long."
        )
    return int(text)


def _group(options: Parsed, settings: Mapping[str, str]) -> str | None:
    given = dict.fromkeys(filter(None, (options.value("group"), settings.get("group.id"))))
    if len(given) > 1:
        names = ", ".join(f"'{name}'" for name in given)
        PARSER.usage(
            "The group ids provided in different places (directly using '--group', via '--consumer-property',"
            f" or via '--consumer.config') do not match. Detected group ids: {names}"
        )
    if given and options.has("partition"):
        PARSER.usage("Options group and partition cannot be specified together.")
    return next(iter(given), None)


class _Source:
    """Where records come from: a group's partitions, or all that were asked for."""

    def __init__(
        self,
        client: Client,
        options: Parsed,
        settings: Mapping[str, str],
        start: int,
        group: str | None,
    ) -> None:
        self.taken = 0
        """Records that were printed."""
        self._client = client
        self._topic, self._include = options.value("topic"), options.value("include")
        self._partition = options.number("partition")
        self._start = start
        given = options.has("isolation-level") or "isolation.level" not in settings
        level = options.text("isolation-level") if given else settings["isolation.level"]
        self._committed = level == "read_committed"
        self._positions: dict[Place, int] = {}
        self._read: dict[Place, int] = {}
        self._is_first_look = True
        self._consumer: GroupConsumer | None = None
        if group is not None:
            self._consumer = GroupConsumer(
                client,
                group,
                str(uuid4()),
                topics=[self._topic] if self._topic is not None else [],
                pattern=self._include,
                from_beginning=start == EARLIEST,
                commits=settings.get("enable.auto.commit", "true").lower() == "true",
            )

    def take(self, found: ConsumedRecord) -> None:
        self.taken += 1
        place = (found.topic, found.partition)
        if self._consumer is not None and place in self._consumer.positions:
            self._consumer.positions[place] = found.record.offset + 1

    async def records(self) -> AsyncIterator[list[ConsumedRecord]]:
        loop = asyncio.get_running_loop()
        look_at = 0.0
        while True:
            if self._consumer is not None:
                await self._consumer.heartbeat()
                self._positions = {
                    place: max(self._positions.get(place, offset), offset)
                    for place, offset in self._consumer.positions.items()
                }
            if loop.time() >= look_at:
                await self._look()
                look_at = loop.time() + REFRESH_S
            is_idle = True
            for place in list(self._positions):
                batch = await self._fetch(place)
                if batch:
                    is_idle = False
                    yield batch
            if is_idle:
                await asyncio.sleep(IDLE_S)

    async def _look(self) -> None:
        """Find new partitions, or commit."""
        if self._consumer is not None:
            await self._consumer.commit()
            return
        if self._partition is not None:
            assert self._topic is not None, "a partition is one of a topic"
            places: list[Place] = [(self._topic, self._partition)]
        else:
            names = None if self._topic is None else [self._topic]
            found = await self._client.metadata(names, created=True, create=names is not None)
            places = [
                (topic.name, each.partition)
                for topic in found.topics
                if self._topic is not None or re.fullmatch(self._include or "", topic.name)
                for each in topic.partitions
            ]
        # What appears later has no record that is older than this tool.
        start = self._start if self._is_first_look else EARLIEST
        for place in places:
            if place not in self._positions:
                is_time = start in (EARLIEST, LATEST)
                self._positions[place] = (
                    await self._client.offset(*place, start, committed=self._committed)
                    if is_time
                    else start
                )
        self._is_first_look = False

    async def _fetch(self, place: Place) -> list[ConsumedRecord]:
        fetched = await self._client.fetch(
            *place, self._positions[place], max_wait_ms=0, committed=self._committed
        )
        self._positions[place] = fetched.next_offset
        append_time = [batch for batch in fetched.batches if batch.log_append_time]
        return [
            ConsumedRecord(
                *place,
                record,
                any(b.base_offset <= record.offset <= b.last_offset for b in append_time),
            )
            for record in fetched.records
        ]

    async def close(self) -> None:
        if self._consumer is not None:
            await self._consumer.leave()


# Formatting


def _formatter(options: Parsed, words: str) -> Formatter | None:
    name = options.text("formatter")
    if name not in FORMATTERS:
        PARSER.usage(
            f"--formatter: this tool has no Java classes, only {', '.join(FORMATTERS)};"
            " kafka-dump-log decodes the records of internal topics"
        )
    settings = properties(options.value("formatter-config"))
    for part in ("key", "value"):
        deserializer = options.value(f"{part}-deserializer")
        if deserializer:
            settings[f"{part}.deserializer"] = deserializer
    settings |= pairs(options.values(words))
    return Formatter(settings) if FORMATTERS[name] else None


Reader = Callable[[bytes], str]


def _fixed(layout: str) -> Callable[[bytes], object]:
    size = struct.calcsize(layout)

    def read(data: bytes) -> object:
        if len(data) != size:
            raise ToolError(f"Size of data received is not {size}")
        return struct.unpack(layout, data)[0]

    return read


def _text_of(layout: str, text: Callable[..., str] = str) -> Reader:
    read = _fixed(layout)
    return lambda data: text(read(data))


DESERIALIZERS: Final[dict[str, Reader]] = {
    "String": lambda data: data.decode("utf-8", "replace"),
    "Short": _text_of(">h"),
    "Integer": _text_of(">i"),
    "Long": _text_of(">q"),
    "Float": _text_of(">f", lambda value: double_text(float(f"{value:.8g}"))),
    "Double": _text_of(">d", double_text),
    "Boolean": _text_of(">?", lambda value: str(value).lower()),
    "UUID": lambda data: str(UUID(data.decode())),
}
PACKAGE: Final = "org.apache.kafka.common.serialization."


def _deserializer(settings: Mapping[str, str], name: str) -> Reader | None:
    given = settings.get(name)
    if given is None:
        return None
    short = given.removeprefix(PACKAGE).removesuffix("Deserializer")
    if short not in DESERIALIZERS:
        known = ", ".join(f"{PACKAGE}{each}Deserializer" for each in DESERIALIZERS)
        PARSER.usage(f"{name}={given}: this tool has no Java classes, only {known}")
    return DESERIALIZERS[short]


class Formatter:
    """Kafka's DefaultMessageFormatter."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        def is_set(name: str, default: str = "false") -> bool:
            return settings.get(name, default).strip().lower() == "true"

        self._timestamp = is_set("print.timestamp")
        self._partition = is_set("print.partition")
        self._offset = is_set("print.offset")
        self._delivery = is_set("print.delivery")
        self._epoch = is_set("print.epoch")
        self._headers = is_set("print.headers")
        self._key = is_set("print.key")
        self._value = is_set("print.value", "true")
        self._separator = settings.get("key.separator", "\t").encode()
        self._end = settings.get("line.separator", "\n").encode()
        self._between_headers = settings.get("headers.separator", ",").encode()
        self._null = settings.get("null.literal", "null").encode()
        self._read_key = _deserializer(settings, "key.deserializer")
        self._read_value = _deserializer(settings, "value.deserializer")
        self._read_header = _deserializer(settings, "headers.deserializer")

    def line(self, found: ConsumedRecord) -> bytes:
        record = found.record
        cells: list[bytes] = []
        if self._timestamp:
            kind = "LogAppendTime" if found.is_append_time else "CreateTime"
            cells.append(f"{kind}:{record.timestamp}".encode())
        if self._partition:
            cells.append(f"Partition:{found.partition}".encode())
        if self._offset:
            cells.append(f"Offset:{record.offset}".encode())
        if self._delivery:
            cells.append(b"Delivery:NOT_PRESENT")
        if self._epoch:
            cells.append(b"Epoch:NOT_PRESENT")
        if self._headers:
            headers = (
                name.encode() + b":" + self._shown(self._read_header, value)
                for name, value in record.headers
            )
            cells.append(self._between_headers.join(headers) or b"NO_HEADERS")
        if self._key:
            cells.append(self._shown(self._read_key, record.key))
        if self._value:
            cells.append(self._shown(self._read_value, record.value))
        return self._separator.join(cells) + self._end if cells else b""

    def _shown(self, reader: Reader | None, data: bytes | None) -> bytes:
        raw = self._null if data is None else data
        return raw if reader is None else reader(raw).encode()
