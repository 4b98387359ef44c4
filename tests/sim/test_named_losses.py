"""Unclean elections in the simulator: what brokers name and keep is exactly what was lost. Each check can fail."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from ottla.log.kept_records import Keeping, Kept, KeptRecords
from ottla.log.mark import CommittedMark
from ottla.sim.run.outcome import RunOutcome, Verdict
from ottla.sim.run.scenario import run_seed
from ottla.sim.run.unclean import unclean_options

SEEDS = 8
WITH_A_LOSS_MIN = 3
"""Seeds with unclean elections that must lose something: the others show only that nothing is named then."""


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def outcomes(quiet: None) -> list[RunOutcome]:
    return [run_seed(seed, options=unclean_options(seed)) for seed in range(SEEDS)]


@pytest.fixture
def costly(outcomes: list[RunOutcome]) -> int:
    """The seed that loses the most records, in several elections."""
    return max(outcomes, key=lambda outcome: outcome.records_lost).seed


def test_named_losses_are_exactly_what_was_lost(outcomes: list[RunOutcome]) -> None:
    failed = [outcome for outcome in outcomes if outcome.verdict is not Verdict.PASSED]
    assert not failed, f"seed {failed[0].seed}: {failed[0].problem}"
    assert sum(outcome.records_lost > 0 for outcome in outcomes) >= WITH_A_LOSS_MIN


def caught(seed: int) -> str:
    outcome = run_seed(seed, options=unclean_options(seed))
    assert outcome.verdict is Verdict.SAFETY, "the bug was not noticed"
    return outcome.problem


def test_a_range_that_begins_one_record_late_is_noticed(
    costly: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = KeptRecords.completed

    def late(self: KeptRecords, kept: Kept) -> None:
        first, *rest = kept.manifest.epochs
        begin = first.first + 1
        epochs = (*([first._replace(first=begin)] if begin < first.end else []), *rest)
        manifest = kept.manifest._replace(first_offset=begin, epochs=epochs)
        original(self, kept._replace(manifest=manifest))

    monkeypatch.setattr(KeptRecords, "completed", late)
    assert "lost, but not named" in caught(costly)


def test_records_that_are_copied_after_they_were_cut_off_are_noticed(
    costly: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, done = KeptRecords._copy, Keeping.done
    to_copy: list[tuple[object, ...]] = []

    def copy_later(*given: object) -> None:
        to_copy.append(given)

    def done_late(self: Keeping) -> None:
        while to_copy:
            copy(*to_copy.pop())  # type: ignore[arg-type]
        done(self)

    monkeypatch.setattr(KeptRecords, "_copy", copy_later)
    monkeypatch.setattr(Keeping, "done", done_late)
    assert "not kept byte for byte" in caught(costly)


def test_a_high_watermark_that_is_only_the_checkpoints_is_noticed(
    costly: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CommittedMark, "write", lambda *_: None)
    assert "named as possible only" in caught(costly)
