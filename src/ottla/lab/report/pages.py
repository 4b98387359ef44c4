"""What the report writes: an HTML page, or a Markdown page with its drawings and the results beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ottla.lab.report.chart_svg import svg_file_of
from ottla.lab.report.html_page import html_page
from ottla.lab.report.markdown_page import drawing_name, markdown_page
from ottla.lab.results import ExperimentResult, result_from_json


class NotResults(Exception):
    """The file is no JSON that `ottla lab run --results` wrote."""


def can_draw() -> bool:
    """matplotlib is an extra: nothing but the report needs it."""
    return find_spec("matplotlib") is not None


def results_text(results: Sequence[ExperimentResult]) -> str:
    """JSON with a line for each result: small, and a change of one experiment is a change of one line."""
    lines = [
        json.dumps(_small(each.to_json()), ensure_ascii=False, separators=(",", ":"))
        for each in results
    ]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _small(data: Any) -> Any:
    """Without the fields that are False, which is the default of each flag."""
    match data:
        case dict():
            return {key: _small(value) for key, value in data.items() if value is not False}
        case list() | tuple():
            return [_small(each) for each in data]
    return data


def results_of(text: str) -> list[ExperimentResult]:
    try:
        return [result_from_json(each) for each in json.loads(text)]
    except (ValueError, TypeError, RecursionError) as error:
        raise NotResults(f"{type(error).__name__}: {error}") from error


def write_html(results: Sequence[ExperimentResult], directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    page = directory / "index.html"
    page.write_text(html_page(results))
    return page


def markdown_files(results: Sequence[ExperimentResult], page: Path) -> dict[Path, str]:
    """Every file of the Markdown report: the page, and in a directory of its name the drawings and the results."""
    beside = page.parent / page.stem.lower()
    files = {
        page: markdown_page(results, beside.name),
        beside / "results.json": results_text(results),
    }
    for result in results:
        for at, chart in enumerate(result.charts, 1):
            name = drawing_name(result, at)
            files[beside / f"{name}.svg"] = svg_file_of(chart, name)
    return files


def write_markdown(results: Sequence[ExperimentResult], page: Path) -> None:
    former = _drawings_of(page)
    files = markdown_files(results, page)
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for path in former - set(files):
        path.unlink(missing_ok=True)


def _drawings_of(page: Path) -> set[Path]:
    """Those that the page shows now."""
    if not page.exists():
        return set()
    shown = re.findall(rf"\]\(({re.escape(page.stem.lower())}/[\w-]+\.svg)\)", page.read_text())
    return {page.parent / each for each in shown}
