"""Static voters have no directory ids: one whose disk was replaced must not pass for one that knows."""

from __future__ import annotations

import pytest
from raft_world import ROOT, World

from ottla.raft.election_state import QuorumStateFile
from ottla.raft.messages import LogPosition, Vote
from ottla.raft.voters import ReplicaKey


def start(world: World) -> None:
    """One shortly after the other, as processes do: the first finds the ports of the others closed."""
    for host in world.hosts.values():
        host.start()
        world.run(0.005)


def grown(seed: int = 0, voters: int = 3) -> World:
    world = World(voters, seed=seed, static=True)
    start(world)
    world.elect()
    everybody = list(world.hosts.values())
    assert world.run(2, lambda: not any(host.running.is_newborn for host in everybody))
    return world


@pytest.mark.parametrize("seed", range(10))
def test_a_new_cluster_whose_voters_start_together_elects_in_less_than_a_second(seed: int) -> None:
    world = World(3, seed=seed, static=True)
    start(world)
    world.elect()
    assert world.now < 1.0


def test_a_single_static_voter_leads_at_once() -> None:
    world = World(1, static=True)
    start(world)
    world.run(0.1)
    assert world.leader() is not None


def test_a_new_clusters_first_election_waits_for_its_last_voter() -> None:
    world = World(3, static=True)
    world.hosts[1].start()
    world.hosts[2].start()
    world.run(30)
    assert world.leader() is None and world.hosts[1].running.epoch == 0
    world.hosts[3].start()
    began = world.now
    world.elect()
    assert world.now - began < 1.0


def test_later_elections_need_a_majority_only() -> None:
    world = grown()
    for host in world.hosts.values():
        host.crash(power_loss=True)
    world.hosts[2].start()
    world.hosts[3].start()
    world.elect()


def test_voters_that_once_knew_all_others_to_be_new_need_not_hear_it_again_after_a_crash() -> None:
    world = World(3, static=True)
    start(world)
    everybody = list(world.hosts.values())
    assert world.run(2, lambda: sum(not host.running.is_newborn for host in everybody) >= 2)
    assert all(host.running.epoch == 0 for host in everybody), "before any election"
    known = [host for host in everybody if not host.running.is_newborn]
    for host in everybody:
        host.crash(power_loss=True)
    for host in known:
        host.start()
    world.elect()


def test_a_newborn_grants_neither_votes_nor_pre_votes() -> None:
    world = World(3, static=True)
    host = world.hosts[2]
    host.start()
    for pre_vote in (True, False):
        asked = Vote(7, ReplicaKey(3, None), ReplicaKey(2, None), LogPosition(6, 100), pre_vote)
        assert not host.running.handle_vote(asked, world.now).granted
    world.run(30)
    assert host.running.epoch == 7 and host.running.is_newborn, "nor does it stand itself"
    host.crash(power_loss=True)
    host.start()
    assert host.running.is_newborn, "an epoch on its disk does not make it one that knows"


@pytest.mark.parametrize("seed", range(10))
def test_a_replaced_disk_and_a_voter_that_was_away_do_not_elect_without_what_is_committed(
    seed: int,
) -> None:
    world = grown(seed)
    away, replaced, knowing = world.hosts[3], world.hosts[2], world.hosts[1]
    away.crash(power_loss=False)
    leader = world.elect()
    offset = world.append(leader, b"a topic")
    assert world.run(2, lambda: leader.running.high_watermark > offset)
    replaced.crash(power_loss=False)
    knowing.crash(power_loss=False)
    replaced.replace_disk()
    replaced.start()
    away.start()
    world.run(30)
    assert world.leader() is None, "the two know too little"
    knowing.start()
    assert world.elect() is knowing
    assert world.run(5, lambda: not replaced.running.is_newborn), "it has caught up"
    assert replaced.running.high_watermark > offset
    knowing.crash(power_loss=False)
    world.elect()


def test_a_newborn_that_has_only_a_part_of_what_is_committed_stays_one_over_a_restart() -> None:
    world = grown()
    replaced = next(host for host in world.hosts.values() if host is not world.leader())
    replaced.crash(power_loss=False)
    leader = world.elect()
    for _ in range(20):
        world.append(leader, b"x" * 900_000)
    assert world.run(5, lambda: leader.running.high_watermark >= 20)
    replaced.replace_disk()
    replaced.start()
    assert world.run(5, lambda: replaced.running.journal.flushed_end > 0)
    assert replaced.running.is_newborn
    replaced.crash(power_loss=True)
    assert QuorumStateFile(replaced.disk, f"{ROOT}/__cluster_metadata-0").read().is_newborn
    replaced.start()
    assert replaced.running.is_newborn
    assert world.run(5, lambda: not replaced.running.is_newborn)
    assert replaced.running.high_watermark >= 20


@pytest.mark.parametrize("seed", range(10))
def test_a_replaced_disk_does_not_help_an_overruled_leader_to_commit(seed: int) -> None:
    """What the two others decided in a newer epoch stands, though one of them has forgotten it."""
    world = grown(seed)
    overruled = world.elect()
    replaced, knowing = (host for host in world.hosts.values() if host is not overruled)
    world.isolate(overruled.node)
    for host in (replaced, knowing):
        host.running.peer_disconnected(overruled.node, world.now)
        host.after_input()
    newer = overruled.running.epoch + 1
    assert world.run(1, lambda: any(h.running.is_established for h in (replaced, knowing)))
    decided = world.append(world.elect(), b"decided")
    assert world.run(1, lambda: knowing.running.high_watermark > decided)
    assert overruled.running.is_leader, "it does not know yet"
    world.append(overruled, *[b"overruled"] * 10)
    replaced.crash(power_loss=True)
    replaced.replace_disk()
    world.heal()
    world.isolate(knowing.node)
    replaced.start()
    world.run(30)  # the world fails when something else is committed
    assert overruled.running.high_watermark <= decided
    world.heal()
    assert world.elect().running.epoch >= newer
    assert world.run(5, lambda: not replaced.running.is_newborn)
