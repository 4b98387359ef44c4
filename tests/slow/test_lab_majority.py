"""Many histories of the majority design: the quick tests have a few of them."""

from __future__ import annotations

import pytest

from support.lab_history import history_of


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [3, 5, 7])
def test_P41_a_majority_loses_nothing_in_a_hundred_histories(replicas: int) -> None:
    failures = (replicas - 1) // 2
    histories = {seed: history_of(seed, "majority", replicas, failures) for seed in range(100)}
    assert sum(each.leader_epoch for each in histories.values()) > 200, "too few elections"
    bad = {seed: each for seed, each in histories.items() if each.lost or each.read_and_lost}
    assert bad == {}
