"""The last values of clients, as families with their labels, within limits."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metrics.exposition import OPENMETRICS
from ottla.telemetry import pushed as limits
from ottla.telemetry.otlp import Point
from ottla.telemetry.pushed import SERIES_MAX, PushedMetrics, measured
from support import exposition as reader
from support.metrics_page import written

RATE = "org.apache.kafka.producer.connection.creation.rate"
COUNT = "org.apache.kafka.producer.connection.creation.total"
ALICE, EVE = "User:alice", "User:eve"
CLIENT = {"client_id": "billing", "client_software_name": "librdkafka"}


def point(name: str, value: float, *, delta: bool = False, **attributes: str) -> Point:
    return Point(name, "Of connections.", tuple(attributes.items()), value, name == COUNT, delta)


def shown(pushed: PushedMetrics, now_ms: float = 0) -> str:
    return written(pushed.families(now_ms))


def add(
    pushed: PushedMetrics,
    *points: Point,
    id: int = 1,
    expires_ms: float = 1000,
    owner: str = ALICE,
) -> None:
    attributes = {**CLIENT, "client_instance_id": f"i{id}"}
    pushed.add(UUID(int=id), owner, attributes, [measured(each) for each in points], expires_ms, 0)


def test_nobody_changes_what_somebody_else_has_pushed() -> None:
    pushed = PushedMetrics(10)
    add(pushed, point(RATE, 1.5))
    add(pushed, point(RATE, 99), owner=EVE)
    assert " 1.5\n" in shown(pushed) and " 99" not in shown(pushed)
    assert pushed.series_dropped == 1


def test_gauges_have_their_last_value_and_differences_are_added_up() -> None:
    pushed = PushedMetrics(10)
    add(pushed, point(RATE, 1.5, node_id="1"), point(COUNT, 2, delta=True))
    add(pushed, point(RATE, 0.5, node_id="1"), point(COUNT, 3, delta=True))
    text = shown(pushed)
    labels = (
        'client_instance_id="i1",client_id="billing",client_software_name="librdkafka",'
        'client_software_version="",client_source_address=""'
    )
    name = "org_apache_kafka_producer_connection_creation"
    assert f'{name}_rate{{node_id="1",{labels}}} 0.5\n' in text
    assert f"# TYPE {name}_total counter\n" in text
    assert f"{name}_total{{{labels}}} 5.0\n" in text


def test_a_client_that_pushes_no_more_is_forgotten() -> None:
    pushed = PushedMetrics(10)
    add(pushed, point(RATE, 1))
    assert "creation_rate" in shown(pushed, 999)
    assert "creation_rate" not in shown(pushed, 1000)
    assert "ottla_client_metrics_clients 0\n" in shown(pushed, 1000)


def test_clients_and_their_series_are_limited_and_the_rest_is_counted() -> None:
    pushed = PushedMetrics(1)
    add(pushed, *(point(RATE, 1, topic=str(n)) for n in range(SERIES_MAX + 3)))
    add(pushed, point(RATE, 1), id=2)
    assert shown(pushed).count("creation_rate{") == SERIES_MAX
    assert "ottla_client_metrics_dropped_total 4\n" in shown(pushed)


def test_the_bytes_of_a_client_and_of_all_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLIENT_BYTES_MAX", 10_000)
    monkeypatch.setattr(limits, "BYTES_MAX", 15_000)
    pushed = PushedMetrics(10)
    long = tuple((f"label{n}", 200 * "x") for n in range(5))
    large = [Point(RATE, "", (*long, ("n", str(n))), 1.0, False, False) for n in range(20)]
    for id in range(3):
        add(pushed, *large, id=id)
        assert pushed.bytes <= 15_000
    shown_of = [shown(pushed).count(f'client_instance_id="i{id}"') for id in range(3)]
    assert shown_of == [3, 2, 0]
    assert f"ottla_client_metrics_dropped_total {60 - 5}\n" in shown(pushed)
    assert len(shown(pushed)) < 15_000
    shown(pushed, 1000)
    assert pushed.bytes == 0  # they are gone


def test_a_client_cannot_use_the_names_of_others() -> None:
    pushed = PushedMetrics(10)
    add(
        pushed,
        point("kafka_server_replicamanager_leadercount", 7),
        point(RATE, 1, client_id="somebody else"),
    )
    assert "leadercount" not in shown(pushed)
    assert "somebody else" not in shown(pushed)


NAMES = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["self", "given", "__name__", "le", "quantile", "a.b", "a_b", "1", "client_id"]
    ),
)
PAIRS = st.dictionaries(NAMES, st.text(max_size=4), max_size=4).map(lambda d: tuple(d.items()))
PUSHED = st.builds(
    Point,
    NAMES.map(lambda name: f"org.apache.kafka.{name}"),
    st.sampled_from(["", "\n", "Of connections."]),
    PAIRS,
    st.floats(),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(PUSHED, max_size=6))
def test_whatever_a_client_pushes_is_a_page_that_prometheus_reads(points: list[Point]) -> None:
    pushed = PushedMetrics(10)
    add(pushed, *points)
    for page in (shown(pushed), written(pushed.families(0), OPENMETRICS)):
        families = reader.read(page)
        assert "failed" in str(families.popitem()) and 'why="failed"} 0\n' in page
        for family in families.values():
            for _, labels, _ in family.samples:
                assert not {"le", "quantile"} & set(labels)
                assert not any(name.startswith("__") for name in labels)


def test_a_metric_without_a_description_is_described_by_its_clean_name() -> None:
    pushed = PushedMetrics(10)
    add(pushed, Point("org.apache.kafka.a\nb", "", (("self", "1"),), 1.0, False, False))
    assert "# HELP org_apache_kafka_a_b org_apache_kafka_a_b of clients.\n" in shown(pushed)
    assert 'org_apache_kafka_a_b{self="1",' in shown(pushed)


def test_the_order_of_labels_makes_no_other_series() -> None:
    pushed = PushedMetrics(10)
    add(pushed, point(RATE, 1, a="x", b="y"), point(RATE, 2, b="y", a="x"))
    assert shown(pushed).count("creation_rate{") == 1
