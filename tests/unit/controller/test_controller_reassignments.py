"""Reassignment at the controller: starting, replacing, cancelling and completing it."""

from __future__ import annotations

from typing import Any

import pytest
from controller_world import World, directory
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.controller.brokers import Assignment
from ottla.controller.partitions import ElectionType
from ottla.controller.reassignments import ReassignedPartition
from ottla.metadata.image import PartitionImage
from ottla.metadata.records import (
    DIRECTORY_LOST,
    DIRECTORY_UNASSIGNED,
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    PartitionChangeRecord,
)
from ottla.wire.errors import ErrorCode

BROKERS = (1, 2, 3, 4, 5)


def world_with(*replicas: int, min_isr: int = 1, **settings: Any) -> World:
    world = World(*BROKERS, **settings)
    world.topic(partitions=-1, factor=-1, assignments=((0, replicas),), min_isr=min_isr)
    return world


def reassign(
    world: World, *replicas: int, name: str = "t", index: int = 0, allow_factor_change: bool = True
) -> ErrorCode:
    wish = ReassignedPartition(name, index, replicas or None)
    decision = world.controller.alter_reassignments([wish], allow_factor_change=allow_factor_change)
    (topic,) = decision.response["responses"]
    (row,) = topic["partitions"]
    assert row["partition_index"] == index and topic["name"] == name
    return ErrorCode(row["error_code"])


def cancel(world: World) -> ErrorCode:
    return reassign(world)


def ongoing(world: World) -> list[tuple[str, int, list[int], list[int], list[int]]]:
    return [
        (
            topic["name"],
            row["partition_index"],
            row["replicas"],
            row["adding_replicas"],
            row["removing_replicas"],
        )
        for topic in world.controller.list_reassignments(None).response["topics"]
        for row in topic["partitions"]
    ]


def test_P33_a_reassignment_first_adds_the_new_replicas_and_keeps_the_old_ones() -> None:
    world = world_with(2, 1)
    before = world.partition()
    assert reassign(world, 3, 4) is ErrorCode.NONE
    after = world.partition()
    assert after.replicas == (3, 4, 2, 1)
    assert (after.adding, after.removing) == ((3, 4), (2, 1))
    assert (after.isr, after.leader) == ((2, 1), 2)
    assert after.leader_epoch == before.leader_epoch, "nobody has left yet"
    assert after.partition_epoch == before.partition_epoch + 1
    assert after.directories == (directory(3), directory(4), directory(2), directory(1))


def test_P33_it_is_complete_when_all_of_the_target_are_in_sync() -> None:
    world = world_with(2, 1)
    reassign(world, 3, 4)
    assert world.propose([2, 1, 3])["error_code"] == 0
    assert world.partition().replicas == (3, 4, 2, 1), "4 is not there yet"
    assert world.propose([2, 1, 3, 4])["error_code"] == ErrorCode.NEW_LEADER_ELECTED
    after = world.partition()
    assert (after.replicas, after.adding, after.removing) == ((3, 4), (), ())
    assert (after.leader, after.isr, after.elr) == (3, (3, 4), ())
    assert after.directories == (directory(3), directory(4))
    assert after.leader_epoch == 1


def test_P33_a_leader_of_the_target_stays_whatever_the_order_and_its_epoch_rises() -> None:
    world = world_with(1, 2, 3)
    reassign(world, 4, 1)
    row = world.propose([1, 2, 3, 4])
    after = world.partition()
    assert (after.leader, after.replicas, after.isr) == (1, (4, 1), (1, 4))
    assert after.leader_epoch == 1, "those who left are followers no longer"
    assert (row["error_code"], row["leader_epoch"], row["isr"]) == (0, 1, [1, 4])
    assert row["partition_epoch"] == after.partition_epoch
    world.controller.elect_leaders(ElectionType.PREFERRED, [("t", 0)])
    assert world.partition().leader == 4, "a preferred election moves it"


def test_P33_another_order_or_fewer_replicas_need_no_copying_and_are_done_at_once() -> None:
    world = world_with(1, 2, 3)
    assert reassign(world, 3, 2, 1) is ErrorCode.NONE
    after = world.partition()
    assert (after.replicas, after.leader, after.leader_epoch) == ((3, 2, 1), 1, 0)
    assert reassign(world, 2) is ErrorCode.NONE
    after = world.partition()
    assert (after.replicas, after.isr, after.leader, after.leader_epoch) == ((2,), (2,), 2, 1)
    assert ongoing(world) == []
    assert reassign(world, 2) is ErrorCode.NONE
    assert world.partition() == after, "it is so already"


def test_P33_fewer_replicas_wait_for_one_that_stays_and_is_not_in_sync() -> None:
    world = world_with(1, 2, 3)
    world.propose([1])
    reassign(world, 2)
    assert (world.partition().replicas, world.partition().leader) == ((2, 1, 3), 1)
    assert world.propose([1, 2])["error_code"] == ErrorCode.NEW_LEADER_ELECTED
    assert (world.partition().replicas, world.partition().leader) == ((2,), 2)


def test_P33_the_minimum_grows_with_the_replicas_and_shrinks_with_them() -> None:
    world = world_with(1, min_isr=2)
    reassign(world, 1, 2, 3)
    assert world.image.min_insync_replicas(world.image.topics["t"], world.partition()) == 2
    world.propose([1, 2])
    world.kill(2)
    assert world.partition().elr == (2,), "below the minimum of the replicas that it has now"
    assert cancel(world) is ErrorCode.NONE
    assert (world.partition().replicas, world.partition().elr) == ((1,), ())


def test_P33_cancelling_leads_back_to_the_original_replicas_in_their_order() -> None:
    world = world_with(2, 1)
    reassign(world, 3, 4)
    world.propose([2, 1, 3])
    assert cancel(world) is ErrorCode.NONE
    after = world.partition()
    assert (after.replicas, after.adding, after.removing) == ((2, 1), (), ())
    assert (after.isr, after.leader, after.leader_epoch) == ((2, 1), 2, 1)
    assert after.directories == (directory(2), directory(1))
    assert cancel(world) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_P33_a_reassignment_can_be_replaced_and_cancelling_still_finds_the_original() -> None:
    world = world_with(1, 2)
    reassign(world, 3, 4)
    world.propose([1, 2, 3])
    assert reassign(world, 5, 1) is ErrorCode.NONE
    after = world.partition()
    assert after.replicas == (5, 1, 3, 4, 2)
    assert (after.adding, after.removing) == ((5, 3, 4), (3, 4, 2))
    assert after.isr == (1, 2, 3), "whoever is in sync stays so until the end"
    assert cancel(world) is ErrorCode.NONE
    assert world.partition().replicas == (1, 2)
    reassign(world, 3, 4)
    reassign(world, 5, 1)
    world.propose([1, 2, 5])
    assert (world.partition().replicas, world.partition().leader) == ((5, 1), 1)


def test_P33_a_reassignment_back_to_where_it_began_ends_it() -> None:
    world = world_with(1, 2)
    reassign(world, 3, 4)
    reassign(world, 1, 2)
    after = world.partition()
    assert (after.replicas, after.adding, after.removing) == ((1, 2), (), ())


def test_P33_cancelling_is_refused_where_only_the_new_replicas_hold_everything() -> None:
    world = world_with(1)
    reassign(world, 3, 4)
    world.propose([1, 3])
    world.kill(1)
    before = world.partition()
    assert (before.leader, before.isr) == (3, (3,))
    assert cancel(world) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert world.partition() == before


def test_P30_P33_with_unclean_elections_it_can_be_cancelled_all_the_same() -> None:
    world = World(*BROKERS)
    configs = (("unclean.leader.election.enable", "true"),)
    world.topic(partitions=-1, factor=-1, assignments=((0, (1, 2)),), configs=configs)
    reassign(world, 3, 4)
    world.propose([1, 3])
    world.kill(1)
    assert cancel(world) is ErrorCode.NONE
    after = world.partition()
    assert (after.replicas, after.leader, after.isr) == ((1, 2), 2, (2,))
    assert after.leader_recovery_state == RECOVERING


def test_P33_cancelling_is_clean_where_an_original_replica_is_eligible() -> None:
    world = world_with(1, 2, min_isr=2)
    reassign(world, 3, 4)
    world.propose([1, 3])
    world.kill(1)
    world.beat(1)  # it was only isolated
    assert (world.partition().leader, world.partition().elr) == (3, (1,))
    assert cancel(world) is ErrorCode.NONE
    after = world.partition()
    assert (after.replicas, after.leader, after.isr) == ((1, 2), 1, (1,))
    assert after.leader_recovery_state == RECOVERED


def test_P33_cancelling_does_not_take_a_partition_offline() -> None:
    world = world_with(1, 2, min_isr=2)
    reassign(world, 3, 4)
    world.propose([1, 3])
    world.kill(1)
    assert cancel(world) is ErrorCode.INVALID_REPLICA_ASSIGNMENT, "1 is eligible, but away"
    assert world.partition().leader == 3


def test_P30_an_unclean_election_prefers_replicas_that_were_there_before() -> None:
    world = world_with(1, 2)
    reassign(world, 3, 4)
    world.propose([1])
    world.kill(1)
    assert world.partition().leader == NO_LEADER
    world.controller.elect_leaders(ElectionType.UNCLEAN, [("t", 0)])
    assert world.partition().leader == 2, "3 may have nothing at all"


def test_P33_brokers_that_die_meanwhile_do_not_complete_it_nor_lose_the_leader() -> None:
    world = world_with(1, 2)
    reassign(world, 3, 4)
    world.propose([1, 2, 3])
    world.kill(3)
    world.kill(1)
    after = world.partition()
    assert (after.leader, after.isr, after.removing) == (2, (2,), (1, 2))
    world.start(3)
    world.propose([2, 3, 4])
    after = world.partition()
    assert (after.replicas, after.isr, after.leader) == ((3, 4), (3, 4), 3)


def test_P33_a_fenced_broker_may_be_of_the_target_and_is_waited_for() -> None:
    world = world_with(1, 2)
    world.kill(3)
    assert reassign(world, 3, 1) is ErrorCode.NONE
    assert world.propose([1, 2, 3])["error_code"] == ErrorCode.INELIGIBLE_REPLICA
    world.start(3)
    world.propose([1, 2, 3])
    assert world.partition().replicas == (3, 1)


def test_P33_it_is_not_complete_while_nobody_of_the_target_may_lead() -> None:
    """A replica that is being made anew is in sync before it says where it lies."""
    world = world_with(1)
    topic = world.image.topics["t"].id

    def lies_in(place: Any) -> None:
        epoch = world.image.brokers[3].epoch
        world.controller.assign_directories(3, epoch, [Assignment(place, topic, 0)])

    reassign(world, 3)
    lies_in(DIRECTORY_LOST)
    world.propose([1, 3])
    assert (world.partition().leader, world.partition().replicas) == (1, (3, 1))
    lies_in(directory(3))
    assert (world.partition().leader, world.partition().replicas) == (3, (3,))


def test_P33_a_new_replica_on_a_broker_with_several_disks_lies_nowhere_yet() -> None:
    world = world_with(1)
    world.start(9, log_dirs=(directory(9), directory(9, 1)))
    reassign(world, 9)
    assert world.partition().directories == (DIRECTORY_UNASSIGNED, directory(1))


@pytest.mark.parametrize(
    ("replicas", "fields", "code"),
    [
        ((1, 9), {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, -1), {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((3, 4), {"name": "u"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((3, 4), {"index": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((3, 4), {"index": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((), {}, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ((3,), {"allow_factor_change": False}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ((3, 4, 5), {"allow_factor_change": False}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ((3, 4), {"allow_factor_change": False}, ErrorCode.NONE),
    ],
)
def test_P33_a_wish_is_refused_with_kafkas_code(
    replicas: tuple[int, ...], fields: dict[str, Any], code: ErrorCode
) -> None:
    world = world_with(1, 2)
    before = world.partition()
    assert reassign(world, *replicas, **fields) is code
    assert (world.partition() == before) is (code is not ErrorCode.NONE)


def test_P33_an_empty_list_of_replicas_is_no_assignment() -> None:
    world = world_with(1)
    answer = world.controller.alter_reassignments([ReassignedPartition("t", 0, ())]).response
    (row,) = answer["responses"][0]["partitions"]
    assert row["error_code"] == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_P33_the_factor_that_may_not_change_is_that_of_the_target_under_way() -> None:
    world = world_with(1, 2)
    reassign(world, 3, 4, 5)
    assert reassign(world, 1, 3, 4, allow_factor_change=False) is ErrorCode.NONE
    refused = reassign(world, 1, 2, allow_factor_change=False)
    assert refused is ErrorCode.INVALID_REPLICATION_FACTOR


def test_P33_each_partition_of_a_request_succeeds_or_fails_by_itself_in_one_batch() -> None:
    world = World(*BROKERS)
    world.topic(partitions=3, factor=1)
    wishes = [
        ReassignedPartition("t", 0, (2,)),
        ReassignedPartition("t", 0, (3,)),
        ReassignedPartition("t", 1, (9,)),
        ReassignedPartition("t", 2, (5,)),
    ]
    decision = world.controller.alter_reassignments(wishes)
    (topic,) = decision.response["responses"]
    assert [row["error_code"] for row in topic["partitions"]] == [
        0,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        0,
    ]
    assert len(decision.records) == 2


def test_P33_what_is_under_way_can_be_listed() -> None:
    world = world_with(2, 1)
    world.topic("u", factor=1)
    assert ongoing(world) == []
    reassign(world, 3, 4)
    assert ongoing(world) == [("t", 0, [3, 4, 2, 1], [3, 4], [2, 1])]
    asked = [("u", 0), ("t", 0), ("t", 7), ("gone", 0)]
    (topic,) = world.controller.list_reassignments(asked).response["topics"]
    assert topic["name"] == "t"


def test_P35_a_new_controller_completes_what_another_began() -> None:
    world = world_with(1, 2)
    reassign(world, 3, 4)
    image = world.image
    world.controller.deactivate()
    world.controller.activate(image, 2, world.now)
    for broker in BROKERS:
        world.beat(broker)
    world.propose([1, 2, 3, 4])
    assert world.partition().replicas == (3, 4)


def test_P33_the_last_record_of_a_reassignment_says_only_what_changes() -> None:
    world = world_with(1, 2)
    wish = ReassignedPartition("t", 0, (1, 3))
    (record,) = world.controller.alter_reassignments([wish]).records
    assert record == PartitionChangeRecord(
        partition_id=0,
        topic_id=world.image.topics["t"].id,
        replicas=(1, 3, 2),
        adding_replicas=(3,),
        removing_replicas=(2,),
        directories=(directory(1), directory(3), directory(2)),
    )


orders = st.permutations(BROKERS).flatmap(
    lambda order: st.integers(1, len(order)).map(lambda n: tuple(order[:n]))
)


@settings(max_examples=150, deadline=None)
@given(orders, st.integers(1, 3), st.data())
def test_P33_M8_any_reassignment_from_any_state_ends_with_exactly_the_target(
    assigned: tuple[int, ...], min_isr: int, data: st.DataObject
) -> None:
    """M8 and M9 are asserted by the image on every record."""
    world = world_with(*assigned, min_isr=min_isr)
    seen = [world.partition()]

    def step() -> PartitionImage:
        before, after = seen[-1], world.partition()
        assert after.leader != NO_LEADER or before.leader == NO_LEADER or not after.isr
        if after.leader not in (before.leader, NO_LEADER):
            assert after.leader in (*before.isr, *before.elr, *wished)
            assert after.leader in after.replicas
        seen.append(after)
        return after

    target = assigned
    for _ in range(data.draw(st.integers(1, 4))):
        target = data.draw(orders)
        wished: tuple[int, ...] = ()
        assert reassign(world, *target) is ErrorCode.NONE
        before = step()
        for _ in range(data.draw(st.integers(0, 3))):
            if before.leader == NO_LEADER or data.draw(st.booleans()):
                broker = data.draw(st.sampled_from(BROKERS))
                if world.image.is_alive(broker):
                    world.kill(broker)
                else:
                    world.beat(broker)  # it was only isolated, and has lost nothing
                wished = ()
            else:
                others = [r for r in before.replicas if world.image.is_alive(r)]
                subset = data.draw(st.lists(st.sampled_from(others), unique=True))
                wished = tuple(dict.fromkeys((before.leader, *subset)))
                world.propose(list(wished))
            before = step()
    for broker in BROKERS:
        if not world.image.is_alive(broker):
            world.beat(broker)
    wished = world.partition().replicas
    if world.partition().replicas != target or world.partition().adding:
        world.propose(list(wished))
    after = world.partition()
    assert (after.replicas, after.adding, after.removing) == (target, (), ())
    assert after.leader in target and set(after.isr) <= set(target)
