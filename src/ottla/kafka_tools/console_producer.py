"""kafka-console-producer: every line of standard input becomes a record."""

from __future__ import annotations

import os
import random
import re
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Final

from ottla.client import Producer
from ottla.client.partitioner import partition_for
from ottla.kafka_tools.ending import ended
from ottla.kafka_tools.java import exception_text
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
from ottla.wire.errors import KafkaError

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS: Final = {"0": 0, "1": 1, "-1": -1, "all": -1}
READER: Final = "org.apache.kafka.tools.LineMessageReader"
CHUNK_BYTES: Final = 1 << 18
BLOCK_MS: Final = 60_000
PARSER = OptionParser(
    "This tool helps to read data from standard input and publish it to Kafka.",
    [
        Option("topic", "REQUIRED: The topic name to produce messages to.", "topic"),
        BOOTSTRAP,
        Option("sync", "Send one record at a time, and wait for each."),
        Option(
            "compression-codec",
            f"One of {', '.join(CODECS)}; gzip if not said.",
            "codec",
            optional=True,
        ),
        Option("batch-size", "The most bytes of a batch.", "size", default="16384"),
        Option("max-block-ms", "How long to wait for the topic.", "ms", default=str(BLOCK_MS)),
        Option("request-required-acks", "The required acks: 0, 1 or -1.", "acks", default="-1"),
        Option("request-timeout-ms", "How long a request may take.", "ms", default="1500"),
        Option("line-reader", "The class that reads lines.", "class", default=READER),
        Option("property", "DEPRECATED: use --reader-property.", "prop"),
        Option(
            "reader-property",
            "parse.key, key.separator, parse.headers, headers.delimiter, headers.separator,"
            " headers.key.separator, ignore.error, null.marker",
            "name=value",
        ),
        Option("reader-config", "Properties file for the reader.", "file"),
        Option("producer-property", "DEPRECATED: use --command-property.", "prop"),
        Option("command-property", "Producer config properties.", "name=value"),
        Option("producer.config", "DEPRECATED: use --command-config.", "file"),
        COMMAND_CONFIG,
        *(
            Option(name, "Accepted; this producer decides by itself.", "number")
            for name in (
                "message-send-max-retries",
                "retry-backoff-ms",
                "timeout",
                "metadata-expiry-ms",
                "max-memory-bytes",
                "max-partition-memory-bytes",
                "socket-buffer-size",
            )
        ),
    ],
)


def main(words: list[str]) -> int:
    return ended(lambda: _main(words))


def _main(words: list[str]) -> int:
    try:
        options = PARSER.parse(words)
    except ToolError as error:
        PARSER.usage(str(error))
    PARSER.require(options, "topic", "bootstrap-server")
    warning = "Warning:"
    property_words = renamed(options, PARSER, "producer-property", "command-property", warning)
    file = renamed(options, PARSER, "producer.config", "command-config", warning)
    reader_words = renamed(options, PARSER, "property", "reader-property", warning)
    settings = settings_of(options, file, property_words)
    reader = LineReader(
        properties(options.value("reader-config")) | pairs(options.values(reader_words))
    )
    if options.text("line-reader") != READER:
        raise ToolError(f"--line-reader: this tool has no Java classes, only {READER}")
    acks = _acks(options, settings)
    codec = _codec(options)
    topic = options.text("topic")
    is_sync = options.has("sync")

    async def work(session: ToolSession) -> int:
        found = await session.client.metadata([topic], created=True, create=True)
        count = len(found.topics[0].partitions)
        producer = Producer(session.client, acks=acks, codec=codec)
        for chunk in _chunks():
            records = [reader.record(line) for line in chunk]
            groups = ([record] for record in records) if is_sync else [records]
            for group in groups:
                for partition, batch in _by_partition(group, count).items():
                    try:
                        await producer.send(topic, partition, batch)
                    except KafkaError as error:
                        if is_sync:
                            raise
                        _report(topic, batch, error)
        return 0

    timeout_ms = options.number("max-block-ms") or BLOCK_MS
    bootstrap = options.text("bootstrap-server")
    return with_cluster(bootstrap, settings, "console-producer", work, timeout_ms)


def _report(topic: str, batch: list[Record], error: KafkaError) -> None:
    """Kafka's tool goes on after an error, and exits with 0."""
    print(
        f"ERROR Error when sending {len(batch)} message(s) to topic {topic} with error:"
        f" {exception_text(error)}",
        file=sys.stderr,
    )


def _acks(options: Parsed, settings: Mapping[str, str]) -> int:
    given = options.has("request-required-acks") or "acks" not in settings
    text = options.text("request-required-acks") if given else settings["acks"]
    if text not in ACKS:
        raise ToolError(
            f"Invalid value {text} for configuration acks: String must be one of: all, -1, 0, 1"
        )
    return ACKS[text]


def _codec(options: Parsed) -> int:
    if not options.has("compression-codec"):
        return 0
    name = options.value("compression-codec") or "gzip"
    if name not in CODECS:
        raise ToolError(f"Unknown compression name: {name}")
    return CODECS.index(name)


def _chunks() -> Iterator[list[bytes]]:
    """Lines of standard input, as many at once as there are. A prompt is shown to people."""
    at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    rest = b""
    while True:
        if at_terminal:
            print(">", end="", flush=True)
        data = os.read(sys.stdin.fileno(), CHUNK_BYTES)
        if not data:
            if rest:
                yield [rest]
            return
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]


def _by_partition(records: list[Record], count: int) -> dict[int, list[Record]]:
    """By key as Java's producer does; those without a key go to one partition, another one each time."""
    sticky = random.randrange(count)
    groups: dict[int, list[Record]] = {}
    for record in records:
        number = sticky if record.key is None else partition_for(record.key, count)
        groups.setdefault(number, []).append(record)
    return groups


class LineReader:
    """Kafka's LineMessageReader: headers, key and value of a line."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        def is_set(name: str) -> bool:
            return settings.get(name, "false").strip().lower() == "true"

        self._parse_key = is_set("parse.key")
        self._parse_headers = is_set("parse.headers")
        self._ignore_error = is_set("ignore.error")
        self._key_separator = settings.get("key.separator", "\t")
        self._delimiter = settings.get("headers.delimiter", "\t")
        self._separator = settings.get("headers.separator", ",")
        self._header_separator = settings.get("headers.key.separator", ":")
        self._null = settings.get("null.marker")
        self._number = 0
        self._check()

    def _check(self) -> None:
        parts = {
            "headers.delimiter": self._delimiter,
            "headers.separator": self._separator,
            "headers.key.separator": self._header_separator,
        }
        names = list(parts)
        for position, name in enumerate(names):
            for other in names[position + 1 :]:
                if parts[name] == parts[other]:
                    raise ToolError(f"{name} and {other} may not be equal")
        for name, text in {"key.separator": self._key_separator, **parts}.items():
            if text == self._null:
                raise ToolError(f"null.marker and {name} may not be equal")

    def record(self, raw: bytes) -> Record:
        """ToolError if a part that must be there is not."""
        self._number += 1
        line = raw.decode("utf-8", "replace")
        headers, rest = self._split(
            self._parse_headers, line, line, self._delimiter, "headers delimiter"
        )
        key, value = self._split(self._parse_key, line, rest, self._key_separator, "key separator")
        return Record(
            0,
            int(time.time() * 1000),
            self._bytes(key),
            self._bytes(value),
            () if headers is None or headers == self._null else tuple(self._headers(headers)),
        )

    def _split(
        self, enabled: bool, line: str, text: str, mark: str, name: str
    ) -> tuple[str | None, str]:
        if not enabled:
            return None, text
        first, found, rest = text.partition(mark)
        if not found:
            if self._ignore_error:
                return None, text
            raise ToolError(f"No {name} found on line number {self._number}: '{line}'")
        return first, rest

    def _bytes(self, text: str | None) -> bytes | None:
        return None if text is None or text == self._null else text.encode()

    def _headers(self, text: str) -> Iterator[tuple[str, bytes | None]]:
        for pair in re.split(self._separator, text):
            name, found, value = pair.partition(self._header_separator)
            if not found and not self._ignore_error:
                raise ToolError(
                    f"No header key separator found in pair '{pair}' on line number {self._number}"
                )
            if found and name == self._null:
                raise ToolError(
                    f"Header keys should not be equal to the null marker '{self._null}' as they can't"
                    " be null"
                )
            yield name, self._bytes(value) if found else None
