"""What the quorum says about its votes and leaders."""

from __future__ import annotations

from raft_world import Host, World, directory_of

from ottla.events.quorum import (
    QuorumLeaderChanged,
    QuorumLeaderResigned,
    ResignationCause,
    VoteGranted,
    VoteReason,
    VoteRefused,
)
from ottla.raft.messages import LogPosition, Vote
from ottla.raft.voters import ReplicaKey


def ask(host: Host, candidate: int, *, pre_vote: bool, epoch: int = 5, last: int = 0) -> None:
    asking, asked = (ReplicaKey(node, directory_of(node)) for node in (candidate, host.node))
    request = Vote(epoch, asking, asked, LogPosition(last, 100 * last), pre_vote)
    host.running.handle_vote(request, 0.0)


def votes(host: Host) -> list[VoteGranted | VoteRefused]:
    return [e for e in host.running.events if isinstance(e, VoteGranted | VoteRefused)]


def test_votes_and_their_reasons() -> None:
    host = World(3).hosts[1]
    host.start()
    ask(host, 2, pre_vote=True)
    ask(host, 2, pre_vote=False)
    ask(host, 2, pre_vote=False)
    ask(host, 3, pre_vote=False)
    assert votes(host) == [
        VoteGranted(5, 2, True, VoteReason.UP_TO_DATE),
        VoteGranted(5, 2, False, VoteReason.UP_TO_DATE),
        VoteGranted(5, 2, False, VoteReason.REPEATED),
        VoteRefused(5, 3, False, VoteReason.VOTED_FOR_ANOTHER),
    ]


def test_a_leader_and_its_followers_refuse_pre_votes() -> None:
    world = World(3)
    world.start()
    leader = world.elect()
    world.run(0.5)
    follower, other = (host for host in world.hosts.values() if host is not leader)
    epoch, end = leader.running.epoch, 1
    for host in (leader, follower):
        ask(host, other.node, pre_vote=True, epoch=epoch, last=end)
    assert [vote.reason for host in (leader, follower) for vote in votes(host)] == [
        VoteReason.LEADS,
        VoteReason.LEADER_ALIVE,
    ]


def test_a_leader_without_a_majority_resigns_and_says_why() -> None:
    world = World(3)
    world.start()
    leader = world.elect()
    epoch = leader.running.epoch
    world.isolate(leader.node)
    assert world.run(10, lambda: not leader.running.is_leader)
    mine = [event for _, node, event in world.events if node == leader.node]
    assert QuorumLeaderResigned(epoch, ResignationCause.NO_MAJORITY) in mine
    assert QuorumLeaderChanged(epoch, None) in mine
