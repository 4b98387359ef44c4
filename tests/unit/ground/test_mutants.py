"""The tool that plants bugs: each mutant is one change, still a module, and the sample depends on its seed alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutants.operators import Mutant, mutants_of
from mutants.report import BEGIN, END, Score, replaced, tables
from mutants.sample import draw, package_of

from ottla import raft

SOURCES = sorted(Path(raft.__file__).parent.glob("*.py"))


def changed(source: str) -> dict[str, list[str]]:
    """By kind: what the source becomes."""
    found: dict[str, list[str]] = {}
    for mutant in mutants_of("ottla/raft/x.py", source):
        found.setdefault(mutant.kind, []).append(mutant.applied(source))
    return found


def test_a_bound_is_moved_by_one() -> None:
    source = "def f(a, b):\n    return a < b\n"
    assert changed(source)["comparison"] == ["def f(a, b):\n    return (a <= b)\n"]


def test_each_part_of_a_condition_is_dropped_once() -> None:
    source = "def f(a, b, c):\n    return a and b and c\n"
    assert changed(source)["condition dropped"] == [
        "def f(a, b, c):\n    return (a and b)\n",
        "def f(a, b, c):\n    return (a and c)\n",
        "def f(a, b, c):\n    return (b and c)\n",
    ]


def test_a_forgotten_reset_is_told_from_a_removed_statement() -> None:
    source = "def f(self, x):\n    self.a = None\n    self.b = x.now()\n"
    found = changed(source)
    assert found["reset forgotten"] == ["def f(self, x):\n    pass\n    self.b = x.now()\n"]
    assert "def f(self, x):\n    self.a = None\n    pass\n" in found["statement removed"]


def test_statements_are_swapped_unless_the_second_needs_the_first() -> None:
    found = changed("def f(self):\n    a = self.x()\n    self.y(a)\n    self.z()\n")
    assert found["statements swapped"] == [
        "def f(self):\n    a = self.x()\n    self.z()\n    self.y(a)\n"
    ]


def test_what_people_read_and_what_asserts_say_is_left_alone() -> None:
    source = (
        'def f(self, n):\n    """1"""\n    assert n > 0, 1\n    log.info("x %d %d", n, 2)\n'
        '    raise E(f"{n + 1}", 3)\n'
    )
    assert changed(source) == {}


def test_lines_keep_their_numbers() -> None:
    source = "def f(a, b):\n    if (\n        a\n        and b\n    ):\n        g(a)\n    h(b)\n"
    for texts in changed(source).values():
        assert all(text.count("\n") == source.count("\n") for text in texts), texts


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_every_mutant_of_a_module_is_a_module_and_another_one(path: Path) -> None:
    source = path.read_text()
    tree = ast.dump(ast.parse(source))
    for mutant in mutants_of(f"ottla/raft/{path.name}", source)[::7]:
        assert ast.dump(ast.parse(mutant.applied(source))) != tree, mutant


def mutant(number: int, path: str = "ottla/raft/x.py") -> Mutant:
    return Mutant(path, number, 0, "constant", "1", "2", number, 1)


@given(st.integers(0, 99), st.integers(1, 40))
def test_a_sample_depends_on_its_seed_and_takes_from_each_package_its_share(
    seed: int, count: int
) -> None:
    population = {
        "raft": [mutant(number) for number in range(30)],
        "log": [mutant(number, "ottla/log/x.py") for number in range(10)],
    }
    sample = draw(population, count, seed)
    assert sample == draw(population, count, seed)
    of_raft = sum(package_of(each.path) == "raft" for each in sample)
    assert of_raft == round(count * 3 / 4) and len(set(sample)) == len(sample)


def result(number: int, unit: str | None, seed: str | None, seeds: int = 100) -> dict[str, object]:
    return {
        "id": str(number),
        **mutant(number)._asdict(),
        "commit": "abc",
        "unit": {"killed_by": unit, "tests": 3, "seconds": 1},
        "simulator": {"killed_by": seed, "seeds": seeds, "of": 100, "seconds": 1},
    }


def test_the_table_counts_who_noticed_and_names_whom_nobody_noticed() -> None:
    results = [
        result(1, "test_a", None),
        result(2, None, "seed 30 SAFETY", 31),
        result(3, None, None),
        result(4, None, None),
    ]
    text = tables({1: results}, {"4": "the bound is never met"})
    assert "| **all** | 1 of 3, 33 % | 0 of 3, 0 % | 1 of 3, 33 % | 2 of 3, 67 % |" in text
    assert "Nobody noticed 1:" in text and "| `ottla/raft/x.py:3` | constant |" in text
    assert "the bound is never met" in text
    assert replaced(f"a\n{BEGIN}\nold\n{END}\nb", text) == f"a\n{text}\nb"
    assert str(Score(0, 0)) == "–"
