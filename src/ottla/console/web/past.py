"""What happened, and the cluster as it was: the event log, searched and undone."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ottla.console.model.cluster_model import ClusterModel, problems_of
from ottla.console.model.flow import CLUSTER
from ottla.console.model.rows import BrokerRow, EventRow, PartitionRow, place_text
from ottla.console.watch.events import read_events
from ottla.console.web.answers import (
    json_response,
    number_of,
    text_response,
    viewer_of,
)
from ottla.console.web.viewer import Viewer
from ottla.event_log.kinds import KINDS
from ottla.event_log.search import concerns, topic_of
from ottla.wire.types import TopicPartition

EVENTS_MAX = 200_000
"""Entries that are read to go back in time: an hour of storms, or months of peace."""
ANSWERED_MAX = 5_000
DAY_MS = 86_400_000


MISSING = (
    "There is no event log, so the past is not known: clusters of ottla keep one (a new cluster after some seconds), Apache"
    " Kafka keeps none; or you may not read it."
)


async def events(request: Request) -> Response:
    """Entries of a time (`from`, `until`), newest first; only of a topic, partition, broker, group or of some kinds."""
    viewer = viewer_of(request)
    until_ms = number_of(request, "until", viewer.clock.wall_ms() + 1)
    from_ms = number_of(request, "from", max(0, until_ms - DAY_MS))
    limit = number_of(request, "limit", 1000, least=1, most=ANSWERED_MAX)
    wanted = _filter(request)
    if not _has_event_log(viewer.watch.model):
        return json_response({"events": [], "left_out": 0, "complete": True, "missing": MISSING})
    newest: deque[EventRow] = deque(maxlen=limit)
    left_out, dropped = 0, False

    def take(event: EventRow) -> None:
        nonlocal left_out, dropped
        dropped = dropped or _is_gap(event)
        if wanted(event):
            left_out += len(newest) == limit
            newest.append(event)

    is_all = await _read(viewer, from_ms, until_ms, take)
    return json_response(
        {
            "events": [each._asdict() for each in reversed(newest)],
            "left_out": left_out,
            "complete": is_all and not dropped,
            "dropped": dropped,
        }
    )


async def kinds(request: Request) -> Response:
    return json_response({name: kind.meaning for name, kind in KINDS.items()})


async def past(request: Request) -> Response:
    """Leaders, ISRs, brokers and what was wrong, as they were `at` a time; as tables of the stream are."""
    viewer = viewer_of(request)
    model = viewer.watch.model
    now_ms = viewer.clock.wall_ms()
    at_ms = number_of(request, "at", most=now_ms + 1000)
    if not _has_event_log(model):
        return json_response({"at": at_ms, "missing": MISSING})
    found: list[EventRow] = []
    is_all = await _read(viewer, at_ms - DAY_MS // 24, now_ms + 1000, found.append)
    then = model.past(found, at_ms)
    dropped = any(_is_gap(each) for each in found if each.at_ms >= at_ms)
    tables: dict[str, Any] = {
        "partitions": {place_text(place): row._asdict() for place, row in then.partitions.items()},
        "brokers": {
            str(id): _broker(then.partitions.values(), row) for id, row in then.brokers.items()
        },
        "problems": {each.id: each._asdict() for each in problems_of(then)},
        "quorum": {CLUSTER: {"leader": then.controller}},
    }
    text = ",".join(
        f'"{name}":{{"whole":true,"new":{json.dumps(rows)}}}' for name, rows in tables.items()
    )
    return text_response(
        f'{{"at":{at_ms},"complete":{json.dumps(is_all and not dropped)},"dropped":{json.dumps(dropped)},"news":{{"version":-1,"tables":{{{text}}}}}}}'
    )


def _broker(partitions: Collection[PartitionRow], row: BrokerRow) -> dict[str, Any]:
    held = [each for each in partitions if row.id in each.replicas]
    return {
        **row._asdict(),
        "leaders": sum(each.leader == row.id for each in held),
        "replicas": len(held),
        "out_of_sync": sum(row.id not in each.isr for each in held),
    }


def _is_gap(event: EventRow) -> bool:
    """Whether a node had more to tell than it could write down."""
    return event.kind == "events_dropped"


def _has_event_log(model: ClusterModel) -> bool:
    return bool(model.cluster[CLUSTER].has_event_log)


async def _read(
    viewer: Viewer, from_ms: int, until_ms: int, take: Callable[[EventRow], None]
) -> bool:
    """From memory as far as it goes, else from the log. Returns whether these are all."""
    happenings = viewer.watch.model.happenings
    known = happenings.known_since_ms
    if known is None or from_ms < known:
        async with viewer.past:
            return await read_events(viewer.client, max(0, from_ms), until_ms, EVENTS_MAX, take)
    for event in happenings.events:
        if from_ms <= event.at_ms < until_ms:
            take(event)
    return True


def _filter(request: Request) -> Callable[[EventRow], bool]:
    query = request.query_params
    topic, partition, group = query.get("topic"), query.get("partition"), query.get("group")
    broker = None if "broker" not in query else number_of(request, "broker")
    chosen = {each for each in query.get("kind", "").split(",") if each}

    def wanted(event: EventRow) -> bool:
        place = None if event.place is None else TopicPartition(*event.place)
        return (
            (not chosen or event.kind in chosen)
            and (topic is None or topic == topic_of(event.about, place))
            and (partition is None or (place is not None and str(place.partition) == partition))
            and (group is None or event.about == f"group:{group}")
            and (
                broker is None
                or concerns(broker, event.kind, event.node, event.about, event.fields)
            )
        )

    return wanted
