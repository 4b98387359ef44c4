"""docs/EXPLAIN.md: every staged situation is there, with cause and remedy, and every command in it exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from ottla.cli.commands import app
from support.staged import STAGES, Stage

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "EXPLAIN.md").read_text()


def example(stage: Stage) -> str:
    _, begins, rest = PAGE.partition(f"<!-- {stage.title}: begin -->")
    text, ends, _ = rest.partition(f"<!-- {stage.title}: end -->")
    assert begins and ends, f"{stage.title} is not on the page"
    return text


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.title)
def test_the_page_shows_cause_and_remedy_of_every_staged_situation(stage: Stage) -> None:
    text = example(stage)
    for words in (*stage.cause, *stage.remedy):
        assert words in text, f"{stage.title}: {words}"


def commands() -> list[str]:
    found = re.findall(r"^ +(ottla .+)$", PAGE, re.MULTILINE)
    return sorted({part for line in found for part in line.split(" && ")})


def test_every_command_on_the_page_exists_with_its_options() -> None:
    assert commands()
    root = typer.main.get_command(app)
    for line in commands():
        words = line.split()[1:]
        if words[0].startswith("kafka-"):
            continue  # its options are Kafka's
        command: Any = root
        while hasattr(command, "commands"):
            assert words[0] in command.commands, line
            command = command.commands[words.pop(0)]
        known = {option for parameter in command.params for option in parameter.opts}
        unknown = [word for word in words if word.startswith("-") and word not in known]
        assert not unknown, f"{line}: {unknown}"
