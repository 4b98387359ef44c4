"""All that `top` knows, for programs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.console.model.flow import FlowRates
from ottla.console.model.happenings import ALL
from ottla.console.model.rows import EventRow, TotalsRow
from ottla.console.model.structure import THE
from ottla.console.top.picture import Picture
from ottla.console.top.wrong import worst


def snapshot(picture: Picture) -> dict[str, Any]:
    """Members are named as the model's rows name them. null is what nobody told."""
    model = picture.model
    flow, consumers = model.flow, model.consumers
    quorum = model.quorum.get(THE)
    totals = model.structure.totals.get(THE) or TotalsRow()
    return {
        "at_ms": picture.now_ms,
        "problems": [row._asdict() for row in worst(picture)],
        "cluster": {**model.cluster[THE]._asdict(), **totals._asdict()},
        "rates": flow.now._asdict(),
        "quorum": None if quorum is None else quorum.as_json(),
        "brokers": [
            {
                **model.brokers[id]._asdict(),
                "rates": (flow.of_broker(id) or FlowRates())._asdict(),
                "disk": _members(flow.disks.get(id)),
            }
            for id in sorted(model.brokers)
        ],
        "topics": [
            {**model.topics[name]._asdict(), "held": _members(flow.topic_sizes.get(name))}
            for name in sorted(model.topics)
        ],
        "partitions": [
            {**model.partitions[place]._asdict(), "offsets": _members(flow.offsets.get(place))}
            for place in sorted(model.partitions)
        ],
        "groups": [
            {
                **consumers.groups[id]._asdict(),
                "partitions": [
                    row._asdict()
                    for (group, _), row in sorted(consumers.lags.items())
                    if group == id
                ],
            }
            for id in sorted(consumers.groups)
        ],
        "events": _events(EventRow(*point) for point in model.happenings.newest.points(ALL)),
    }


def _members(row: Any) -> dict[str, Any] | None:
    return None if row is None else row._asdict()


def _events(found: Iterable[EventRow]) -> list[dict[str, Any]]:
    return [row._asdict() for row in found]
