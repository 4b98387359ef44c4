"""Elections: who may lead, how soon, and what a voter never does."""

from __future__ import annotations

import errno

import pytest
from raft_world import ROOT, Host, World, directory_of

from ottla.events.quorum import BecameQuorumLeader
from ottla.raft.messages import (
    BeginQuorumEpoch,
    EndQuorumEpoch,
    LogPosition,
    Vote,
)
from ottla.raft.roles import RaftRole
from ottla.raft.voters import ReplicaKey
from ottla.wire.errors import ErrorCode


def key(node: int) -> ReplicaKey:
    return ReplicaKey(node, directory_of(node))


def vote(epoch: int, candidate: int, voter: int, *, pre_vote: bool = False, last: int = 0) -> Vote:
    return Vote(epoch, key(candidate), key(voter), LogPosition(last, 100 * last), pre_vote)


def alone(node: int = 1, voters: int = 3) -> Host:
    """One voter whose others are not there."""
    world = World(voters)
    host = world.hosts[node]
    host.start()
    return host


def leaders_elected(world: World) -> list[int]:
    return [event.epoch for _, _, event in world.events if isinstance(event, BecameQuorumLeader)]


def test_a_new_quorum_elects_as_soon_as_a_majority_is_there() -> None:
    world = World(3)
    world.hosts[1].start()
    world.run(5)
    assert world.leader() is None
    world.hosts[2].start()
    began = world.now
    world.elect()
    assert world.now - began < 1.0, "no election timeout had to pass"
    assert leaders_elected(world) == [1]


def test_a_single_voter_leads_at_once() -> None:
    world = World(1)
    world.start()
    world.run(0.1)
    leader = world.leader()
    assert leader is not None and leader.running.high_watermark == 3


def test_P35_a_killed_leader_is_replaced_within_tens_of_milliseconds() -> None:
    for seed in range(10):
        world = World(3, seed=seed)
        world.start()
        old = world.elect()
        world.append(old, b"decision")
        world.run(0.1)
        began = world.now
        old.crash(power_loss=False)
        new = world.elect()
        assert world.now - began < 0.15
        assert new.running.journal.log_end >= 5, "no decision is lost"


def test_a_leader_that_falls_silent_is_replaced_after_the_fetch_timeout_and_resigns_itself() -> (
    None
):
    world = World(3)
    world.start()
    old = world.elect()
    began = world.now
    world.isolate(old.node)
    others = [h for h in world.hosts.values() if h is not old]
    assert world.run(10, lambda: any(h.running.is_established for h in others))
    assert 1.0 < world.now - began < 4.0
    assert world.run(10, lambda: old.running.role is not RaftRole.LEADER)
    assert world.now - began < 4.5, "1.5 fetch timeouts"
    assert old.running.leader is None


def test_a_voter_that_is_cut_off_disturbs_nobody_when_it_comes_back() -> None:
    world = World(3)
    world.start()
    leader = world.elect()
    cut_off = next(h for h in world.hosts.values() if h is not leader)
    epoch = leader.running.epoch
    world.isolate(cut_off.node)
    world.run(30)
    assert cut_off.running.epoch == epoch, "a pre-vote raises no epoch"
    world.heal()
    assert world.run(5, lambda: cut_off.running.leader == leader.node)
    world.run(10)
    assert leader.running.is_leader and leader.running.epoch == epoch


@pytest.mark.parametrize("seed", range(5))
def test_a_bridge_partition_does_not_livelock(seed: int) -> None:
    """A–B–C without A–C: whoever leads, the two that see it go on, and the third gives no trouble."""
    world = World(3, seed=seed)
    world.start()
    leader = world.elect()
    other = next(h for h in world.hosts.values() if h is not leader)
    world.cut_link(leader.node, other.node)
    world.run(10)
    settled = world.elect()
    elections = len(leaders_elected(world))
    for _ in range(10):
        end = world.append(settled, b"x") + 1
        world.run(2)
        assert settled.running.high_watermark >= end
    assert len(leaders_elected(world)) == elections


def test_a_leader_that_stops_hands_over_without_any_timeout() -> None:
    world = World(3)
    world.start()
    old = world.elect()
    world.run(1)
    began = world.now
    old.running.resign(world.now)
    old.after_input()
    assert old.running.role is RaftRole.RESIGNED
    new = world.elect()
    assert world.now - began < 0.15 and new is not old
    assert old.running.all_know_of_resignation
    assert world.run(5, lambda: old.running.leader == new.node)


def test_a_leader_that_restarts_never_leads_its_old_epoch_again() -> None:
    world = World(3)
    world.start()
    old = world.elect()
    epoch = old.running.epoch
    for host in world.hosts.values():
        host.crash(power_loss=True)
    old.start()
    assert old.running.role is RaftRole.RESIGNED and old.running.epoch == epoch
    for host in world.hosts.values():
        if host is not old:
            host.start()
    assert world.elect().running.epoch > epoch


def test_the_end_of_an_epoch_is_answered_74_by_those_who_have_moved_on() -> None:
    host = alone()
    host.running.handle_begin_quorum_epoch(BeginQuorumEpoch(5, 2, key(1), None), 0.0)
    late = EndQuorumEpoch(4, 3, (), None)
    answer = host.running.handle_end_quorum_epoch(late, 0.0)
    assert (answer.error, answer.epoch, answer.leader) == (ErrorCode.FENCED_LEADER_EPOCH, 5, 2)


def test_the_first_preferred_candidate_stands_at_once_and_the_others_wait() -> None:
    first, second = alone(1), alone(2)
    for host in (first, second):
        host.running.handle_begin_quorum_epoch(BeginQuorumEpoch(5, 3, key(host.node), None), 0.0)
        farewell = EndQuorumEpoch(5, 3, (key(1), key(2)), None)
        host.running.handle_end_quorum_epoch(farewell, 1.0)
        assert host.running.leader is None
    assert first.running.next_deadline() <= 1.02
    second.running.tick(1.05)
    assert second.running.role is RaftRole.FOLLOWER


def test_M1_a_voter_votes_once_in_an_epoch_also_across_a_restart() -> None:
    host = alone()
    assert host.running.handle_vote(vote(5, 2, 1), 0.0).granted
    assert host.running.handle_vote(vote(5, 2, 1), 0.0).granted, "the same again"
    assert not host.running.handle_vote(vote(5, 3, 1), 0.0).granted
    host.crash(power_loss=True)
    host.start()
    assert not host.running.handle_vote(vote(5, 3, 1), 0.0).granted
    assert host.running.handle_vote(vote(6, 3, 1), 0.0).granted


def test_M1_a_vote_that_could_not_be_written_is_not_given() -> None:
    host = alone()
    host.disk.fail("flush", f"{ROOT}/__cluster_metadata-0/quorum-state", error=errno.EIO)
    with pytest.raises(OSError):
        host.running.handle_vote(vote(5, 2, 1), 0.0)
    assert host.running.epoch == 0


def test_a_pre_vote_changes_nothing_and_is_refused_while_the_leader_is_heard() -> None:
    host = alone()
    raft = host.running
    assert raft.handle_vote(vote(0, 2, 1, pre_vote=True), 0.0).granted
    assert raft.handle_vote(vote(0, 3, 1, pre_vote=True), 0.0).granted
    assert (raft.epoch, raft.role) == (0, RaftRole.UNATTACHED)
    raft.handle_begin_quorum_epoch(BeginQuorumEpoch(4, 2, key(1), None), 0.0)
    assert not raft.handle_vote(vote(4, 3, 1, pre_vote=True), 0.1).granted
    raft.peer_disconnected(2, 0.2)
    assert raft.handle_vote(vote(4, 3, 1, pre_vote=True), 0.2).granted


def test_a_candidate_with_a_shorter_log_gets_no_vote() -> None:
    world = World(3)
    world.start()
    leader = world.elect()
    world.append(leader, b"x")
    world.run(0.1)
    follower = next(h for h in world.hosts.values() if h is not leader)
    end = follower.running.journal.end_position
    asker = next(n for n in world.hosts if n not in (leader.node, follower.node))

    def asks(last: LogPosition) -> bool:
        epoch = follower.running.epoch + 1
        request = Vote(epoch, key(asker), key(follower.node), last, False)
        return follower.running.handle_vote(request, world.now).granted

    assert not asks(LogPosition(end.epoch, end.offset - 1))
    assert not asks(LogPosition(end.epoch - 1, end.offset + 100))
    assert asks(end)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (vote(4, 2, 1), ErrorCode.FENCED_LEADER_EPOCH),
        (vote(5, 2, 3), ErrorCode.INVALID_VOTER_KEY),
        (vote(5, -1, 1), ErrorCode.INVALID_REQUEST),
        (vote(5, 2, 1, last=5), ErrorCode.INVALID_REQUEST),
        (vote(6, 2, 1, last=6), ErrorCode.INVALID_REQUEST),
        (vote(6, 2, 1)._replace(last_position=LogPosition(0, -1)), ErrorCode.INVALID_REQUEST),
        (vote(6, 2, 1)._replace(voter=None), ErrorCode.INVALID_VOTER_KEY),
        (vote(6, 2, 1)._replace(voter=ReplicaKey(1, None)), ErrorCode.INVALID_VOTER_KEY),
    ],
)
def test_votes_that_cannot_be_are_refused_with_kafkas_errors(
    request_: Vote, error: ErrorCode
) -> None:
    host = alone()
    host.running.handle_begin_quorum_epoch(BeginQuorumEpoch(5, 3, key(1), None), 0.0)
    answer = host.running.handle_vote(request_, 0.0)
    assert (answer.error, answer.granted) == (error, False)


def test_a_voter_whose_disk_was_replaced_is_not_that_voter_any_more() -> None:
    world = World(3)
    world.start()
    leader = world.elect()
    world.append(leader, b"x")
    world.run(0.1)
    replaced = next(h for h in world.hosts.values() if h is not leader)
    replaced.crash(power_loss=False)
    replaced.replace_disk()
    replaced.start()
    world.run(1)
    assert not replaced.running.is_voter and replaced.running.leader == leader.node
    assert replaced.running.high_watermark == leader.running.high_watermark
    answer = replaced.running.handle_vote(vote(50, 3, replaced.node, last=9), world.now)
    assert (answer.error, answer.granted) == (ErrorCode.INVALID_VOTER_KEY, False)
    third = next(h for h in world.hosts.values() if h not in (leader, replaced))
    third.crash(power_loss=False)
    end = world.append(leader, b"y") + 1
    world.run(1)
    assert replaced.running.journal.log_end == end, "it fetches as an observer"
    assert leader.running.high_watermark < end, "and does not count"


def test_an_observer_never_stands_for_election() -> None:
    world = World(3, 1)
    world.start()
    world.elect()
    for node in (1, 2, 3):
        world.hosts[node].crash(power_loss=False)
    world.run(20)
    assert world.hosts[4].running.role in (RaftRole.UNATTACHED, RaftRole.FOLLOWER)


def test_an_observer_finds_the_leader_and_its_successor() -> None:
    world = World(3, 1)
    world.start()
    leader = world.elect()
    observer = world.hosts[4]
    assert world.run(2, lambda: observer.running.leader == leader.node)
    leader.crash(power_loss=False)
    began = world.now
    successor = world.elect()
    assert world.run(2, lambda: observer.running.leader == successor.node)
    assert world.now - began < 0.3


def test_only_listed_transitions_are_possible() -> None:
    host = alone()
    with pytest.raises(AssertionError):
        host.running.quorum.become_candidate(0.0)  # not without a pre-vote
    host.running.quorum.become_prospective(0.0)
    with pytest.raises(AssertionError):
        host.running.quorum.become_leader(0.0)


def test_the_first_leader_writes_the_voters_and_later_ones_only_themselves() -> None:
    world = World(3)
    world.start()
    first = world.elect()
    assert first.running.journal.log_end == 3, "LeaderChange, KRaftVersion, KRaftVoters"
    assert first.running.journal.voters_are_written
    first.crash(power_loss=False)
    second = world.elect()
    assert second.running.journal.log_end == 4, "LeaderChange"
    assert second.running.journal.voters == world.voters


def test_voters_that_restart_together_find_the_leader_instead_of_replacing_it() -> None:
    for seed in range(10):
        world = World(3, seed=seed)
        world.start()
        leader = world.elect()
        others = [h for h in world.hosts.values() if h is not leader]
        for host in others:
            host.crash(power_loss=False)
        world.run(0.5)
        for host in others:
            host.start()
        world.run(5)
        assert leader.running.is_leader
        assert all(h.running.leader == leader.node for h in others)
