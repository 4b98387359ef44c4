"""Many histories of the majority design: the quick tests have a few of them."""

from __future__ import annotations

import pytest

from ottla.lab.commit.faults import OutageMix
from support.lab_history import DISKS_REPLACED, MIX, history_of


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mix", [MIX, DISKS_REPLACED], ids=["disks kept", "disks replaced"])
@pytest.mark.parametrize("replicas", [3, 5, 7])
def test_P41_a_majority_loses_nothing_in_a_hundred_histories(replicas: int, mix: OutageMix) -> None:
    failures = (replicas - 1) // 2
    histories = {seed: history_of(seed, "majority", replicas, failures, mix) for seed in range(100)}
    assert sum(each.leader_epoch for each in histories.values()) > 200, "too few elections"
    bad = {seed: each for seed, each in histories.items() if each.lost or each.read_and_lost}
    assert bad == {}
    offline = [seed for seed, each in histories.items() if each.is_offline]
    # A tenth is a guess: one of the first twelve histories with five replicas ended so.
    assert len(offline) <= (len(histories) // 10 if mix is DISKS_REPLACED else 0), offline
