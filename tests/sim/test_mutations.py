"""Known bugs, put back: the simulator must notice each, or its silence about the product means little."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from ottla.coordinators.groups.group_shard import GroupShard
from ottla.sim.engine.patches import Patch, patched
from ottla.sim.faults.registry import FAULTS
from ottla.sim.mutate import SEEDS_MAX, Finding, caught_by, hunt, rows_in, table
from ottla.sim.mutations import MUTATIONS
from ottla.sim.oracle.coverage import RARE, missing
from ottla.sim.run.options import RunOptions
from ottla.sim.run.outcome import RunOutcome, Verdict
from ottla.sim.run.scenario import run_seed

TROUBLE_S = 3.0

QUICK = {
    "absent_topics_are_told_to_anybody": {"A4"},
    "absent_users_are_refused_at_once": {"A4"},
    "answers_acks_all_at_append": {"D3"},
    "fetches_before_it_has_flushed": {"M4"},
    "leader_does_not_note_its_epoch": {"assertion"},
    "truncates_to_its_high_watermark": {"D7"},
    "shows_uncommitted_records": {"C3", "D11"},
    "last_stable_offset_is_the_high_watermark": {"C3"},
    "aborted_offsets_are_kept": {"C4"},
    "metadata_counts_as_flushed_too_soon": {"M4"},
}
"""Those that the first seeds notice within seconds, and the rules of which one does."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_a_mutation_leaves_the_product_as_it_was(name: str) -> None:
    patches = MUTATIONS[name].patches()
    before = [vars(owner)[attribute] for owner, attribute, _ in patches]
    with MUTATIONS[name].applied():
        during = [vars(owner)[attribute] for owner, attribute, _ in patches]
    after = [vars(owner)[attribute] for owner, attribute, _ in patches]
    assert before == after
    assert all(one is not other for one, other in zip(before, during, strict=True))


@pytest.mark.parametrize("name", sorted(QUICK))
def test_random_seeds_notice_a_known_bug_at_once(name: str) -> None:
    finding = hunt(name, 10, trouble_s=TROUBLE_S)
    assert finding.caught_by in QUICK[name], finding


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_random_seeds_notice_every_known_bug(name: str) -> None:
    finding = hunt(name, SEEDS_MAX)
    assert finding.caught_by, f"{finding.seeds} seeds did not notice {name}"


def outcome(verdict: Verdict, problem: str) -> RunOutcome:
    return RunOutcome(0, verdict, problem, "", 0, 0.0)


def test_only_invariants_assertions_and_missing_progress_count() -> None:
    assert caught_by(outcome(Verdict.PASSED, "")) == ""
    assert caught_by(outcome(Verdict.SAFETY, "D9 node 1, t0-0: HW moved")) == "D9"
    assert caught_by(outcome(Verdict.LIVENESS, "180 seconds after")) == "liveness"
    assert caught_by(outcome(Verdict.CRASH, "AssertionError: fenced (M8, M9)")) == "M8 (assertion)"
    assert caught_by(outcome(Verdict.CRASH, "AssertionError: what")) == "assertion"
    assert caught_by(outcome(Verdict.CRASH, "TypeError: a mistake of the mutation")) == ""
    assert caught_by(outcome(Verdict.SAFETY, "M node 1: left the quorum: KeyError(3)")) == ""


def test_the_table_has_a_row_for_each_bug_and_says_what_was_not_caught() -> None:
    one, other = list(MUTATIONS)[:2]
    text = table([Finding(other, "", 9, 10, 1.0, ""), Finding(one, "D3", 0, 3, 1.0, "")])
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert rows[0].startswith(f"| `{one}`") and rows[1].startswith(f"| `{other}`")
    assert f"1 of {len(MUTATIONS)}" in text and "**not caught**" in rows[1]
    kept = rows_in(text)
    assert "no bug took more than 3 seeds" in text
    assert (kept[one].caught_by, kept[one].seeds) == ("D3", 3)
    assert (kept[other].caught_by, kept[other].seeds) == ("", 10)


def test_a_run_tells_which_rare_states_it_met() -> None:
    met = run_seed(0, options=RunOptions.draw(0, 3.0)).marks
    assert met and set(met) <= set(RARE)
    everything = dict.fromkeys(RARE, 1)
    assert missing(everything, dict.fromkeys(FAULTS, 1), FAULTS) == []
    assert missing({}, {}, FAULTS) == [*RARE, *FAULTS]


def test_what_a_coordinator_catches_and_survives_is_a_crash() -> None:
    options = next(found for seed in range(20) if (found := RunOptions.draw(seed, 1.0)).groups)

    def fails(*_: object) -> None:
        raise AssertionError("nobody hears this")

    with patched([Patch(GroupShard, "_replay", fails)]):
        outcome = run_seed(options.seed, options=options)
    assert outcome.verdict is Verdict.CRASH and "nobody hears this" in outcome.problem
