"""Those who wait for a commit: each hears of what became of it, and who gives up costs little."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.replication.purgatory import Purgatory
from ottla.replica.observer import News
from ottla.replica.partition import Partition
from ottla.wire.errors import ErrorCode
from support.counting import counted

MANY = 500
CALLS_TO_GIVE_UP_MAX = 4


class Waiting:
    def __init__(self) -> None:
        self.heard: list[ErrorCode | None] = []

    def committed(self, partition: Partition) -> None:
        self.heard.append(None)

    def not_committed(self, partition: Partition, error: ErrorCode) -> None:
        self.heard.append(error)


class StandIn:
    """As much of a partition as its high watermark concerns."""

    is_under_min_isr = False

    def __init__(self) -> None:
        self.log = SimpleNamespace(high_watermark=0, log_end=0)


class Rig:
    def __init__(self) -> None:
        clock: Any = SimpleNamespace(monotonic=lambda: 0.0)
        self.purgatory = Purgatory(clock)
        self.partition: Any = StandIn()

    def waiting(self, *offsets: int) -> Waiting:
        made = Waiting()
        for offset in offsets:
            self.partition.log.log_end = max(self.partition.log.log_end, offset)
            self.purgatory.await_commit(self.partition, offset, made)
        return made

    def give_up(self, waiting: Waiting) -> None:
        self.purgatory.stop_awaiting(self.partition, waiting)

    def news(self, news: int, high_watermark: int = 0) -> None:
        self.partition.log.high_watermark = high_watermark
        self.purgatory.complete_awaiting(self.partition, news)

    def is_awaited(self) -> bool:
        return self.partition in self.purgatory._awaiting


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_each_hears_of_its_own_offset_in_the_order_in_which_they_came(rig: Rig) -> None:
    first, twice, last = rig.waiting(1), rig.waiting(2, 3), rig.waiting(4)
    rig.news(News.HIGH_WATERMARK, 2)
    assert (first.heard, twice.heard, last.heard) == ([None], [None], [])
    rig.news(News.HIGH_WATERMARK, 3)
    assert (twice.heard, last.heard) == ([None, None], [])
    rig.news(News.DEPOSED, 4)
    assert last.heard == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert not rig.is_awaited()


def test_a_batch_that_came_again_does_not_wait_for_those_that_came_before_it(rig: Rig) -> None:
    """Its first copy is at a lower offset, and is committed first."""
    first, last = rig.waiting(1), rig.waiting(9)
    again, in_between = rig.waiting(3), rig.waiting(6)
    rig.news(News.HIGH_WATERMARK, 3)
    assert (first.heard, again.heard, in_between.heard, last.heard) == ([None], [None], [], [])
    both = rig.waiting(4, 10)  # one request: a batch that came again, and a new one
    rig.news(News.HIGH_WATERMARK, 9)
    assert (in_between.heard, last.heard, both.heard) == ([None], [None], [None])
    rig.news(News.HIGH_WATERMARK, 10)
    assert both.heard == [None, None] and not rig.is_awaited()


def test_who_gave_up_hears_nothing_and_those_behind_do(rig: Rig) -> None:
    first, twice, last = rig.waiting(1), rig.waiting(2, 3), rig.waiting(4)
    rig.news(News.HIGH_WATERMARK, 2)
    rig.give_up(twice)
    rig.news(News.HIGH_WATERMARK, 4)
    assert (first.heard, twice.heard, last.heard) == ([None], [None], [None])
    assert not rig.is_awaited()


def test_the_last_that_gives_up_leaves_nothing_behind(rig: Rig) -> None:
    waiting = rig.waiting(1)
    rig.give_up(waiting)
    assert not rig.is_awaited()
    rig.give_up(waiting)  # nobody is asked whether others have left


def test_of_many_that_give_up_together_none_costs_more_for_the_others(rig: Rig) -> None:
    everybody = [rig.waiting(offset) for offset in range(1, MANY + 1)]
    with counted() as calls:
        for waiting in reversed(everybody):
            rig.give_up(waiting)
    assert calls.of(None) <= MANY * CALLS_TO_GIVE_UP_MAX, calls.most(None)
    assert not rig.is_awaited()
