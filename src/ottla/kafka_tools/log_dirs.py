"""kafka-log-dirs: which replicas lie in which directories, as one line of JSON."""

from __future__ import annotations

import json
from typing import Any

from ottla.client.admin import LogDir
from ottla.kafka_tools.ending import ended
from ottla.kafka_tools.java import exception_name, names_in_order, place_text, places_in_order
from ottla.kafka_tools.options import (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Option,
    OptionParser,
    ToolError,
    number_of,
)
from ottla.kafka_tools.session import ToolSession, properties, with_cluster

PARSER = OptionParser(
    "This tool helps to query log directory usage on the specified brokers.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Option("describe", "Describe the log directories of the brokers."),
        Option("topic-list", "The topics to be queried.", "topic1,topic2", default=""),
        Option("broker-list", "The brokers to be queried.", "0,1,2", default=""),
    ],
)


def main(words: list[str]) -> int:
    return ended(lambda: _main(words))


def _main(words: list[str]) -> int:
    options = PARSER.parse(words)
    PARSER.require(options, "bootstrap-server", "describe")
    topics = {name for name in options.text("topic-list").split(",") if name}
    asked = {
        number_of("broker-list", text) for text in options.text("broker-list").split(",") if text
    }

    async def work(session: ToolSession) -> int:
        known = {broker.id for broker in (await session.client.metadata([])).brokers}
        if asked - known:
            raise ToolError(
                f"ERROR: The given brokers do not exist from --broker-list: {_ids(asked - known)}."
                f" Current existent brokers: {_ids(known)}"
            )
        brokers = asked or known
        print("Querying brokers for log directories information")
        found = {broker: await session.admin.log_dirs(broker) for broker in sorted(brokers)}
        print(f"Received log directory information from brokers {_ids(brokers)}")
        rows = [
            {"broker": broker, "logDirs": [_directory(each, topics) for each in directories]}
            for broker, directories in found.items()
        ]
        print(json_text({"brokers": rows, "version": 1}))
        return 0

    settings = properties(options.value("command-config"))
    return with_cluster(options.text("bootstrap-server"), settings, "log-dirs-tool", work)


def _ids(brokers: set[int]) -> str:
    return ",".join(map(str, sorted(brokers)))


def _directory(directory: LogDir, topics: set[str]) -> dict[str, Any]:
    by_place = {
        each.place: each for each in directory.replicas if not topics or each.place[0] in topics
    }
    replicas = [by_place[place] for place in places_in_order(by_place)]
    error = directory.error
    return {
        "partitions": [
            {
                "partition": place_text(each.place),
                "size": each.size,
                "offsetLag": each.lag,
                "isFuture": each.future,
            }
            for each in replicas
        ],
        "error": None if error is None else exception_name(error.code),
        "logDir": directory.path,
    }


def json_text(value: Any) -> str:
    """Without blanks, the names of each object in the order of a HashMap."""
    return json.dumps(_ordered(value), separators=(",", ":"), ensure_ascii=False)


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _ordered(value[name]) for name in names_in_order(value)}
    if isinstance(value, list):
        return [_ordered(each) for each in value]
    return value
