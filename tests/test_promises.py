"""docs/PROMISES.md and the tests agree: a kept promise has tests, one of them in every run, and the
table lists all of them.

That each test asserts something is checked in test_tidy.py.

Run as a script it rewrites the column of tests from the tests that carry a promise's number.
"""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "PROMISES.md"
NUMBERS = [f"P{number:02}" for number in range(1, 52)]


class Promise(NamedTuple):
    number: str
    text: str
    state: str
    command: str
    tests: list[str]


def read_table() -> dict[str, Promise]:
    found = {}
    for line in TABLE.read_text().splitlines():
        if re.match(r"\| P\d\d \|", line):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            number, text, state, command, tests = cells
            assert number not in found, f"{number} stands twice in the table"
            found[number] = Promise(number, text, state, command, re.findall(r"`(\w+)`", tests))
    return found


@cache
def existing_tests() -> dict[str, list[str]]:
    """Names of all test functions, by promise number; those without a number under ""."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
                "test_"
            ):
                for number in re.findall(r"(?<=_)P\d\d(?=_|$)", node.name) or [""]:
                    found.setdefault(number, []).append(node.name)
    return found


@cache
def run_by_default() -> set[str]:
    """Those that `scripts/test` runs unless told --slow: not marked slow, or picked from the slow ones."""
    found = set()
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        tree = ast.parse(path.read_text(), str(path))
        of_all = " ".join(
            ast.unparse(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
        )
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                marks = " ".join([of_all, *map(ast.unparse, node.decorator_list)])
                if "mark.slow" not in marks or "mark.spark_quick" in marks:
                    found.add(node.name)
    return found


def rewrite() -> None:
    existing = existing_tests()
    lines = []
    for line in TABLE.read_text().splitlines():
        if match := re.match(r"\| (P\d\d) \|", line):
            head = line.rstrip().removesuffix("|").rpartition("|")[0]
            names = " ".join(f"`{name}`" for name in sorted(set(existing.get(match[1], []))))
            line = f"{head}| {names} |" if names else f"{head}| |"
        lines.append(line)
    TABLE.write_text("\n".join(lines) + "\n")


def test_every_promise_stands_in_the_table_once() -> None:
    assert list(read_table()) == NUMBERS


@pytest.mark.parametrize("number", NUMBERS)
def test_a_kept_promise_is_tested_and_its_tests_exist(number: str) -> None:
    promise = read_table()[number]
    assert promise.state in ("kept", "open"), f"{number} is {promise.state!r}"
    assert set(promise.tests) == set(existing_tests().get(number, [])), (
        f"the tests of {number} are others than docs/PROMISES.md says: run python tests/test_promises.py"
    )
    if promise.state == "kept":
        assert promise.tests, f"{number} is kept, but docs/PROMISES.md names no test of it"
        assert not run_by_default().isdisjoint(promise.tests), (
            f"{number} is kept, but only scripts/test --slow would notice if it were not"
        )


def test_no_test_claims_a_promise_that_does_not_exist() -> None:
    unknown = set(existing_tests()) - set(NUMBERS) - {""}
    assert not unknown


if __name__ == "__main__":
    rewrite()
    sys.exit(0)
