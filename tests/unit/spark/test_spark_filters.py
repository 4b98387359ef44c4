"""Conditions of a query that decide what is fetched."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from ottla.spark.read.filters import Narrowing
from ottla.spark.read.splits import Range

RANGES = [Range("a", None, 0, 0, 100), Range("a", None, 1, 50, 60), Range("b", None, 0, 0, 5)]


@dataclass
class Condition:
    attribute: tuple[str, ...]
    value: Any = None


def condition(kind: str, column: str, value: Any = None) -> Any:
    """As Spark's filters look, without Spark."""
    return type(kind, (Condition,), {})((column,), value)


def narrowed(*conditions: Any) -> list[tuple[str, int, int, int]]:
    narrowing = Narrowing([])
    for each in conditions:
        assert narrowing.take(each), "is met exactly"
    return [(each.topic, each.partition, each.start, each.end) for each in narrowing.of_places(RANGES)]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("EqualTo", "topic", "b"), [("b", 0, 0, 5)]),
        (("In", "partition", (1, 2)), [("a", 1, 50, 60)]),
        (("GreaterThan", "partition", 0), [("a", 1, 50, 60)]),
        (("LessThanOrEqual", "partition", 0), [("a", 0, 0, 100), ("b", 0, 0, 5)]),
        (("EqualTo", "offset", 55), [("a", 0, 55, 56), ("a", 1, 55, 56)]),
        (("GreaterThan", "offset", 57), [("a", 0, 58, 100), ("a", 1, 58, 60)]),
        (("GreaterThanOrEqual", "offset", 60), [("a", 0, 60, 100)]),
        (("LessThan", "offset", 5), [("a", 0, 0, 5), ("b", 0, 0, 5)]),
        (("LessThanOrEqual", "offset", 2), [("a", 0, 0, 3), ("b", 0, 0, 3)]),
        (("IsNotNull", "offset"), [("a", 0, 0, 100), ("a", 1, 50, 60), ("b", 0, 0, 5)]),
    ],
)
def test_what_is_met_exactly(given: tuple[Any, ...], expected: Any) -> None:
    assert narrowed(condition(*given)) == expected


def test_conditions_add_up() -> None:
    both = condition("GreaterThan", "offset", 10), condition("LessThan", "offset", 20)
    assert narrowed(*both, condition("EqualTo", "topic", "a")) == [("a", 0, 11, 20)]


@pytest.mark.parametrize(
    "given",
    [
        ("EqualTo", "value", b"x"),
        ("IsNotNull", "key"),
        ("StringStartsWith", "topic", "a"),
        ("EqualTo", "partition", None),
        ("Not", "partition", 0),
    ],
)
def test_what_is_left_to_spark(given: tuple[Any, ...]) -> None:
    narrowing = Narrowing([])
    assert not narrowing.take(condition(*given))
    assert narrowing.of_places(RANGES) == RANGES


def test_several_offsets_bound_the_range_and_are_checked_by_spark() -> None:
    narrowing = Narrowing([])
    assert not narrowing.take(condition("In", "offset", (3, 1)))
    assert (narrowing.first, narrowing.behind) == (1, 4)


def test_a_time_says_where_to_begin_and_is_checked_by_spark() -> None:
    narrowing = Narrowing([])
    time = datetime(2024, 1, 1, microsecond=1500, tzinfo=UTC)
    assert not narrowing.take(condition("GreaterThan", "timestamp", time))
    assert narrowing.since_ms == 1_704_067_200_001
    assert not narrowing.take(condition("LessThan", "timestamp", time.replace(year=2025)))
    assert narrowing.since_ms == 1_704_067_200_001


def test_nothing_equals_null() -> None:
    narrowing = Narrowing([])
    assert not narrowing.take(condition("In", "offset", (3, 1, None)))
    assert (narrowing.first, narrowing.behind) == (1, 4)
    narrowing = Narrowing([])
    assert not narrowing.take(condition("In", "offset", (None,)))
    assert [each.size for each in narrowing.of_places(RANGES)] == [100, 10, 5]
