"""ISR proposals, elections, and the schedules S4 and S5 at the controller."""

from __future__ import annotations

import pytest
from controller_world import World

from ottla.controller.draft import IsrProposal
from ottla.controller.partitions import ElectionType
from ottla.controller.states import (
    BROKER_TRANSITIONS,
    PARTITION_TRANSITIONS,
    REPLICA_TRANSITIONS,
    BrokerControlState,
    PartitionState,
    ReplicaState,
    partition_state,
    replica_state,
)
from ottla.metadata.records import NO_LEADER, RECOVERED, RECOVERING
from ottla.wire.errors import ErrorCode, KafkaError


def test_P13_an_isr_change_is_a_record_and_the_answer_carries_the_new_partition_epoch() -> None:
    world = World(1, 2, 3)
    world.topic()
    before = world.partition()
    row = world.propose([1, 2])
    assert row == {
        "partition_index": 0,
        "error_code": 0,
        "leader_id": 1,
        "leader_epoch": before.leader_epoch,
        "isr": [1, 2],
        "leader_recovery_state": 0,
        "partition_epoch": before.partition_epoch + 1,
    }
    assert world.partition().isr == (1, 2)


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        ({"index": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_epoch": 99}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 99}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"broker": 3}, ErrorCode.INVALID_REQUEST),
        ({"isr": ((2, -1), (2, -1))}, ErrorCode.INVALID_REQUEST),
        ({"isr": ((2, -1), (4, -1))}, ErrorCode.INVALID_REQUEST),
        ({"isr": ((3, -1),)}, ErrorCode.INVALID_REQUEST),
        ({"isr": ()}, ErrorCode.INVALID_REQUEST),
        ({"recovery": RECOVERING}, ErrorCode.INVALID_REQUEST),
        ({"isr": ((2, -1), (1, -1))}, ErrorCode.INELIGIBLE_REPLICA),
        ({"isr": ((2, -1), (3, 1))}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_D10_a_proposal_is_refused_with_kafkas_code(wish: dict[str, object], code: int) -> None:
    world = World(1, 2, 3, 4)
    world.topic(partitions=-1, factor=-1, assignments=((0, (1, 2, 3)),))
    world.kill(1)
    before = world.partition()
    assert (before.leader, before.isr, before.leader_epoch) == (2, (2, 3), 1)
    assert world.propose([2, 3], **wish)["error_code"] == code
    assert world.partition() == before


def test_a_proposal_for_a_topic_that_is_gone_is_refused() -> None:
    world = World(1)
    gone = world.topic("gone")
    world.topic()
    world.controller.delete_topics(["gone"], [])
    assert world.propose([1], topic_id=gone)["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_broker_with_a_stale_epoch_may_propose_nothing() -> None:
    world = World(1)
    world.topic()
    with pytest.raises(KafkaError) as refused:
        world.controller.alter_partitions(1, 0, [])
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_two_wishes_for_one_partition_in_one_request_are_not_both_granted() -> None:
    world = World(1, 2)
    world.topic()
    wish = IsrProposal(world.image.topics["t"].id, 0, 0, 0, ((1, -1),))
    epoch = world.image.brokers[1].epoch
    decision = world.controller.alter_partitions(1, epoch, [wish, wish])
    rows = decision.response["topics"][0]["partitions"]
    assert [row["error_code"] for row in rows] == [0, ErrorCode.INVALID_UPDATE_VERSION]
    assert world.partition().partition_epoch == 1


def test_P14_a_replica_that_has_caught_up_is_added_again() -> None:
    world = World(1, 2)
    world.topic()
    world.kill(2)
    world.start(2)
    assert world.partition().isr == (1,), "it must catch up first"
    world.propose([1, 2])
    assert world.partition().isr == (1, 2)


def test_S5_KIP903_a_replica_that_restarted_meanwhile_is_not_added_to_the_isr() -> None:
    world = World(1, 2)
    world.topic()
    world.kill(2)
    world.start(2)
    held = {"isr": ((1, -1), (2, world.image.brokers[2].epoch))}  # B caught up; the wish is held
    world.kill(2)
    world.start(2)  # it returns with another epoch, perhaps on an empty disk
    assert world.propose([1, 2], **held)["error_code"] == ErrorCode.INELIGIBLE_REPLICA
    assert world.partition().isr == (1,)


def test_a_replica_that_is_shutting_down_is_not_added_to_the_isr() -> None:
    world = World(1, 2)
    world.topic("both", partitions=2)
    world.beat(2, want_shutdown=True)
    assert world.propose([1, 2], "both")["error_code"] == ErrorCode.INELIGIBLE_REPLICA


def test_S4_the_last_replica_standing_loses_its_tail_and_is_not_elected() -> None:
    world = World(10, 11, 12)
    world.topic(min_isr=2)
    world.kill(10)
    assert (world.partition().leader, world.partition().isr) == (11, (11, 12))
    world.kill(11)
    assert (world.partition().leader, world.partition().isr) == (12, (12,))
    assert world.partition().elr == (11,)
    world.kill(12)
    assert (world.partition().leader, world.partition().isr) == (NO_LEADER, ())
    assert world.partition().elr == (11, 12)
    world.start(12)  # power loss: no clean-shutdown epoch
    assert (world.partition().leader, world.partition().elr) == (NO_LEADER, (11,))
    # 11 was only isolated: it heals under its old epoch and heartbeats again.
    world.beat(11)
    assert (world.partition().leader, world.partition().isr) == (11, (11,))
    assert world.partition().leader_recovery_state == RECOVERED, "an ELR election is clean"
    world.propose([11, 12])
    assert (world.partition().isr, world.partition().elr) == ((11, 12), ())


def test_S4_variant_when_the_eligible_one_lost_its_tail_too_only_the_last_leader_may_lead() -> None:
    world = World(10, 11, 12)
    world.topic(min_isr=2)
    for broker in (10, 11, 12):
        world.kill(broker)
    world.start(11)
    world.start(10)
    assert world.partition().leader == NO_LEADER
    world.start(12)
    assert (world.partition().leader, world.partition().isr) == (12, (12,))
    assert partition_state(world.partition()) is PartitionState.RECOVERING
    assert world.propose([12], recovery=RECOVERED)["leader_recovery_state"] == RECOVERED
    assert partition_state(world.partition()) is PartitionState.ONLINE


def test_a_leader_that_recovers_may_not_grow_its_isr_before_it_is_ready() -> None:
    world = World(1, 2)
    world.topic()
    world.kill(2)
    world.kill(1)
    world.start(1)
    world.start(2)
    assert partition_state(world.partition()) is PartitionState.RECOVERING
    row = world.propose([1, 2], recovery=RECOVERING)
    assert row["error_code"] == ErrorCode.INVALID_REQUEST


def test_P30_without_unclean_election_a_partition_waits_for_an_in_sync_replica() -> None:
    world = World(1, 2)
    world.topic()
    world.propose([1])
    world.kill(1)
    assert world.partition().leader == NO_LEADER and world.image.is_alive(2)
    world.start(1)
    assert world.partition().leader == 1


def test_P30_with_unclean_election_the_first_live_replica_leads_at_once() -> None:
    world = World(1, 2)
    world.topic(configs=(("unclean.leader.election.enable", "true"),))
    world.propose([1])
    world.kill(1)
    assert world.partition().leader == 2
    assert partition_state(world.partition()) is PartitionState.RECOVERING


def test_P30_an_operator_may_ask_for_an_unclean_election() -> None:
    world = World(1, 2)
    world.topic()
    world.propose([1])
    world.kill(1)
    elected = world.controller.elect_leaders(ElectionType.UNCLEAN, [("t", 0)])
    assert _errors(elected.response) == [("t", 0, 0)]
    assert world.partition().leader == 2
    again = world.controller.elect_leaders(ElectionType.UNCLEAN, [("t", 0), ("u", 0), ("t", 5)])
    assert _errors(again.response) == [
        ("t", 0, ErrorCode.ELECTION_NOT_NEEDED),
        ("t", 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("u", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_P37_preferred_leaders_are_restored_by_command() -> None:
    world = World(1, 2, 3)
    world.topic(partitions=6)
    world.kill(1)
    asked = world.controller.elect_leaders(ElectionType.PREFERRED, [("t", 0)])
    assert _errors(asked.response) == [("t", 0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]
    world.start(1)
    _catch_up(world)
    everything = world.controller.elect_leaders(ElectionType.PREFERRED, None)
    assert _errors(everything.response) == [("t", 0, 0), ("t", 3, 0)], "only those that needed it"
    assert [p.leader for p in world.image.topics["t"].partitions] == [1, 2, 3, 1, 2, 3]


def test_P37_preferred_leaders_are_restored_by_themselves() -> None:
    world = World(1, 2, 3, rebalance_interval=5.0)
    world.topic(partitions=6)
    world.kill(1)
    world.start(1)
    _catch_up(world)
    world.at(5.1, beating=(1, 2, 3))
    assert [p.leader for p in world.image.topics["t"].partitions] == [1, 2, 3, 1, 2, 3]


def test_P33_each_state_of_the_tables_is_entered_by_some_edge() -> None:
    entered = {
        after for _, after in (*BROKER_TRANSITIONS, *PARTITION_TRANSITIONS, *REPLICA_TRANSITIONS)
    }
    assert entered == {*BrokerControlState, *PartitionState, *ReplicaState}


def test_P33_the_states_are_read_off_the_image() -> None:
    world = World(1, 2, 3)
    world.topic(min_isr=2)
    assert replica_state(world.partition(), 9) is ReplicaState.UNASSIGNED
    world.kill(3)
    assert replica_state(world.partition(), 3) is ReplicaState.OUT_OF_SYNC
    world.kill(2)
    assert replica_state(world.partition(), 2) is ReplicaState.ELIGIBLE
    assert replica_state(world.partition(), 1) is ReplicaState.IN_SYNC
    world.kill(1)
    world.register(1)
    assert replica_state(world.partition(), 1) is ReplicaState.LAST_LEADER
    assert partition_state(world.partition()) is PartitionState.OFFLINE
    assert partition_state(None) is PartitionState.NONEXISTENT


def _errors(response: dict[str, object]) -> list[tuple[str, int, int]]:
    rows = response["replica_election_results"]
    assert isinstance(rows, list)
    return [
        (topic["topic"], row["partition_id"], row["error_code"])
        for topic in rows
        for row in topic["partition_result"]
    ]


def _catch_up(world: World) -> None:
    for index in range(len(world.image.topics["t"].partitions)):
        isr = [b for b in world.partition(index=index).replicas if world.image.is_alive(b)]
        world.propose(isr, partition=index)
