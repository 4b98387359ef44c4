"""The benchmark's table: ratios compare rounds that belong together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import report

    return report


def shown(
    report: Any, ours: list[float | None], theirs: list[float | None], *, judged: bool = True
) -> Any:
    rounds = {"ack-250": {"ottla": {"p50": ours}, "Kafka": {"p50": theirs}}}
    (row,) = report.rows(rounds, report.BROKERS, judged=judged)
    return row


def test_a_round_that_failed_for_one_is_compared_with_nothing(report: Any) -> None:
    row = shown(report, [1.0, 2.0, 4.0], [None, 4.0, 8.0])
    assert row.ratio == "0.5 × (0.5–0.5)"
    assert row.ottla == "2 ms (1–4)" and row.kafka == "6 ms (4–8)"


def test_the_last_rounds_may_be_missing(report: Any) -> None:
    assert shown(report, [1.0], [2.0, 100.0]).ratio == "0.5 ×"


def test_without_a_round_of_both_there_is_no_ratio(report: Any) -> None:
    row = shown(report, [None, 2.0], [1.0])
    assert row.ratio == "" and row.ottla == "2 ms" and "reached" not in row.asked
    assert shown(report, [], [1.0]).ratio == ""


def test_a_quick_look_shows_what_is_asked_and_judges_nothing(report: Any) -> None:
    assert shown(report, [1.0], [2.0]).asked == "≤ 0.5 ×: reached"
    assert shown(report, [1.0], [2.0], judged=False).asked == "≤ 0.5 ×"


def test_ottla_with_acls_is_held_against_ottla_without(report: Any) -> None:
    sides = {"guarded": {"throughput": [97.0, 98.0]}, "ottla": {"throughput": [100.0, 100.0]}}
    (row,) = report.rows({"produce-1k": sides}, report.WITH_ACLS)
    assert row.ratio == "0.97 × (0.97–0.98)" and row.asked == "≥ 0.97 ×: reached"
    assert row.ottla.startswith("97.5 MB/s") and row.kafka.startswith("100 MB/s")
