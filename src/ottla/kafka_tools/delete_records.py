"""kafka-delete-records: move the start of logs, from a JSON file."""

from __future__ import annotations

import json

from ottla.client.admin import Place
from ottla.kafka_tools.ending import ended
from ottla.kafka_tools.java import exception_text, place_text, places_in_order
from ottla.kafka_tools.options import BOOTSTRAP, COMMAND_CONFIG, Option, OptionParser, ToolError
from ottla.kafka_tools.session import ToolSession, properties, with_cluster
from ottla.wire.errors import KafkaError

FORMAT_VERSION = 1
PARSER = OptionParser(
    "This tool helps to delete records of the given partitions down to the specified offset.",
    [
        BOOTSTRAP,
        Option("offset-json-file", "REQUIRED: The offsets of each partition.", "file"),
        COMMAND_CONFIG,
    ],
)


def main(words: list[str]) -> int:
    return ended(lambda: _main(words))


def _main(words: list[str]) -> int:
    options = PARSER.parse(words)
    PARSER.require(options, "bootstrap-server", "offset-json-file")
    offsets = _offsets(options.text("offset-json-file"))

    async def work(session: ToolSession) -> int:
        print("Executing records delete operation")
        found = await session.admin.delete_records(offsets)
        print("Records delete operation completed:")
        for place in sorted(found):  # Kafka's tool prints them in another order each time
            outcome = found[place]
            if isinstance(outcome, KafkaError):
                print(f"partition: {place_text(place)}\terror: {exception_text(outcome)}")
            else:
                print(f"partition: {place_text(place)}\tlow_watermark: {outcome}")
        return 0

    settings = properties(options.value("command-config"))
    return with_cluster(options.text("bootstrap-server"), settings, "delete-records", work)


def _offsets(path: str) -> dict[Place, int]:
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        version = int(data.get("version", FORMAT_VERSION))
        if version != FORMAT_VERSION:
            raise ToolError(f"Not supported version field value {version}")
        if "partitions" not in data:
            raise ToolError("Missing partitions field")
        rows = [
            ((str(each["topic"]), int(each["partition"])), int(each["offset"]))
            for each in data["partitions"]
        ]
    except (ValueError, AttributeError, TypeError, KeyError):
        raise ToolError("The input string is not a valid JSON") from None
    places = [place for place, _ in rows]
    twice = places_in_order(place for place in places if places.count(place) > 1)
    if twice:
        raise ToolError(
            f"Offset json file contains duplicate topic partitions: {','.join(map(place_text, twice))}"
        )
    return dict(rows)
