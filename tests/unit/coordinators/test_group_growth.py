"""What a member costs does not grow with its group: instructions are counted, with n members and with twice as many."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from group_world import FakeTopics, GroupWorld, Member, protocols

from ottla.wire.apis import ApiKey
from support.counting import stepped

MEMBERS = 40
GROWTH_MAX = 1.05
"""Twice the members may cost so much more than twice the work. Where each member looked at all, it was 1.12 to 1.26."""


def growth(steps_of: Callable[[int], int]) -> float:
    steps_of(2)  # codecs are made when they are first used
    return steps_of(2 * MEMBERS) / steps_of(MEMBERS) / 2


def classic_rebalance(size: int) -> int:
    """All members of a stable group join at once, and sync."""
    world = GroupWorld()
    ids = world.stable(size=size)
    with stepped() as steps:
        joins = [world.join(member=id, protocols=protocols("range", "new")) for id in ids]
        generation = joins[0].reply.generation_id
        assignments = [{"member_id": id, "assignment": b"a"} for id in ids]
        synced = [world.sync("g", id, generation) for id in ids[1:]]
        world.sync("g", ids[0], generation, assignments=assignments)
    assert all(call.error == 0 for call in (*joins, *synced))
    assert world.state("g") == "Stable"
    return steps.count


def classic_leaving(size: int) -> int:
    world = GroupWorld()
    ids = world.stable(size=size)
    with stepped() as steps:
        for id in ids:
            assert world.ask(ApiKey.LEAVE_GROUP, 2, group_id="g", member_id=id).error == 0
    assert world.state("g") == "Empty"
    return steps.count


def consumers(size: int) -> tuple[GroupWorld, list[Member]]:
    """A group in the interval after its first assignment."""
    world = GroupWorld(FakeTopics(t=size), consumer_assignment_interval_ms=1_000)
    return world, [Member(world, f"m{number:03}") for number in range(size)]


def consumers_joining(size: int) -> int:
    """All join, are assigned, and take what they are given."""
    world, members = consumers(size)
    with stepped() as steps:
        for member in members:
            member.join()
        world.sleep(1.1)
        for _ in range(3):
            for member in members:
                member.beat()
    assert [member.count for member in members] == [1] * size
    return steps.count


def consumers_beating(size: int) -> int:
    world, members = consumers(size)
    for member in members:
        member.join()
    world.sleep(1.1)
    for member in members * 3:
        member.beat()
    with stepped() as steps:
        for member in members:
            member.beat()
    return steps.count


def consumers_leaving(size: int) -> int:
    _, members = consumers(size)
    for member in members:
        member.join()
    with stepped() as steps:
        for member in members:
            member.leave()
    return steps.count


@pytest.mark.parametrize(
    "work",
    [
        classic_rebalance,
        classic_leaving,
        consumers_joining,
        consumers_beating,
        consumers_leaving,
    ],
)
def test_twice_the_members_are_twice_the_work(work: Callable[[int], int]) -> None:
    assert growth(work) < GROWTH_MAX


def test_members_that_come_together_are_assigned_together() -> None:
    """At once for the first; for all that follow within the interval, once at its end."""
    world, members = consumers(4)
    epochs = [int(member.join().member_epoch) for member in members]
    assert epochs == [1, 1, 1, 1] and members[0].count == 4
    world.sleep(0.9)
    assert members[1].beat().assignment is None
    world.sleep(0.2)
    for _ in range(2):
        for member in members:
            member.beat()
    assert [member.count for member in members] == [1] * 4
    assert {member.epoch for member in members} == {4}


def test_a_group_that_was_quiet_is_assigned_at_once() -> None:
    world, members = consumers(2)
    members[0].join()
    world.sleep(1.1)
    assert int(members[1].join().member_epoch) == 2


def test_nobody_keeps_what_he_no_longer_subscribes_to_until_the_interval_is_over() -> None:
    world = GroupWorld(FakeTopics(t=2, u=3), consumer_assignment_interval_ms=1_000)
    member = Member(world, "m", topics=("t", "u"))
    member.join()
    assert member.count == 5
    member.beat(subscribed_topic_names=["t"])
    assert member.count == 2 and member.epoch == 1
    member.beat()
    world.sleep(1.1)
    member.beat()
    assert member.count == 2 and member.epoch == 2


def test_a_group_may_have_an_interval_of_its_own() -> None:
    world, members = consumers(2)
    world.topics.settings["g", "consumer.assignment.interval.ms"] = 0
    members[0].join()
    assert int(members[1].join().member_epoch) == 2


def test_a_group_that_comes_back_is_assigned_at_once() -> None:
    """Whoever deleted it has no other group in mind."""
    world, members = consumers(1)
    members[0].join()
    members[0].leave()
    assert world.ask(ApiKey.DELETE_GROUPS, 2, groups_names=["g"]).error == 0
    assert int(members[0].join().member_epoch) == 1 and members[0].count == 1
