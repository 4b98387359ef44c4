"""Voters that change (KIP-853): which changes a leader makes, when they count, and what becomes of removed voters."""

from __future__ import annotations

from dataclasses import replace

import pytest
from raft_world import Host, World, directory_of, endpoint

from ottla.events.quorum import QuorumLeaderResigned, ResignationCause
from ottla.metadata.records import NoOpRecord
from ottla.raft.messages import (
    AddVoter,
    Fetch,
    RemoveVoter,
    UpdateVoter,
    VoterChangeAnswer,
)
from ottla.raft.roles import RaftRole
from ottla.raft.voter_changes import VoterChange
from ottla.raft.voters import QuorumEndpoint, ReplicaKey, Voter
from ottla.wire.errors import ErrorCode

DONE = VoterChangeAnswer(ErrorCode.NONE)


def grown(voters: int = 3, controllers: int = 1, *, seed: int = 0) -> World:
    world = World(voters, controllers=controllers, seed=seed)
    world.start()
    leader = world.elect()
    world.append(leader, b"first")
    world.run(1.0)
    return world


def leader_of(world: World) -> Host:
    leader = world.leader()
    assert leader is not None
    return leader


def follower_of(world: World) -> Host:
    leader = leader_of(world)
    return next(h for h in world.hosts.values() if h.is_voter and h is not leader)


def answer_of(world: World, change: VoterChange, seconds: float = 5.0) -> VoterChangeAnswer:
    assert world.run(seconds, lambda: change.answer is not None), "nobody answered"
    assert change.answer is not None
    return change.answer


def voters_of(host: Host) -> list[ReplicaKey]:
    return [voter.key for voter in host.running.journal.voters.voters]


def everybody_has(world: World, voters: list[ReplicaKey]) -> bool:
    return all(voters_of(host) == voters for host in world.hosts.values() if host.raft is not None)


def keys(*nodes: int) -> list[ReplicaKey]:
    return [ReplicaKey(node, directory_of(node)) for node in nodes]


def commit(world: World, value: bytes = b"more") -> None:
    leader = leader_of(world)
    offset = world.append(leader, value)
    assert world.run(5, lambda: leader.running.high_watermark > offset), "not committed"


def cut_off_all_but(world: World, *nodes: int) -> None:
    for host in world.hosts.values():
        if host.node not in nodes:
            world.isolate(host.node)


def test_a_controller_that_has_caught_up_becomes_a_voter() -> None:
    world = grown()
    assert answer_of(world, world.add(leader_of(world), world.hosts[4])) == DONE
    assert world.run(2, lambda: everybody_has(world, keys(1, 2, 3, 4)))
    assert world.hosts[4].running.is_voter and world.hosts[4].running.has_vote


def test_an_added_voter_counts_for_the_majority() -> None:
    world = grown()
    answer_of(world, world.add(leader_of(world), world.hosts[4]))
    leader = leader_of(world)
    others = [node for node in (1, 2, 3) if node != leader.node]
    world.hosts[others[0]].crash(power_loss=False)
    commit(world)  # on three of four
    world.hosts[4].crash(power_loss=False)
    offset = world.append(leader, b"on two of four")
    world.run(1.0)
    assert leader.running.high_watermark <= offset


def test_an_added_voter_can_be_elected() -> None:
    world = grown(1)
    answer_of(world, world.add(leader_of(world), world.hosts[2]))
    world.hosts[1].running.resign(world.now)
    world.hosts[1].after_input()
    assert world.run(10, lambda: world.leader() is world.hosts[2])


def test_a_removed_voter_observes() -> None:
    world = grown()
    removed = follower_of(world)
    assert answer_of(world, world.remove(leader_of(world), removed.key)) == DONE
    commit(world)
    assert world.run(2, lambda: not removed.running.is_voter)
    end = leader_of(world).running.high_watermark
    assert world.run(2, lambda: removed.running.high_watermark >= end)
    world.hosts[leader_of(world).node].crash(power_loss=False)
    world.run(5)
    assert removed.running.role in (RaftRole.FOLLOWER, RaftRole.UNATTACHED)


def test_a_removed_leader_resigns_when_its_removal_is_committed() -> None:
    world = grown()
    leader = leader_of(world)
    epoch = leader.running.epoch
    change = world.remove(leader, leader.key)
    assert leader.running.is_leader, "somebody has to commit the removal"
    assert answer_of(world, change) == DONE
    assert world.run(2, lambda: not leader.running.is_leader)
    happened = [event for _, node, event in world.events if node == leader.node]
    assert QuorumLeaderResigned(epoch, ResignationCause.REMOVED) in happened
    assert world.elect() is not leader
    commit(world)
    assert world.run(2, lambda: leader.running.leader == leader_of(world).node)


def test_a_removed_leader_whose_removal_nobody_else_has_is_elected_once_more() -> None:
    """It crashed before anybody had fetched its removal. The other voter's log is shorter, so it cannot win; the removed one
    can, with the other's vote, and resigns when its removal is committed."""
    world = grown(2, 0)
    leader, other = leader_of(world), follower_of(world)
    world.cut_link(leader.node, other.node)
    world.remove(leader, leader.key)
    assert world.run(5, lambda: not leader.running.journal.needs_flush)
    leader.crash(power_loss=False)
    world.heal()
    world.run(5.0)
    assert other.running.role is not RaftRole.LEADER
    leader.start()
    assert world.run(60, lambda: world.leader() is other)
    assert voters_of(other) == [other.key]
    assert world.run(10, lambda: leader.running.leader == other.node)


def test_a_removed_leader_does_not_count_itself() -> None:
    world = grown()
    leader = leader_of(world)
    one = follower_of(world)
    for host in world.hosts.values():
        if host not in (leader, one):
            host.crash(power_loss=False)
    change = world.remove(leader, leader.key)
    world.run(1.0)
    assert change.answer is None, "one of two remaining voters is no majority"
    world.hosts[next(n for n in (1, 2, 3) if n not in (leader.node, one.node))].start()
    assert answer_of(world, change) == DONE


def test_the_last_voter_stays() -> None:
    world = grown(1)
    leader = leader_of(world)
    assert answer_of(world, world.remove(leader, leader.key)).error is ErrorCode.VOTER_NOT_FOUND


def test_who_is_no_voter_cannot_be_removed() -> None:
    world = grown()
    leader = leader_of(world)
    for key in (ReplicaKey(9, directory_of(9)), ReplicaKey(1, directory_of(9))):
        assert answer_of(world, world.remove(leader, key)).error is ErrorCode.VOTER_NOT_FOUND
    for key in (ReplicaKey(1, None), ReplicaKey(-1, directory_of(1))):
        assert answer_of(world, world.remove(leader, key)).error is ErrorCode.INVALID_REQUEST


def test_a_removal_that_would_leave_no_majority_alive_is_refused() -> None:
    """The voters that are left count at once. With only the dead one beside the leader nobody would ever commit them."""
    world = grown()
    leader = leader_of(world)
    dead, living = (host for host in world.hosts.values() if host.node <= 3 and host is not leader)
    dead.crash(power_loss=False)
    world.run(world.timing.fetch_timeout + 0.5)
    for key in (living.key, leader.key):
        refusal = answer_of(world, world.remove(leader, key))
        assert refusal.error is ErrorCode.INVALID_REQUEST
        assert "only 1 would follow" in str(refusal.message)
    assert voters_of(leader) == keys(1, 2, 3)
    assert answer_of(world, world.remove(leader, dead.key)) == DONE
    assert answer_of(world, world.remove(leader, living.key)) == DONE


def test_an_id_is_that_of_one_voter() -> None:
    world = grown()
    leader = leader_of(world)
    twin = Voter(2, directory_of(2, life=7), (endpoint(4),))
    change = world.change(leader, AddVoter(twin, 5.0))
    assert answer_of(world, change).error is ErrorCode.DUPLICATE_VOTER


def test_only_a_leader_changes_voters() -> None:
    world = grown()
    change = world.remove(follower_of(world), world.hosts[1].key)
    assert answer_of(world, change).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_static_voters_do_not_change() -> None:
    world = World(3, controllers=1, static=True)
    world.start()
    change = world.add(world.elect(), world.hosts[4])
    assert answer_of(world, change).error is ErrorCode.UNSUPPORTED_VERSION


def test_changes_are_made_one_at_a_time() -> None:
    world = grown(3, 2)
    leader = leader_of(world)
    first = world.remove(leader, follower_of(world).key)
    second = world.add(leader, world.hosts[4])
    assert answer_of(world, second).error is ErrorCode.REQUEST_TIMED_OUT
    assert answer_of(world, first) == DONE
    assert answer_of(world, world.add(leader, world.hosts[4])) == DONE


def test_no_change_begins_before_the_last_one_is_committed() -> None:
    """Also when nobody waits for the last one any more."""
    world = grown()
    leader = leader_of(world)
    gone = [host for host in world.hosts.values() if host is not leader]
    for host in gone[:2]:
        world.cut_link(leader.node, host.node)
    first = world.remove(leader, gone[2].key if gone[2].is_voter else gone[0].key)
    assert answer_of(world, first).error is ErrorCode.REQUEST_TIMED_OUT
    if leader.running.is_leader:
        second = world.add(leader, world.hosts[4])
        assert answer_of(world, second).error is ErrorCode.REQUEST_TIMED_OUT


def test_no_change_begins_before_a_record_of_the_leaders_epoch_is_committed() -> None:
    """Otherwise two leaders in a row could each commit a change of their own, with majorities that share nobody."""
    world = grown()
    old = leader_of(world)
    for host in world.hosts.values():
        if host is not old:
            world.cut_link(old.node, host.node)
    fresh: list[Host] = []

    def is_elected() -> bool:
        fresh[:] = [
            host
            for host in world.hosts.values()
            if host is not old and host.running.is_leader and not host.running.is_established
        ]
        return bool(fresh)

    assert world.run(10, is_elected)
    change = world.remove(fresh[0], old.key)
    assert change.answer is not None and change.answer.error is ErrorCode.REQUEST_TIMED_OUT
    assert voters_of(fresh[0]) == keys(1, 2, 3)


def test_a_change_that_is_truncated_is_undone() -> None:
    world = grown(3, 1)
    old = leader_of(world)
    for host in world.hosts.values():
        if host is not old:
            world.cut_link(old.node, host.node)
    change = world.remove(old, old.key)
    assert voters_of(old) == keys(*(n for n in (1, 2, 3) if n != old.node)), "it counts at once"
    assert answer_of(world, change, 20).error in (
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
    assert world.run(20, lambda: world.leader() not in (None, old))
    commit(world)
    world.heal()
    assert world.run(10, lambda: everybody_has(world, keys(1, 2, 3)))
    assert old.running.is_voter


def test_a_voter_that_lags_is_added_when_it_has_caught_up() -> None:
    world = grown()
    leader, newcomer = leader_of(world), world.hosts[4]
    newcomer.crash(power_loss=False)
    for number in range(20):
        world.append(leader, b"x" * 100 + str(number).encode())
    world.run(1.0)
    newcomer.start()
    assert answer_of(world, world.add(leader, newcomer)) == DONE


def test_a_voter_that_does_not_answer_is_not_added() -> None:
    world = grown()
    world.hosts[4].crash(power_loss=False)
    answer = answer_of(world, world.add(leader_of(world), world.hosts[4]))
    assert answer.error is ErrorCode.REQUEST_TIMED_OUT
    assert "does not answer at host4:9093" in (answer.message or "")
    assert everybody_has(world, keys(1, 2, 3))


def test_a_voter_that_answers_and_does_not_fetch_is_not_added() -> None:
    world = grown()
    leader, newcomer = leader_of(world), world.hosts[4]
    stranger = replace(Voter(4, directory_of(4, life=3), ()), endpoints=(endpoint(newcomer.node),))
    answer = answer_of(world, world.change(leader, AddVoter(stranger, 30.0)))
    assert answer.error is ErrorCode.REQUEST_TIMED_OUT and "lagging" in (answer.message or "")


def test_a_voter_must_support_the_clusters_kraft_version() -> None:
    world = grown()
    for versions in (None, (0, 0), (2, 3)):
        world.hosts[4].kraft_versions = versions
        answer = answer_of(world, world.add(leader_of(world), world.hosts[4]))
        assert answer.error is ErrorCode.INVALID_REQUEST


def test_who_does_not_wait_for_the_commit_is_answered_when_it_is_in_the_log() -> None:
    world = grown()
    leader, newcomer = leader_of(world), world.hosts[4]
    voter = Voter(4, newcomer.key.directory, (endpoint(4),))
    change = world.change(leader, AddVoter(voter, 5.0, ack_when_committed=False))
    assert world.run(5, lambda: change.offset is not None)
    assert change.answer == DONE
    assert not leader.running.journal.voters_are_committed


def test_a_disk_is_lost_and_its_voter_is_replaced() -> None:
    """The node comes back under its id with another directory, and nobody mistakes it for the voter that it was."""
    world = grown(3, 0)
    lost = follower_of(world)
    old = lost.key
    lost.crash(power_loss=False)
    lost.replace_disk()
    commit(world)
    lost.start()
    commit(world)
    assert world.run(5, lambda: lost.running.high_watermark > 0)
    assert not lost.running.is_voter
    leader = leader_of(world)
    assert answer_of(world, world.remove(leader, old)) == DONE
    assert answer_of(world, world.add(leader, lost)) == DONE
    assert world.run(5, lambda: lost.running.is_voter)
    third = next(h for h in world.hosts.values() if h not in (leader, lost))
    third.crash(power_loss=False)
    commit(world, b"on the replaced voter")


def test_a_replaced_disk_does_not_count_as_its_former_voter() -> None:
    world = grown(3, 0)
    leader, lost = leader_of(world), follower_of(world)
    third = next(h for h in world.hosts.values() if h not in (leader, lost))
    lost.crash(power_loss=False)
    lost.replace_disk()
    lost.start()
    assert world.run(5, lambda: lost.running.high_watermark > 0)
    third.crash(power_loss=False)
    offset = world.append(leader, b"on one voter and on a stranger")
    world.run(1.0)
    assert leader.running.high_watermark <= offset


def test_controllers_that_may_join_do_so_by_themselves() -> None:
    world = World(1, controllers=2)
    for host in world.hosts.values():
        host.may_join = True
    world.start()
    world.elect()
    assert world.run(20, lambda: everybody_has(world, keys(1, 2, 3)))


def test_a_controller_that_may_join_replaces_its_former_voter_by_itself() -> None:
    world = grown(3, 0)
    lost = follower_of(world)
    lost.crash(power_loss=False)
    lost.replace_disk()
    lost.may_join = True
    lost.start()
    assert world.run(20, lambda: lost.running.is_voter)
    assert lost.key in voters_of(leader_of(world))
    assert len(voters_of(leader_of(world))) == 3


@pytest.mark.parametrize("leads", [False, True])
def test_a_voter_that_moved_tells_the_others_where_it_listens(leads: bool) -> None:
    world = grown()
    moved = leader_of(world) if leads else follower_of(world)
    moved.crash(power_loss=False)
    elsewhere = QuorumEndpoint("CONTROLLER", f"host{moved.node}", 19093)
    moved.endpoint = elsewhere
    moved.start()

    def is_known() -> bool:
        voters = [host.running.journal.voters.get(moved.node) for host in world.hosts.values()]
        return all(voter is not None and voter.endpoints == (elsewhere,) for voter in voters)

    assert world.run(20, is_known)
    assert everybody_has(world, keys(1, 2, 3))
    other = follower_of(world)
    if other is not moved:
        assert other.running.address(moved.node) == elsewhere


def test_only_a_voter_is_updated() -> None:
    world = grown()
    leader = leader_of(world)

    def update(voter: Voter, epoch: int | None = None) -> ErrorCode:
        request = UpdateVoter(leader.running.epoch if epoch is None else epoch, voter)
        answer = leader.running.handle_update_voter(request, world.now)
        leader.after_input()
        return answer.error

    one = Voter(1, directory_of(1), (endpoint(1),))
    assert update(one, epoch=0) is ErrorCode.FENCED_LEADER_EPOCH
    assert update(replace(one, directory=directory_of(1, life=2))) is ErrorCode.VOTER_NOT_FOUND
    assert update(Voter(4, directory_of(4), (endpoint(4),))) is ErrorCode.VOTER_NOT_FOUND
    assert update(replace(one, endpoints=())) is ErrorCode.INVALID_REQUEST
    assert update(replace(one, kraft_versions=(2, 1))) is ErrorCode.INVALID_REQUEST
    assert update(replace(one, kraft_versions=(0, 0))) is ErrorCode.INVALID_REQUEST
    end = leader.running.journal.log_end
    assert update(one) is ErrorCode.NONE
    assert leader.running.journal.log_end == end, "nothing to write"


def test_voters_outlive_restarts_and_checkpoints() -> None:
    world = grown()
    leader = leader_of(world)
    answer_of(world, world.add(leader, world.hosts[4]))
    gone = follower_of(world)
    assert answer_of(world, world.remove(leader, gone.key)) == DONE
    expected = sorted([*(k for k in keys(1, 2, 3) if k != gone.key), *keys(4)])
    assert world.run(2, lambda: everybody_has(world, expected))
    world.snapshot(leader, [NoOpRecord()])
    for host in world.hosts.values():
        host.crash(power_loss=True)
    for host in world.hosts.values():
        host.start()
    world.elect()
    assert world.run(5, lambda: everybody_has(world, expected))


def test_an_observer_without_a_log_gets_the_voters_with_a_checkpoint() -> None:
    world = grown(3, 0)
    leader, gone = leader_of(world), follower_of(world)
    assert answer_of(world, world.remove(leader, gone.key)) == DONE
    commit(world)
    world.snapshot(leader, [NoOpRecord()])
    gone.crash(power_loss=False)
    gone.replace_disk()
    gone.start()
    assert world.run(5, lambda: gone.running.high_watermark > 0)
    assert voters_of(gone) == voters_of(leader)


def test_a_fetch_under_the_id_of_a_voter_with_another_directory_observes() -> None:
    world = grown()
    leader = leader_of(world)
    raft = leader.running
    stranger = ReplicaKey(follower_of(world).node, directory_of(99))
    end = raft.journal.log_end
    raft.handle_fetch(Fetch(stranger, raft.epoch, end, raft.epoch, -1, 500, 1 << 20), world.now)
    assert raft.leader_state is not None and stranger in raft.leader_state.observers


def test_a_request_to_remove_that_comes_twice_finds_nobody_the_second_time() -> None:
    world = grown()
    leader, gone = leader_of(world), follower_of(world)
    assert answer_of(world, world.change(leader, RemoveVoter(gone.key))) == DONE
    again = answer_of(world, world.change(leader, RemoveVoter(gone.key)))
    assert again.error is ErrorCode.VOTER_NOT_FOUND
