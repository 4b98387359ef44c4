"""The majority design itself: with up to f failures at a time no acknowledged record is lost. Without that, comparing it would
mean nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from ottla.lab.commit import majority
from ottla.lab.commit.rules import Completeness, majority_of
from ottla.metadata.records import NO_LEADER
from support.lab_history import history_of


@pytest.mark.parametrize(("replicas", "seeds"), [(3, (3, 5)), (5, (1, 5))])
def test_P41_a_majority_loses_no_acknowledged_record_with_f_failures_at_a_time(
    replicas: int, seeds: tuple[int, ...]
) -> None:
    histories = [history_of(seed, "majority", replicas, (replicas - 1) // 2) for seed in seeds]
    assert sum(each.leader_epoch for each in histories) > 2 * len(seeds), "too few elections"
    assert all(each.acknowledged > 500 for each in histories), histories
    assert [(each.lost, each.read_and_lost) for each in histories] == [(0, 0)] * len(seeds)


def test_P41_a_majority_that_elects_the_least_complete_log_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def least_complete(
        replicas: Sequence[int], logs: Mapping[int, Completeness], may_lead: Callable[[int], bool]
    ) -> int:
        alive = [replica for replica in replicas if replica in logs and may_lead(replica)]
        enough = len(alive) >= majority_of(len(replicas))
        return min(alive, key=lambda replica: logs[replica]) if enough else NO_LEADER

    monkeypatch.setattr(majority, "most_complete", least_complete)
    assert any(history_of(seed, "majority", 5, 2).lost for seed in (1, 3))


def test_P41_a_majority_history_is_the_same_for_the_same_seed() -> None:
    assert history_of(3, "majority", 3, 1) == history_of(3, "majority", 3, 1)
