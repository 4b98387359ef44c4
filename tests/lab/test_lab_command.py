"""`ottla lab`: what it lists, its exit codes, and the report that it writes."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ottla.cli import lab
from ottla.cli.errors import FAILED, NOT_FOUND, USAGE, Failure
from ottla.lab.design import all_designs
from ottla.lab.experiment import all_experiments
from ottla.lab.report import pages
from ottla.lab.results import ExperimentResult
from support.lab_results import all_kinds, latency


@pytest.fixture(autouse=True)
def _logging_again() -> Iterator[None]:
    """The command silences all logging of its process, which here is that of the tests."""
    yield
    logging.disable(logging.NOTSET)


def ottla_lab(*words: str) -> str:
    """What it prints."""
    done = CliRunner().invoke(lab.app, words)
    if done.exception is not None:
        raise done.exception
    return done.stdout


def failure_of(*words: str) -> Failure:
    with pytest.raises(Failure) as caught:
        ottla_lab(*words)
    return caught.value


def shown(results: list[ExperimentResult]) -> list[ExperimentResult]:
    return [each for each in results if not each.failed_expectations]


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    file = tmp_path / "results.json"
    file.write_text(pages.results_text(shown(all_kinds())))
    return file


def test_list_names_every_experiment_and_design() -> None:
    printed = ottla_lab("list")
    for name in (*all_experiments(), *all_designs()):
        assert name in printed


def test_list_for_programs() -> None:
    listed = json.loads(ottla_lab("list", "--format", "json"))
    assert [each["name"] for each in listed["experiments"]] == list(all_experiments())
    assert [each["name"] for each in listed["designs"]] == list(all_designs())
    assert all(each["promise"].startswith("P") for each in listed["designs"])


def test_names_that_are_not_known_are_told_with_those_that_are() -> None:
    failure = failure_of("run", "no-such-experiment")
    assert failure.code == NOT_FOUND
    assert all(name in str(failure) for name in ("no-such-experiment", *all_experiments()))
    failure = failure_of("run", "--all", "--design", "no-such-design")
    assert failure.code == NOT_FOUND and "leader-epochs" in str(failure)


@pytest.mark.parametrize(
    "words",
    [
        ("run",),
        ("run", "--all", "--seeds", "many"),
        ("run", "--all", "--seeds", "5..5"),
        ("report",),
        ("report", "--out", "x", "--from", "y", "--small"),
        ("report", "--out", "x", "--from", "y", "--seeds", "3"),
    ],
)
def test_wrong_use_is_refused(words: tuple[str, ...]) -> None:
    assert failure_of(*words).code == USAGE


def test_the_report_of_stored_results_is_one_page_of_html(stored: Path, tmp_path: Path) -> None:
    printed = ottla_lab("report", "--from", str(stored), "--out", str(tmp_path / "new" / "report"))
    page = tmp_path / "new" / "report" / "index.html"
    assert printed.splitlines() == [str(page)]
    assert [each.name for each in page.parent.iterdir()] == ["index.html"]
    assert all(each.experiment in page.read_text() for each in shown(all_kinds()))


def test_the_markdown_report_has_its_drawings_and_results_beside_it(
    stored: Path, tmp_path: Path
) -> None:
    page = tmp_path / "docs" / "LAB.md"
    ottla_lab("report", "--from", str(stored), "--markdown", str(page))
    beside = {each.name for each in (page.parent / "lab").iterdir()}
    assert beside == {
        "results.json",
        "requests-1.svg",
        "requests-2.svg",
        "trade-1.svg",
        "trade-2.svg",
    }
    assert (page.parent / "lab" / "results.json").read_text() == stored.read_text()


def test_a_drawing_that_the_page_no_longer_has_is_removed(stored: Path, tmp_path: Path) -> None:
    page = tmp_path / "LAB.md"
    ottla_lab("report", "--from", str(stored), "--markdown", str(page))
    (tmp_path / "lab" / "mine.svg").write_text("<svg/>")
    stored.write_text(pages.results_text(all_kinds()[:1]))
    ottla_lab("report", "--from", str(stored), "--markdown", str(page))
    left = {each.name for each in (tmp_path / "lab").iterdir()}
    assert left == {"results.json", "mine.svg"}


def test_a_report_of_what_was_not_shown_is_written_and_fails(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(pages.results_text([latency()]))
    failure = failure_of("report", "--from", str(file), "--out", str(tmp_path))
    assert failure.code == FAILED and latency().failed_expectations[0] in str(failure)
    assert latency().failed_expectations[0] in (tmp_path / "index.html").read_text()


def test_files_that_are_no_results_are_refused(tmp_path: Path) -> None:
    assert failure_of("report", "--out", "x", "--from", str(tmp_path / "none")).code == NOT_FOUND
    for text in ("{", "[1]", '[{"experiment": "loss"}]', '{"a": 1}'):
        (tmp_path / "wrong.json").write_text(text)
        failure = failure_of("report", "--out", "x", "--from", str(tmp_path / "wrong.json"))
        assert failure.code == FAILED and "ottla lab run --results" in str(failure)


def test_without_matplotlib_the_report_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, stored: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(pages, "find_spec", lambda name: None)
    failure = failure_of("report", "--from", str(stored), "--out", str(tmp_path))
    assert "pip install 'ottla[lab]'" in str(failure)


def test_nothing_but_the_drawing_of_charts_loads_matplotlib() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, ottla.lab.report.pages, ottla.cli.lab; sys.exit('matplotlib' in sys.modules)",
        ],
        check=False,
    )
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"experiment": "../../escaped/evil"}, "result.experiment"),
        ({"tables": [{"title": "t", "columns": ["a"], "rows": [[{}]]}]}, "tables[0].rows[0][0]"),
        ({"finding": 3}, "result.finding"),
        ({"unknown": "field"}, "result"),
    ],
)
def test_results_of_another_shape_are_refused_with_the_place(
    change: dict[str, Any], place: str, stored: Path, tmp_path: Path
) -> None:
    first, *others = json.loads(stored.read_text())
    stored.write_text(json.dumps([{**first, **change}, *others]))
    failure = failure_of("report", "--from", str(stored), "--out", str(tmp_path / "page"))
    assert "is not what ottla lab run --results writes" in str(failure)
    assert place in str(failure)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_is_no_json_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_bytes(content)
    failure = failure_of("report", "--from", str(file), "--out", str(tmp_path / "page"))
    assert "is not what ottla lab run --results writes" in str(failure)


@pytest.mark.parametrize(
    "words", [("run", "loss", "--results"), ("report", "--out"), ("report", "--markdown")]
)
def test_a_place_that_cannot_be_written_is_named_before_anything_runs(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    failure = failure_of(*words, str(tmp_path / "file" / "below"))
    assert failure.code == USAGE
    assert f"{words[-1]} {tmp_path}" in str(failure)


def test_more_seeds_than_anybody_can_wait_for_are_refused() -> None:
    failure = failure_of("run", "loss", "--seeds", "1000000000000000000000")
    assert failure.code == USAGE and "at most 100,000" in str(failure)


def test_of_several_files_the_last_result_of_an_experiment_counts(
    stored: Path, tmp_path: Path
) -> None:
    first, *others = json.loads(stored.read_text())
    newer = tmp_path / "newer.json"
    newer.write_text(json.dumps([{**first, "finding": "It was measured anew."}]))
    ottla_lab("report", "--from", str(stored), "--from", str(newer), "--out", str(tmp_path))
    page = (tmp_path / "index.html").read_text()
    assert "It was measured anew." in page
    assert all(f'id="{each["experiment"]}"' in page for each in others)
