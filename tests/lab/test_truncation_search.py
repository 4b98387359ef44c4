"""The random schedules of the truncation designs. The slow tier searches 2,000 of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import cache

import pytest

from ottla.lab.truncation.search import SeedOutcome, run_seed, schedule_of

FIRST = range(60)
FAULTS_TOLD = (
    "the controller gives the leadership",
    "is killed",
    "loses its power",
    " starts",
    "cannot reach each other",
    "reach each other again",
    "the connections between",
    "hears nothing",
    "hears the controller again",
)
"""How the events tell of the faults of a schedule."""

outcome_of = cache(run_seed)


def first(
    design: str, is_bad: Callable[[SeedOutcome], object], seeds: Iterable[int]
) -> SeedOutcome:
    for seed in seeds:
        outcome = outcome_of(design, seed)
        if is_bad(outcome):
            return outcome
    pytest.fail(f"nothing found under {design}")


@pytest.mark.parametrize(
    ("design", "is_bad"),
    [
        ("hw-truncation", lambda outcome: outcome.lost),
        pytest.param("hw-truncation", lambda outcome: outcome.differing, marks=pytest.mark.slow),
        ("kip101-first", lambda outcome: outcome.differing),
    ],
    ids=["a loss by HW truncation", "a divergence by HW truncation", "a divergence by KIP-101"],
)
def test_P29_P44_random_search_finds(design: str, is_bad: Callable[[SeedOutcome], object]) -> None:
    """And under the same schedule the product loses nothing, and its replicas agree."""
    bad = first(design, is_bad, FIRST)
    assert not bad.failures
    product = outcome_of("leader-epochs", bad.seed)
    assert (product.lost, product.differing, product.is_stuck, product.failures) == (
        [],
        0,
        False,
        [],
    )
    assert product.acknowledged


def test_P44_the_story_of_a_seed_has_the_truncation_that_lost_the_record() -> None:
    bad = first("hw-truncation", lambda outcome: outcome.lost, FIRST)
    assert any("truncates its log" in what for _, what in bad.events), bad.events


def test_the_same_seed_finds_the_same() -> None:
    assert run_seed("hw-truncation", 3) == run_seed("hw-truncation", 3)


def test_a_schedule_is_drawn_from_its_seed_alone() -> None:
    random.seed(1)
    before = [schedule_of(seed) for seed in range(20)]
    random.seed(2)
    assert [schedule_of(seed) for seed in range(20)] == before
    assert len({schedule.faults for schedule in before}) == 20


def test_every_fault_of_a_schedule_happens_or_is_counted_as_skipped() -> None:
    """What happened is told in the events, so they can be counted there too."""
    skipped = 0
    for design in ("leader-epochs", "hw-truncation"):
        for seed in range(8):
            outcome = outcome_of(design, seed)
            told = sum(any(each in what for each in FAULTS_TOLD) for _, what in outcome.events)
            assert outcome.faults == len(schedule_of(seed).faults)
            assert told + outcome.skipped == outcome.faults, outcome.events
            skipped += outcome.skipped
    assert skipped


def test_P30_a_loss_is_excused_only_by_a_leader_from_outside_of_the_isr() -> None:
    """The schedule took the power of the last in-sync replica: then no truncation rule is to blame."""
    seeds = [seed for seed in range(200) if not schedule_of(seed).spares_the_last]
    outcome = first("leader-epochs", lambda outcome: outcome.excused, seeds)
    happened = [what for _, what in outcome.events]
    assert not outcome.lost
    assert any("nobody leads" in what for what in happened), happened
    assert any("loses its power" in what for what in happened), happened


def test_P15_a_schedule_that_spares_the_last_in_sync_replica_never_leaves_the_partition_alone() -> (
    None
):
    seeds = [seed for seed in range(20) if schedule_of(seed).spares_the_last]
    for seed in seeds[:8]:
        outcome = outcome_of("leader-epochs", seed)
        assert not any("nobody leads" in what for _, what in outcome.events), outcome.events
        assert not outcome.excused
