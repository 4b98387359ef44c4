"""Patterns of subscriptions: RE2's syntax, whole names, and never more than linear time."""

from __future__ import annotations

import gc
import random
import re
import string
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.patterns.re2 import (
    STATES_CACHED_MAX,
    STATES_MAX,
    WORK_MAX,
    BadPattern,
    Pattern,
    Patterns,
)
from support.counting import counted


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("orders", ["orders"], ["orders2", "my-orders", ""]),
        ("orders.*", ["orders", "orders-eu"], ["my-orders"]),
        (r"a\.b", ["a.b"], ["axb"]),
        ("a|bc|", ["a", "bc", ""], ["b", "abc"]),
        ("(a|b)+c?", ["a", "abab", "bc"], ["", "c"]),
        ("(?:ab){2}", ["abab"], ["ab", "ababab"]),
        ("a{2,3}", ["aa", "aaa"], ["a", "aaaa"]),
        ("a{2,}", ["aa", "aaaaa"], ["a"]),
        ("a{,2}", ["a{,2}"], ["a", "aa"]),
        ("x*?y+?z??", ["y", "xxyz"], ["xz"]),
        ("[a-c0-2_]+", ["abc_012"], ["d", "3"]),
        ("[^a-c]", ["d", "-"], ["a", ""]),
        ("[]a]", ["]", "a"], ["b"]),
        ("[a-]", ["a", "-"], ["b"]),
        (r"[\d.\-]+", ["1.2-3"], ["a"]),
        ("[[:alpha:]]+[[:^digit:]]", ["abc", "a-"], ["a1", "1a"]),
        (r"\w+\W\d\D\S", ["ab-1xy"], ["ab-xxy"]),
        ("(?i)Orders", ["ORDERS", "orders"], ["order"]),
        ("(?i:a)b", ["Ab", "ab"], ["aB"]),
        ("(?P<name>a)(?<other>b)", ["ab"], ["a"]),
        ("^a$", ["a"], ["aa"]),
        (r"\Aa\z", ["a"], ["b"]),
        (r"a\b.b", ["a-b", "a.b"], ["axb"]),
        (r"a\Bb", ["ab"], ["a"]),
        (r"\Qa.b*\E+", ["a.b*", "a.b***"], ["axb"]),
        (r"\x61\x{62}", ["ab"], ["b"]),
        ("(?s).", ["\n", "a"], [""]),
        (".", ["a"], ["\n"]),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, yes: list[str], no: list[str]) -> None:
    compiled = Pattern(pattern)
    assert [name for name in yes if not compiled.matches(name)] == []
    assert [name for name in no if compiled.matches(name)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "(a",
        "[a",
        "[",
        "*a",
        "+",
        "a**",
        "a{2}{3}",
        "a{1001}",
        "a{3,2}",
        "[b-a]",
        "[[:nope:]]",
        r"(a)\1",
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?<!a)",
        "(?>a)",
        "(?P=a)",
        "(?#no)",
        "\\",
        r"\x6",
        r"\xzz",
        r"\pL",
        "(" * 200 + ")" * 200,
        "((((a{100}){100}){100}){100})",
        "x" * 5000,
    ],
)
def test_what_is_no_pattern_of_re2_or_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        Pattern(pattern)


@pytest.mark.parametrize(
    "pattern", ["(a+)+b", "(a|aa)+b", "(a*)*b", "(.*a){20}b", "(a?){249}a{249}b"]
)
def test_patterns_that_make_others_run_away_take_no_time(pattern: str) -> None:
    began = time.process_time()
    compiled = Pattern(pattern)
    with suppress(BadPattern):
        assert compiled.select("a" * length for length in range(200, 249)) == ()
    assert compiled.work <= WORK_MAX + STATES_MAX
    assert time.process_time() - began < 5


TOPICS = [f"orders-of-customer-{number:03}" for number in range(60)]


@pytest.mark.parametrize(
    "pattern",
    [
        # Its pieces may all be left out, so each step reaches all of them.
        "(?:[a-z0-9._-]?){1000}x",
        "(?:[a-z0-9._-]{0,9}){200}x",
        # What a class costs does not depend on its length.
        f"[{'!' * 2000}{'a-z0-9.-' * 250}]*",
        f"(?:[{'!' * 3000}a-z0-9-]?){{100}}",
        # Nothing but to compile it.
        "(?:(?:){40}){100}x",
        "x{" * 2000,
    ],
)
def test_no_pattern_costs_more_than_some_milliseconds(pattern: str) -> None:
    with counted() as calls, suppress(BadPattern):
        Pattern(pattern).select(TOPICS)
    assert calls.of(None) <= 100_000, calls.most(None)


@pytest.mark.parametrize(
    "pattern",
    [
        "orders-.*",
        "^orders-.*$",
        ".*-0[0-9]+",
        "^[a-zA-Z0-9._-]{1,249}$",
        "(?i).*CUSTOMER.*",
        r".*\b\d+\b.*",
        "|".join(f"orders-of-customer-{number:03}" for number in range(60)),
    ],
)
def test_what_people_write_costs_little_for_any_number_of_topics(pattern: str) -> None:
    compiled = Pattern(pattern)
    for names in (TOPICS, [f"{name}-{each}" for name in TOPICS for each in range(20)]):
        compiled.select(names)
        assert compiled.work <= WORK_MAX / 4


atoms = st.sampled_from(["a", "b", "-", ".", "[ab]", "[^a]", r"\w", r"\d", "ab"])
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        inner.map(lambda text: f"(?:{text})*"),
        inner.map(lambda text: f"(?:{text})+"),
        inner.map(lambda text: f"(?:{text})?"),
        inner.map(lambda text: f"(?:{text}){{1,2}}"),
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(patterns, st.text("ab-1", max_size=6))
def test_what_both_can_say_means_the_same_as_in_python(pattern: str, name: str) -> None:
    assert Pattern(pattern).matches(name) == bool(re.fullmatch(pattern, name, re.ASCII))


@settings(max_examples=300, deadline=None)
@given(st.text(string.printable, max_size=30), st.text("ab", max_size=5))
def test_any_text_is_a_pattern_or_is_refused(pattern: str, name: str) -> None:
    with suppress(BadPattern):
        Pattern(pattern).matches(name)


def test_many_topics_are_matched_quickly_and_a_costly_pattern_gives_up() -> None:
    names = [f"orders-{number}-{'ab' * 40}" for number in range(10_000)]
    began = time.process_time()
    assert len(Pattern("orders-[0-9]+-.*").select(names)) == 10_000
    assert time.process_time() - began < 2
    draw = random.Random(1)
    names = ["".join(draw.choices("ab", k=200)) for _ in range(1_000)]
    with pytest.raises(BadPattern):
        Pattern(".*a.{300}|.*").select(names)


@contextmanager
def keeps_at_most(size: int) -> Iterator[None]:
    """What is done takes no more memory than this when it is over."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield
        gc.collect()  # also what the interpreter keeps for its next tuples
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before <= size


def test_many_large_patterns_take_little_memory() -> None:
    patterns = Patterns()
    with keeps_at_most(6 << 20):
        for number in range(300):
            patterns.compiled(f"orders-{number}[a-z]{{900}}").select(["orders"])


def test_a_pattern_does_not_keep_what_its_names_have_cost() -> None:
    alike = random.Random(7)
    names = ["".join(alike.choices("abcdef", k=249)) for _ in range(40)]
    pattern = Pattern(".*a.{100}")
    with keeps_at_most(1 << 16), suppress(BadPattern):
        pattern.select(names)


def test_patterns_of_late_are_remembered_and_the_oldest_goes_first() -> None:
    large = f"[ab]{{{STATES_CACHED_MAX // 20 - 10}}}"
    patterns = Patterns(STATES_CACHED_MAX // 5)
    first, second = patterns.compiled(large), patterns.compiled(f"x?{large}")
    assert patterns.compiled(large) is first
    patterns.compiled(f"y?{large}")
    assert patterns.compiled(large) is first
    assert patterns.compiled(f"x?{large}") is not second
