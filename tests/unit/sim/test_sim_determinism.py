"""C5: the same seed is the same run, byte for byte, whatever the process it runs in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import echo_cluster
import pytest

from ottla.sim import first_difference

PROGRAM = str(Path(__file__).with_name("echo_cluster.py"))


def digest_in_a_new_process(seed: int, hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, PROGRAM, str(seed)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[0]


@pytest.mark.parametrize("seed", range(6))
def test_what_was_acknowledged_survives_kills_power_loss_and_partitions(seed: int) -> None:
    world, clients = echo_cluster.run(seed)
    assert world.loop.events > 1000
    assert all(len(client.acknowledged) > 50 for client in clients)


def test_C5_the_same_seed_gives_the_same_trace_in_processes_with_different_hash_seeds() -> None:
    here = echo_cluster.run(11)[0].digest()
    assert digest_in_a_new_process(11, "1") == here
    assert digest_in_a_new_process(11, "4242") == here


def test_C5_the_same_seed_gives_the_same_lines_after_different_allocations() -> None:
    first = echo_cluster.run(12, keep_trace=True)[0]
    padding = [bytearray(n) for n in range(2000)]
    second = echo_cluster.run(12, keep_trace=True)[0]
    assert padding
    assert first.loop.trace.lines is not None and second.loop.trace.lines is not None
    assert len(first.loop.trace.lines) > 1000
    assert first_difference(first.loop.trace.lines, second.loop.trace.lines) is None
    assert first.digest() == second.digest()


def test_different_seeds_differ_and_the_first_difference_is_named() -> None:
    one = echo_cluster.run(1, keep_trace=True)[0].loop.trace
    other = echo_cluster.run(2, keep_trace=True)[0].loop.trace
    assert one.lines is not None and other.lines is not None
    assert one.digest() != other.digest()
    difference = first_difference(one.lines, other.lines)
    assert difference is not None and difference.startswith("line ")
