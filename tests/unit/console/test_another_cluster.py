"""Another cluster may be at the addresses of the one before: after a purge, or behind a name that moved."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from ottla.client.model import ClusterDescription
from ottla.console.model.cluster_model import ClusterModel, Selection
from ottla.console.model.structure import THE
from ottla.console.model.tables import replay
from ottla.console.watch.cluster_watch import ClusterWatch
from unit.console.test_model_structure import a_topic, an_event
from unit.console.test_visits import SetClock, connect

TABLES = [Selection("topics"), Selection("newest"), Selection("cluster")]


def shown(state: dict[str, Any], model: ClusterModel) -> dict[str, Any]:
    """What a page that stays open has after the news."""
    return replay(state, json.loads(model.news(TABLES, state.get("version", -1))))


def test_nothing_of_the_one_before_is_left() -> None:
    answers = ClusterDescription("first", 1, ())

    async def describe() -> ClusterDescription:
        return answers

    async def watch() -> None:
        nonlocal answers
        watching = ClusterWatch(connect, SetClock())
        watching.client.describe_cluster = describe  # type: ignore[method-assign]
        async with watching:
            first = watching.model
            while first.cluster[THE].cluster_id != "first":
                await watching.changed(watching.settled)
            first.structure.all_topics([a_topic()], first.version, 0)
            first.event(an_event("rebalance", None))
            page = shown({}, first)
            assert page["tables"]["topics"]
            assert page["tables"]["newest"]

            answers = ClusterDescription("second", 1, ())
            watching.hurry("cluster")
            while watching.model.cluster[THE].cluster_id != "second":
                await watching.changed(watching.settled)
            page = shown(page, watching.model)
            assert page["tables"]["topics"] == page["tables"]["newest"] == {}
            assert page["tables"]["cluster"][THE]["cluster_id"] == "second"

    asyncio.run(asyncio.wait_for(watch(), 20))
