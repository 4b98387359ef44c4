"""kafka-leader-election: elect preferred leaders or, where there is none, any live replica."""

from __future__ import annotations

import json

from ottla.client.admin import Outcome, Place
from ottla.client.client import PREFERRED, UNCLEAN
from ottla.kafka_tools.ending import ended
from ottla.kafka_tools.java import exception_text, place_text, places_in_order
from ottla.kafka_tools.options import (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Option,
    OptionParser,
    Parsed,
    ToolError,
)
from ottla.kafka_tools.session import ToolSession, properties, with_cluster
from ottla.wire.errors import ErrorCode

TYPES = {"preferred": PREFERRED, "unclean": UNCLEAN}
SCOPES = ("topic", "all-topic-partitions", "path-to-json-file")
TIMEOUT_MS = 30_000
PARSER = OptionParser(
    "This tool attempts to elect a new leader for a set of topic partitions. The type of elections supported are"
    " preferred replicas and unclean replicas.",
    [
        BOOTSTRAP,
        Option("admin.config", "DEPRECATED: use --command-config.", "file"),
        COMMAND_CONFIG,
        Option(
            "path-to-json-file", 'Partitions: {"partitions": [{"topic":…,"partition":…}]}', "file"
        ),
        Option("topic", "The topic of the election.", "topic name"),
        Option("partition", "The partition of the election.", "partition id"),
        Option("all-topic-partitions", "All eligible partitions."),
        Option("election-type", "REQUIRED: preferred or unclean.", "election type"),
    ],
)


def main(words: list[str]) -> int:
    return ended(lambda: _main(words))


def _main(words: list[str]) -> int:
    options = PARSER.parse(words)
    _check(options)
    name = options.text("election-type").lower()
    if name not in TYPES:
        raise ToolError(
            f"Cannot parse argument '{options.text('election-type')}' of option election-type"
        )
    places = _places(options)
    config = options.value("command-config")
    if options.has("admin.config"):
        print(
            "Option --admin.config has been deprecated and will be removed in a future version."
            " Use --command-config instead."
        )
        config = options.value("admin.config")

    async def work(session: ToolSession) -> int:
        try:
            outcomes = await session.admin.elect_leaders(TYPES[name], places)
        except TimeoutError:
            print("Timeout waiting for election results")
            raise ToolError("Timeout waiting for election results") from None
        _report(name.upper(), outcomes)
        return 0

    bootstrap = options.text("bootstrap-server")
    return with_cluster(bootstrap, properties(config), "leader-election", work, TIMEOUT_MS)


def _check(options: Parsed) -> None:
    missing = [name for name in ("bootstrap-server", "election-type") if not options.has(name)]
    if missing:
        raise ToolError(f"Missing required option(s): {', '.join(missing)}")
    PARSER.forbid(options, "admin.config", "command-config")
    if sum(options.has(scope) for scope in SCOPES) != 1:
        raise ToolError(
            f"One and only one of the following options is required: {', '.join(SCOPES)}"
        )
    if options.has("topic") and not options.has("partition"):
        raise ToolError("Missing required option(s): partition")
    if not options.has("topic") and options.has("partition"):
        raise ToolError("Option partition is only allowed if topic is used")


def _places(options: Parsed) -> list[Place] | None:
    """None: all."""
    path = options.value("path-to-json-file")
    if path is not None:
        return _from_file(path)
    topic, partition = options.value("topic"), options.number("partition")
    return None if topic is None or partition is None else [(topic, partition)]


def _from_file(path: str) -> list[Place]:
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except ValueError:
        raise ToolError("Replica election data is empty") from None
    if not isinstance(data, dict) or "partitions" not in data:
        raise ToolError('Replica election data is missing "partitions" field')
    try:
        places = [(str(each["topic"]), int(each["partition"])) for each in data["partitions"]]
    except (TypeError, KeyError, ValueError) as error:
        raise ToolError(f"Replica election data cannot be read: {error!r}") from None
    twice = places_in_order(place for place in places if places.count(place) > 1)
    if twice:
        shown = ", ".join(map(place_text, twice))
        raise ToolError(f"Replica election data contains duplicate partitions: [{shown}]")
    return places


def _report(kind: str, outcomes: dict[Place, Outcome]) -> None:
    order = places_in_order(outcomes)
    done = [place for place in order if outcomes[place] is None]
    failed = {place: error for place in order if (error := outcomes[place]) is not None}
    noop = [place for place, e in failed.items() if e.code is ErrorCode.ELECTION_NOT_NEEDED]
    if done:
        print(
            f"Successfully completed leader election ({kind}) for partitions"
            f" {', '.join(map(place_text, done))}"
        )
    if noop:
        print(f"Valid replica already elected for partitions {', '.join(map(place_text, noop))}")
    errors = {place: error for place, error in failed.items() if place not in noop}
    for place, error in errors.items():
        print(
            f"Error completing leader election ({kind}) for partition: {place_text(place)}:"
            f" {exception_text(error)}"
        )
    if errors:
        raise ToolError(f"{len(errors)} replica(s) could not be elected")
