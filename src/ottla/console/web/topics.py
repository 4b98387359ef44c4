"""What people ask and do about topics: their settings and what each means, who writes them, making, changing, deleting them."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from ottla.client.admin import TOPIC, Admin
from ottla.client.cluster_admin import ClusterAdmin
from ottla.config.topic_settings import TOPIC_SETTINGS
from ottla.console.web.answers import (
    INT16,
    INT32,
    INT64,
    AnswerRefused,
    fields_of,
    json_response,
    text_of,
    viewer_of,
)
from ottla.wire.errors import KafkaError

SOURCES: Final = {
    1: "this topic",
    2: "this broker",
    3: "all brokers",
    4: "the broker's file",
    5: "default",
}
"""Kafka's numbers for where a setting comes from."""
PRODUCERS_MAX = 200


async def settings(request: Request) -> Response:
    """All settings of a topic, where each comes from and what it means."""
    topic = text_of(request, "topic")
    admin = Admin(viewer_of(request).client)
    found = (await admin.describe_configs([(TOPIC, topic)], synonyms=True))[TOPIC, topic]
    return json_response(
        [
            {
                "name": each.name,
                "value": None if each.sensitive else each.value,
                "source": SOURCES.get(each.source, "elsewhere"),
                "own": each.source == 1,
                "synonyms": [
                    {"name": name, "value": value, "source": SOURCES.get(source, "elsewhere")}
                    for name, value, source in each.synonyms
                ],
                **_meaning(each.name),
            }
            for each in sorted(found)
        ]
    )


async def known_settings(request: Request) -> Response:
    """Those that a new topic may have."""
    return json_response([{"name": name, **_meaning(name)} for name in sorted(TOPIC_SETTINGS)])


def _meaning(name: str) -> dict[str, Any]:
    known = TOPIC_SETTINGS.get(name)
    if known is None:
        return {"doc": "", "default": None, "from": None}
    return {"doc": known.doc, "default": known.default, "from": known.server_name}


async def producers(request: Request) -> Response:
    """Who wrote lately, as far as leaders know: producers that are idempotent or transactional."""
    topic = text_of(request, "topic")
    client = viewer_of(request).client
    described = await client.topic(topic, fresh=True)
    by_leader: dict[int, list[tuple[str, int]]] = {}
    for each in described.partitions:
        if each.leader >= 0:
            by_leader.setdefault(each.leader, []).append((topic, each.partition))
    found: dict[int, dict[str, Any]] = {}
    for leader, places in by_leader.items():
        for place, active in (await ClusterAdmin(client).producers(leader, places)).items():
            for producer in active:
                known = found.setdefault(
                    producer.producer_id,
                    {
                        "producer_id": producer.producer_id,
                        "epoch": producer.producer_epoch,
                        "last_ms": 0,
                        "partitions": [],
                        "open": False,
                    },
                )
                known["partitions"].append(place[1])
                known["last_ms"] = max(known["last_ms"], producer.last_timestamp_ms)
                known["open"] = known["open"] or producer.start_offset >= 0
    newest = sorted(found.values(), key=lambda each: -each["last_ms"])
    return json_response({"producers": newest[:PRODUCERS_MAX], "total": len(newest)})


# Changing


def _words(given: Any, what: str) -> dict[str, str | None]:
    """An object of texts, or nulls."""
    if not isinstance(given, dict) or not all(
        isinstance(name, str) and isinstance(value, str | None) for name, value in given.items()
    ):
        raise AnswerRefused(400, f"{what} is an object of texts.")
    return given


async def create(request: Request) -> Response:
    """-1: the cluster's default. With `validate_only` nothing is made."""
    given = await fields_of(
        request, name=str, partitions=INT32, factor=INT16, configs=dict, validate_only=bool
    )
    viewer = viewer_of(request)
    configs = {n: v for n, v in _words(given["configs"], "configs").items() if v is not None}
    answer = await viewer.client.create_topic(
        given["name"],
        given["partitions"],
        given["factor"],
        configs,
        validate_only=given["validate_only"],
    )
    viewer.watch.hurry("metadata")
    return json_response({"done": not given["validate_only"], "factor": answer.factor})


async def alter(request: Request) -> Response:
    """Set each of these settings; null takes it back to its default."""
    given = await fields_of(request, topic=str, changes=dict, validate_only=bool)
    viewer = viewer_of(request)
    await viewer.client.alter_topic_configs(
        given["topic"], _words(given["changes"], "changes"), validate_only=given["validate_only"]
    )
    return json_response({"done": not given["validate_only"]})


async def add_partitions(request: Request) -> Response:
    given = await fields_of(request, topic=str, count=INT32)
    viewer = viewer_of(request)
    await viewer.client.create_partitions(given["topic"], given["count"])
    viewer.watch.hurry("metadata")
    return json_response({"done": True})


async def delete(request: Request) -> Response:
    given = await fields_of(request, topic=str)
    viewer = viewer_of(request)
    await viewer.client.delete_topic(given["topic"])
    viewer.watch.hurry("metadata")
    return json_response({"done": True})


async def delete_records(request: Request) -> Response:
    """Of one partition, up to an offset; -1: all that is committed."""
    given = await fields_of(request, topic=str, partition=INT32, offset=INT64)
    place = (given["topic"], given["partition"])
    admin = Admin(viewer_of(request).client)
    outcome = (await admin.delete_records({place: given["offset"]}))[place]
    if isinstance(outcome, KafkaError):
        raise outcome
    return json_response({"done": True, "start": outcome})
