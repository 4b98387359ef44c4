"""By which rule the high watermark moves (D9), condition by condition: each test fails if its condition is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.wire.errors import ErrorCode
from support.replica_world import LAG_S, World


def led_by_1(tmp_path: Path, brokers: int = 3, *, min_isr: int = 1) -> World:
    """All have fetched once, so all ends are known."""
    world = World(tmp_path, brokers, min_isr)
    world.settle()
    return world


def high_watermark(world: World, id: int = 1) -> int:
    return world[id].log.high_watermark


# -- who counts on the leader


def test_D9_the_leaders_own_end_counts(tmp_path: Path) -> None:
    world = led_by_1(tmp_path, 2)
    world.eligible[2] = None
    world.decide(isr=(1,))
    world.produce(1, "a")
    assert high_watermark(world) == world[1].log.log_end == 1


def test_D9_each_member_of_the_isr_counts(tmp_path: Path) -> None:
    world = led_by_1(tmp_path)
    world.produce(1, "a")
    world.fetch(2, 1, times=2)
    world.now += LAG_S + 1
    world.leading(1).reconsider(world.now)
    assert high_watermark(world) == 0, "3 has nothing, and is slow: but nobody has removed it yet"
    world.fetch(3, 1, times=2)
    assert high_watermark(world) == 1


def test_D9_a_member_that_has_not_fetched_from_this_leader_holds_all_back(tmp_path: Path) -> None:
    world = led_by_1(tmp_path)
    world.produce(1, "a")
    world.settle()
    world.produce(1, "b")
    world.settle()
    world.decide(leader=2)
    world.produce(2, "c")
    world.fetch(1, 2, times=2)
    before = high_watermark(world, 2)
    world.now += LAG_S + 1
    world.leading(2).reconsider(world.now)
    assert high_watermark(world, 2) == before, "what 3 has is not known in this epoch"


def test_D9_a_replica_that_the_proposal_would_add_counts_though_it_is_slow(tmp_path: Path) -> None:
    world = led_by_1(tmp_path, 2)
    world.decide(isr=(1,))
    world.fetch(2, 1)
    assert [id for id, _ in world.proposal(1).isr] == [1, 2]
    world.produce(1, "a")
    world.now += LAG_S + 1
    world.leading(1).reconsider(world.now)
    assert high_watermark(world) == 0, "the controller may have added it already"


def test_D9_a_member_that_the_proposal_would_remove_counts_until_it_is_decided(
    tmp_path: Path,
) -> None:
    world = led_by_1(tmp_path)
    world.produce(1, "a")
    world.fetch(2, 1, times=2)
    world.now += LAG_S + 1
    world.fetch(2, 1)
    world.isr_changes(1).review(world.now)
    assert [id for id, _ in world.proposal(1).isr] == [1, 2]
    world.leading(1).reconsider(world.now)
    assert high_watermark(world) == 0
    world.accept_proposal(1)
    assert high_watermark(world) == 1


def test_D9_a_replica_outside_that_was_caught_up_lately_counts_until_its_time_is_over(
    tmp_path: Path,
) -> None:
    world = led_by_1(tmp_path, 2)
    world.decide(isr=(1,))
    world.fetch(2, 1)
    world.isr_changes(1).withdraw(world.proposal(1), world.now)
    world.produce(1, "a")
    assert high_watermark(world) == 0
    world.now += LAG_S + 1
    world.isr_changes(1).review(world.now)
    assert high_watermark(world) == 1, "the clock alone moves it"


@pytest.mark.parametrize("gone", [None, 202], ids=["fenced", "another incarnation"])
def test_D9_a_replica_outside_counts_only_in_the_incarnation_that_fetched(
    tmp_path: Path, gone: int | None
) -> None:
    world = led_by_1(tmp_path, 2)
    world.decide(isr=(1,))
    world.fetch(2, 1)
    world.isr_changes(1).withdraw(world.proposal(1), world.now)
    world.eligible[2] = gone
    world.produce(1, "a")
    assert high_watermark(world) == 1


def test_D9_a_replica_that_left_the_isr_is_not_waited_for_until_it_has_proved_itself_again(
    tmp_path: Path,
) -> None:
    """Its disk is full, say: it was caught up until a moment ago, and copies nothing more."""
    world = led_by_1(tmp_path)
    world.decide(isr=(1, 2))
    assert [id for id, _ in world.proposal(1).isr] == [1, 2, 3], "it has everything"
    world.isr_changes(1).refused(world.proposal(1), world.now)
    for value in "ab":
        world.produce(1, value)
        world.fetch(2, 1, times=2)
    assert high_watermark(world) == 2
    world.fetch(3, 1, times=2)
    world.produce(1, "c")
    assert world[1].proposal is not None, "now it is waited for"


def test_D9_a_replica_with_an_empty_disk_is_not_waited_for_though_its_broker_kept_up(
    tmp_path: Path,
) -> None:
    """A dead broker was replaced by one with the same id, within replica.lag.time.max.ms."""
    world = led_by_1(tmp_path)
    for value in "abc":
        world.produce(1, value)
        world.settle()
    world.eligible[3] = None
    world.decide(isr=(1, 2))
    world.epochs[3] = world.eligible[3] = 203
    empty = world.position(3)._replace(fetch_offset=0, last_fetched_epoch=-1)
    world.ask(3, 1, empty)
    world.produce(1, "d")
    world.fetch(2, 1, times=2)
    assert high_watermark(world) == 4


def test_D9_when_a_proposal_is_withdrawn_nobody_waits_for_whom_it_would_have_added(
    tmp_path: Path,
) -> None:
    world = led_by_1(tmp_path, 2)
    world.decide(isr=(1,))
    world.fetch(2, 1)
    proposal = world.proposal(1)
    world.produce(1, "a")
    world.now += LAG_S + 1
    assert high_watermark(world) == 0
    world.isr_changes(1).withdraw(proposal, world.now)
    assert high_watermark(world) == 1


def test_D9_nothing_moves_while_the_isr_is_smaller_than_the_minimum(tmp_path: Path) -> None:
    world = led_by_1(tmp_path, min_isr=2)
    world.eligible[2] = world.eligible[3] = None
    world.decide(isr=(1,))
    world.produce(1, "a")
    assert high_watermark(world) == 0


# -- which fetches say where a follower is


def test_D9_a_fetch_of_an_earlier_incarnation_says_nothing(tmp_path: Path) -> None:
    world = led_by_1(tmp_path, 2)
    world.produce(1, "a")
    world.fetch(2, 1)
    late = world.position(2)  # it has a
    world.epochs[2] = world.eligible[2] = 202
    lost = late._replace(fetch_offset=0, last_fetched_epoch=-1)
    assert world.ask(2, 1, lost).error == 0, "the new one begins without it"
    world.epochs[2] = 102
    assert world.ask(2, 1, late).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert high_watermark(world) == 0


def test_D9_a_fetch_that_diverges_says_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, 2)
    for value in "ab":
        world.produce(1, value)
    world.decide(leader=2)
    for value in "xy":
        world.produce(2, value)
    assert world.ask(1, 2).diverging is not None, "it has a and b"
    assert high_watermark(world, 2) == 0


def test_D9_a_fetch_of_another_leader_epoch_says_nothing(tmp_path: Path) -> None:
    world = led_by_1(tmp_path, 2)
    world.produce(1, "a")
    world.fetch(2, 1)
    stale = world.position(2)._replace(current_leader_epoch=99)
    assert world.ask(2, 1, stale).error == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert high_watermark(world) == 0


# -- on a follower


def test_D8_an_answer_that_diverges_truncates_and_its_high_watermark_does_not_count(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, 2)
    for value in "abc":
        world.produce(1, value)
    world.settle()
    world.decide(isr=(1,))
    world.produce(1, "only here")
    world.decide(leader=2, isr=(2,))  # unclean, as far as broker 1 is concerned
    world.produce(2, "x")
    world[1].log.high_watermark = 1  # it had learned of no more
    answer = world.ask(1, 2)
    assert answer.diverging is not None and answer.high_watermark == 4
    world.follow(1, answer)
    assert (world[1].log.log_end, high_watermark(world, 1)) == (3, 1)


def test_D8_a_followers_high_watermark_reaches_no_further_than_its_log(tmp_path: Path) -> None:
    world = led_by_1(tmp_path)
    world.produce(1, "a")
    world.settle()
    world.produce(1, "b")
    world.fetch(2, 1, times=2)
    world.fetch(3, 1, times=2)
    answer = world.ask(2, 1)
    world.follow(2, answer._replace(high_watermark=9))
    assert high_watermark(world, 2) == 2


def test_D8_an_answer_from_an_earlier_epoch_does_not_move_it(tmp_path: Path) -> None:
    world = led_by_1(tmp_path)
    world.produce(1, "a")
    world.fetch(2, 1)
    world.fetch(3, 1)
    world.ask(3, 1)
    answer = world.ask(2, 1)
    assert answer.high_watermark == 1
    world.decide(leader=3)
    world.follow(2, answer, leader_epoch=0)
    assert high_watermark(world, 2) == 0
