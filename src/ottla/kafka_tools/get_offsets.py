"""kafka-get-offsets: the first, last or timed offset of partitions."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

from ottla.client.admin import Place
from ottla.kafka_tools.ending import said
from ottla.kafka_tools.filters import include_filter
from ottla.kafka_tools.java import exception_text, place_text
from ottla.kafka_tools.options import BOOTSTRAP, COMMAND_CONFIG, Option, OptionParser, ToolError
from ottla.kafka_tools.session import ToolSession, properties, with_cluster
from ottla.wire.errors import KafkaError

TIMES = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
ALLOWED = " / ".join(f"{number} or {name}" for name, number in TIMES.items())
RULE = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")
NUMBER_MAX = 2**31 - 1

Filter = Callable[[Place], bool]

PARSER = OptionParser(
    "An interactive shell for getting topic-partition offsets.",
    [
        BOOTSTRAP,
        Option(
            "topic-partitions", "Patterns: topic1:1,topic2:0-3,topic3,topic4:5-,:-3", "patterns"
        ),
        Option("topic", "The topic, or a regular expression; all if not given.", "topic"),
        Option("partitions", "Partition ids, separated by commas.", "partition ids"),
        Option("time", "The time of the offsets.", f"<timestamp> / {ALLOWED}", default="latest"),
        COMMAND_CONFIG,
        Option("exclude-internal-topics", "Exclude internal topics."),
    ],
)


def main(words: list[str]) -> int:
    try:
        return _main(words)
    except Exception as error:
        text = said(error)
        if text is None:
            raise
        print(f"Error occurred: {text}", file=sys.stderr)
        return 1


def _main(words: list[str]) -> int:
    options = PARSER.parse(words)
    PARSER.require(options, "bootstrap-server")
    patterns = options.value("topic-partitions")
    if patterns is not None and (options.has("topic") or options.has("partitions")):
        raise ToolError("--topic-partitions cannot be used with --topic or --partitions")
    time = _time(options.text("time"))
    if patterns is not None:
        allows = _any_rule(patterns)
    else:
        allows = _topic_and_partitions(options.value("topic"), options.value("partitions"))
    skip_internal = options.has("exclude-internal-topics")

    async def work(session: ToolSession) -> int:
        places = [
            (topic.name, each.partition)
            for topic in await session.admin.list_topics()
            if not (skip_internal and topic.internal)
            for each in topic.partitions
            if allows((topic.name, each.partition))
        ]
        if not places:
            raise ToolError("Could not match any topic-partitions with the specified filters")
        found = await session.admin.list_offsets(dict.fromkeys(places, time))
        for place in sorted(places, key=place_text):
            outcome = found[place]
            if isinstance(outcome, KafkaError):
                print(
                    f"Skip getting offsets for topic-partition {place_text(place)}"
                    f" due to error: {exception_text(outcome)}",
                    file=sys.stderr,
                )
            elif outcome.offset >= 0:
                print(f"{place[0]}:{place[1]}:{outcome.offset}")
        return 0

    settings = properties(options.value("command-config"))
    return with_cluster(options.text("bootstrap-server"), settings, "GetOffsetShell", work)


def _time(text: str) -> int:
    if text in TIMES:
        return TIMES[text]
    try:
        return int(text)
    except ValueError:
        raise ToolError(
            f"Malformed time argument {text}. Please use {ALLOWED}, or a specified long format timestamp"
        ) from None


def _topic_and_partitions(topic: str | None, partitions: str | None) -> Filter:
    allows = include_filter(".*" if topic is None else topic)
    try:
        numbers = {int(part) for part in partitions.split(",")} if partitions else None
    except ValueError:
        raise ToolError(
            "--partitions expects a comma separated list of numeric partition ids, but received: "
            f"{partitions}"
        ) from None
    return lambda place: allows(place[0]) and (numbers is None or place[1] in numbers)


def _any_rule(patterns: str) -> Filter:
    rules = [_rule(text) for text in patterns.split(",")]
    return lambda place: any(rule(place) for rule in rules)


def _rule(text: str) -> Filter:
    match = RULE.fullmatch(text)
    if match is None:
        raise ToolError(f"Invalid rule specification: {text}")
    topic, exact, low, high = match.groups()
    allows = include_filter(topic or ".*")
    if exact:
        numbers = range(int(exact), int(exact) + 1)
    else:
        numbers = range(int(low or 0), int(high or NUMBER_MAX))
    return lambda place: allows(place[0]) and place[1] in numbers
