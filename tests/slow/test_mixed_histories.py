"""Random faults on clusters of both implementations: nothing is lost, doubled or stuck, and no two replicas differ.

OTTLA_MIXED_RUNS says how many histories, OTTLA_MIXED_SECONDS how long each is, OTTLA_MIXED_SEED which ones.
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import pytest

from support.mixed_history import live

RUNS = int(os.environ.get("OTTLA_MIXED_RUNS", "5"))
SECONDS = float(os.environ.get("OTTLA_MIXED_SECONDS", "60"))
FIRST = int(os.environ.get("OTTLA_MIXED_SEED", "1"))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900 + 4 * SECONDS)]


@pytest.mark.parametrize("seed", range(FIRST, FIRST + RUNS))
def test_nothing_is_lost_doubled_diverged_or_stuck(tmp_path: Path, seed: int) -> None:
    try:
        print(live(tmp_path / "cluster", seed, SECONDS))
    except BaseException:
        traceback.print_exc()  # now: the others take an hour
        raise
