"""What coordinators emit: each event with the ids, epochs and causes that an operator looks for."""

from __future__ import annotations

from typing import TypeVar

from group_world import GroupWorld, Member
from transaction_world import ID, Coordinator

from ottla.events import Event, Events
from ottla.events.coordination import (
    AbortCause,
    CoordinatorFencedProducer,
    EndTransactionRepeated,
    GroupRebalanced,
    MemberExpired,
    MemberMissedRebalance,
    OffsetCommitRefused,
    OffsetsCommitted,
    OpenWork,
    StaticMemberReplaced,
    TransactionAborted,
    TransactionEnded,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.types import TopicPartition

E = TypeVar("E", bound=Event)

A = TopicPartition("a", 0)


class Heard:
    def __init__(self, events: Events) -> None:
        self._events: list[Event] = []
        events.subscribe(self._events.append)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self._events if isinstance(event, kind)]


def test_a_commit_is_reported_with_its_offsets_and_a_refused_one_with_its_error() -> None:
    world = GroupWorld()
    heard = Heard(world.events)
    assert world.commit("g", 7) == 0
    assert heard.of(OffsetsCommitted) == [OffsetsCommitted("g", "", ((TopicPartition("t", 0), 7),))]
    (member,) = world.stable("g")
    assert world.commit("g", 8, member_id=member, generation_id_or_member_epoch=77)
    assert heard.of(OffsetCommitRefused) == [
        OffsetCommitRefused("g", member, 77, ErrorCode.ILLEGAL_GENERATION)
    ]
    assert len(heard.of(OffsetsCommitted)) == 1


def test_a_classic_group_reports_its_rebalances_and_the_members_that_it_loses() -> None:
    world = GroupWorld()
    heard = Heard(world.events)
    (member,) = world.stable("g")
    assert [(event.group_id, event.epoch) for event in heard.of(GroupRebalanced)] == [("g", 1)]
    assert member in heard.of(GroupRebalanced)[0].cause
    world.sleep(11)
    assert heard.of(MemberExpired) == [MemberExpired("g", member, "session timeout")]


def test_a_member_that_does_not_join_again_misses_the_rebalance() -> None:
    world = GroupWorld()
    heard = Heard(world.events)
    (member,) = world.stable("g", session_timeout=60_000)
    world.new_member("g", session_timeout=60_000)
    world.sleep(31)
    assert MemberMissedRebalance("g", member, 1, "JoinGroup") in heard.of(MemberMissedRebalance)


def test_a_static_member_that_comes_back_is_reported_with_both_ids() -> None:
    world = GroupWorld()
    heard = Heard(world.events)
    first = world.join("g", group_instance_id="i")
    world.sleep(6.5)
    second = world.join("g", group_instance_id="i")
    ids = first.reply.member_id, second.reply.member_id if second.is_answered else None
    (event,) = heard.of(StaticMemberReplaced)
    assert (event.group_id, event.instance_id, event.former_member_id) == ("g", "i", ids[0])
    assert ids[1] in (None, event.member_id)


def test_a_consumer_group_reports_its_epochs_and_the_members_that_it_loses() -> None:
    world = GroupWorld()
    heard = Heard(world.events)
    Member(world, "m").join()
    assert [(event.epoch, event.cause) for event in heard.of(GroupRebalanced)] == [
        (1, "members changed")
    ]
    world.sleep(46)
    assert heard.of(MemberExpired) == [MemberExpired("g", "m", "session timeout")]
    assert heard.of(GroupRebalanced)[-1] == GroupRebalanced("g", 2, "members left", 0)


def test_open_work_counts_what_a_failover_interrupts() -> None:
    world = GroupWorld()
    world.commit("g", 1)
    world.new_member("h")
    assert world.shard.open_work() == OpenWork(rebalancing_groups=1, groups_with_offsets=1)
    coordinator = Coordinator()
    producer = coordinator.init()
    coordinator.add(producer, A)
    assert coordinator.shard.open_work() == OpenWork(ongoing_transactions=1)
    coordinator.end(producer, True)
    assert coordinator.shard.open_work() == OpenWork(prepared_transactions=1)


def test_the_end_of_a_transaction_is_reported_once_its_markers_are_written() -> None:
    world = Coordinator()
    heard = Heard(world.events)
    producer = world.init()
    world.add(producer, A)
    world.end(producer, True)
    assert not heard.of(TransactionEnded)
    world.write_markers()
    (ended,) = heard.of(TransactionEnded)
    assert (ended.transactional_id, ended.producer_id) == (ID, producer[0])
    assert ended.committed and ended.partitions == 1
    world.end(producer, True)
    assert heard.of(EndTransactionRepeated) == [EndTransactionRepeated(ID, *producer)]


def test_an_abort_by_the_coordinator_is_reported_with_its_cause_and_fences() -> None:
    world = Coordinator()
    heard = Heard(world.events)
    producer = world.init()
    world.add(producer, A)
    world.wait(60)
    assert heard.of(TransactionAborted) == [
        TransactionAborted(ID, producer[0], producer[1], cause=AbortCause.TIMEOUT, partitions=1)
    ]
    world.write_markers()
    assert world.add(producer, A) is ErrorCode.PRODUCER_FENCED
    assert heard.of(CoordinatorFencedProducer) == [
        CoordinatorFencedProducer(ID, ErrorCode.PRODUCER_FENCED)
    ]
