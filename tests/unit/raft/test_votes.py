"""By which rule a node grants its vote and its pre-vote, condition by condition: each test fails if its condition is left out.

Any node that a request names by its id and its directory answers, also one that does not know yet that it is a voter.
"""

from __future__ import annotations

import pytest
from raft_world import Host, World, directory_of

from ottla.raft.messages import BeginQuorumEpoch, LogPosition, Vote, VoteAnswer
from ottla.raft.quorum_state import EPOCH_JUMP_MAX
from ottla.raft.roles import RaftRole
from ottla.raft.voters import ReplicaKey
from ottla.wire.errors import ErrorCode

EPOCH = 50
"""Later than any that a world comes to."""


def key(node: int, life: int = 0) -> ReplicaKey:
    return ReplicaKey(node, directory_of(node, life))


def voter() -> Host:
    """Voter 2 of three, with some records. It has restarted, and hears of nobody."""
    world = World(3)
    world.start()
    world.isolate(2)
    leader = world.elect()
    world.append(leader, b"x", b"y")
    world.heal()
    host = world.hosts[2]
    end = leader.running.journal.log_end
    assert world.run(20, lambda: host.running.journal.log_end == end)
    for each in world.hosts.values():
        each.crash(power_loss=False)
    host.start()
    assert host.running.epoch < EPOCH
    return host


def asked(
    host: Host,
    candidate: ReplicaKey,
    *,
    epoch: int = EPOCH,
    pre_vote: bool = False,
    last: LogPosition | None = None,
    now: float = 0.0,
) -> VoteAnswer:
    own = host.running.journal.end_position
    request = Vote(epoch, candidate, host.key, own if last is None else last, pre_vote)
    return host.running.handle_vote(request, now)


def hear_of_leader(host: Host, leader: int, epoch: int = EPOCH) -> None:
    host.running.handle_begin_quorum_epoch(BeginQuorumEpoch(epoch, leader, host.key, None), 0.0)
    assert host.running.leader == leader


def stand(host: Host) -> None:
    """It asks for pre-votes itself, in EPOCH."""
    host.running.quorum.become_unattached(EPOCH, 0.0)
    host.running.quorum.become_prospective(0.0)


def shorter(host: Host) -> LogPosition:
    epoch, offset = host.running.journal.end_position
    return LogPosition(epoch, offset - 1)


# -- a vote


def test_M1_a_vote_is_for_the_first_that_asks_in_an_epoch() -> None:
    host = voter()
    assert asked(host, key(1)).granted
    assert not asked(host, key(3)).granted
    assert asked(host, key(1)).granted, "asked again, the same again"
    assert asked(host, key(3), epoch=EPOCH + 1).granted


def test_M1_a_vote_is_for_a_directory_not_for_a_node() -> None:
    host = voter()
    assert asked(host, key(1)).granted
    assert not asked(host, key(1, life=1)).granted, "another disk is another voter"


def test_M1_no_vote_in_an_epoch_whose_leader_is_known() -> None:
    host = voter()
    hear_of_leader(host, 1)
    assert not asked(host, key(3)).granted
    host.running.peer_disconnected(1, 0.1)
    assert host.running.leader is None
    assert not asked(host, key(3), now=0.1).granted, "gone or not, the epoch has had its leader"


def test_M3_no_vote_for_a_log_that_lacks_something() -> None:
    host = voter()
    assert not asked(host, key(1), last=shorter(host)).granted
    assert asked(host, key(3)).granted


# -- a pre-vote


def test_a_pre_vote_uses_up_nothing() -> None:
    host = voter()
    for node in (1, 3, 1):
        assert asked(host, key(node), pre_vote=True).granted
    assert host.running.quorum.state.voted is None
    assert asked(host, key(3)).granted
    assert asked(host, key(1), pre_vote=True).granted, "also after the vote"


def test_a_pre_vote_of_a_higher_epoch_brings_the_news_of_it_granted_or_not() -> None:
    host = voter()
    assert not asked(host, key(1), pre_vote=True, last=shorter(host)).granted
    assert (host.running.epoch, host.running.role) == (EPOCH, RaftRole.UNATTACHED)


def test_no_pre_vote_for_a_log_that_lacks_something() -> None:
    host = voter()
    assert not asked(host, key(1), pre_vote=True, last=shorter(host)).granted
    assert asked(host, key(1), pre_vote=True).granted


def test_no_pre_vote_of_a_leader() -> None:
    host = World(1).hosts[1]
    host.start()
    host.world.run(0.1)
    assert host.running.is_leader
    epoch = host.running.epoch
    assert not asked(host, key(3), epoch=epoch, pre_vote=True, now=host.world.now).granted


def test_no_pre_vote_while_a_leader_is_heard() -> None:
    host = voter()
    hear_of_leader(host, 1)
    assert not asked(host, key(3), pre_vote=True).granted
    host.running.peer_disconnected(1, 0.1)
    assert asked(host, key(3), pre_vote=True, now=0.1).granted


@pytest.mark.parametrize("role", [RaftRole.PROSPECTIVE, RaftRole.CANDIDATE])
@pytest.mark.parametrize(
    ("candidate", "is_granted"), [(1, True), (3, False)], ids=["smaller id", "larger id"]
)
def test_of_two_that_stand_with_equal_logs_the_one_with_the_larger_id_gives_way(
    candidate: int, is_granted: bool, role: RaftRole
) -> None:
    host = voter()
    stand(host)
    if role is RaftRole.CANDIDATE:
        host.running.quorum.become_candidate(0.0)
    epoch = host.running.epoch
    assert asked(host, key(candidate), epoch=epoch, pre_vote=True).granted is is_granted
    assert host.running.role is role, "it goes on standing itself"


@pytest.mark.parametrize("candidate", [1, 3])
def test_of_two_that_stand_the_one_with_the_worse_log_gives_way(candidate: int) -> None:
    host = voter()
    stand(host)
    own = host.running.journal.end_position
    better = LogPosition(own.epoch, own.offset + 1)
    assert asked(host, key(candidate), pre_vote=True, last=better).granted
    assert not asked(host, key(candidate), pre_vote=True, last=shorter(host)).granted


@pytest.mark.parametrize("pre_vote", [True, False], ids=["pre-vote", "vote again"])
def test_who_was_granted_something_is_given_time_to_win(pre_vote: bool) -> None:
    host = voter()
    assert asked(host, key(1), pre_vote=pre_vote).granted
    timer = host.running.quorum.timer
    timer.wait(0.0, 1.0)
    assert asked(host, key(1), pre_vote=pre_vote, now=1.0).granted
    assert timer.deadline > 1.0


# -- requests that are refused before anything is decided: they change nothing


@pytest.mark.parametrize("pre_vote", [True, False], ids=["pre-vote", "vote"])
def test_no_epoch_is_believed_that_is_absurdly_high(pre_vote: bool) -> None:
    host = voter()
    before = host.running.epoch
    jump = before + EPOCH_JUMP_MAX
    answer = asked(host, key(1), epoch=jump + 1, pre_vote=pre_vote)
    assert (answer.error, host.running.epoch) == (ErrorCode.INVALID_REQUEST, before)
    assert asked(host, key(1), epoch=jump, pre_vote=pre_vote).granted


@pytest.mark.parametrize("pre_vote", [True, False], ids=["pre-vote", "vote"])
def test_the_last_record_of_a_candidate_is_of_an_epoch_that_has_begun(pre_vote: bool) -> None:
    """A vote is for the next epoch, which has no record yet; a pre-vote names the present one."""
    host = voter()
    before = host.running.epoch
    answer = asked(host, key(1), pre_vote=pre_vote, last=LogPosition(EPOCH, 10))
    assert answer.granted is pre_vote
    if not pre_vote:
        assert (answer.error, host.running.epoch) == (ErrorCode.INVALID_REQUEST, before)


def test_an_older_epoch_is_fenced() -> None:
    host = voter()
    assert asked(host, key(1)).granted
    for pre_vote in (True, False):
        answer = asked(host, key(1), epoch=EPOCH - 1, pre_vote=pre_vote)
        assert (answer.error, answer.granted) == (ErrorCode.FENCED_LEADER_EPOCH, False)


@pytest.mark.parametrize("meant", [key(3), key(2, life=1), ReplicaKey(2, None), None])
def test_a_request_for_another_voter_or_another_disk_is_not_for_this_one(
    meant: ReplicaKey | None,
) -> None:
    host = voter()
    before, own = host.running.epoch, host.running.journal.end_position
    answer = host.running.handle_vote(Vote(EPOCH, key(1), meant, own, False), 0.0)
    assert (answer.error, host.running.epoch) == (ErrorCode.INVALID_VOTER_KEY, before)


def test_a_node_that_does_not_know_that_it_is_a_voter_votes() -> None:
    world = World(3, 1)
    host = world.hosts[4]
    host.start()
    assert not host.running.is_voter
    assert asked(host, key(1)).granted
