"""From static voters to voters in the log (kraft.version 0 to 1, KIP-853): who has to have said what, and what counts then."""

from __future__ import annotations

import random

import pytest
from raft_world import ROOT, Host, World, directory_of, endpoint

from ottla.raft.journal import Journal
from ottla.raft.messages import AddVoter, UpdateVoter, VoterChangeAnswer
from ottla.raft.voters import QuorumEndpoint, ReplicaKey, Voter
from ottla.wire.errors import ErrorCode, KafkaError


def static(voters: int = 3, controllers: int = 0, *, seed: int = 0) -> World:
    """Static voters, all of which have told their leader of themselves."""
    world = World(voters, controllers=controllers, seed=seed, static=True)
    world.start()
    leader = world.elect()
    world.append(leader, b"first")
    world.run(10.0)
    return world


def leader_of(world: World) -> Host:
    leader = world.leader()
    assert leader is not None
    return leader


def followers_of(world: World) -> list[Host]:
    return [host for host in world.hosts.values() if host.is_voter and host is not leader_of(world)]


def upgrade(world: World) -> None:
    leader = leader_of(world)
    leader.running.upgrade_kraft_version(1, world.now)
    leader.after_input()


def keys_of(host: Host) -> list[ReplicaKey]:
    return [voter.key for voter in host.running.journal.voters.voters]


def keys(*nodes: int) -> list[ReplicaKey]:
    return [ReplicaKey(node, directory_of(node)) for node in nodes]


def has_committed(world: World, host: Host) -> bool:
    raft = host.running
    return raft.kraft_version == 1 and raft.journal.voters_are_committed


@pytest.mark.parametrize("voters", [1, 2, 3, 5])
def test_static_voters_become_voters_of_the_log(voters: int) -> None:
    world = static(voters)
    assert leader_of(world).running.kraft_version == 0
    upgrade(world)
    everybody = world.hosts.values()
    assert world.run(5, lambda: all(has_committed(world, host) for host in everybody))
    assert all(keys_of(host) == keys(*range(1, voters + 1)) for host in everybody)


def test_an_upgraded_quorum_adds_removes_and_replaces_voters() -> None:
    world = static(3, 1)
    before = world.add(leader_of(world), world.hosts[4])
    assert before.answer is not None and before.answer.error is ErrorCode.UNSUPPORTED_VERSION
    upgrade(world)
    world.run(5)
    added = world.add(leader_of(world), world.hosts[4])
    assert world.run(5, lambda: added.answer == VoterChangeAnswer(ErrorCode.NONE))
    removed = world.remove(leader_of(world), followers_of(world)[0].key)
    assert world.run(5, lambda: removed.answer == VoterChangeAnswer(ErrorCode.NONE))
    replaced = followers_of(world)[1]
    replaced.crash(power_loss=True)
    former = replaced.key
    replaced.replace_disk()
    replaced.start()
    world.run(5)
    assert not replaced.running.is_voter, "it has another disk than the log says"
    world.remove(leader_of(world), former)
    world.run(5)
    again = world.add(leader_of(world), replaced)
    assert world.run(5, lambda: again.answer == VoterChangeAnswer(ErrorCode.NONE))
    assert world.run(5, lambda: replaced.running.has_vote)


def test_nobody_upgrades_before_all_voters_have_said_which_disk_they_have() -> None:
    world = static()
    silent = followers_of(world)[0]
    silent.crash(power_loss=False)
    former = leader_of(world)
    former.running.resign(world.now)
    former.after_input()
    assert world.run(30, lambda: world.leader() not in (None, former))
    world.run(10)
    leader = leader_of(world)
    with pytest.raises(KafkaError, match=rf"not all of the voters support it.*\[{silent.node}\]"):
        leader.running.upgrade_kraft_version(1, world.now)
    assert leader.running.kraft_version == 0
    silent.start()
    world.run(10)
    upgrade(world)
    assert world.run(5, lambda: has_committed(world, silent))


def test_a_voter_that_supports_no_more_is_not_left_behind() -> None:
    world = static()
    leader, old = leader_of(world), followers_of(world)[0]
    voter = Voter(old.node, old.key.directory, (endpoint(old.node),), (0, 0))
    said = leader.running.handle_update_voter(UpdateVoter(leader.running.epoch, voter), world.now)
    assert said.error is ErrorCode.NONE
    with pytest.raises(KafkaError, match="not all of the voters support it"):
        leader.running.check_kraft_version(1)


def test_only_the_leader_upgrades() -> None:
    world = static()
    with pytest.raises(KafkaError) as refused:
        followers_of(world)[0].running.check_kraft_version(1)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


def test_what_is_upgraded_is_not_upgraded_again() -> None:
    world = static()
    upgrade(world)
    end = leader_of(world).running.journal.log_end
    upgrade(world)
    assert leader_of(world).running.journal.log_end == end


def test_a_stranger_is_no_voter_because_it_says_so() -> None:
    world = static(3, 1)
    leader = leader_of(world)
    stranger = Voter(4, directory_of(4), (endpoint(4),))
    said = leader.running.handle_update_voter(
        UpdateVoter(leader.running.epoch, stranger), world.now
    )
    assert said.error is ErrorCode.VOTER_NOT_FOUND


def test_the_log_says_where_a_voter_listens_not_the_settings() -> None:
    world = static()
    moved = followers_of(world)[0]
    moved.crash(power_loss=False)
    moved.endpoint = QuorumEndpoint("CONTROLLER", f"host{moved.node}", 9999)
    moved.start()
    world.run(10)
    upgrade(world)
    voter = leader_of(world).running.journal.voters.get(moved.node)
    assert voter is not None and voter.endpoints == (moved.endpoint,)


def test_a_disk_replaced_before_the_upgrade_is_the_one_that_counts() -> None:
    world = static()
    replaced = followers_of(world)[0]
    replaced.crash(power_loss=True)
    replaced.replace_disk()
    replaced.start()
    world.run(20)
    upgrade(world)
    assert world.run(5, lambda: has_committed(world, replaced))
    assert replaced.running.has_vote and replaced.key in keys_of(leader_of(world))


def test_what_another_disk_fetched_counts_for_no_voter() -> None:
    """The voter's disk is replaced, and it fetches with the new one. If the upgrade names the old one, what the new one has
    must not be counted: it votes no more."""
    world = static()
    replaced = followers_of(world)[0]
    former = replaced.key
    replaced.crash(power_loss=True)
    replaced.replace_disk()
    replaced.start()
    world.run(20)
    leader = leader_of(world)
    voter = Voter(former.id, former.directory, (endpoint(former.id),))
    leader.running.handle_update_voter(UpdateVoter(leader.running.epoch, voter), world.now)
    upgrade(world)
    assert former in keys_of(leader)
    counted = leader.running.leader_state
    assert counted is not None and counted.voters[former.id].end_offset is None
    assert world.run(5, lambda: has_committed(world, leader)), "the other follower has it"


def test_an_upgrade_that_is_truncated_leaves_static_voters() -> None:
    world = static()
    leader = leader_of(world)
    world.isolate(leader.node)
    upgrade(world)
    assert leader.running.kraft_version == 1
    assert world.run(30, lambda: world.leader() not in (None, leader))
    world.append(leader_of(world), b"of the next leader")
    world.heal()
    assert world.run(30, lambda: leader.running.leader == leader_of(world).node)
    assert world.run(10, lambda: leader.running.kraft_version == 0)
    world.run(10)
    upgrade(world)
    assert world.run(5, lambda: has_committed(world, leader))


def test_an_upgrade_that_a_checkpoint_replaces_leaves_static_voters() -> None:
    """As above, but the leader that wrote it returns too late to truncate: it gets a checkpoint, and there are no voters in that.
    Otherwise it would add voters that the others do not know, and there were two quorums."""
    world = static()
    old = leader_of(world)
    world.isolate(old.node)
    upgrade(world)
    assert world.run(30, lambda: world.leader() not in (None, old))
    leader = leader_of(world)
    world.append(leader, *[b"of the next leader"] * 20)
    world.run(2)
    world.snapshot(leader, [])
    world.append(leader, b"so that the first checkpoint is not the last record")
    world.run(2)
    world.snapshot(leader, [])
    assert leader.running.journal.log_start > old.running.journal.log_end
    world.heal()
    assert world.run(60, lambda: old.running.high_watermark == leader.running.high_watermark)
    assert old.running.kraft_version == 0
    assert keys_of(old) == keys_of(leader)


def test_a_voter_that_restarts_believes_its_log_and_not_its_settings() -> None:
    world = static()
    upgrade(world)
    world.run(5)
    for host in world.hosts.values():
        host.crash(power_loss=True)
    for host in world.hosts.values():
        host.start()
    world.elect()
    assert all(host.running.kraft_version == 1 for host in world.hosts.values())
    journal = Journal.open(
        world.hosts[1].disk, ROOT, static_voters=world.voters, now_ms=world.wall_ms()
    )
    assert [voter.key for voter in journal.voters.voters] == keys(1, 2, 3)


def test_static_voters_change_in_no_other_way() -> None:
    world = static(3, 1)
    change = leader_of(world).running.handle_voter_change(
        AddVoter(Voter(4, directory_of(4), (endpoint(4),)), 1.0, ack_when_committed=True), world.now
    )
    assert change.answer is not None and change.answer.error is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("seed", range(25))
def test_upgrades_between_crashes_and_cuts_lose_nothing(seed: int) -> None:
    """The world checks M1 to M4 and M7 after every step."""
    chance = random.Random(seed)
    world = World(3, controllers=1, seed=seed, static=True, drop=0.02, replay=0.02)
    world.start()
    world.elect()
    for step in range(60):
        world.run(chance.random() * 2)
        leader = world.leader()
        host = world.hosts[chance.randint(1, 3)]
        what = chance.random()
        if leader is not None and leader.raft is not None and what < 0.3:
            world.append(leader, f"{step}".encode())
        elif leader is not None and leader.raft is not None and what < 0.5:
            try:
                leader.running.upgrade_kraft_version(1, world.now)
            except KafkaError:
                continue
            leader.after_input()
        elif what < 0.65:
            world.isolate(host.node)
        elif what < 0.8:
            world.heal()
        elif host.raft is None:
            host.start()
        elif all(other.raft is not None for other in world.hosts.values()):
            host.crash(power_loss=chance.random() < 0.5)
    world.heal()
    for host in world.hosts.values():
        if host.raft is None:
            host.start()
    world.run(30)
    upgrade(world)
    assert world.run(20, lambda: all(has_committed(world, each) for each in world.hosts.values()))
