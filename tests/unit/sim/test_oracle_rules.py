"""Every invariant names the methods that check it, and they exist."""

from __future__ import annotations

from functools import reduce
from importlib import import_module

import pytest

from ottla.sim.oracle.ledger import Violation
from ottla.sim.oracle.rules import RULES


def resolve(name: str) -> object:
    package, module, *attributes = name.split(".")
    found = import_module(f"ottla.sim.{package}.{module}")
    return reduce(getattr, attributes, found)


@pytest.mark.parametrize("rule", RULES)
def test_the_checks_of_a_rule_exist(rule: str) -> None:
    assert RULES[rule].checked_in
    for name in RULES[rule].checked_in:
        assert callable(resolve(name)), name


def test_a_violation_says_where_what_was_found_and_what_was_expected() -> None:
    text = str(Violation("D9", "node 1, t0-0, at 1.5", "requires 1 in-sync replica", ["1.4 …"]))
    assert text.splitlines() == [
        "D9 node 1, t0-0, at 1.5: requires 1 in-sync replica",
        f"expected: {RULES['D9'].says}",
        "last seen there:",
        "  1.4 …",
    ]
