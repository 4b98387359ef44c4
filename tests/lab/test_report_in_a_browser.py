"""The report, looked at in a real browser: every chart is drawn, light and dark, on a wide screen and on a phone.

Chromium is Debian's package; without it these tests are left out. OTTLA_SCREENSHOTS=DIR keeps what was seen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.lab.report.pages import results_of, write_html
from support.chromium import CHROMIUM, Chromium
from support.lab_results import all_kinds

if TYPE_CHECKING:
    from PIL import Image

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]

STORED = Path(__file__).resolve().parent.parent.parent / "docs" / "lab" / "results.json"
SCREENSHOTS = os.environ.get("OTTLA_SCREENSHOTS")
PHONE, SCREEN = 360, 1280
BOXES = """[...document.querySelectorAll(%r)].map(each => {
    const box = each.getBoundingClientRect();
    return [box.left + scrollX, box.top + scrollY, box.width, box.height];
})"""
COLOURS_MIN = 3
"""Of a chart, each on at least `PIXELS_MIN` pixels: the page, the ink, and one series."""
PIXELS_MIN = 40


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture(scope="module", params=["of every kind", "stored"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = all_kinds() if request.param == "of every kind" else results_of(STORED.read_text())
    return write_html(results, tmp_path_factory.mktemp("report"))


def boxes(browser: Chromium, selector: str) -> list[list[float]]:
    found: list[list[float]] = browser.value_of(BOXES % selector)
    return found


def colours(picture: Image.Image, box: list[float]) -> int:
    left, top, width, height = box
    part = picture.crop(
        (int(left), int(top), min(int(left + width), picture.width), int(top + height))
    )
    counted: Any = part.getcolors(part.width * part.height)
    return sum(count >= PIXELS_MIN for count, _ in counted)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, SCREEN])
def test_every_chart_is_drawn_and_the_page_does_not_scroll_sideways(
    browser: Chromium, page: Path, scheme: str, width: int
) -> None:
    browser.open(page, width, scheme)
    picture = browser.picture()
    if SCREENSHOTS:
        Path(SCREENSHOTS).mkdir(parents=True, exist_ok=True)
        picture.save(Path(SCREENSHOTS) / f"{page.parent.name}-{scheme}-{width}.png")
    charts = boxes(browser, "figure.chart svg")
    assert len(charts) == page.read_text().count('<figure class="chart">')
    for box in charts:
        assert box[2] > 200 and box[3] > 80, box
        assert colours(picture, box) >= COLOURS_MIN, f"the chart at {box} is blank"
    assert browser.value_of("document.documentElement.scrollWidth") <= width
    assert picture.width == width
    brightness = sum(picture.getpixel((2, 2))) / 3  # type: ignore[arg-type]
    assert brightness > 200 if scheme == "light" else brightness < 60


def test_the_page_asks_nobody_and_its_policy_refuses_nothing_of_it(
    browser: Chromium, page: Path
) -> None:
    browser.open(page, SCREEN, "light")
    assert [each for each in browser.requested() if not each.startswith("data:")] == [page.as_uri()]
    assert not browser.complaints()


def test_a_blank_chart_would_be_noticed(browser: Chromium, tmp_path: Path) -> None:
    page = write_html(all_kinds(), tmp_path)
    browser.open(page, SCREEN, "light")
    browser.value_of("document.querySelectorAll('figure.chart svg > g').forEach(g => g.remove())")
    picture = browser.picture()
    assert all(colours(picture, box) < COLOURS_MIN for box in boxes(browser, "figure.chart svg"))


def test_timelines_can_be_stepped_through_and_read_without_scripts(
    browser: Chromium, tmp_path: Path
) -> None:
    page = write_html(all_kinds(), tmp_path)
    shown = "[...document.querySelectorAll('.timeline tbody tr')].filter(r => r.checkVisibility()).length"
    browser.open(page, SCREEN, "light")
    assert browser.value_of(shown) == 5, "those of the design that loses a record"
    browser.value_of("document.querySelectorAll('.steps button')[1].click()")
    assert browser.value_of(shown) == 2, "the first step of each design"
    assert browser.value_of("document.querySelector('.steps [role=status]').textContent") == (
        "step 1 of 5"
    )
    browser.value_of("document.querySelectorAll('.steps button')[2].click()")
    assert browser.value_of(shown) == 8
    browser.open(page, PHONE, "light", scripts=False)
    assert boxes(browser, ".timeline tbody tr")[0][3] > 0
    assert not boxes(browser, ".steps")
