"""docs/benchmarks-history.jsonl keeps every run of the benchmarks that was written."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def test_runs_are_appended_with_what_one_has_to_know_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    from bench import history

    file = tmp_path / "history.jsonl"
    for seconds in (1.5, 2.5):
        history.append(file, {"start": {"ottla": {"ready": [seconds, None]}}}, "quiet")
    first, second = map(json.loads, file.read_text().splitlines())
    assert [first["cases"], second["cases"]] == [
        {"start": {"ottla": {"ready": [seconds, None]}}} for seconds in (1.5, 2.5)
    ]
    assert first["under"] == "quiet" and first["date"] <= second["date"]
    assert first["machine"]["cores"] >= 1 and "commit" in first


def test_what_was_kept_so_far_can_be_read() -> None:
    lines = (ROOT / "docs" / "benchmarks-history.jsonl").read_text().splitlines()
    runs = [json.loads(line) for line in lines]
    assert runs and all(run["cases"] and run["date"] for run in runs)
    dates = [run["date"] for run in runs]
    assert dates == sorted(dates), "lines are only appended"
