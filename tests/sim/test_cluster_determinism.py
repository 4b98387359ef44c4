"""C5: the same seed is the same run, event for event, in one process and in another, whatever the hashes."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest

from ottla.sim import first_difference
from ottla.sim.run.options import RunOptions
from ottla.sim.run.outcome import Verdict
from ottla.sim.run.scenario import run_seed

SEED = 42
TROUBLE_S = 5.0
SLOW_LINES = 1

DIGEST = f"""
import logging
from ottla.sim.run.options import RunOptions
from ottla.sim.run.scenario import run_seed
logging.disable(logging.CRITICAL)
print(run_seed({SEED}, options=RunOptions.draw({SEED}, {TROUBLE_S})).digest)
"""


def trace(seed: int) -> list[str]:
    logging.disable(logging.CRITICAL)
    try:
        outcome = run_seed(seed, keep_trace=True, options=RunOptions.draw(seed, TROUBLE_S))
    finally:
        logging.disable(logging.NOTSET)
    assert outcome.trace is not None
    return outcome.trace


def digest_elsewhere(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    ran = subprocess.run(
        [sys.executable, "-c", DIGEST], env=environment, capture_output=True, text=True, check=True
    )
    return ran.stdout.strip()


def test_a_seed_runs_the_same_twice_and_another_differently() -> None:
    first = trace(SEED)
    allocated = [bytearray(size) for size in range(1000)]
    difference = first_difference(first, trace(SEED))
    assert difference is None, difference
    assert first_difference(first, trace(SEED + 1)) is not None
    del allocated


def test_a_run_leaves_nothing_behind_in_what_was_drawn_for_it() -> None:
    """Else the tries of --minimize would depend on each other. Many lines of this one are slow in the end."""
    options = RunOptions.draw(SLOW_LINES, 4.0)
    options.faults.weights |= {**dict.fromkeys(options.faults.weights, 0), "slow_line": 1}
    options.faults.every_s = 0.3
    logging.disable(logging.CRITICAL)
    try:
        first, second = (run_seed(SLOW_LINES, options=options) for _ in range(2))
    finally:
        logging.disable(logging.NOTSET)
    assert len(first.struck) > 1
    assert first.digest == second.digest


@pytest.mark.parametrize("hash_seeds", [("0", "0"), ("1", "4711")])
def test_a_seed_runs_the_same_in_another_process(hash_seeds: tuple[str, str]) -> None:
    one, other = map(digest_elsewhere, hash_seeds)
    assert one and one == other


def test_seeds_in_several_processes_run_as_each_does_alone() -> None:
    command = [sys.executable, "-m", "ottla.sim", "--trouble", str(TROUBLE_S)]
    many = subprocess.run(
        [*command, "--seeds", f"{SEED}..{SEED + 2}", "--jobs", "2"], capture_output=True, text=True
    )
    runs = {
        int(words[0]): words
        for line in many.stdout.splitlines()
        if len(words := line.split()) > 1 and words[1] in Verdict.__members__
    }
    assert sorted(runs) == [SEED, SEED + 1], many.stdout + many.stderr
    assert runs[SEED][-1] == digest_elsewhere("0")
    passed = all(words[1] == "PASSED" for words in runs.values())
    assert passed == (many.returncode == 0)
