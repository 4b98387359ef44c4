"""The small version of tests/slow/test_fuzzed_frames.py: some seconds, and a cluster in which one node passes requests on to others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.fuzzed_cluster import Attack, fuzzed_cluster

FRAMES = 8_000
SEED = 7


@pytest.mark.timeout(300)
def test_fuzzed_frames_over_sockets_leave_a_secured_node_well_and_nobody_inside(
    tmp_path: Path,
) -> None:
    with fuzzed_cluster(tmp_path, brokers=3) as cluster:
        attack = Attack(cluster, FRAMES, SEED)
        attack.growth_mb_max = 64.0  # it is still warming up
        try:
            attack.run(seconds=180)
        finally:
            print(json.dumps(attack.report(), indent=1))
    assert attack.handled >= 0.99 * FRAMES
