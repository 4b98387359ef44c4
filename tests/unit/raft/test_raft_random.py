"""Random life of a quorum: drops, delays, partitions, crashes with lost tails. The world checks M1 to M4 at
every step; here, that the quorum also gets over it."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from raft_world import Host, World

from ottla.metadata.records import NoOpRecord
from ottla.raft.roles import Timing
from ottla.wire.errors import KafkaError

SEEDS_PER_TEST = 40
TIMING = Timing(
    election_timeout=0.1, fetch_timeout=0.2, election_backoff_max=0.1, fetch_wait_ms_max=50
)


def disturb(world: World, chance: random.Random) -> None:
    """One thing that goes wrong, or comes back."""
    hosts = list(world.hosts.values())
    up = [host for host in hosts if host.raft is not None]
    down = [host for host in hosts if host.raft is None]
    match chance.choice(["crash", "power", "start", "start", "cut", "one-way", "heal", "snapshot"]):
        case "crash" if up:
            chance.choice(up).crash(power_loss=False)
        case "power" if up:
            chance.choice(up).crash(power_loss=True)
        case "start" if down:
            chance.choice(down).start()
        case "cut":
            world.isolate(chance.choice(hosts).node)
        case "one-way" if len(hosts) > 1:
            one, other = chance.sample(sorted(world.hosts), 2)
            world.cut.add((one, other))
        case "heal":
            world.heal()
        case "snapshot" if up:
            snapshot(world, chance.choice(up))


def snapshot(world: World, host: Host) -> None:
    journal = host.running.journal
    latest = journal.snapshots.latest
    if journal.high_watermark > (latest.end_offset if latest is not None else 0):
        world.snapshot(host, [NoOpRecord()])
        host.after_input()


def append_somewhere(world: World, chance: random.Random, number: int) -> None:
    leading = [h for h in world.hosts.values() if h.raft is not None and h.raft.is_leader]
    if leading:
        world.append(chance.choice(leading), f"record {number}".encode())


def live(seed: int) -> World:
    chance = random.Random(seed)
    world = World(
        chance.choice([1, 3, 3, 3, 4, 5]),
        chance.choice([0, 1]),
        seed=seed,
        drop=chance.choice([0.0, 0.0, 0.05, 0.2]),
        replay=chance.choice([0.0, 0.0, 0.1]),
        delay=chance.choice([0.001, 0.005, 0.02]),
        timing=TIMING,
    )
    world.start()
    for number in range(25):
        world.run(chance.choice([0.01, 0.05, 0.2]))
        append_somewhere(world, chance, number)
        if chance.random() < 0.6:
            disturb(world, chance)
    return world


def change_voters(world: World, chance: random.Random) -> None:
    """Whoever believes to lead is asked for some change. The disks of voters stay, so that the quorum can recover."""
    leading = [h for h in world.hosts.values() if h.raft is not None and h.raft.is_leader]
    if not leading:
        return
    leader = chance.choice(leading)
    voters = leader.running.journal.voters
    others = [h for h in world.hosts.values() if h.endpoint is not None and not voters.has(h.key)]
    if others and chance.random() < 0.6:
        world.add(leader, chance.choice(others))
    elif len(voters.voters) > 1:
        world.remove(leader, chance.choice(voters.voters).key)


def change(seed: int) -> World:
    """As `live`, with voters that come and go."""
    chance = random.Random(f"{seed}/voters")
    world = World(
        chance.choice([1, 2, 3, 3, 4]),
        controllers=chance.choice([1, 2]),
        seed=seed,
        drop=chance.choice([0.0, 0.0, 0.05]),
        replay=chance.choice([0.0, 0.1]),
        delay=chance.choice([0.001, 0.005, 0.02]),
        timing=TIMING._replace(change_timeout=chance.choice([0.1, 1.0])),
    )
    for host in world.hosts.values():
        host.may_join = host.endpoint is not None and chance.random() < 0.1
    world.start()
    for number in range(30):
        world.run(chance.choice([0.01, 0.05, 0.2]))
        append_somewhere(world, chance, number)
        if chance.random() < 0.5:
            change_voters(world, chance)
        if chance.random() < 0.4:
            disturb(world, chance)
    return world


def upgrade(seed: int) -> World:
    """As `live`, with static voters that somebody makes voters of the log, also where that is lost again."""
    chance = random.Random(f"{seed}/upgrade")
    world = World(3, 1, seed=seed, delay=chance.choice([0.001, 0.02]), timing=TIMING, static=True)
    world.start()
    for number in range(30):
        world.run(chance.choice([0.05, 0.2, 0.5]))
        append_somewhere(world, chance, number)
        leading = [h for h in world.hosts.values() if h.raft is not None and h.raft.is_leader]
        if leading and chance.random() < 0.4:
            host = chance.choice(leading)
            if chance.random() < 0.5:
                world.isolate(host.node)
            with suppress(KafkaError):  # not all voters have said which disk they have
                host.running.upgrade_kraft_version(1, world.now)
                host.after_input()
        if chance.random() < 0.6:
            disturb(world, chance)
    return world


def recover(world: World) -> None:
    """Everything is mended: one leader, one log, everywhere."""
    world.heal()
    world.drop = world.replay = 0.0
    for host in world.hosts.values():
        if host.raft is None:
            host.start()
    leader = world.elect()
    end = world.append(leader, b"last") + 1

    def done() -> bool:
        now_leading = world.leader()
        return now_leading is not None and all(
            host.running.high_watermark >= end and host.running.leader == now_leading.node
            for host in world.hosts.values()
        )

    if not world.run(10, done):  # its leader may have lost that very record
        end = world.append(world.elect(), b"again") + 1
        assert world.run(10, done), [str(h.running.role) for h in world.hosts.values()]


@pytest.mark.parametrize("group", range(5))
def test_M1_M2_M3_M4_hold_and_the_quorum_recovers_whatever_happens(group: int) -> None:
    for seed in range(group * SEEDS_PER_TEST, (group + 1) * SEEDS_PER_TEST):
        try:
            recover(live(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("group", range(5))
def test_M7_voters_change_one_at_a_time_and_the_quorum_recovers_whatever_happens(
    group: int,
) -> None:
    for seed in range(group * SEEDS_PER_TEST, (group + 1) * SEEDS_PER_TEST):
        try:
            recover(change(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("group", range(5))
def test_M7_static_voters_become_voters_of_the_log_everywhere_or_nowhere(group: int) -> None:
    for seed in range(group * SEEDS_PER_TEST, (group + 1) * SEEDS_PER_TEST):
        try:
            recover(upgrade(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_the_same_seed_gives_the_same_story() -> None:
    def story(seed: int) -> list[str]:
        return [f"{when:.9f} {node} {event}" for when, node, event in live(seed).events]

    assert story(3) == story(3)
    assert story(3) != story(4)
