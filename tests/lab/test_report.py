"""The report's pages: figures that can be read, charts that repeat byte for byte, and timelines that show a loss."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from ottla.lab.design import Seam
from ottla.lab.report.chart_svg import PALETTE, described, svg_file_of, svg_of
from ottla.lab.report.figures import columns_of, number
from ottla.lab.report.html_page import html_page
from ottla.lab.report.markdown_page import markdown_page
from ottla.lab.report.pages import results_of, results_text
from ottla.lab.report.timeline_html import scenario_html, scenarios
from ottla.lab.results import Chart, Table
from support.lab_results import all_kinds, broker_dies, latency, trade, truncation

CHARTS = [chart for result in all_kinds() for chart in result.charts]
EACH_CHART = pytest.mark.parametrize("chart", CHARTS, ids=[each.title for each in CHARTS])
VOID = {"meta", "link", "wbr"}


@cache
def whole_page() -> str:
    return html_page(all_kinds())


class Elements(HTMLParser):
    """Start tags with their attributes; elements that are closed in the wrong order are an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(text)
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


# -- figures


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1234567, "1,234,567"),
        (1234.5678, "1,235"),
        (12.3456, "12.3"),
        (0.5, "0.5"),
        (0.0012345, "0.00123"),
        (-2.5, "-2.5"),
        (float("nan"), "–"),
    ],
)
def test_numbers_have_separators_and_no_more_digits_than_say_something(
    value: float, text: str
) -> None:
    assert number(value) == text


def test_the_cells_of_a_column_have_the_same_number_of_decimals() -> None:
    table = Table("t", ["name", "s", "n"], [["a", 1.25, 10], ["b", 12.0, None], ["c", 3.5, 2000]])
    names, seconds, counts = columns_of(table)
    assert not names.is_numeric and seconds.is_numeric and counts.is_numeric
    assert seconds.cells == ["1.25", "12.00", "3.50"]
    assert counts.cells == ["10", "–", "2,000"]


def test_numbers_with_units_stand_to_the_right_too() -> None:
    table = Table("t", ["took", "note"], [["1.5 s", "2 of 3 agree"], ["12 s", "all agree"]])
    assert [column.is_numeric for column in columns_of(table)] == [True, False]


# -- charts


@EACH_CHART
def test_a_chart_repeats_byte_for_byte_and_is_small(chart: Chart) -> None:
    text = svg_file_of(chart, "x-1")
    assert text == svg_file_of(chart, "x-1")
    assert len(text) < 20_000
    assert "style=" not in text, "a strict policy would refuse it"


@EACH_CHART
def test_a_chart_draws_every_series_and_names_it(chart: Chart) -> None:
    root = ElementTree.fromstring(svg_file_of(chart, "x-1"))
    texts = {"".join(each.itertext()) for each in root.iter() if each.tag.endswith("}text")}
    assert {chart.y_label} <= texts
    if len(chart.series) > 1:
        assert set(chart.series) <= texts
    drawn = {value for each in root.iter() for value in each.attrib.values()}
    wanted = PALETTE[: len(chart.series)]
    assert set(wanted) <= drawn


@EACH_CHART
def test_a_chart_says_in_words_what_it_shows(chart: Chart) -> None:
    words = described(chart)
    assert chart.title in words
    assert all(series in words for series in chart.series)
    label = ElementTree.fromstring(svg_of(chart, "x-1")).get("aria-label")
    assert label == words


def test_nought_has_a_place_on_a_logarithmic_axis() -> None:
    chart = Chart("c", "line", "n", "lost", {"a": [(1, 0.0), (10, 5.0), (100, 50.0)]}, True, True)
    drawn = svg_of(chart, "x-1")
    assert "NaN" not in drawn and "inf" not in drawn
    path = re.search(rf'd="([^"]+)"[^>]*stroke="{PALETTE[0]}"', drawn)
    assert path is not None and len(re.findall(r"[ML]", path[1])) == 3


@pytest.mark.parametrize("page", ["#ffffff", "#1b1f24"])
def test_the_colours_of_charts_can_be_seen_on_light_and_dark(page: str) -> None:
    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for colour in PALETTE:
        low, high = sorted((luminance(colour), luminance(page)))
        assert (high + 0.05) / (low + 0.05) >= 3, colour


# -- the page


def test_the_page_names_everything_of_every_result() -> None:
    page = whole_page()
    for result in all_kinds():
        for text in (result.question, result.command, result.seeds, *result.designs):
            assert text in page
    elements = Elements(page)
    assert len(elements.named("svg")) == len(CHARTS)
    assert len(elements.named("caption")) == 1 + 2 + 2  # the summary, tables, timelines
    assert "<code>acks=all</code>" in page and "Contradicts the documents" in page
    assert "a majority of 3 goes on after 1 failure" in page


def test_the_page_is_whole_and_its_links_lead_somewhere() -> None:
    elements = Elements(whole_page())
    ids = [each["id"] for _, each in elements.found if "id" in each]
    assert len(set(ids)) == len(ids), "two elements have one id"
    for _, attributes in elements.found:
        for key in ("href", "src"):
            target = attributes.get(key) or "#"
            assert target.startswith("data:") or target == "#" or target[1:] in ids, target
        assert "style" not in attributes
        for value in (attributes.get("clip-path"), attributes.get("fill")):
            if value and value.startswith("url("):
                assert value[5:-1] in ids
    assert "http" not in re.sub(r"http-equiv", "", whole_page())


def test_the_policy_allows_nothing_but_the_style_and_the_script_of_the_page() -> None:
    policy = Elements(html_page([])).named("meta")[1]["content"]
    assert policy is not None and policy.startswith("default-src 'none'")
    assert "unsafe" not in policy and policy.count("sha256-") == 2


def test_headings_go_down_one_level_at_a_time() -> None:
    levels = [int(tag[1]) for tag, _ in Elements(whole_page()).found if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_what_results_say_is_escaped() -> None:
    result = replace(truncation(), finding="a < b & `c<d>`.", question="<script>x</script>")
    page = html_page([result])
    assert "<script>x" not in page and "a &lt; b &amp; <code>c&lt;d&gt;</code>." in page
    assert "A leader dies &lt;at once&gt;" in page


# -- timelines


def test_P44_a_reader_sees_the_truncation_that_loses_a_record() -> None:
    [(title, timelines)] = scenarios(truncation().timelines).items()
    page = scenario_html(title, timelines, "s")
    loses, keeps = page.split('<table class="timeline"')[1:]
    rows = loses.split('<tr role="row">')[2:]
    assert "<em>truncated</em>" in rows[2] and "<em>lost</em>" in rows[3]
    assert "HW 1 = LEO 1" in rows[2] and "HW 2 = LEO 2" in rows[2]
    assert re.search(r"HW 1</span>.*m1.*LEO 2</span>", rows[1]), "HW is between the records"
    assert "just" not in keeps and "<em>" not in keeps
    assert re.findall(r'<details( open)?><summary>.*?"verdict( bad)?"', page) == [
        (" open", " bad"),
        ("", ""),
    ]


def test_epochs_are_written_and_not_only_coloured() -> None:
    page = scenario_html("t", truncation().timelines, "s")
    for record in re.findall(r'<span class="record epoch-(\d)[^"]*"><small>.*?</span>', page):
        assert f"<i>e{record}</i>" in page
    assert "record of leader epoch 2" in page


# -- Markdown


def test_the_markdown_page_has_tables_drawings_and_steps() -> None:
    page = markdown_page(all_kinds(), "lab")
    assert "| hw-truncation | 123,456 | 1,042 | 0.00844 | 3 |" in page
    assert "(lab/requests-1.svg)" in page and "(lab/trade-2.svg)" in page
    assert "~~`1:m1@0`~~ **lost**" in page
    for result in (broker_dies(), trade(), latency()):
        assert f"$ {result.command}" in page
    assert "### A leader dies &lt;at once>" in page, "it would be taken for a tag"


def test_every_row_of_a_markdown_table_has_as_many_cells_as_its_head() -> None:
    page = markdown_page([replace(truncation(), finding="a | b.")], "lab")
    tables = re.findall(r"(?:^\|.*\n)+", page, re.M)
    assert len(tables) > len(Seam)  # one of designs for each seam, then those of the result
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1, table


def test_stored_results_are_small_and_read_as_they_were() -> None:
    text = results_text(all_kinds())
    assert "false" not in text and "\n\n" not in text
    again = results_of(text)
    assert results_text(again) == text
    assert json.dumps([each.to_json() for each in again]) == json.dumps(
        [each.to_json() for each in all_kinds()]
    )
