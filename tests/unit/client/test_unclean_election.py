"""Which living replica an unclean election should elect."""

from __future__ import annotations

from ottla.client.model import ReplicaInfo
from ottla.client.unclean_election import UncleanChoice, ranked


def replica(broker: int, epoch: int, end: int | None) -> ReplicaInfo:
    return ReplicaInfo(0, broker, False, False, 0, end, None, None, epoch)


def choice(*replicas: ReplicaInfo, moving: bool = False) -> UncleanChoice:
    order = tuple(each.broker for each in replicas)
    return UncleanChoice(0, order, ranked(replicas), moving)


def test_the_log_of_the_later_epoch_is_longer_also_if_it_ends_earlier() -> None:
    ranks = ranked([replica(1, 4, 900), replica(2, 5, 300), replica(3, 5, 400)])
    assert [each.broker for each in ranks] == [3, 2, 1]
    assert [each.lacks for each in ranks] == [0, 100, 0]


def test_among_equals_the_order_of_the_assignment_decides_and_stays() -> None:
    equal = choice(replica(2, 5, 300), replica(1, 5, 300))
    assert equal.candidates[0].broker == 2 and equal.order is None


def test_the_longest_is_put_first_unless_only_dead_ones_stand_before_it() -> None:
    assert choice(replica(1, 5, 0), replica(2, 5, 9)).order == (2, 1)
    dead_first = choice(replica(1, -1, None), replica(2, 5, 9), replica(3, 5, 8))
    assert dead_first.order is None and dead_first.silent == (1,)


def test_the_order_of_a_partition_that_is_moved_is_left_alone() -> None:
    assert choice(replica(1, 5, 0), replica(2, 5, 9), moving=True).order is None
