"""The replicas of one partition, asked once: for a square that somebody points at."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from ottla.client.model import ReplicaOffsets
from ottla.console.model.rows import BrokerStanding
from ottla.console.web.answers import AnswerRefused, json_response, number_of, text_of, viewer_of


async def replicas(request: Request) -> Response:
    """What each replica says of its own log."""
    topic, number = text_of(request, "topic"), number_of(request, "partition")
    viewer = viewer_of(request)
    model, client = viewer.watch.model, viewer.client
    row = model.partitions.get((topic, number))
    if row is None:
        raise AnswerRefused(404, f"There is no partition {topic}-{number}.")
    described = await client.topic(topic)

    async def ask(broker: int) -> ReplicaOffsets | None:
        known = model.brokers.get(broker)
        if known is None or known.standing is not BrokerStanding.UP:
            return None
        return (await client.replica_offsets(described, broker, [number])).get(number)

    found = dict(zip(row.replicas, await asyncio.gather(*map(ask, row.replicas)), strict=True))
    of_leader = found.get(row.leader)
    return json_response(
        [
            {
                "broker": broker,
                "role": "leader" if broker == row.leader else "ISR" if broker in row.isr else "",
                "start": None if told is None else told.log_start,
                "end": None if told is None else told.log_end,
                "high_watermark": None if told is None else told.high_watermark,
                "lag": None
                if told is None or of_leader is None
                else max(0, of_leader.log_end - told.log_end),
            }
            for broker, told in found.items()
        ]
    )
