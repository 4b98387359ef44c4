"""Kafka's names on the PATH never take the place of another Kafka by surprise."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ottla.kafka_tools import launchers
from ottla.kafka_tools.names import MODULES, tool_of


@pytest.fixture
def kafka(tmp_path: Path) -> Path:
    """A directory with a tool of another Kafka."""
    there = tmp_path / "kafka" / "bin"
    there.mkdir(parents=True)
    (there / "kafka-topics.sh").write_text("#!/bin/sh\necho the other one\n")
    return there


def test_a_launcher_runs_the_tool_of_its_name(tmp_path: Path) -> None:
    written = launchers.write(tmp_path / "bin")
    assert {file.name for file in written} == {*MODULES, *(f"{name}.sh" for name in MODULES)}
    for name in ("kafka-topics", "kafka-topics.sh"):
        done = subprocess.run(
            [tmp_path / "bin" / name, "--version"], capture_output=True, text=True, check=True
        )
        assert done.stdout == "4.3.1\n"


def test_what_is_not_ours_is_not_replaced(tmp_path: Path, kafka: Path) -> None:
    assert launchers.objections(tmp_path / "bin", []) == []
    (objection,) = launchers.objections(kafka, [])
    assert objection == f"{kafka}/kafka-topics.sh exists and is not a launcher of ottla"
    launchers.write(tmp_path / "bin")
    assert launchers.objections(tmp_path / "bin", []) == []  # again, into the same directory


def test_nothing_comes_before_another_kafka_on_the_path(tmp_path: Path, kafka: Path) -> None:
    ours = tmp_path / "bin"
    first, last = [str(ours), str(kafka)], [str(kafka), str(ours)]
    (objection,) = launchers.objections(ours, first)
    assert "would come before" in objection and str(kafka) in objection
    assert launchers.objections(ours, last) == []
    assert launchers.objections(ours, [str(kafka)]) == []
    assert launchers.elsewhere(ours, [str(kafka)]) == kafka / "kafka-topics.sh"
    assert launchers.elsewhere(ours, [str(tmp_path)]) is None


def test_only_launchers_are_removed(tmp_path: Path, kafka: Path) -> None:
    assert launchers.remove(kafka) == []
    assert (kafka / "kafka-topics.sh").exists()
    written = launchers.write(tmp_path / "bin")
    assert launchers.remove(tmp_path / "bin") == written
    assert os.listdir(tmp_path / "bin") == []


def test_a_link_is_replaced_and_not_what_it_points_to(tmp_path: Path, kafka: Path) -> None:
    ours = tmp_path / "bin"
    ours.mkdir()
    (ours / "kafka-topics").symlink_to(kafka / "kafka-topics.sh")
    assert launchers.objections(ours, []) != []
    launchers.write(ours)
    assert "the other one" in (kafka / "kafka-topics.sh").read_text()


def test_a_tool_has_its_name_with_and_without_sh() -> None:
    assert tool_of("kafka-topics") == tool_of("kafka-topics.sh") == "kafka-topics"
    assert tool_of("kafka-acls") is None
