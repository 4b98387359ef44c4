"""A console that is open all day does not grow: some hours of a lively cluster, as fast as the model takes them.

After three hours the rings are full, also of topics that went, and what is bounded by a number has a smaller one here; so the
fourth hour may add nothing. Time is given, none passes.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator

import pytest

from ottla.client.group_admin import ListedGroup
from ottla.client.group_lag import PartitionLag
from ottla.console.model import happenings, tables
from ottla.console.model.cluster_model import ClusterModel, Selection
from ottla.console.model.flow import FlowCounters
from ottla.console.model.rows import EventRow
from ottla.console.model.tables import NOTHING
from unit.console.test_model_structure import NOW, a_model, a_topic

HOUR_S, STEP_S = 3600, 5
PARTITIONS = 5
GROWTH_MAX = 1.01


def a_lively_cluster() -> Iterator[tuple[ClusterModel, int]]:
    """A step of some seconds for each item: topics and groups that come and go, elections, ISRs that shrink and grow."""
    model = a_model(a_topic(partitions=PARTITIONS))
    step = 0
    while True:
        step += 1
        now_ms = NOW + step * STEP_S * 1000
        passing = [a_topic(f"run-{step // 5 + each}", id=10 + step // 5 + each) for each in (0, 1)]
        topics = [a_topic(partitions=PARTITIONS, epoch=5 + step), *passing]
        model.structure.all_topics(topics, model.version, now_ms)
        for broker in (1, 2, 3):
            counters = FlowCounters(step * 100, step * 10_000, step * 9_000)
            model.flow.counters(broker, now_ms, counters)
            model.flow.topic_counters(broker, now_ms, {each.name: counters for each in topics})
        ends = {(each.name, 0): step * 10 for each in topics}
        model.flow.offsets_told(now_ms, ends, dict.fromkeys(ends, 0))
        model.flow.sum_topics({each.name: len(each.partitions) for each in topics})
        groups = [f"group-{step // 7 + each}" for each in (0, 1)]
        model.consumers.listed(ListedGroup(id, "Stable", "classic", "consumer", 1) for id in groups)
        for id in groups:
            lag = PartitionLag("orders", 0, step, 0, step * 10, now_ms - 5_000)
            model.consumers.lag_told(id, [lag], now_ms)
        fields = {"previous_isr": [1, 2, 3], "isr": [1, 2], "leader": 1, "leader_epoch": 5 + step}
        place = f"orders-{step % PARTITIONS}"
        about = f"partition:{place}"
        model.event(EventRow(str(step), now_ms, "isr_shrunk", 1, 1, about, place, "slow", "", fields))  # fmt: skip
        model.settle(now_ms)
        yield model, now_ms


def test_the_fourth_hour_makes_the_model_no_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(happenings, "EVENTS_MAX", 500)
    monkeypatch.setattr(tables, "REMOVALS_MAX", 100)
    steps = a_lively_cluster()
    everything = [Selection(name) for name in next(steps)[0].tables]
    sizes = []
    tracemalloc.start()
    try:
        seen = NOTHING
        for _ in range(4):
            for _ in range(HOUR_S // STEP_S):
                model, _ = next(steps)
                model.news(everything, seen)
                seen = model.version
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert sizes[3] < sizes[2] * GROWTH_MAX, sizes
