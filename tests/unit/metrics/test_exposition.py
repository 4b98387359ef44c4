"""What is written is what others read: Prometheus' text, OpenMetrics, and JSON, by a reader that shares no code."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metrics import exposition
from ottla.metrics.exposition import JSON, OPENMETRICS, PIECE_SAMPLES, TEXT, format_for
from ottla.metrics.families import NO_LABELS, Family, Labels, MetricKind, Sample, counter, gauge
from ottla.metrics.histogram import SECONDS, Histogram, quantile
from ottla.metrics.page import MetricsPage
from ottla.metrics.registry import Metrics
from support import exposition as reader
from support.metrics_page import page, written

values = st.one_of(st.integers(-(2**60), 2**60), st.floats(allow_nan=False))
texts = st.text()
labels = st.dictionaries(
    st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,5}", fullmatch=True), texts, max_size=3
)
LAST = Metrics().about_itself()
help_lines = st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1)


@st.composite
def families(draw: st.DrawFn) -> list[Family]:
    made = []
    for number in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from([MetricKind.COUNTER, MetricKind.GAUGE]))
        name = f"kafka_{number}" + ("_total" if kind is MetricKind.COUNTER else "")
        different = draw(
            st.lists(labels, max_size=4, unique_by=lambda each: json.dumps(each, sort_keys=True))
        )
        samples = [Sample(Labels(**each), draw(values)) for each in different]
        made.append(Family(name, kind, draw(help_lines), samples))
    return made


def is_same(read: dict[str, reader.ReadFamily], written: list[Family], *, total: str) -> None:
    assert list(read) == [family.name.removesuffix(total) for family in written]
    for found, family in zip(read.values(), written, strict=True):
        assert (found.kind, found.help) == (family.kind.value, family.help)
        assert found.samples == [
            (family.name + sample.suffix, sample.labels.pairs, float(sample.value))
            for sample in family.samples
        ]


@given(families())
def test_text_is_read_back(made: list[Family]) -> None:
    is_same(reader.read(written(made)), [*made, LAST], total="")


@given(families())
def test_openmetrics_is_read_back(made: list[Family]) -> None:
    text = written(made, OPENMETRICS)
    assert text.endswith("# EOF\n")
    is_same(reader.read(text), [*made, LAST], total="_total")


@given(families())
def test_json_is_read_back(made: list[Family]) -> None:
    read = json.loads(written(made, JSON))["families"]
    assert [each["name"] for each in read] == [family.name for family in [*made, LAST]]
    for each, family in zip(read[:-1], made, strict=True):
        assert each["samples"] == [
            {
                "name": family.name,
                "labels": sample.labels.pairs,
                "value": sample.value if math.isfinite(sample.value) else None,
            }
            for sample in family.samples
        ]


def test_a_value_that_is_no_number_has_its_word() -> None:
    odd = [math.inf, -math.inf, math.nan]
    samples = [Sample(Labels(which=str(value)), value) for value in odd]
    text = "".join(exposition.write_text(Family("odd", MetricKind.GAUGE, "Odd.", samples)))
    assert [line.split()[-1] for line in text.splitlines()[2:]] == ["+Inf", "-Inf", "NaN"]


def test_a_large_family_comes_in_pieces() -> None:
    samples = (Sample(Labels(n=str(n)), n) for n in range(PIECE_SAMPLES * 2 + 1))
    pieces = list(exposition.write_text(Family("many", MetricKind.GAUGE, "Many.", samples)))
    assert [piece.count("\n") for piece in pieces] == [2, PIECE_SAMPLES, PIECE_SAMPLES, 1]


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", TEXT),
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", OPENMETRICS),
        ("application/vnd.google.protobuf;q=0.7,application/openmetrics-text;q=0.6", OPENMETRICS),
        ("application/json", JSON),
    ],
)
def test_a_client_gets_what_it_names_first(accept: str, expected: object) -> None:
    assert format_for(accept) is expected


@pytest.mark.parametrize("wanted", [TEXT, OPENMETRICS, JSON])
def test_what_fails_is_left_out_and_the_page_has_all_the_rest(
    wanted: exposition.ExpositionFormat, caplog: pytest.LogCaptureFixture
) -> None:
    def halfway() -> Iterator[Sample]:
        yield Sample(Labels(n="1"), 1)
        raise ValueError("no more samples")

    def failing() -> Iterator[Family]:
        yield gauge("before", "Before.", 1)
        yield Family("half", MetricKind.GAUGE, "Half.", halfway())
        yield gauge("good", "Good.", 1)
        raise ValueError("no more families")

    async def cannot() -> None:
        raise ValueError("no answer")

    metrics = Metrics()
    metrics.before_scrape(cannot)
    metrics.register(lambda: [Family("first", MetricKind.GAUGE, "First.", halfway())])
    for collector in (failing, lambda: [gauge("good", "Twice.", 1)]):
        metrics.register(collector)
    metrics.register(lambda: [gauge("last", "Last.", 1)])
    for scrape in (1, 2):
        asyncio.run(metrics.prepare())
        text = page(metrics, wanted)
        for left_out in ("first", "half", "Twice"):
            assert left_out not in text
        for there in ("before", "good", "last"):
            assert there in text
        if wanted is JSON:
            *_, about = json.loads(text)["families"]
            assert about["samples"][0]["value"] == 5 * scrape
        else:
            *_, about = reader.read(text).values()
            assert about.samples[0][1:] == ({"why": "failed"}, 5 * scrape)
    assert len(caplog.records) == 5
    assert "metrics are left out what=half why=failed" in caplog.text


def test_nothing_is_collected_before_it_is_wanted() -> None:
    asked = []

    def late() -> list[Family]:
        asked.append(True)
        return [counter("late_total", "Late.", 1)]

    metrics = Metrics()
    metrics.register(lambda: [gauge("first", "First.", 1)])
    metrics.register(late)
    families = (family.name for family in metrics.families() if family is not None)
    assert next(families) == "first" and not asked
    assert next(families) == "late_total" and asked
    metrics.unregister(late)
    assert [family.name for family in metrics.families() if family is not None] == ["first"]


def test_a_collector_that_counts_for_long_lets_others_have_a_turn() -> None:
    def slow() -> Iterator[Family | None]:
        yield None
        yield gauge("slow", "Slow.", 1)

    metrics = Metrics()
    metrics.register(slow)
    made = MetricsPage(metrics, TEXT)
    making = made.write()
    next(making)
    assert made.body() == b""
    list(making)
    assert b"slow" in made.body()


def test_a_counter_is_named_as_one() -> None:
    with pytest.raises(AssertionError):
        counter("requests", "Requests.", 1)
    with pytest.raises(AssertionError):
        gauge("requests_total", "Requests.", 1)


# -- histograms ------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 100)))
def test_a_histogram_counts_every_value_once(observed: list[float]) -> None:
    histogram = Histogram()
    for value in observed:
        histogram.observe(value)
    family = Family("h", MetricKind.HISTOGRAM, "H.", histogram.samples(Labels(api="Fetch")))
    read = reader.read("".join(exposition.write_text(family)))["h"]
    buckets = {pairs["le"]: value for name, pairs, value in read.samples if name == "h_bucket"}
    for bound in SECONDS:
        assert buckets[str(bound)] == sum(value <= bound for value in observed)
    assert buckets["+Inf"] == len(observed) == histogram.count
    (total,) = [value for name, _, value in read.samples if name == "h_sum"]
    assert math.isclose(total, sum(observed), abs_tol=1e-9)
    assert all(pairs["api"] == "Fetch" for _, pairs, _ in read.samples)


@given(st.lists(st.floats(0, 29), min_size=1), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_quantile_lies_in_the_bucket_of_the_value(observed: list[float], share: float) -> None:
    histogram = Histogram()
    for value in observed:
        histogram.observe(value)
    estimate = quantile(histogram.bounds, histogram.counts, share)
    exact = sorted(observed)[max(0, math.ceil(share * len(observed)) - 1)]
    upper = min(bound for bound in SECONDS if bound >= exact)
    lower = max([0.0, *(bound for bound in SECONDS if bound < exact)])
    assert lower <= estimate <= upper


def test_a_quantile_of_nothing_is_not_a_number() -> None:
    assert math.isnan(quantile(SECONDS, [0] * (len(SECONDS) + 1), 0.5))
    assert NO_LABELS.text == ""
