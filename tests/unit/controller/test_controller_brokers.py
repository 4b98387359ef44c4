"""Registration, heartbeats, fencing, controlled shutdown, disks."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

import pytest
from controller_world import RANGES, World, directory

from ottla.controller.brokers import Assignment
from ottla.controller.states import BrokerControlState, broker_state
from ottla.metadata.records import (
    DIRECTORY_LOST,
    DIRECTORY_UNASSIGNED,
    NO_LEADER,
    BrokerRegistrationChangeRecord,
    FeatureRange,
    NoOpRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from ottla.wire.errors import ErrorCode, KafkaError


def refused(code: ErrorCode) -> pytest.RaisesExc[KafkaError]:
    return pytest.raises(KafkaError, check=lambda error: error.code is code)


def test_P10_a_broker_registers_fenced_with_the_batch_offset_as_its_epoch() -> None:
    world = World()
    offset = world.next_offset
    decision = world.register(1)
    assert decision.response == {"error_code": 0, "broker_epoch": offset}
    assert isinstance(decision.records[-1], RegisterBrokerRecord)
    assert broker_state(world.image.brokers[1]) is BrokerControlState.FENCED


def test_P10_a_broker_is_unfenced_once_it_has_caught_up_with_its_registration() -> None:
    world = World()
    world.register(1)
    early = world.beat(1, metadata_offset=world.image.offset - 1)
    assert early.response["is_fenced"] and not early.response["is_caught_up"]
    assert world.beat(1, want_fence=True).response["is_caught_up"]
    assert not world.image.is_alive(1)
    assert not world.beat(1).response["is_fenced"]
    assert world.image.is_alive(1)


def test_P10_a_session_without_a_heartbeat_ends_after_the_session_timeout() -> None:
    world = World(1, 2)
    world.topic()
    world.at(8.9, beating=(2,))
    assert world.image.is_alive(1)
    world.at(0.2, beating=(2,))
    assert not world.image.is_alive(1) and world.image.is_alive(2)
    assert world.partition().isr == (2,) and world.partition().leader == 2


def test_a_fenced_broker_that_was_only_slow_comes_back_with_its_next_heartbeat() -> None:
    world = World(1, 2)
    world.at(9.1, beating=(2,))
    world.beat(1)
    assert world.image.is_alive(1)


def test_heartbeats_of_an_older_epoch_or_of_an_unknown_broker_are_refused() -> None:
    world = World(1)
    with refused(ErrorCode.STALE_BROKER_EPOCH):
        world.beat(1, broker_epoch=0)
    with refused(ErrorCode.STALE_BROKER_EPOCH):
        world.beat(1, broker_id=9)


def test_registrations_are_checked_as_kafka_does() -> None:
    world = World(1)
    cases: dict[ErrorCode, dict[str, Any]] = {
        ErrorCode.INCONSISTENT_CLUSTER_ID: {"cluster_id": "another"},
        ErrorCode.DUPLICATE_BROKER_REGISTRATION: {"broker_id": 1},
        ErrorCode.UNSUPPORTED_VERSION: {"features": RANGES[:1]},
    }
    for code, fields in cases.items():
        with refused(code):
            world.register(2, **fields)
    low = FeatureRange(name="metadata.version", min_supported_version=1, max_supported_version=29)
    with refused(ErrorCode.UNSUPPORTED_VERSION):
        world.register(2, features=(low, RANGES[1]))
    for dirs in ((), (directory(2), directory(2)), (UUID(int=2),), (directory(1),)):
        with refused(ErrorCode.INVALID_REGISTRATION):
            world.register(2, log_dirs=dirs)
    with refused(ErrorCode.INVALID_REGISTRATION):
        world.register(2, features=RANGES[1:])
    extra = FeatureRange(name="of.tomorrow", min_supported_version=1, max_supported_version=2)
    assert world.register(2, features=(*RANGES, extra), endpoints=()).response["error_code"] == 0


def test_the_same_incarnation_registers_again_under_its_epoch_and_stays_unfenced() -> None:
    world = World(1)
    broker = world.image.brokers[1]
    again = world.register(1, incarnation=broker.incarnation)
    assert again.response["broker_epoch"] == broker.epoch
    assert world.image.is_alive(1)


def test_another_incarnation_is_accepted_once_the_connection_of_the_old_one_is_lost() -> None:
    world = World(1)
    old = world.image.brokers[1].epoch
    world.controller.broker_disconnected(1, old, world.now)
    world.register(1)
    assert world.image.brokers[1].epoch > old
    with refused(ErrorCode.STALE_BROKER_EPOCH):
        world.beat(1, broker_epoch=old)


def test_a_broker_whose_connection_closed_is_fenced_after_the_grace() -> None:
    world = World(1, 2, reconnect_grace=0.1)
    world.controller.broker_disconnected(1, world.image.brokers[1].epoch, world.now)
    assert world.controller.next_deadline() == pytest.approx(world.now + 0.1)
    world.at(0.11)
    assert not world.image.is_alive(1) and world.image.is_alive(2)


def test_a_broker_that_reconnects_within_the_grace_stays() -> None:
    world = World(1)
    world.controller.broker_disconnected(1, world.image.brokers[1].epoch, world.now)
    world.beat(1)
    assert world.controller.broker_unreachable(1, world.image.brokers[1].epoch).records == []
    world.at(0.5)
    assert world.image.is_alive(1)


def test_a_broker_at_whose_address_nobody_listens_is_fenced_at_once() -> None:
    world = World(1, 2)
    world.topic()
    world.kill(1)
    assert not world.image.is_alive(1) and world.partition().leader == 2


def test_a_new_controller_knows_whom_it_has_not_heard() -> None:
    world = World(1, 2)
    image = world.image
    world.controller.deactivate()
    world.controller.activate(image, 2, world.now)
    assert world.controller.silent_brokers() == [1, 2]
    world.beat(2)
    world.controller.broker_unreachable(1, image.brokers[1].epoch)
    world.controller.broker_unreachable(2, image.brokers[2].epoch)
    assert not world.image.is_alive(1) and world.image.is_alive(2)


def test_P32_brokers_that_fall_silent_together_are_fenced_in_one_batch() -> None:
    world = World(1, 2, 3)
    world.topic(partitions=9)
    decisions = world.at(9.1, beating=(3,))
    (decision,) = [d for d in decisions if d.records != [NoOpRecord()]]
    changes = [r for r in decision.records if isinstance(r, PartitionChangeRecord)]
    fences = [r for r in decision.records if isinstance(r, BrokerRegistrationChangeRecord)]
    assert len(changes) == 9, "one change of each partition, though two of its brokers went"
    assert [(r.broker_id, r.fenced) for r in fences] == [(1, 1), (2, 1)]
    assert {p.leader for p in world.image.topics["t"].partitions} == {3}


def test_P12_the_controller_removes_a_dead_broker_from_every_isr() -> None:
    world = World(1, 2, 3)
    world.topic(partitions=6)
    world.kill(2)
    for partition in world.image.topics["t"].partitions:
        assert 2 not in partition.isr and partition.leader in (1, 3)
        assert 2 in partition.replicas, "it stays assigned and may come back"


def test_P37_the_leaders_of_a_dead_broker_spread_over_the_survivors() -> None:
    world = World(1, 2, 3, 4, 5)
    world.topic(partitions=40, factor=3)
    world.kill(1)
    leaders = Counter(partition.leader for partition in world.image.topics["t"].partitions)
    assert leaders[1] == 0
    assert leaders[2] - leaders[4] <= 4 and leaders[3] - leaders[4] <= 4, leaders


def test_a_controller_that_stood_still_does_not_blame_its_brokers() -> None:
    world = World(1, 2)
    world.now += 60
    world.controller.tick(world.now)
    assert world.image.is_alive(1) and world.image.is_alive(2)


def test_an_idle_controller_writes_a_no_op_twice_a_second() -> None:
    world = World()
    assert [decision.records for decision in world.at(2.0)] == [[NoOpRecord()]] * 4


def test_a_controlled_shutdown_moves_leaders_first_and_waits_until_all_know() -> None:
    world = World(1, 2, 3)
    world.topic(partitions=3)
    first = world.beat(1, want_shutdown=True)
    assert not first.response["should_shut_down"] and not first.response["is_fenced"]
    assert broker_state(world.image.brokers[1]) is BrokerControlState.SHUTTING_DOWN
    assert all(1 not in p.isr and p.leader != 1 for p in world.image.topics["t"].partitions)
    moved = world.image.offset
    assert not world.beat(1, want_shutdown=True).response["should_shut_down"]
    world.beat(2, metadata_offset=moved)
    assert not world.beat(1, want_shutdown=True).response["should_shut_down"]
    world.beat(3, metadata_offset=moved)
    done = world.beat(1, want_shutdown=True)
    assert done.response["should_shut_down"] and done.response["is_fenced"]


def test_a_broker_that_leads_nothing_may_stop_at_once() -> None:
    world = World(1, 2)
    assert world.beat(1, want_shutdown=True).response["should_shut_down"]
    assert world.beat(1, want_shutdown=True).response["should_shut_down"], "and asks in vain never"


def test_one_that_was_fenced_while_it_shut_down_is_not_taken_back_in_this_life() -> None:
    world = World(1, 2)
    world.topic()
    world.beat(1, want_shutdown=True)
    assert world.image.brokers[1].in_controlled_shutdown
    world.kill(1)
    assert world.beat(1).response["is_fenced"]
    world.kill(1)
    world.start(1)


def test_the_only_replica_shuts_down_cleanly_and_leads_again_when_back() -> None:
    world = World(1)
    world.topic()
    world.beat(1, want_shutdown=True)
    assert world.beat(1, want_shutdown=True).response["should_shut_down"]
    assert world.partition().leader == NO_LEADER and world.partition().elr == (1,)
    world.start(1, previous=world.image.brokers[1].epoch)
    assert world.partition().leader == 1 and world.partition().leader_recovery_state == 0


def test_a_controlled_shutdown_survives_a_change_of_controller() -> None:
    world = World(1, 2)
    world.topic(partitions=2)
    world.beat(1, want_shutdown=True)
    image = world.image
    world.controller.deactivate()
    world.controller.activate(image, 2, world.now)
    assert not world.beat(1, want_shutdown=True).response["should_shut_down"]
    world.beat(2)
    assert world.beat(1, want_shutdown=True).response["should_shut_down"]


def test_a_broker_back_from_a_clean_stop_stays_eligible_one_killed_does_not() -> None:
    world = World(1, 2)
    world.topic(min_isr=2)
    world.kill(2)
    assert world.partition().elr == (2,)
    world.register(2, previous=world.image.brokers[2].epoch)
    assert world.partition().elr == (2,)
    world.register(2, previous=-1)
    assert world.partition().elr == ()


def test_a_restart_that_nobody_noticed_still_takes_the_broker_out_of_the_isr() -> None:
    world = World(1, 2)
    world.topic()
    world.controller.broker_disconnected(1, world.image.brokers[1].epoch, world.now)
    decision = world.register(1)
    assert isinstance(decision.records[0], PartitionChangeRecord), "before the registration (M9)"
    assert world.partition().isr == (2,) and world.partition().leader == 2
    assert world.image.brokers[1].epoch == decision.response["broker_epoch"]


def test_a_failed_disk_takes_only_its_own_replicas_out_of_the_isr() -> None:
    world = World(1)
    world.start(2, log_dirs=(directory(2, 0), directory(2, 1)))
    # With one of its two disks cordoned it is known where a new replica lies.
    world.beat(2, cordoned_log_dirs=(directory(2, 1),))
    world.topic("first")
    world.beat(2, cordoned_log_dirs=(directory(2, 0),))
    world.topic("second")
    world.beat(2, offline_log_dirs=(directory(2, 1),))
    assert sorted(world.partition("first").isr) == [1, 2]
    assert world.partition("second").isr == (1,) and world.partition("second").leader == 1
    assert world.image.brokers[2].directories == (directory(2, 0),)
    assert world.beat(2, offline_log_dirs=(directory(2, 1),)).records == [], "said once"
    # A fetch that it sent before reaches the leader only now.
    assert world.propose([1, 2], "second")["error_code"] == ErrorCode.INELIGIBLE_REPLICA
    assert world.partition("second").isr == (1,)


def test_a_broker_that_lost_its_last_disk_is_fenced() -> None:
    world = World(1, 2)
    world.topic()
    world.beat(1, offline_log_dirs=(directory(1),))
    assert not world.image.is_alive(1) and world.partition().leader == 2


def test_a_broker_on_a_replaced_disk_holds_nothing_and_may_not_lead_as_last_known_leader() -> None:
    world = World(1)
    world.topic()
    world.kill(1)
    world.start(1, log_dirs=(directory(1, 9),))
    assert world.partition().leader == NO_LEADER
    assert world.partition().directories == (directory(1, 9),)


def test_a_broker_whose_disk_was_away_for_one_start_leads_again_from_it() -> None:
    """Also if it got a new disk at the same time: that does not replace the one that is away."""
    world = with_two_disks()
    world.topic("t", assignments=((0, (2,)),), partitions=-1, factor=-1)
    assign(world, 2, directory(2, 1))
    world.kill(2)
    some = (directory(2, 0), directory(2, 2))
    world.start(2, log_dirs=some, has_log_dirs_away=True)
    assert world.partition().leader == NO_LEADER
    world.kill(2)
    world.start(2, log_dirs=(*some, directory(2, 1)))
    assert world.partition().leader == 2


def assign(world: World, broker: int, place: UUID, name: str = "t", index: int = 0) -> int:
    """The broker says where its replica lies; the error code of the answer's one row."""
    epoch = world.image.brokers[broker].epoch
    assignment = Assignment(place, world.image.topics[name].id, index)
    answer = world.controller.assign_directories(broker, epoch, [assignment]).response
    (row,) = answer["directories"][0]["topics"][0]["partitions"]
    assert answer["directories"][0]["id_"] == place and row["partition_index"] == index
    return int(row["error_code"])


def with_two_disks(*others: int) -> World:
    """Broker 2 has two disks, the others one."""
    world = World(*others)
    world.start(2, log_dirs=(directory(2, 0), directory(2, 1)))
    return world


def test_a_broker_with_several_disks_says_where_its_replicas_lie() -> None:
    world = with_two_disks(1)
    world.topic("t", assignments=((0, (1, 2)), (1, (2, 1))), partitions=-1, factor=-1)
    assert world.partition("t", 0).directories == (directory(1), DIRECTORY_UNASSIGNED)
    assert assign(world, 2, directory(2, 1), index=0) == ErrorCode.NONE
    assert assign(world, 2, directory(2, 0), index=1) == ErrorCode.NONE
    assert world.partition("t", 0).directories == (directory(1), directory(2, 1))
    assert world.partition("t", 1).directories == (directory(2, 0), directory(1))
    assert world.partition("t", 1).leader == 2 and world.partition("t", 1).leader_epoch == 0
    world.beat(2, offline_log_dirs=(directory(2, 0),))
    assert world.partition("t", 1).isr == (1,) and world.partition("t", 1).leader == 1
    assert world.partition("t", 0).isr == (1, 2), "its other disk works"


def test_assignments_that_make_no_sense_are_refused_one_by_one() -> None:
    world = with_two_disks(1)
    world.topic("t", assignments=((0, (1,)),), partitions=-1, factor=-1)
    assert assign(world, 2, directory(2, 0)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert assign(world, 1, directory(1), index=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    epoch, known = world.image.brokers[1].epoch, world.image.topics["t"].id
    twice = [Assignment(directory(1), known, 0), Assignment(directory(1, 5), known, 0)]
    answer = world.controller.assign_directories(1, epoch, twice).response["directories"]
    codes = [row["topics"][0]["partitions"][0]["error_code"] for row in answer]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    unknown = [Assignment(directory(1), UUID(int=99), 0)]
    answer = world.controller.assign_directories(1, epoch, unknown).response["directories"]
    (row,) = answer[0]["topics"][0]["partitions"]
    assert row["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID
    with refused(ErrorCode.STALE_BROKER_EPOCH):
        world.controller.assign_directories(1, epoch - 1, [])


def test_a_replica_assigned_to_a_disk_that_failed_meanwhile_leaves_the_isr() -> None:
    world = with_two_disks(1)
    world.topic("t", assignments=((0, (2, 1)),), partitions=-1, factor=-1)
    world.beat(2, offline_log_dirs=(directory(2, 0),))
    assert world.partition().leader == 2, "nobody said yet where it lies"
    assign(world, 2, directory(2, 0))
    assert world.partition().leader == 1 and world.partition().isr == (1,)


def test_a_replica_that_lost_its_data_may_not_lead_until_its_broker_names_a_directory() -> None:
    world = World(1)
    world.topic()
    epoch = world.image.brokers[1].epoch
    world.kill(1)
    world.register(1, previous=epoch)
    assert world.partition().elr == (1,)
    assign(world, 1, DIRECTORY_LOST)
    assert world.partition().elr == () and world.partition().leader == NO_LEADER
    world.beat(1)
    assert world.image.is_alive(1) and world.partition().leader == NO_LEADER
    assign(world, 1, directory(1))
    assert world.partition().leader == 1, "as the last known leader, its log put back by hand"
    assert world.partition().leader_recovery_state == 1


def test_a_leader_that_lost_its_data_hands_over() -> None:
    world = World(1, 2)
    world.topic(min_isr=2)
    first = world.partition().leader
    assign(world, first, DIRECTORY_LOST)
    after = world.partition()
    assert after.leader == 3 - first and after.isr == (3 - first,) and after.elr == ()
    assert world.propose([1, 2])["error_code"] == ErrorCode.NONE, "caught up again"
    world.kill(3 - first)
    assert world.partition().leader == NO_LEADER
    assign(world, first, directory(first))
    assert world.partition().leader == first


def test_a_broker_without_a_disk_left_stays_fenced() -> None:
    world = World(1, 2)
    world.topic()
    world.beat(1, offline_log_dirs=(directory(1),))
    again = world.beat(1, offline_log_dirs=(directory(1),))
    assert again.response["is_fenced"] and again.records == []


def test_an_unregistered_broker_is_gone_from_every_isr() -> None:
    world = World(1, 2)
    world.topic()
    world.controller.unregister_broker(1)
    assert 1 not in world.image.brokers and world.partition().isr == (2,)
    with refused(ErrorCode.BROKER_ID_NOT_REGISTERED):
        world.controller.unregister_broker(1)


def test_producer_ids_are_given_in_blocks_that_never_repeat() -> None:
    world = World(1, 2)
    blocks = [
        world.controller.allocate_producer_ids(b, world.image.brokers[b].epoch).response
        for b in (1, 2, 1)
    ]
    assert [b["producer_id_start"] for b in blocks] == [0, 1000, 2000]
    with refused(ErrorCode.STALE_BROKER_EPOCH):
        world.controller.allocate_producer_ids(1, 0)


def test_P34_a_controller_that_is_not_active_decides_nothing() -> None:
    world = World(1)
    world.controller.deactivate()
    for command in (
        lambda: world.controller.tick(world.now),
        lambda: world.controller.delete_topics(["t"], []),
        lambda: world.register(2),
    ):
        with refused(ErrorCode.NOT_CONTROLLER):
            command()
