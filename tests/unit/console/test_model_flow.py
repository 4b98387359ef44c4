"""Rates follow from counters and from offsets, and an hour of them is kept, not more."""

from __future__ import annotations

from ottla.console.model.cluster_model import ClusterModel
from ottla.console.model.flow import (
    CLUSTER,
    CLUSTER_STEP_MS,
    HOUR_MS,
    TOPIC_RINGS_MAX,
    TOPIC_STEP_MS,
    FlowCounters,
    FlowRates,
)
from ottla.console.model.rows import EndsRow
from ottla.console.watch.metrics_page import BYTES_IN, RECORDS_IN, read_page
from unit.console.test_model_structure import NOW, a_model, a_topic, an_event

PLACE = ("orders", 0)


def test_a_rate_is_the_difference_of_two_counters() -> None:
    flow = ClusterModel().flow
    flow.counters(1, 1000, FlowCounters(10, 1000, 0))
    assert flow.of_broker(1) is None
    flow.counters(1, 3000, FlowCounters(30, 2000, 500))
    assert flow.of_broker(1) == FlowRates(10.0, 500.0, 250.0)


def test_the_lag_of_a_replica_is_what_it_has_not_copied_from_its_leader() -> None:
    row = EndsRow(((1, 30), (2, 25), (3, None)))
    assert [row.lag(broker, leader=1) for broker in (1, 2, 3, 4)] == [0, 5, None, None]
    assert row.lag(1, leader=3) is None
    assert row.lag(1, leader=2) == 0, "a follower may be asked a moment after its leader"


def test_a_counter_that_went_back_is_of_a_new_process() -> None:
    flow = ClusterModel().flow
    flow.counters(1, 1000, FlowCounters(1000))
    flow.counters(1, 2000, FlowCounters(5))
    assert flow.of_broker(1) is None
    flow.counters(1, 3000, FlowCounters(25))
    assert flow.of_broker(1) == FlowRates(20.0)


def test_a_broker_that_is_down_adds_nothing_to_the_whole() -> None:
    flow = ClusterModel().flow
    for broker in (1, 2):
        flow.told(broker, NOW, FlowRates(None, 100.0, 10.0))
    assert flow.now.bytes_in == 200.0
    flow.without([2])
    assert flow.now.bytes_in == 100.0


def test_nothing_flows_through_a_broker_that_was_fenced() -> None:
    """Its counters were read a moment before: what they told is over."""
    model = a_model(a_topic())
    for broker in (1, 2):
        model.flow.told(broker, NOW, FlowRates(None, 100.0, 10.0))
    model.event(an_event("fenced", None, broker=2, broker_epoch=1))
    model.settle(NOW)
    assert model.flow.of_broker(2) is None
    assert model.flow.now.bytes_in == 100.0


def test_records_come_from_offsets_where_no_broker_counts_them() -> None:
    flow = ClusterModel().flow
    flow.offsets_told(0, {PLACE: 100})
    flow.offsets_told(5000, {PLACE: 150})
    assert flow.offsets[PLACE].rate == 10.0
    assert flow.now.records_in == 10.0


def test_an_offset_that_went_back_begins_anew() -> None:
    flow = ClusterModel().flow
    flow.offsets_told(0, {PLACE: 100})
    flow.offsets_told(5000, {PLACE: 10})
    assert flow.offsets[PLACE].rate is None


def test_bytes_come_from_sizes_where_no_broker_counts_them() -> None:
    flow = ClusterModel().flow
    flow.sizes_told(0, {"orders": 1000})
    flow.sizes_told(10_000, {"orders": 3000})
    assert flow.now.bytes_in == 200.0


def test_an_hour_is_kept() -> None:
    model = ClusterModel()
    for at_ms in range(0, 2 * HOUR_MS, CLUSTER_STEP_MS):
        model.flow.told(1, at_ms, FlowRates(1.0))
        model.flow.step(at_ms)
    points = model.flow.rates.points(CLUSTER)
    assert points[-1][0] - points[0][0] == HOUR_MS - CLUSTER_STEP_MS
    brokers = model.flow.broker_rates.points(1)
    assert HOUR_MS * 0.9 < brokers[-1][0] - brokers[0][0] <= HOUR_MS


def test_only_so_many_topics_have_a_history_and_idle_ones_lose_it() -> None:
    flow = ClusterModel().flow
    names = {f"topic-{number:04}": 1 for number in range(TOPIC_RINGS_MAX + 50)}
    flow.offsets_told(0, {(name, 0): 0 for name in names})
    flow.offsets_told(5000, {(name, 0): 100 for name in names})
    flow.sum_topics(names)
    flow.step(5000)
    assert len(flow.topic_rates) == TOPIC_RINGS_MAX
    flow.offsets_told(60_000, {(name, 0): 100 for name in names})
    flow.offsets_told(80_000, {(name, 0): 100 for name in names})
    flow.sum_topics(names)
    for at_ms in range(80_000, 80_000 + HOUR_MS + 2 * TOPIC_STEP_MS, TOPIC_STEP_MS):
        flow.step(at_ms)
    assert len(flow.topic_rates) == 0


def test_a_topic_is_the_sum_of_its_partitions_and_goes_with_them() -> None:
    flow = ClusterModel().flow
    flow.offsets_told(
        0, {("orders", 0): 10, ("orders", 1): 20}, {("orders", 0): 5, ("orders", 1): 0}
    )
    flow.sum_topics({"orders": 2})
    assert flow.topic_sizes["orders"].records == 25
    flow.sum_topics({})
    assert "orders" not in flow.topic_sizes
    assert not len(flow.offsets)
    assert not flow._looks


def test_a_metrics_page_is_read() -> None:
    text = """{"families": [
        {"name": "%s", "type": "counter", "help": "", "samples": [
            {"name": "x", "labels": {}, "value": 7}, {"name": "x", "labels": {"topic": "orders"}, "value": 5}]},
        {"name": "%s", "type": "counter", "help": "", "samples": [{"name": "x", "labels": {}, "value": 9}]},
        {"name": "other", "type": "gauge", "help": "", "samples": [{"name": "other", "labels": {}, "value": null}]}
    ]}""" % (RECORDS_IN, BYTES_IN)  # noqa: UP031
    found = read_page(text)
    assert found is not None
    assert found.broker == FlowCounters(7, 9)
    assert found.topics == {"orders": FlowCounters(5)}


def test_what_is_no_metrics_page_is_nothing() -> None:
    for text in ("", "[]", "not alive", '{"families": 3}', '{"families": [{}]}'):
        assert read_page(text) is None


def test_rates_of_what_nobody_answers_for_are_dropped() -> None:
    model = a_model(a_topic())
    flow, now_ms = model.flow, NOW

    def on(seconds: int, *, answered: bool) -> None:
        """Answers come every five seconds, as without pages of metrics."""
        nonlocal now_ms
        for _ in range(seconds // 5):
            now_ms += 5000
            if answered:
                flow.offsets_told(now_ms, {PLACE: now_ms // 5})
                flow.sizes_told(now_ms, {"orders": now_ms})
            flow.sum_topics({"orders": 1})
            model.settle(now_ms)

    on(60, answered=True)
    assert flow.now == FlowRates(200.0, 1000.0)
    on(120, answered=False)
    assert flow.now == FlowRates()
    assert flow.rates.newest(CLUSTER) == (now_ms, *FlowRates())
    assert flow.topic_sizes["orders"].records_in is None
    assert flow.topic_sizes["orders"].bytes_in is None
    on(20, answered=True)
    assert flow.now.records_in == 200.0


def test_nothing_flows_in_a_partition_without_a_leader() -> None:
    model = a_model(a_topic())
    for at_ms in (NOW, NOW + 5000):
        model.flow.offsets_told(at_ms, {PLACE: at_ms})
    model.settle(NOW + 5000)
    assert model.flow.now.records_in == 1000.0
    model.event(an_event("offline", "orders-0", previous_leader=1, leader_epoch=6))
    model.settle(NOW + 5100)
    assert model.flow.now.records_in is None
    assert model.flow.offsets[PLACE].end == NOW + 5000


def test_a_broker_whose_counters_are_not_read_any_more_has_no_rate() -> None:
    """It lives; its page of metrics fails."""
    model = a_model(a_topic())
    model.flow.counters(1, NOW, FlowCounters(0, 0, 0))
    model.flow.counters(1, NOW + 2000, FlowCounters(20, 2000, 0))
    model.settle(NOW + 2000)
    assert model.flow.now.bytes_in == 1000.0
    model.settle(NOW + 60_000)
    assert model.flow.of_broker(1) is None
    assert model.flow.now.bytes_in is None


def test_what_brokers_counted_is_over_when_they_do_not_answer() -> None:
    flow = ClusterModel().flow
    for at_ms, sum in ((0, 0), (2000, 2000)):
        flow.offsets_told(at_ms, {PLACE: 0})
        flow.topic_counters(1, at_ms, {"orders": FlowCounters(sum, sum, sum)})
    flow.sum_topics({"orders": 1})
    assert flow.topic_sizes["orders"].bytes_in == 1000.0
    flow.without([1])
    flow.sum_topics({"orders": 1})
    assert flow.topic_sizes["orders"].bytes_in is None
