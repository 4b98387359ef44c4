"""What the controller says about its decisions."""

from __future__ import annotations

from typing import Any

from controller_world import World

from ottla.controller.committed_events import committed_events
from ottla.controller.configs import ConfigChange, ConfigChanges, Operation
from ottla.controller.draft import ControllerResult, IsrProposal, ShortOfRoom
from ottla.controller.partitions import ElectionType
from ottla.controller.quotas import QuotaChange, QuotaChanges
from ottla.controller.reassignments import ReassignedPartition
from ottla.events import Event
from ottla.events.controller import (
    BrokerFenced,
    BrokerUnfenced,
    ElectionKind,
    FenceCause,
    IsrExpanded,
    IsrProposalRefused,
    IsrShrunk,
    LeaderElected,
    PartitionReassigned,
    PartitionWentOffline,
    ReassignmentStep,
    SettingChanged,
)
from ottla.events.replication import IsrCause, IsrReason, Lag
from ottla.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE
from ottla.security.acls import Acl, AclFilter
from ottla.security.operations import AclOperation, PatternType, Permission, ResourceType
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
    expected = fenced(world, 3, FenceCause.DISCONNECTED)
    world.controller.broker_disconnected(3, expected.broker_epoch, world.now)
    assert [event for result in world.at(1) for event in result.events] == [expected]
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


class Committed:
    """The events of every decision, as if each were committed at once."""

    def __init__(self, world: World, by: str | None = None) -> None:
        self.by = by
        self._events: list[Event] = []
        decide = world.controller.decide

        def told(*args: Any) -> ControllerResult:
            result = decide(*args)
            if result.draft is not None:
                self._events += committed_events(result.draft, self.by)
            return result

        world.controller.decide = told

    def take(self, *kinds: type[Event]) -> list[Event]:
        events, self._events = self._events, []
        return [event for event in events if not kinds or type(event) in kinds]


def test_elections_by_the_right_of_their_winners() -> None:
    world = World(1, 2)
    committed = Committed(world)
    world.topic(min_isr=2)
    assert not committed.take(), "the first leader is not elected"
    first = world.partition().leader
    second = next(id for id in (1, 2) if id != first)
    elections = LeaderElected, PartitionWentOffline
    world.kill(first)
    now = world.partition()
    assert committed.take(*elections) == [
        LeaderElected("t", 0, second, now.leader_epoch, first, now.isr, ElectionKind.IN_SYNC)
    ]
    world.kill(second)
    offline = PartitionWentOffline("t", 0, world.partition().leader_epoch, second)
    assert committed.take(*elections) == [offline]
    assert first in world.partition().elr
    world.beat(first)
    now = world.partition()
    assert committed.take() == [
        LeaderElected("t", 0, first, now.leader_epoch, -1, now.isr, ElectionKind.ELIGIBLE)
    ], "and the ISR that it brings is no expansion"
    world.beat(second)
    world.propose([first, second])
    if world.partition().replicas[0] == first:
        world.kill(first)
        world.start(first)
        world.propose([second, first])
    committed.take()
    world.controller.elect_leaders(ElectionType.PREFERRED, None)
    (event,) = committed.take()
    assert isinstance(event, LeaderElected) and event.kind is ElectionKind.PREFERRED


def test_a_broker_leaves_an_isr_once_and_with_the_cause() -> None:
    world = World(1, 2, 3)
    committed = Committed(world)
    world.topic(min_isr=1)
    leader = world.partition().leader
    other, third = (id for id in (1, 2, 3) if id != leader)

    def gone(broker: int, cause: IsrCause) -> None:
        (event,) = committed.take(IsrShrunk)
        assert isinstance(event, IsrShrunk)
        assert (event.brokers, event.cause, event.lag) == ((broker,), cause, {})
        assert set(event.previous_isr) == {*event.isr, broker}
        epoch = world.image.brokers[broker].epoch
        world.controller.broker_disconnected(broker, epoch, world.now)
        world.start(broker)
        world.propose([leader, *(id for id in (other, third) if world.image.is_alive(id))])
        (event,) = committed.take(IsrExpanded, IsrShrunk)
        assert isinstance(event, IsrExpanded)
        assert (event.brokers, event.cause) == ((broker,), IsrCause.CAUGHT_UP)

    world.kill(other)
    gone(other, IsrCause.FENCED)
    world.beat(third, want_shutdown=True)
    gone(third, IsrCause.SHUTDOWN)
    world.beat(other, offline_log_dirs=world.image.brokers[other].directories)
    gone(other, IsrCause.DISK)
    no_room = frozenset(world.image.brokers[other].directories)
    world.beat(other, short=ShortOfRoom(no_room, no_room))
    gone(other, IsrCause.FULL)
    epoch = world.image.brokers[third].epoch
    world.controller.broker_disconnected(third, epoch, world.now)
    world.register(third)
    (event,) = committed.take(IsrShrunk)
    assert isinstance(event, IsrShrunk) and event.cause is IsrCause.RESTART


def test_a_shrink_that_the_leader_proposed_tells_its_reasons() -> None:
    world = World(1, 2, 3)
    committed = Committed(world)
    world.topic()
    leader = world.partition().leader
    slow, silent = (id for id in (1, 2, 3) if id != leader)
    reasons = {
        slow: IsrReason(IsrCause.SLOW, Lag(10, 1000, 31.0)),
        silent: IsrReason(IsrCause.SILENT, Lag(20, 2000, None)),
    }
    world.propose([leader], reasons=reasons)
    told = committed.take()
    assert [
        (event.brokers, event.cause, event.lag) for event in told if isinstance(event, IsrShrunk)
    ] == [
        ((slow,), IsrCause.SLOW, {slow: Lag(10, 1000, 31.0)}),
        ((silent,), IsrCause.SILENT, {silent: Lag(20, 2000, None)}),
    ]
    assert len(told) == 2


def test_a_reassignment_tells_its_steps() -> None:
    world = World(1, 2, 3, 4)
    committed = Committed(world)
    world.topic(assignments=((0, (1, 2)),), factor=-1, partitions=-1)

    def reassign(*replicas: int) -> list[Event]:
        wish = ReassignedPartition("t", 0, replicas or None)
        world.controller.alter_reassignments([wish])
        return committed.take()

    assert reassign(1, 3) == [
        PartitionReassigned("t", 0, ReassignmentStep.STARTED, (1, 3, 2), (3,), (2,))
    ]
    assert reassign(1, 4) == [
        PartitionReassigned("t", 0, ReassignmentStep.CHANGED, (1, 4, 3, 2), (4, 3), (3, 2))
    ]
    assert reassign() == [PartitionReassigned("t", 0, ReassignmentStep.CANCELLED, (1, 2), (), ())]
    reassign(1, 3)
    world.propose([1, 2, 3])
    shrunk, expanded, completed = committed.take()
    assert isinstance(shrunk, IsrShrunk) and shrunk.cause is IsrCause.REASSIGNED
    assert isinstance(expanded, IsrExpanded) and expanded.brokers == (3,)
    assert completed == PartitionReassigned("t", 0, ReassignmentStep.COMPLETED, (1, 3), (), ())


def test_a_changed_setting_tells_who_changed_it() -> None:
    world = World(1)
    committed = Committed(world, "admin at 10.0.0.3")
    world.topic(configs=(("retention.ms", "1000"),))
    assert committed.take() == [], "it was created with this setting"

    def change(kind: int, name: str, setting: str, value: str | None) -> list[Event]:
        operation = Operation.DELETE if value is None else Operation.SET
        changes = ConfigChanges(kind, name, (ConfigChange(setting, operation, value),))
        world.controller.incremental_alter_configs([changes])
        return committed.take()

    by = "admin at 10.0.0.3"
    assert change(TOPIC_RESOURCE, "t", "retention.ms", "5") == [
        SettingChanged("topic:t", "retention.ms", "1000", "5", by)
    ]
    assert change(TOPIC_RESOURCE, "t", "retention.ms", None) == [
        SettingChanged("topic:t", "retention.ms", "5", None, by)
    ]
    assert change(BROKER_RESOURCE, "", "x", "1") == [SettingChanged("cluster", "x", None, "1", by)]
    secret = "listener.name.clients.ssl.key.password"
    assert change(BROKER_RESOURCE, "1", secret, "hunter2") == [
        SettingChanged("broker:1", secret, None, "[hidden]", by)
    ]
    world.controller.alter_client_quotas(
        [QuotaChanges((("client-id", "c"),), (QuotaChange("producer_byte_rate", 9.0),))]
    )
    assert committed.take() == [SettingChanged("client-id:c", "producer_byte_rate", None, "9", by)]


def test_a_changed_acl_tells_who_changed_it() -> None:
    by = "admin at 10.0.0.3"
    world = World(1, has_authorizer=True)
    committed = Committed(world, by)
    acl = Acl(
        ResourceType.TOPIC,
        PatternType.PREFIXED,
        "orders.",
        "User:alice",
        "*",
        AclOperation.READ,
        Permission.ALLOW,
    )
    world.controller.create_acls([acl])
    words = "allow User:alice read from * (prefixed)"
    assert committed.take() == [SettingChanged("topic:orders.", "acl", None, words, by)]
    world.controller.delete_acls([AclFilter()])
    assert committed.take() == [SettingChanged("topic:orders.", "acl", words, None, by)]
