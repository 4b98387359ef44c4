"""A small version of what `scripts/scale` does, and its chart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def scale(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import scale

    return scale


def test_a_broker_that_dies_costs_records_for_its_own_partitions_only(scale: Any) -> None:
    few, many = scale.controller(10, 200), scale.controller(20, 400)
    assert few["election records"] == many["election records"] == 60 + 1  # replicas, and the fence
    assert many["election KB to all"] == pytest.approx(2 * few["election KB to all"], rel=0.01)


def test_whole_nodes_learn_of_a_death_within_milliseconds(scale: Any) -> None:
    """Virtual ones: nobody else can make them longer."""
    row = scale.simulated(5, 50)
    assert 0 < row["first knows ms"] <= row["all know ms"] < 150
    assert row["heartbeats per s"] == pytest.approx(5 / scale.HEARTBEAT_S, rel=0.3)


def test_the_chart_and_the_tables_are_those_of_the_stored_figures(scale: Any) -> None:
    from bench import scale_report

    stored = json.loads(scale_report.RECORD.read_text())
    assert scale_report.PICTURE.read_text() == scale_report.chart(stored)
    text = scale_report.DOCUMENT.read_text()
    for part, rows in stored.items():
        assert scale_report.table(part, rows) in text, f"scripts/scale {part} --write"
    ElementTree.fromstring(scale_report.chart(stored))
