"""The roles of a replica change along their table only, and what happens to it is said by its events."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.events import Event
from ottla.events.replication import (
    FollowerBelowEpochStart,
    IsrProposed,
    LeaderEpochRefused,
    LogRestarted,
    ProduceRefused,
    RoleChanged,
    Truncated,
    TruncationCause,
)
from ottla.replica.follower import restart_within
from ottla.replica.roles import TRANSITIONS, Role
from ottla.wire.errors import ErrorCode, KafkaError
from support.replica_world import World


def events(world: World, id: int, kind: type[Event]) -> list[Event]:
    return [event for event in world.seen[id].happened if isinstance(event, kind)]


def test_every_role_is_entered_and_left_by_some_edge() -> None:
    assert {role for edge in TRANSITIONS for role in edge} == set(Role)
    for role in Role:
        assert any(a is role and b is not role for a, b in TRANSITIONS)
        assert any(b is role and a is not role for a, b in TRANSITIONS)


def test_a_leadership_exists_exactly_while_the_replica_leads(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world[1].leadership
    assert first is not None and world[2].leadership is None
    world.decide(leader=2)
    assert world[1].leadership is None and world[2].leadership is not None
    world.decide(leader=1)
    assert world[1].leadership is not None and world[1].leadership is not first
    world[1].become_offline()
    assert world[1].leadership is None and world[1].role is Role.OFFLINE
    roles = [(event.role, event.leader_epoch) for event in events(world, 1, RoleChanged)]
    assert roles == [("leader", 0), ("follower", 1), ("leader", 2), ("offline", 2)]


def test_a_decision_within_an_epoch_keeps_the_leadership(tmp_path: Path) -> None:
    world = World(tmp_path, brokers=3)
    before = world[1].leadership
    world.decide(isr=(1, 2))
    assert world[1].leadership is before
    assert len(events(world, 1, RoleChanged)) == 1


def test_D7_a_leader_that_is_made_to_truncate_is_noticed(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.produce(1, "a", acks=1)
    world.decide(leader=1)
    world[1].log.truncate_to(0)
    with pytest.raises(AssertionError, match="D7"):
        world[1].invariants()


def test_a_leader_is_in_its_isr(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(AssertionError, match="M8"):
        world.decide(isr=(2,))


def test_a_truncation_says_what_was_cut_and_why(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.settle()
    world.produce(1, "never copied")
    world.decide(leader=2)
    world.produce(2, "another")
    world.fetch(1, 2)
    (cut,) = events(world, 1, Truncated)
    assert isinstance(cut, Truncated)
    assert cut.cause is TruncationCause.DIVERGING
    assert (cut.first_offset, cut.end_offset, cut.log_end) == (0, 1, 0)
    assert (cut.leader, cut.leader_epoch, cut.below_high_watermark) == (2, 1, False)


def test_a_log_that_ends_before_the_leaders_begins_is_restarted(tmp_path: Path) -> None:
    world = World(tmp_path)
    restart_within(world[2], 5, 9)
    assert events(world, 2, LogRestarted) == [LogRestarted(world[2].key, 0, 0, 5)]
    assert not events(world, 2, Truncated)


def test_requests_of_another_epoch_are_refused_and_say_so(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.decide(leader=1)
    for named, error in ((0, ErrorCode.FENCED_LEADER_EPOCH), (7, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        with pytest.raises(KafkaError) as refused:
            world[1].leading(named)
        assert refused.value.code is error
    refusals = events(world, 1, LeaderEpochRefused)
    assert refusals == [
        LeaderEpochRefused(world[1].key, 0, 1, ErrorCode.FENCED_LEADER_EPOCH),
        LeaderEpochRefused(world[1].key, 7, 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ]


def test_a_proposal_says_from_which_isr_to_which_and_why(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.decide(isr=(1,))
    world.fetch(2, 1)
    (proposed,) = events(world, 1, IsrProposed)
    assert isinstance(proposed, IsrProposed)
    assert (proposed.isr, proposed.proposed) == ((1,), (1, 2))
    assert proposed.cause == "brokers [2] caught up"


def test_too_few_replicas_and_a_follower_held_back_are_said(tmp_path: Path) -> None:
    world = World(tmp_path, brokers=3, min_isr=2)
    world.settle()
    world.produce(1, "a")
    world.fetch(2, 1)
    world.decide(leader=2, isr=(2,))
    with pytest.raises(KafkaError):
        world.produce(2, "b", acks=-1)
    assert events(world, 2, ProduceRefused) == [ProduceRefused(world[2].key, 1, (2,), 2)]
    world.fetch(3, 2)
    (held_back,) = events(world, 2, FollowerBelowEpochStart)[:1]
    assert isinstance(held_back, FollowerBelowEpochStart)
    assert (held_back.followers, held_back.epoch_start) == ((3,), 1)
