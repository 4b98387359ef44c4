"""The scripted schedules of the lab, one text file for each, in the language of the golden scripts (`ottla.sim.scripts`).

The first block of a file is comment only: its first line is the title. A block with a comment is one step of the timeline,
and the comment says what happens in it. Blocks without a comment prepare the cluster. No command may depend on the design:
every scenario must run to its end under each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources

from ottla.sim.scripts.script import Block, parse

SUFFIX = ".txt"


@dataclass(frozen=True)
class ScriptedScenario:
    name: str
    """As on the command line: `fast-failover`."""
    title: str
    blocks: tuple[Block, ...]


@cache
def all_scenarios() -> dict[str, ScriptedScenario]:
    found = {}
    scripts = resources.files("ottla.lab.truncation").joinpath("scripts").iterdir()
    for file in sorted(scripts, key=lambda each: each.name):
        name = file.name.removesuffix(SUFFIX).replace("_", "-")
        head, *blocks = parse(file.read_text(encoding="utf-8"))
        found[name] = ScriptedScenario(name, comment_of(head)[0], tuple(blocks))
    return found


def comment_of(block: Block) -> list[str]:
    """The lines of its comment, without the sign."""
    return [line.removeprefix("#").strip() for line in block.lines if line.startswith("#")]


def commands_of(block: Block) -> list[str]:
    return [line for line in block.lines if not line.startswith("#")]
