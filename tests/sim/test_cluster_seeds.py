"""Whole nodes under load and faults: every seed must keep every invariant, and come to rest in the end.

A failing seed prints its replay command.
"""

from __future__ import annotations

import logging
import os
import time

import pytest

from ottla.sim.run.options import RunOptions
from ottla.sim.run.outcome import RunOutcome, Verdict
from ottla.sim.run.scenario import run_seed
from ottla.sim.run.seeds import Tally, outcomes

SEEDS = range(210)
VIRTUAL_S_MIN = 60.0
PROGRESS_EVERY_S = 15.0

REGRESSIONS = {
    12: "a stopping broker acknowledged a record after its logs were closed",
    16: "a killed process's unflushed names were never flushed by its successor",
    22: "a log's start was asked of a leader that led no more, and its silence was taken for 'nothing expired'",
    35: "the one new disk at the end went to a node that had mended its damage, not to the damaged leader",
    36: "what was committed in the event in which the disk failed was not on the checkers' record",
    56: "a broker that had not heard of a new topic told the end of the former one of that name",
    57: "an emptied log forgot its last epoch in a restart, and went on with other records",
    72: "a partition that came back and left again within a minute took its log directory offline",
    83: "a log begun anew within a batch was held to contradict what was committed; "
    "a broker that stopped before it heard of a topic took the log that it never had for lost",
    109: "after a restart a producer's retries were taken for a gap",
    117: "a client that once more heard of a deleted topic took the epochs of the next one for older",
    128: "a log whose lost records had expired was compared with what took their place",
    138: "damage that was met where producers are rebuilt ended the broker, not the replica",
    151: "a leader that did not know of its successors was held to know what they had committed",
    155: "a replica of a deleted topic that cut its log was held to what a new topic of that name committed",
    163: "the oracle looked for a newest batch where all that was appended had expired",
    177: "three followers and two session slots: none was ever answered",
    199: "a follower that differed only in what had expired was compared where it had taken over that start",
    237: "a compacted replica had dropped a value for the sake of one that its leader then lost",
    259: "a flush that failed while the broker stopped left a clean-shutdown marker",
    271: "a deletion that was given up was carried out after its topic had been made anew",
    354: "a high watermark told with a diverging answer was never told again",
    734: "a follower went on with a session that did not know its partition",
}
"""What a seed found when it was new. Its course changes with the code, so each has a unit test too."""


def failure(outcome: RunOutcome) -> str:
    return (
        f"seed {outcome.seed}: {outcome.verdict.name}\n{outcome.problem}\n"
        f"again: ottla sim --seed {outcome.seed}"
    )


@pytest.mark.timeout(2400)  # with the lowest priority, beside clusters
def test_invariants_hold_and_the_cluster_comes_to_rest(capsys: pytest.CaptureFixture[str]) -> None:
    """Over all cores; how far it is goes to the terminal."""
    tally, began = Tally(), time.monotonic()
    told = began
    for outcome in outcomes([RunOptions.draw(seed) for seed in SEEDS], jobs=os.cpu_count() or 1):
        tally.add(outcome)
        passed = outcome.verdict is Verdict.PASSED
        assert not passed or outcome.virtual_s >= VIRTUAL_S_MIN
        now = time.monotonic()
        if not passed or now - told >= PROGRESS_EVERY_S or tally.count == len(SEEDS):
            told = now
            with capsys.disabled():
                print(f"\n{tally.progress(len(SEEDS), now - began)}", end="", flush=True)
    assert not tally.failed, "\n\n".join(map(failure, tally.failed))
    assert tally.count == len(SEEDS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", sorted(REGRESSIONS))
def test_seeds_that_once_failed(seed: int) -> None:
    logging.disable(logging.CRITICAL)
    try:
        outcome = run_seed(seed)
    finally:
        logging.disable(logging.NOTSET)
    assert outcome.verdict is Verdict.PASSED, failure(outcome)
