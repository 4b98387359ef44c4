"""What the controller says about its decisions."""

from __future__ import annotations

from controller_world import World

from ottla.controller.elections import leader_changes
from ottla.controller.partitions import IsrProposal
from ottla.events.controller import (
    BrokerFenced,
    BrokerUnfenced,
    ElectionKind,
    FenceCause,
    IsrProposalRefused,
    LeaderElected,
    PartitionWentOffline,
)
from ottla.metadata.image import Delta, MetadataImage
from ottla.wire.errors import ErrorCode


def fenced(world: World, broker: int, cause: FenceCause) -> BrokerFenced:
    return BrokerFenced(broker, world.image.brokers[broker].epoch, cause)


def test_a_broker_is_unfenced_by_a_heartbeat() -> None:
    world = World()
    world.register(1)
    epoch = world.image.brokers[1].epoch
    assert world.beat(1).events == [BrokerUnfenced(1, epoch)]
    assert not world.beat(1).events


def test_every_way_to_be_fenced_has_its_cause() -> None:
    world = World(1, 2, 3)
    expected = fenced(world, 1, FenceCause.UNREACHABLE)
    world.controller.broker_disconnected(1, expected.broker_epoch, world.now)
    result = world.controller.broker_unreachable(1, expected.broker_epoch)
    assert result.events == [expected]
    expected = fenced(world, 2, FenceCause.SHUT_DOWN)
    assert world.beat(2, want_shutdown=True).events == [expected]
    expected = fenced(world, 3, FenceCause.SESSION_OVER)
    assert [event for result in world.at(20) for event in result.events] == [expected]
    world.beat(3)
    expected = fenced(world, 3, FenceCause.ASKED)
    assert world.beat(3, want_fence=True).events == [expected]
    world.beat(3)
    directories = world.image.brokers[3].directories
    expected = fenced(world, 3, FenceCause.NO_DISK)
    assert world.beat(3, offline_log_dirs=directories).events == [expected]
    world = World(1)
    expected = fenced(world, 1, FenceCause.RESTARTED)
    world.controller.broker_disconnected(1, expected.broker_epoch, world.now)
    assert world.register(1).events == [expected]


def test_KIP903_a_refused_proposal_names_the_members_that_restarted() -> None:
    world = World(1, 2)
    world.topic()
    partition = world.partition()
    leader = partition.leader
    follower = next(id for id in partition.replicas if id != leader)
    old_epoch = world.image.brokers[follower].epoch
    world.kill(follower)
    world.start(follower)
    partition = world.partition()
    proposal = IsrProposal(
        world.image.topics["t"].id,
        0,
        partition.leader_epoch,
        partition.partition_epoch,
        ((leader, world.image.brokers[leader].epoch), (follower, old_epoch)),
    )
    result = world.controller.alter_partitions(
        leader, world.image.brokers[leader].epoch, [proposal]
    )
    assert result.events == [
        IsrProposalRefused(
            "t",
            0,
            leader,
            partition.leader_epoch,
            partition.partition_epoch,
            (leader, follower),
            ErrorCode.INELIGIBLE_REPLICA,
            restarted=(follower,),
        )
    ]


def changes(world: World, before: MetadataImage) -> list[LeaderElected | PartitionWentOffline]:
    delta = Delta(changed_partitions=[(world.image.topics["t"].id, 0)])
    return list(leader_changes(before, world.image, delta))


def test_elections_by_the_right_of_their_winners() -> None:
    world = World(1, 2)
    world.topic(min_isr=2)
    assert not changes(world, MetadataImage()), "the first leader is not elected"
    first = world.partition().leader
    second = next(id for id in (1, 2) if id != first)
    before = world.image
    world.kill(first)
    now = world.partition()
    assert changes(world, before) == [
        LeaderElected("t", 0, second, now.leader_epoch, first, now.isr, ElectionKind.IN_SYNC)
    ]
    before = world.image
    world.kill(second)
    offline = PartitionWentOffline("t", 0, world.partition().leader_epoch, second)
    assert changes(world, before) == [offline]
    before = world.image
    assert first in world.partition().elr
    world.beat(first)
    now = world.partition()
    assert changes(world, before) == [
        LeaderElected("t", 0, first, now.leader_epoch, -1, now.isr, ElectionKind.ELIGIBLE)
    ]
