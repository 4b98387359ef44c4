"""kafka-topics: create, delete, list, describe topics, and add partitions."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import NamedTuple

from ottla.client.admin import (
    PARTITIONS_PER_ANSWER,
    TOPIC,
    ConfigEntry,
    DescribedPartition,
    DescribedTopic,
)
from ottla.client.model import Reassignment
from ottla.kafka_tools.ending import ended, said
from ottla.kafka_tools.filters import include_filter
from ottla.kafka_tools.java import exception_text, names_in_order, uuid_of, uuid_text
from ottla.kafka_tools.options import (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Option,
    OptionParser,
    Parsed,
    ToolError,
    number_of,
)
from ottla.kafka_tools.session import ToolSession, properties, with_cluster
from ottla.wire.errors import ErrorCode, KafkaError

ACTIONS = ("create", "list", "alter", "describe", "delete")
REPORTS = (
    "under-replicated-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
    "unavailable-partitions",
)
FACTOR_MAX = 32767
DEFAULT_SOURCE = 5
COLLISION = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide."
    " To avoid issues it is best to use either, but not both."
)
PARSER = OptionParser(
    "This tool helps to create, delete, describe, or change a topic.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Option("list", "List all available topics."),
        Option("create", "Create a new topic."),
        Option("delete", "Delete a topic."),
        Option("alter", "Alter the number of partitions and replica assignment."),
        Option("describe", "List details for the given topics."),
        Option("topic", "The topic, or a regular expression except with --create.", "topic"),
        Option("topic-id", "The topic-id to describe.", "topic-id"),
        Option("config", "A topic configuration override for a new topic.", "name=value"),
        Option("delete-config", "No longer supported.", "name"),
        Option("partitions", "The number of partitions.", "# of partitions"),
        Option("replication-factor", "The replication factor of a new topic.", "factor"),
        Option("replica-assignment", "Brokers of each partition: 1:2,2:3", "assignment"),
        Option(REPORTS[0], "Describe only under-replicated partitions."),
        Option(REPORTS[3], "Describe only partitions without an available leader."),
        Option(REPORTS[1], "Describe only partitions with fewer in-sync replicas than configured."),
        Option(REPORTS[2], "Describe only partitions with as many in-sync replicas as configured."),
        Option("topics-with-overrides", "Describe only topics with overridden configs."),
        Option("if-exists", "Only execute if the topic exists."),
        Option("if-not-exists", "Do not fail if the topic already exists."),
        Option("exclude-internal", "Exclude internal topics."),
        Option(
            "partition-size-limit-per-response",
            "The maximum number of partitions in one DescribeTopicPartitions response.",
            "number",
        ),
    ],
)


def main(words: list[str]) -> int:
    return ended(lambda: _main(words))


def _main(words: list[str]) -> int:
    options = PARSER.parse(words)
    _check(options)
    settings = properties(options.value("command-config"))

    async def work(session: ToolSession) -> int:
        try:
            await _execute(session, options)
        except Exception as error:
            text = said(error)
            if text is None:
                raise
            print(f"Error while executing topic command : {text}")
            if isinstance(error, KafkaError):
                print(f"ERROR {exception_text(error)}", file=sys.stderr)
            return 1
        return 0

    return with_cluster(options.text("bootstrap-server"), settings, "kafka-topics", work)


def _check(options: Parsed) -> None:
    if sum(options.has(action) for action in ACTIONS) != 1:
        PARSER.usage(
            "Command must include exactly one action: --list, --describe, --create, --alter or --delete"
        )
    if options.has("delete-config"):
        print(
            "delete-config option is no longer supported and deprecated since version 4.0."
            " The config will be fully removed in future releases.",
            file=sys.stderr,
        )
    if not options.has("bootstrap-server"):
        raise ToolError("--bootstrap-server must be specified")
    if options.has("describe") and options.has("if-exists"):
        if not options.has("topic") and not options.has("topic-id"):
            PARSER.usage("--topic or --topic-id is required to describe a topic")
        if options.has("topic") and options.has("topic-id"):
            print(
                "Only topic id will be used when both --topic and --topic-id are specified"
                " and topicId is not Uuid.ZERO_UUID"
            )
    if not options.has("list") and not options.has("describe"):
        PARSER.require(options, "topic")
    if options.has("alter"):
        if options.has("config"):
            PARSER.usage(
                'Option combination "[bootstrap-server],[config]" can\'t be used with option "[alter]"'
                " (To alter topic configurations, the kafka-configs tool can be used.)"
            )
        PARSER.require(options, "partitions")
    _only_with(options, "config", "alter", "create")
    _only_with(options, "partitions", "alter", "create")
    _only_with(options, "replication-factor", "create")
    _only_with(options, "replica-assignment", "alter", "create")
    if options.has("create"):
        PARSER.forbid(options, "replica-assignment", "partitions", "replication-factor")
    for report in REPORTS:
        _only_with(options, report, "describe")
        PARSER.forbid(options, report, "topics-with-overrides")
    _only_with(options, "topics-with-overrides", "describe")
    _only_with(options, "if-exists", "alter", "delete", "describe")
    _only_with(options, "if-not-exists", "create")
    _only_with(options, "exclude-internal", "list", "describe")


def _only_with(options: Parsed, name: str, *actions: str) -> None:
    PARSER.forbid(options, name, *(action for action in ACTIONS if action not in actions))


async def _execute(session: ToolSession, options: Parsed) -> None:
    if options.has("create"):
        await _create(session, options)
    elif options.has("alter"):
        await _alter(session, options)
    elif options.has("list"):
        print("\n".join(await _names(session, options)))
    elif options.has("describe"):
        await _describe(session, options)
    else:
        names = await _existing(session, options)
        if names:
            await session.admin.delete_topics(names)


async def _names(session: ToolSession, options: Parsed) -> list[str]:
    """Those that --topic, a regular expression, allows; sorted."""
    skip_internal = options.has("exclude-internal")
    wanted = options.value("topic")
    allows = (lambda name: True) if wanted is None else include_filter(wanted)
    return sorted(
        topic.name
        for topic in await session.admin.list_topics()
        if allows(topic.name) and not (skip_internal and topic.internal)
    )


async def _existing(session: ToolSession, options: Parsed) -> list[str]:
    names = await _names(session, options)
    wanted = options.value("topic")
    if wanted and not names and not options.has("if-exists"):
        raise ToolError(f"Topic '{wanted}' does not exist as expected")
    return names


async def _create(session: ToolSession, options: Parsed) -> None:
    name = options.text("topic")
    configs = _configs(options.values("config"))
    partitions, factor = options.number("partitions"), options.number("replication-factor")
    assignment = options.value("replica-assignment")
    brokers = _assignment(assignment) if assignment else []
    if "." in name or "_" in name:
        print(COLLISION)
    if factor is not None and not 1 <= factor <= FACTOR_MAX:
        raise ToolError(f"The replication factor must be between 1 and {FACTOR_MAX} inclusive")
    if partitions is not None and partitions < 1:
        raise ToolError("The partitions must be greater than 0")
    try:
        await session.admin.create_topic(
            name,
            -1 if partitions is None else partitions,
            -1 if factor is None else factor,
            brokers,
            configs,
        )
    except KafkaError as error:
        if error.code is ErrorCode.TOPIC_ALREADY_EXISTS and options.has("if-not-exists"):
            return
        raise
    print(f"Created topic {name}.")


def _configs(given: Sequence[str]) -> dict[str, str]:
    pairs = [re.split(r"\s*=\s*", text) for text in given]
    if not all(len(pair) == 2 for pair in pairs):
        raise ToolError(
            "requirement failed: Invalid topic config: all configs to be added must be in the format"
            ' "key=val".'
        )
    return {name.strip(): value.strip() for name, value in pairs}


def _assignment(text: str) -> list[list[int]]:
    """`1:2,2:3`: the brokers of each partition."""
    found: list[list[int]] = []
    for number, part in enumerate(text.split(",")):
        brokers = [number_of("replica-assignment", each.strip()) for each in part.split(":")]
        twice = sorted({broker for broker in brokers if brokers.count(broker) > 1})
        if twice:
            raise ToolError(
                "Partition replica lists may not contain duplicate entries: "
                + ",".join(map(str, twice))
            )
        found.append(brokers)
        if len(brokers) != len(found[0]):
            raise ToolError(f"Partition {number} has different replication factor: {brokers}")
    return found


async def _alter(session: ToolSession, options: Parsed) -> None:
    count = options.number("partitions")
    assert count is not None, "it is required"
    assignment = options.value("replica-assignment")
    brokers = _assignment(assignment) if assignment else None
    names = await _existing(session, options)
    topics = await session.admin.describe_topics(names)
    counts: dict[str, tuple[int, Sequence[Sequence[int]] | None]] = {}
    for name in names:
        topic = topics[name]
        if isinstance(topic, KafkaError):
            raise topic
        counts[name] = (count, None if brokers is None else brokers[len(topic.partitions) :])
    if counts:
        await session.admin.create_partitions(counts)


class _Row(NamedTuple):
    """A partition and what else its line needs."""

    topic: str
    partition: DescribedPartition
    min_isr: int
    reassignment: Reassignment | None

    @property
    def factor(self) -> int:
        """Without the replicas that a reassignment adds."""
        change = self.reassignment
        if change is not None and set(self.partition.replicas) & {*change.adding, *change.removing}:
            return len(change.replicas) - len(change.adding)
        return len(self.partition.replicas)

    def line(self) -> str:
        partition, change = self.partition, self.reassignment
        leader = "none" if partition.leader < 0 else str(partition.leader)
        cells = [
            f"\tTopic: {self.topic}",
            f"Partition: {partition.partition}",
            f"Leader: {leader}",
            f"Replicas: {_ids(partition.replicas)}",
            f"Isr: {_ids(partition.isr)}",
        ]
        if change is not None:
            cells.append(f"Adding Replicas: {_ids(change.adding)}")
            cells.append(f"Removing Replicas: {_ids(change.removing)}")
        cells.append(f"Elr: {'N/A' if partition.elr is None else _ids(partition.elr)}")
        last = partition.last_known_elr
        cells.append(f"LastKnownElr: {'N/A' if last is None else _ids(last)}")
        return "\t".join(cells)


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


async def _describe(session: ToolSession, options: Parsed) -> None:
    names = await _chosen(session, options)
    limit = options.number("partition-size-limit-per-response") or PARTITIONS_PER_ANSWER
    found = await session.admin.describe_topics(names, limit)
    configs = await session.admin.describe_configs([(TOPIC, name) for name in names])
    live = {broker.id for broker in (await session.client.metadata([])).brokers}
    moving = {(each.topic, each.partition): each for each in await session.client.reassignments()}
    for name in names_in_order(names):
        topic = found[name]
        if isinstance(topic, KafkaError):
            raise topic
        entries = configs[TOPIC, name]
        min_isr = next(int(e.value or 1) for e in entries if e.name == "min.insync.replicas")
        rows = [
            _Row(name, partition, min_isr, moving.get((name, partition.partition)))
            for partition in sorted(topic.partitions)
        ]
        _print_topic(options, topic, rows, entries)
        if not options.has("topics-with-overrides"):
            for row in rows:
                if _is_wanted(options, row, live):
                    print(row.line())


async def _chosen(session: ToolSession, options: Parsed) -> list[str]:
    text = options.value("topic-id")
    if text is not None:
        try:
            id = uuid_of(text)
        except ValueError as error:
            raise ToolError(str(error)) from None
        if id.int:
            topics = await session.admin.list_topics()
            names = [topic.name for topic in topics if topic.id == id]
            if not names and not options.has("if-exists"):
                raise ToolError(f"TopicId '{text}' does not exist as expected")
            return names
    return await _existing(session, options)


def _print_topic(
    options: Parsed, topic: DescribedTopic, rows: Sequence[_Row], entries: Sequence[ConfigEntry]
) -> None:
    if any(options.has(report) for report in REPORTS):
        return
    # Kafka's tool takes for overridden whatever is not a default, also settings of the broker.
    own = {entry.name: entry.value for entry in entries if entry.source != DEFAULT_SOURCE}
    if options.has("topics-with-overrides") and not own:
        return
    every = names_in_order(entry.name for entry in entries)
    shown = ",".join(f"{name}={own[name]}" for name in every if name in own)
    id = f"\tTopicId: {uuid_text(topic.id)}" if topic.id is not None else ""
    print(
        f"Topic: {topic.name}{id}\tPartitionCount: {len(rows)}"
        f"\tReplicationFactor: {rows[0].factor}\tConfigs: {shown}"
    )


def _is_wanted(options: Parsed, row: _Row, live: set[int]) -> bool:
    partition = row.partition
    asked = {
        REPORTS[0]: row.factor > len(partition.isr),
        REPORTS[1]: partition.leader < 0 or len(partition.isr) < row.min_isr,
        REPORTS[2]: len(partition.isr) == row.min_isr,
        REPORTS[3]: partition.leader not in live,
    }
    given = [matches for report, matches in asked.items() if options.has(report)]
    return any(given) if given else True
